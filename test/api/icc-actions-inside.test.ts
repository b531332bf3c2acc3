/** Actions that containers send by their own socket, within what a key of the tenant lets them. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, type Leftovers } from "../support/daemon.ts";

const SETTINGS = { HEARTH_CELLS: "0" };
const daemon = new Daemon();
let a = "";
let b = "";
beforeAll(async () => {
  await daemon.start(SETTINGS);
  [a = "", b = ""] = await Promise.all(["sender", "target"].map((name) => create(name)));
});
afterAll(() => daemon.dispose());

async function create(name: string, headers: Record<string, string> = {}): Promise<string> {
  const { status, body } = await daemon.call("POST", "/api/containers", { name }, headers);
  if (status !== 201) throw new Error(JSON.stringify(body));
  return body.container_id;
}
const exec = async (id: string, command: readonly string[]) =>
  (await daemon.call("POST", `/api/containers/${id}/exec`, { command })).body;
const shell = (command: string) => ({ argv: ["sh", "-c", command] });
const grant = async (id: string, permission_level: string) => {
  const { status } = await daemon.call("PUT", `/api/icc/containers/${id}/permission`, { permission_level });
  expect(status).toBe(200);
};
/** Asks the socket of a container, from inside. */
async function inside(id: string, path: string, body: unknown) {
  const socket = ["--unix-socket", "/run/hearth/icc.sock", `http://x${path}`];
  const { stdout } = await exec(id, ["curl", "-s", "-m", "50", "-d", JSON.stringify(body), ...socket]);
  return JSON.parse(stdout);
}
const request = (id: string, to: string, type: string, payload: unknown, rest: object = {}) =>
  inside(id, "/v1/request", { to, type, payload, timeout_ms: 30_000, ...rest });
const unread = async (id: string) => (await daemon.call("GET", `/api/containers/${id}/icc`)).body.unread;
const ACTIONS: readonly (readonly [type: string, payload: object])[] = [
  ["exec_command", shell("touch /tmp/forbidden")],
  ["file_patch", { path: "/tmp/forbidden", content_type: "text/plain", patch: "x" }],
  ["env_patch", { set: { FORBIDDEN: "1" } }],
  ["lifecycle_action", { action: "stop" }],
  ["state_patch", { content_type: "application/merge-patch+json", patch: "{}" }],
];

