/** Keys and values of a tenant: writes with versions, patches by messages, pages, watches, other tenants, restarts. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

const call = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  daemon.call(method, `/api/icc${path}`, body, headers);
const put = (key: string, value: unknown, rest: object = {}) => call("PUT", `/state/${key}`, { value, ...rest });
const send = (to: string, type: string, payload: unknown, rest: object = {}) =>
  call("POST", "/messages", { to, type, payload, ...rest });
const patch = (text: string, rest: object = {}) => ({
  ...{ content_type: "application/merge-patch+json", patch: text },
  ...rest,
});

it("writes with a version only what the writer has seen, also after a deletion", async () => {
  expect((await put("a", { n: 1 }, { if_version: 0 })).body).toMatchObject({
    version: 1,
    value: { n: 1 },
    from: "api",
  });
  expect((await put("a", 2, { if_version: 0 })).status).toBe(409);
  expect((await put("a", 2, { if_version: 1 })).body.version).toBe(2);
  const writes = await Promise.all(Array.from({ length: 10 }, (_, i) => put("a", i, { if_version: 2 })));
  expect(writes.map(({ status }) => status).sort()).toEqual([200, ...new Array(9).fill(409)]);
  expect((await call("DELETE", "/state/a?if_version=2")).status).toBe(409);
  expect((await call("DELETE", "/state/a?if_version=3")).body).toEqual({ key: "a", version: 3, is_deleted: true });
  expect([(await call("GET", "/state/a")).status, (await call("DELETE", "/state/a")).status]).toEqual([404, 404]);
  expect((await put("a", 4, { if_version: 3 })).status).toBe(409);
  expect((await put("a", 4)).body.version).toBe(4);
  await call("DELETE", "/state/a");
});

it("takes snapshots and merge patches as messages, each id once", async () => {
  const sent = await send("state:m", "state_snapshot", {
    content_type: "application/json",
    data: '{"x":1,"y":{"z":2}}',
  });
  expect(sent.body).toMatchObject({ container_id: "state:m", duplicate: false });
  const at = sent.body.stream_seq;
  const wanted = patch('{"x":null,"y":{"w":3},"__proto__":{"p":1}}', { desired_state_version: at });
  expect((await send("state:m", "state_patch", { ...wanted, apply_mode: "DRY_RUN" })).body.stream_seq).toBe(at);
  expect((await send("state:m", "state_patch", wanted, { msg_id: "p1" })).body.stream_seq).toBe(at + 1);
  expect((await send("state:m", "state_patch", wanted, { msg_id: "p1" })).body).toMatchObject({
    ...{ stream_seq: at + 1, duplicate: true },
  });
  const stale = await send("state:m", "state_patch", wanted, { msg_id: "p2" });
  expect(stale).toMatchObject({ status: 409, body: { reason_code: "VERSION_CONFLICT" } });
  const { body } = await call("GET", "/state/m");
  expect(JSON.stringify(body.value)).toBe('{"y":{"z":2,"w":3},"__proto__":{"p":1}}');
  for (const [to, type, payload, status] of [
    ["state:m", "exec_command", { argv: ["true"] }, 400],
    ["state:m", "state_patch", patch("{"), 400],
    ["state:m", "state_patch", { content_type: "text/x-diff", patch: "{}" }, 400],
    ["state:-bad", "t", null, 400],
    [`state:${"k".repeat(129)}`, "t", null, 400],
    ["state:big", "t", "x".repeat(300_000), 413],
  ] as const) {
    expect([to, type, (await send(to, type, payload)).status]).toEqual([to, type, status]);
  }
  expect((await call("POST", "/request", { to: "state:m", type: "t", timeout_ms: 1_000 })).status).toBe(400);
  expect((await call("GET", "/inbox/state:m")).status).toBe(400);
  await send("state:raw", "state_snapshot", { content_type: "image/png", data_b64: "/9j/" });
  expect((await call("GET", "/state/raw")).body).toMatchObject({ content_type: "image/png", value_b64: "/9j/" });
});

it("lists by prefix in pages, shares nothing between tenants, and keeps all across a kill", async () => {
  for (const key of ["p.1", "p.2", "p.3", "q.1"]) await put(key, key);
  const first = (await call("GET", "/state?prefix=p.&limit=2")).body;
  expect(first).toMatchObject({ entries: [{ key: "p.1" }, { key: "p.2" }], next_after: "p.2" });
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "other" })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
  const other = { "x-api-key": key };
  expect((await call("GET", "/state", undefined, other)).body.entries).toEqual([]);
  expect((await call("GET", "/state/p.1", undefined, other)).status).toBe(404);
  await call("PUT", "/state/p.1", { value: "theirs" }, other);
  await daemon.stop("SIGKILL");
  await daemon.start({ HEARTH_CELLS: "0" });
  const rest = (await call("GET", "/state?prefix=p.&after=p.2")).body;
  expect(rest).toMatchObject({ entries: [{ key: "p.3", value: "p.3" }], next_after: null });
  expect((await call("GET", "/state/p.1")).body).toMatchObject({ value: "p.1", version: expect.any(Number) });
  await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
});

it("sends what is there to a watcher, then each change", async () => {
  await put("w.1", 1);
  const response = await fetch(`${daemon.url}/api/icc/state?watch=true&prefix=w.`, { headers: { "x-api-key": KEY } });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const told: unknown[] = [];
  const reading = (async () => {
    for (let text = ""; ; ) {
      const { value, done } = (await reader?.read().catch(() => null)) ?? { done: true, value: undefined };
      if (done) return;
      text += value;
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("data: ")) told.push(JSON.parse(line.slice(6)));
    }
  })();
  await eventually("the entry came", () => told.length === 1);
  await put("v.1", 0);
  await put("w.2", 2);
  await eventually("the change came", () => told.length === 2);
  await call("DELETE", "/state/w.1");
  await eventually("the deletion came", () => told.length === 3);
  expect(told).toMatchObject([
    { key: "w.1", value: 1 },
    { key: "w.2", value: 2 },
    { key: "w.1", is_deleted: true },
  ]);
  await reader?.cancel();
  await reading;
});

it("lets containers write all keys but those of others, and ends a container's key with it", async () => {
  const make = async (name: string, headers: Record<string, string> = {}): Promise<string> =>
    (await daemon.call("POST", "/api/containers", { name }, headers)).body.container_id;
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "third" })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
  const other = { "x-api-key": key };
  const [a = "", b = "", theirs = ""] = await Promise.all([make("state-a"), make("state-b"), make("state-c", other)]);
  const inside = async (id: string, method: string, path: string, body: unknown, headers = {}) => {
    const data = body === undefined ? [] : ["-d", JSON.stringify(body)];
    const socket = ["--unix-socket", "/run/hearth/icc.sock", `http://x${path}`];
    const command = ["curl", "-s", "-X", method, ...data, ...socket];
    const ran = await daemon.call("POST", `/api/containers/${id}/exec`, { command }, headers);
    return JSON.parse(ran.body.stdout);
  };
  const snapshot = (to: string, from?: string) => ({ to, from, type: "t", payload: 1 });
  expect(await inside(a, "PUT", "/v1/state/shared", { value: 1 })).toMatchObject({ key: "shared", from: a });
  expect(await inside(a, "PUT", `/v1/state/${a}`, { value: "mine" })).toMatchObject({ version: expect.any(Number) });
  for (const id of [b, theirs]) {
    expect(await inside(a, "PUT", `/v1/state/${id}`, { value: 1 })).toMatchObject({ error_code: "FORBIDDEN" });
    expect(await inside(a, "DELETE", `/v1/state/${id}`, undefined)).toMatchObject({ error_code: "FORBIDDEN" });
    const sent = await inside(a, "POST", "/v1/messages", snapshot(`state:${id}`));
    expect([id, sent.error_code]).toEqual([id, "FORBIDDEN"]);
  }
  const forged = await inside(a, "POST", "/v1/messages", snapshot("state:shared", b));
  expect(forged).toMatchObject({ error_code: "FORBIDDEN" });
  const path = `/api/icc/containers/${a}/permission`;
  await daemon.call("PUT", path, { permission_level: "WRITE_STATE" });
  expect(await inside(a, "PUT", `/v1/state/${b}`, { value: 1 })).toMatchObject({ key: b, from: a });
  // The grant is for containers of the tenant: the same key of another tenant is another state.
  await inside(theirs, "PUT", `/v1/state/${theirs}`, { value: "theirs" }, other);
  await inside(a, "PUT", `/v1/state/${theirs}`, { value: "not theirs" });
  expect((await call("GET", `/state/${theirs}`, undefined, other)).body.value).toBe("theirs");
  expect(await inside(theirs, "GET", "/v1/state/shared", undefined, other)).toMatchObject({ error_code: "NOT_FOUND" });
  // A container ends with its state, and with nothing of another tenant.
  await call("PUT", `/state/${a}`, { value: "of another tenant" }, other);
  await daemon.call("DELETE", `/api/containers/${a}`);
  expect((await call("GET", `/state/${a}`)).status).toBe(404);
  expect((await call("GET", `/state/${a}`, undefined, other)).body.value).toBe("of another tenant");
  await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
});
