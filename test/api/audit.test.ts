/** The audit log of a real daemon: changes and refusals of keys, tokens and handlers, and who may read them. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { type Answer, Daemon, eventually } from "../support/daemon.ts";

const SECRET = "audit-secret-0123456789";

const daemon = new Daemon();
type As = (method: string, path: string, body?: unknown) => Promise<Answer>;
type Entry = Readonly<Record<string, string | number | null>>;

const as =
  (key: string): As =>
  (method, path, body) =>
    daemon.call(method, path, body, { "x-api-key": key });

async function makeTenant(name: string) {
  const { body: tenant } = await daemon.call("POST", "/api/tenants", { name });
  const { body: key } = await daemon.call("POST", `/api/tenants/${tenant.tenant_id}/api-keys`, { name: "first" });
  return { tenant_id: tenant.tenant_id as string, key_id: key.id as string, key: key.key as string, call: as(key.key) };
}

const entriesOf = async (call: As, query = ""): Promise<readonly Entry[]> =>
  (await call("GET", `/api/audit${query}`)).body.entries;

beforeAll(() => daemon.start({ HEARTH_CELLS: "1" }));
afterAll(() => daemon.dispose());

describe("GET /api/audit", () => {
  it("tells who changed what from where, and what was refused, without secrets", async () => {
    const { tenant_id, key_id, call } = await makeTenant("watched");
    const { body: reader } = await call("POST", "/api/api-keys", { name: "reader", scopes: ["read"] });
    const fields = { name: "kept", handler: `echo ${SECRET}; cat`, environment: { TOKEN: SECRET } };
    const { body: made } = await call("POST", "/api/functions", fields);
    await call("POST", `/api/functions/${made.id}/deploy`);
    expect((await call("POST", "/api/functions/invoke/kept", { payload: SECRET })).status).toBe(200);
    expect((await as(reader.key)("DELETE", `/api/functions/${made.id}?force=${SECRET}`)).status).toBe(403);
    expect((await as(reader.key)("POST", "/api/functions/invoke/kept", { payload: SECRET })).status).toBe(403);
    expect((await call("GET", "/api/functions/fn_0000000000000000")).status).toBe(404);
    await call("DELETE", `/api/functions/${made.id}`);
    const entries = await entriesOf(call);
    const own = { tenant_id, credential: "key", address: "127.0.0.1", suppressed_count: 0 };
    const first = { ...own, key_id, key_name: "first" };
    const read = { ...own, key_id: reader.id, key_name: "reader" };
    expect(entries).toMatchObject([
      { ...first, operation: "deleteFunction", target: made.id, status: 200, result: "success", error_code: null },
      { ...first, operation: "getFunction", target: "fn_0000000000000000", status: 404, error_code: "NOT_FOUND" },
      { ...read, operation: "invokeFunctionByName", target: "kept", status: 403, error_code: "FORBIDDEN" },
      { ...read, operation: "deleteFunction", target: made.id, status: 403, result: "refused" },
      { ...first, operation: "deployFunction", target: made.id, status: 200 },
      { ...first, operation: "createFunction", method: "POST", route: "/api/functions", target: made.id, status: 201 },
      { ...first, operation: "createKey", target: reader.id, status: 201 },
    ]);
    expect(entries.map(({ request_id }) => request_id).every((id) => String(id).startsWith("req_"))).toBe(true);
    const text = JSON.stringify(entries);
    for (const secret of [SECRET, reader.key, reader.key.split("_")[2]]) expect(text).not.toContain(secret);
    const ofReader = await entriesOf(call, `?key_id=${reader.id}&result=refused&limit=1`);
    expect(ofReader).toHaveLength(1);
    expect(await entriesOf(call, `?target=${made.id}&route=/api/functions/:function_id/deploy`)).toHaveLength(1);
  });

  it("shows a tenant its own entries, and the operator all, refusals of unknown keys too", async () => {
    const [one, other] = [await makeTenant("one"), await makeTenant("other")];
    const { body: made } = await one.call("POST", "/api/functions", { name: "hidden", handler: "cat" });
    expect((await other.call("DELETE", `/api/functions/${made.id}`)).status).toBe(404);
    expect((await as("hk_nobody_00000000000000000000")("GET", "/api/functions")).status).toBe(401);
    const tenants = async (call: As, query = "") => [
      ...new Set((await entriesOf(call, query)).map(({ tenant_id }) => tenant_id)),
    ];
    expect(await tenants(one.call)).toEqual([one.tenant_id]);
    expect((await entriesOf(one.call)).some(({ operation }) => operation === "deleteFunction")).toBe(false);
    expect(await entriesOf(other.call)).toMatchObject([{ operation: "deleteFunction", target: made.id, status: 404 }]);
    expect(await other.call("GET", `/api/audit?tenant_id=${one.tenant_id}`)).toMatchObject({ status: 403 });
    const all = await tenants(daemon.call.bind(daemon));
    expect(all).toEqual(expect.arrayContaining([one.tenant_id, other.tenant_id, "default", null]));
    expect(await tenants(daemon.call.bind(daemon), `?tenant_id=${other.tenant_id}`)).toEqual([other.tenant_id]);
    const { body: weak } = await one.call("POST", "/api/api-keys", { name: "w", scopes: ["read", "invoke", "write"] });
    expect((await as(weak.key)("GET", "/api/audit")).status).toBe(403);
  });

  it("records the calls of a handler with its invocation and its instance's address", async () => {
    const handler =
      'curl -s -o /dev/null -w %{http_code} -X POST -H "X-Api-Key: $HEARTH_KEY" $HEARTH_URL/api/functions -d "{}"';
    await daemon.deploy({ name: "calls", handler, api_access: true });
    const { stdout, invocation_id } = await daemon.invoke("calls");
    expect(stdout).toBe("422");
    const [entry] = await entriesOf(daemon.call.bind(daemon), `?key_id=${invocation_id}`);
    expect(entry).toMatchObject({ credential: "invocation", tenant_id: "default", operation: "createFunction" });
    expect(String(entry?.address)).toMatch(/^10\./);
  });

  it("names what was created as its target", async () => {
    const { call } = await makeTenant("makes");
    const { body: volume } = await call("POST", "/api/volumes", { name: "data" });
    const { body: container } = await call("POST", "/api/containers", { name: "box", image: "prod" });
    expect((await call("DELETE", `/api/containers/${container.container_id}`)).status).toBe(200);
    const found = (await entriesOf(call)).map(({ operation, target }) => [operation, target]);
    expect(found).toEqual([
      ["deleteContainer", container.container_id],
      ["createContainer", container.container_id],
      ["createVolume", volume.id],
    ]);
  });

  it("tells who sent which command to which container, and who granted what", async () => {
    const { call, key_id } = await makeTenant("commands");
    const create = async (name: string): Promise<string> =>
      (await call("POST", "/api/containers", { name })).body.container_id;
    const [a, b] = [await create("a"), await create("b")];
    const sender = { method: "SEND", credential: "key", key_id, address: "127.0.0.1", status: 200, result: "success" };
    const sentTo = async (target: string) =>
      (await entriesOf(call, `?target=${target}&route=icc`)).map(({ operation, ...rest }) => ({ operation, ...rest }));
    const argv = { argv: ["true"] };
    const asked = { to: "b", type: "exec_command", payload: argv, timeout_ms: 20_000 };
    const { msg_id } = (await call("POST", "/api/icc/request", asked)).body;
    expect(await sentTo(b)).toMatchObject([{ ...sender, operation: "exec_command", target: b, request_id: msg_id }]);
    // A message that is sent again is no other command.
    await call("POST", "/api/icc/messages", { ...asked, timeout_ms: undefined, msg_id });
    await call("POST", "/api/icc/messages", { to: "b", type: "note", payload: 1 });
    expect(await sentTo(b)).toHaveLength(1);
    // By its socket, with a grant.
    const level = { permission_level: "EXECUTE" };
    expect((await call("PUT", `/api/icc/containers/${a}/permission`, level)).status).toBe(200);
    const file = { path: "/tmp/x", content_type: "text/plain", patch: SECRET };
    const body = JSON.stringify({ to: "b", type: "file_patch", payload: file, timeout_ms: 20_000 });
    const curl = ["curl", "-s", "--unix-socket", "/run/hearth/icc.sock", "http://x/v1/request", "-d", body];
    const { stdout } = (await call("POST", `/api/containers/${a}/exec`, { command: curl })).body;
    expect(JSON.parse(stdout).payload.status).toBe("APPLIED");
    const own = {
      method: "SEND",
      credential: "container",
      key_id: a,
      address: null,
      operation: "file_patch",
      target: b,
    };
    expect(await sentTo(b)).toMatchObject([own, sender]);
    expect(await entriesOf(call, `?target=${a}`)).toMatchObject([
      { operation: "execInContainer" },
      { operation: "setMessagePermission", key_id, credential: "key" },
      { operation: "createContainer" },
    ]);
    // Broadcasts and replays have an entry for each container.
    const broadcast = await call("POST", "/api/icc/exec/broadcast", {
      command: ["true"],
      targets: { container_ids: ["a", b, "none"] },
    });
    expect(broadcast.body).toMatchObject({ succeeded: 2, failed: 1 });
    const commanded = { ...sender, operation: "exec_broadcast" };
    expect(await sentTo(a)).toMatchObject([{ ...commanded, target: a }]);
    expect(await sentTo(b)).toMatchObject([{ ...commanded, target: b }, own, sender]);
    const again = await call("POST", "/api/icc/replay", { container_id: "b", state: "acked", limit: 1 });
    expect(again.body).toMatchObject({ replayed: 1 });
    const replayed = { ...sender, operation: "exec_command", request_id: again.body.messages[0].msg_id };
    expect((await sentTo(b))[0]).toMatchObject(replayed);
    const bad = { ...asked, payload: { argv: [] } };
    expect((await call("POST", "/api/icc/request", bad)).body.reply.payload.status).toBe("REJECTED");
    const letter = await eventually("a dead letter", async () => (await call("GET", "/api/icc/dlq")).body.messages[0]);
    const { body: dead } = await call("POST", `/api/icc/dlq/${letter.stream_seq}/replay`, { replay_to_container: "a" });
    expect((await sentTo(a))[0]).toMatchObject({ ...sender, operation: "exec_command", request_id: dead.msg_id });
    expect(JSON.stringify(await entriesOf(call))).not.toContain(SECRET);
  });

  it("exports as NDJSON what its pages have, and keeps it across a kill of the daemon", async () => {
    const { call, key } = await makeTenant("exported");
    for (let i = 0; i < 5; i++) await call("POST", "/api/functions", { name: `f${i}`, handler: "cat" });
    const paged: Entry[] = [];
    for (let query = "?limit=2"; query !== ""; ) {
      const { body } = await call("GET", `/api/audit${query}`);
      paged.push(...body.entries);
      query = body.next_cursor === null ? "" : `?limit=2&cursor=${body.next_cursor}`;
    }
    expect(paged).toHaveLength(5);
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "1" });
    const streamed = async (headers: Record<string, string>, query = "") => {
      const answer = await fetch(`${daemon.url}/api/audit${query}`, { headers: { "x-api-key": key, ...headers } });
      expect(answer.headers.get("content-type")).toBe("application/x-ndjson");
      return (await answer.text()).trimEnd().split("\n");
    };
    for (const lines of [await streamed({ accept: "application/x-ndjson" }), await streamed({}, "?format=ndjson")]) {
      expect(lines.map((line) => JSON.parse(line))).toEqual(paged);
    }
    const commands = new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: key });
    try {
      const shown = await commands.run(["audit", "--since", "1h", "--result", "success"]);
      expect(shown.out.split("\n").filter((line) => line.includes("createFunction"))).toHaveLength(5);
      const exported = await commands.run(["audit", "--ndjson"]);
      expect(
        exported.out
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line)),
      ).toEqual(paged);
    } finally {
      commands.dispose();
    }
  });
});