describe("a container", () => {
  it("without a grant sends no action, whatever level it claims, to others or to itself", async () => {
    for (const [type, payload] of ACTIONS) {
      for (const to of ["target", b, a]) {
        for (const level of [{}, { permission_level: "FULL" }]) {
          const refused = await inside(a, "/v1/messages", { to, type, payload, ...level });
          expect([type, to, refused.error_code]).toEqual([type, to, "FORBIDDEN"]);
          expect(refused.hint).toContain(`PUT /api/icc/containers/${a}/permission`);
        }
        const low = await inside(a, "/v1/messages", { to, type, payload, permission_level: "READ_ONLY" });
        expect([type, low.error_code, low.reason_code]).toEqual([type, "INVALID_ARGUMENT", "PERMISSION_DENIED"]);
      }
    }
    expect((await exec(b, ["ls", "/tmp/forbidden"])).exit_code).not.toBe(0);
    expect([await unread(a), await unread(b)]).toEqual([0, 0]);
  });

  it("with a grant sends those of its level, and gets the outcome", async () => {
    await grant(a, "WRITE_STATE");
    for (const [type, payload] of ACTIONS.slice(0, 3)) {
      expect(await request(a, "target", type, payload), type).toMatchObject({ error_code: "FORBIDDEN" });
      const claimed = await request(a, "target", type, payload, { permission_level: "WRITE_STATE" });
      expect([type, claimed.reason_code]).toEqual([type, "PERMISSION_DENIED"]);
    }
    const state = { content_type: "application/merge-patch+json", patch: "{}" };
    expect((await request(a, "target", "state_patch", state)).payload.status).toBe("APPLIED");
    await grant(a, "EXECUTE");
    expect((await request(a, "target", "env_patch", { set: { GRANTED: "1" } })).payload.status).toBe("APPLIED");
    const reply = await request(a, "target", "exec_command", shell('echo "$GRANTED" > /tmp/granted'));
    expect(reply).toMatchObject({ type: "ack", from: b, payload: { status: "APPLIED" } });
    expect((await exec(b, ["cat", "/tmp/granted"])).stdout).toBe("1\n");
    // Without a request that waits, the outcome is a message like others.
    const sent = await inside(a, "/v1/messages", { to: b, type: "exec_command", payload: shell("exit 7") });
    const { messages } = await inside(a, "/v1/receive", { wait_ms: 20_000 });
    expect(messages).toMatchObject([{ type: "ack", from: b, correlation_id: sent.msg_id }]);
    expect(messages[0].payload.error_message).toMatch(/^exit code 7/);
    await inside(a, "/v1/ack", { msg_id: messages[0].msg_id });
    // A grant is one's own: the target still has none.
    expect(await request(b, a, "exec_command", shell("true"))).toMatchObject({ error_code: "FORBIDDEN" });
  });

  it("gets a level that runs commands by a key that may run them", async () => {
    const path = `/api/icc/containers/${b}/permission`;
    const { key } = (await daemon.call("POST", "/api/api-keys", { name: "w", scopes: ["write"] })).body;
    const put = async (permission_level: string) => {
      const { status, body } = await daemon.call("PUT", path, { permission_level }, { "x-api-key": key });
      return [status, status === 200 ? body.permission_level : body.details.expected];
    };
    for (const level of ["EXECUTE", "ADMIN", "FULL"]) expect(await put(level), level).toEqual([403, ["invoke"]]);
    expect(await request(b, "sender", "exec_command", shell("true"))).toMatchObject({ error_code: "FORBIDDEN" });
    for (const level of ["WRITE_STATE", "READ_ONLY"]) expect(await put(level), level).toEqual([200, level]);
  });

  it("acts on itself, across its own restart", async () => {
    await grant(a, "FULL");
    expect((await request(a, "sender", "exec_command", shell("echo me > /tmp/me"))).payload.status).toBe("APPLIED");
    expect((await exec(a, ["cat", "/tmp/me"])).stdout).toBe("me\n");
    const { body: before } = await daemon.call("GET", `/api/containers/${a}`);
    const sent = await inside(a, "/v1/messages", {
      ...{ to: a, type: "lifecycle_action", payload: { action: "restart" }, msg_id: "restart-me" },
    }).catch(() => null);
    expect(sent === null || sent.msg_id === "restart-me").toBe(true);
    const outcome = await eventually("the outcome", async () => {
      const { body } = await daemon.call("POST", `/api/icc/inbox/${a}/receive`, { wait_ms: 5_000 });
      return body.messages[0];
    });
    expect(outcome.message).toMatchObject({ correlation_id: "restart-me", payload: { status: "APPLIED" } });
    await daemon.call("POST", "/api/icc/ack", { msg_id: outcome.message.msg_id, container_id: a });
    const { body: after } = await daemon.call("GET", `/api/containers/${a}`);
    expect([after.state, after.started_at >= before.started_at]).toEqual(["running", true]);
    expect((await request(a, a, "env_patch", { set: { AGAIN: "1" } })).payload.status).toBe("APPLIED");
  });

  it("reaches no container of another tenant, and loses its grant with the next one", async () => {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "other" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
    const theirs = await create("theirs", { "x-api-key": key });
    for (const to of [theirs, "theirs"]) {
      expect(await request(a, to, "exec_command", shell("true"))).toMatchObject({ error_code: "NOT_FOUND" });
    }
    const path = `/api/icc/containers/${a}/permission`;
    const raised = await daemon.call("PUT", path, { permission_level: "FULL" }, { "x-api-key": key });
    expect(raised.status).toBe(404);
    await grant(a, "READ_ONLY");
    expect(await request(a, b, "exec_command", shell("true"))).toMatchObject({ error_code: "FORBIDDEN" });
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
  });

  it("ends a loop of actions and outcomes by itself: nothing answers an outcome", async () => {
    await Promise.all([grant(a, "FULL"), grant(b, "FULL")]);
    const last = async () =>
      Promise.all([a, b].map(async (id) => (await daemon.call("GET", `/api/containers/${id}/icc`)).body.last_seq));
    const before = await last();
    await inside(a, "/v1/messages", { to: b, type: "env_patch", payload: { set: { LOOP: "1" } }, msg_id: "loop" });
    const { messages } = await inside(a, "/v1/receive", { wait_ms: 20_000 });
    expect(messages).toMatchObject([{ correlation_id: "loop" }]);
    // An outcome for an outcome, and an error for it: records in the inbox, which the platform never acts on.
    const answer = { correlation_id: messages[0].msg_id, permission_level: "ADMIN" };
    await inside(a, "/v1/messages", { to: b, type: "ack", payload: messages[0].payload, ...answer });
    await inside(a, "/v1/messages", { to: b, type: "error", payload: { code: "TIMEOUT", message: "x" }, ...answer });
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(await last()).toEqual([before[0] + 1, before[1] + 3]);
    await Promise.all([grant(a, "READ_ONLY"), grant(b, "READ_ONLY")]);
  });
});

describe("a daemon that is killed while an action runs", () => {
  const counts = () => {
    const left = daemon.leftovers();
    // A clean-up that each start of a daemon makes beside it.
    const processes = left.processes.filter((line) => !line.includes(" profile clean "));
    const lists = Object.entries({ ...left, processes } as Readonly<Record<keyof Leftovers, readonly string[]>>);
    return Object.fromEntries(lists.map(([name, list]) => [name, list.length]));
  };
  /** Processes of the target with the argument 4711. */
  const running = async () =>
    Number((await exec(b, ["sh", "-c", "grep -lzx '471[1]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"])).stdout);

  it("leaves nothing on the host, and one command in the container", async () => {
    const before = counts();
    const payload = { ...shell("setsid sleep 4711 & sleep 4711"), timeout_ms: 600_000 };
    await daemon.call("POST", "/api/icc/messages", { to: b, type: "exec_command", payload, msg_id: "killed" });
    await eventually("it runs", async () => (await running()) === 2);
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    // The lease of the killed daemon ends, and the command runs again: the first one has ended.
    await eventually("it runs again", async () => (await running()) === 2, 60_000);
    await daemon.call("POST", "/api/icc/ack", { msg_id: "killed", container_id: b });
    await eventually("it has ended", async () => (await running()) === 0, 60_000);
    await expect.poll(counts, { timeout: 20_000 }).toEqual(before);
  });
});
