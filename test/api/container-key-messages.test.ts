/** Messages through keys of containers: they send as their container and read its inbox, and reach nothing else. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon } from "../support/daemon.ts";
import { makeTenant, type Tenant } from "../support/tenancy.ts";

const daemon = new Daemon();
const asKey = (key: string) => ({ "x-api-key": key });

interface World {
  readonly tenant: Tenant;
  readonly own: { readonly container_id: string; readonly name: string; readonly key: string };
  readonly token: string;
}
const state: { world: World | null } = { world: null };
const world = (): World => {
  if (state.world === null) throw new Error("not there yet");
  return state.world;
};

async function ok(key: string, method: string, path: string, body?: unknown) {
  const answer = await daemon.call(method, path, body, asKey(key));
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  const tenant = await makeTenant(daemon, "qzalpha");
  const name = "qzown";
  const { container_id } = await ok(tenant.key, "POST", "/api/containers", { name });
  const asked = { name: "own", scopes: ["read", "invoke", "write"] };
  const { key } = await ok(tenant.key, "POST", `/api/containers/${container_id}/api-keys`, asked);
  const { access_token: token } = await ok(key, "POST", "/api/auth/token", {});
  state.world = { tenant, own: { container_id, name, key }, token };
});
afterAll(() => daemon.dispose());

describe("messages of a key of a container", () => {
  const to = (container_id: string) => `/api/containers/${container_id}/icc/publish`;
  const message = { type: "note", payload: { n: 1 } };
  const told = async (key: string, method: string, path: string, body?: unknown) => {
    const { status, body: answer } = await daemon.call(method, path, body, asKey(key));
    return [status, answer.error_code ?? answer];
  };

  it("are what its container itself may send", async () => {
    const { tenant, own, token } = world();
    const foreign = tenant.ids.container_id;
    for (const credential of [own.key, token]) {
      for (const from of [undefined, own.container_id, own.name]) {
        const sent = await ok(credential, "POST", to(own.name), { to: tenant.ids.name, from, ...message });
        const { messages } = await ok(
          tenant.key,
          "GET",
          `/api/icc/inbox/${foreign}?from_seq=${sent.stream_seq}&include_message=true`,
        );
        expect(messages[0].message).toMatchObject({ from: own.container_id, permission_level: "READ_ONLY" });
      }
      const forged = { to: own.name, from: tenant.ids.name, ...message };
      const { envelope_b64 } = (await ok(tenant.key, "POST", "/api/icc/messages", forged)).stream_seq
        ? (await ok(tenant.key, "GET", `/api/icc/inbox/${own.container_id}`)).messages.at(-1)
        : "";
      const above = { type: "exec_command", payload: { argv: ["true"] } };
      for (const body of [
        forged,
        { ...forged, from: "api" },
        { envelope_b64 },
        { to: tenant.ids.name, ...above },
        { to: own.name, ...above },
        { to: tenant.ids.name, ...message, permission_level: "ADMIN" },
      ]) {
        expect(await told(credential, "POST", to(own.container_id), body)).toEqual([403, "FORBIDDEN"]);
      }
      expect(await told(credential, "POST", to(foreign), { to: own.name, ...message })).toEqual([404, "NOT_FOUND"]);
    }
    const path = `/api/icc/containers/${own.container_id}/permission`;
    expect(await told(own.key, "PUT", path, { permission_level: "FULL" })).toEqual([403, "FORBIDDEN"]);
    expect((await ok(own.key, "GET", path)).permission_level).toBe("READ_ONLY");
  });

  it("are received and acked in its own inbox alone", async () => {
    const { tenant, own } = world();
    const foreign = tenant.ids.container_id;
    for (const to of [own.name, tenant.ids.name, "queue:qzqueue", "topic:qztopic"]) {
      await ok(tenant.key, "POST", "/api/icc/messages", { to, msg_id: "qzeverywhere", ...message });
    }
    for (const inbox of [foreign, tenant.ids.name, "queue:qzqueue", "topic:qztopic", "queue:none"]) {
      const path = `/api/icc/inbox/${encodeURIComponent(inbox)}`;
      expect(await told(own.key, "GET", path)).toEqual([404, "NOT_FOUND"]);
      expect(await told(own.key, "POST", `${path}/receive`, { max: 1 })).toEqual([404, "NOT_FOUND"]);
      expect(await told(own.key, "POST", `${path}/ack`, { msg_id: "qzeverywhere" })).toEqual([404, "NOT_FOUND"]);
      expect(await told(own.key, "POST", "/api/icc/replay", { container_id: inbox })).toEqual([404, "NOT_FOUND"]);
    }
    for (const body of [{ msg_id: "qzeverywhere" }, { msg_id: "qzeverywhere", container_id: own.name }]) {
      expect(await told(own.key, "POST", "/api/icc/ack", body)).toEqual([403, "FORBIDDEN"]);
    }
    const { messages } = await ok(own.key, "POST", `/api/icc/inbox/${own.name}/receive`, { max: 100 });
    expect(messages.map(({ msg_id }: { msg_id: string }) => msg_id)).toContain("qzeverywhere");
    // An inbox in the body cannot lead elsewhere.
    const sneaky = { msg_id: "qzeverywhere", container_id: foreign };
    expect((await told(own.key, "POST", `/api/icc/inbox/${own.name}/ack`, sneaky))[0]).toBe(404);
    const acked = await ok(own.key, "POST", `/api/icc/inbox/${own.name}/ack`, { msg_id: "qzeverywhere" });
    expect(acked).toMatchObject({ container_id: own.container_id, new_state: "acked" });
    const left = await ok(tenant.key, "GET", `/api/icc/inbox/${foreign}?state=unread`);
    expect(left.messages.map(({ msg_id }: { msg_id: string }) => msg_id)).toContain("qzeverywhere");
  });
});
