/** Functions that handle messages, with real functions and containers. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const SETTINGS = { HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" };
const call = (method: string, path: string, body?: unknown) => daemon.call(method, path, body);
const post = (path: string, body: unknown = {}) => call("POST", path, body);
const get = async (path: string) => (await call("GET", path)).body;
const bind = async (fields: Record<string, unknown>) => {
  const { status, body } = await post("/api/icc/bindings", fields);
  if (status !== 201) throw new Error(JSON.stringify(body));
  return body;
};
const send = (to: string, payload: unknown, more: Record<string, unknown> = {}) =>
  post("/api/icc/messages", { to, type: "task.created", payload, ...more });

interface Call {
  readonly status: string;
  readonly stdout: string;
}
const calls = async (function_id: string): Promise<Call[]> =>
  (await get(`/api/functions/${function_id}/invocations?limit=500`)).invocations;
const states = async (inbox: string) =>
  // A queue has no inbox before its first message.
  ((await get(`/api/icc/inbox/${inbox}?limit=1000`)).messages ?? []).map((one: { state: string }) => one.state);
const allAcked = (inbox: string, count: number) =>
  eventually(`${count} messages of ${inbox} are acked`, async () => {
    const seen = await states(inbox);
    return seen.length === count && seen.every((state: string) => state === "acked");
  });

beforeAll(async () => {
  await daemon.start(SETTINGS);
  await post("/api/containers", { name: "box" });
});
afterAll(() => daemon.dispose());

describe("a binding", () => {
  it("calls its function for each message of a queue, with the message and its trace", async () => {
    const { id } = await daemon.deploy({ name: "echo", handler: "cat; echo; echo $TRACEPARENT" });
    const binding = await bind({ function: "echo", subject: "jets.cmd.queue:work" });
    expect(binding).toMatchObject({ function_id: id, subject: "queue:work", inbox: "queue:work", in_flight: 0 });
    const trace_id = "0af7651916cd43dd8448eb211c80319c";
    const sent = await send("queue:work", { n: 1 }, { trace_id, from: "box" });
    await allAcked("queue:work", 1);
    const [record] = await calls(id);
    const [payload = "", trace] = (record?.stdout ?? "").split("\n");
    expect(JSON.parse(payload)).toMatchObject({
      ...{ stream_seq: 1, delivery: 1 },
      message: { msg_id: sent.body.msg_id, from: "box", type: "task.created", payload: { n: 1 } },
    });
    expect(trace).toContain(trace_id);
    expect((await get("/api/icc/bindings")).bindings).toMatchObject([{ binding_id: binding.binding_id }]);
    expect((await call("DELETE", `/api/icc/bindings/${binding.binding_id}`)).status).toBe(200);
    await send("queue:work", { n: 2 });
    expect((await call("GET", `/api/icc/bindings/${binding.binding_id}`)).status).toBe(404);
    expect(await states("queue:work")).toEqual(["acked", "unread"]);
  });

  it("gets copies of messages by address and type, and takes none from their receiver", async () => {
    const { id } = await daemon.deploy({ name: "audit", handler: "cat" });
    const box = await bind({ function: "audit", subject: "box", message_type: "order.*" });
    const topic = await bind({ function: "audit", subject: "topic:news" });
    await send("box", 1, { type: "order.created" });
    await send("box", 2, { type: "price.changed" });
    await send("topic:news", 3);
    await eventually("both are called", async () => (await calls(id)).length === 2);
    expect(await states("box")).toEqual(["unread", "unread"]);
    const seen = (await calls(id)).map(({ stdout }) => JSON.parse(stdout).message.payload).sort();
    expect(seen).toEqual([1, 3]);
    for (const { binding_id } of [box, topic]) await call("DELETE", `/api/icc/bindings/${binding_id}`);
  });

  it("replies to who waits", async () => {
    await daemon.deploy({ name: "upper", handler: "tr a-z A-Z" });
    await bind({ function: "upper", subject: "queue:ask", reply: true });
    const asked = { to: "queue:ask", type: "ask", payload: "hello", timeout_ms: 30_000 };
    const { body } = await post("/api/icc/request", asked);
    expect(body.reply).toMatchObject({ type: "reply", from: "queue:ask", correlation_id: body.msg_id });
    expect(body.reply.payload).toContain("HELLO");
    await send("queue:ask", "later", { from: "box", msg_id: "late" });
    const late = await post("/api/icc/inbox/box/receive", { max: 10, wait_ms: 20_000 });
    const found = () =>
      late.body.messages.map((one: { message: { correlation_id: string } }) => one.message.correlation_id);
    if (!found().includes("late")) {
      const more = await post("/api/icc/inbox/box/receive", { max: 10, wait_ms: 20_000 });
      late.body.messages.push(...more.body.messages);
    }
    expect(found()).toContain("late");
  });

  it("makes a dead letter of a message that its function cannot handle, and handles the others", async () => {
    const handler = `read -r line; case "$line" in *poison*) echo bad >&2; exit 3;; *slow*) sleep 60;; esac`;
    const { id } = await daemon.deploy({ name: "picky", handler, timeout_seconds: 1 });
    const binding = await bind({ function: id, subject: "queue:picky", max_deliver: 2, backoff_ms: 50 });
    for (const payload of ["good", "poison", "good", "slow"]) await send("queue:picky", payload);
    await eventually("all are settled", async () => !(await states("queue:picky")).includes("unread"));
    expect(await states("queue:picky")).toEqual(["acked", "failed", "acked", "failed"]);
    const { messages } = await get("/api/icc/dlq");
    const reasons = messages.map(({ reason, deliveries }: Record<string, unknown>) => [deliveries, reason]);
    expect(reasons).toContainEqual([2, expect.stringMatching(/^function picky: failed \(inv_/)]);
    expect(reasons).toContainEqual([2, expect.stringMatching(/^function picky: timeout \(inv_/)]);
    expect((await calls(id)).length).toBe(6);
    await call("DELETE", `/api/icc/bindings/${binding.binding_id}`);
  });

  it("gets its dead letter again, alone, with the address that the message had", async () => {
    const handler = "test -e /tmp/mended || { touch /tmp/mended; exit 3; }; cat";
    const { id } = await daemon.deploy({ name: "mended", handler, cleanup_on_exit: false });
    const other = await daemon.deploy({ name: "beside", handler: "cat" });
    const typed = { message_type: "mend.*", max_deliver: 1 };
    const binding = await bind({ function: id, ...typed });
    const beside = await bind({ function: other.id, ...typed });
    await send("topic:mending", 1, { type: "mend.it" });
    const letters = async () =>
      (await get("/api/icc/dlq?limit=1000")).messages.filter(
        ({ container_id }: { container_id: string }) => container_id === `binding:${binding.binding_id}`,
      );
    const [letter] = await eventually("the dead letter", async () => {
      const found = await letters();
      return found.length > 0 ? found : null;
    });
    await eventually("the other is called", async () => (await calls(other.id)).length === 1);
    const replay = `/api/icc/dlq/${letter.stream_seq}/replay`;
    const again = await post(replay);
    expect(again).toMatchObject({ status: 200, body: { container_id: letter.container_id, stream_seq: 2 } });
    await eventually("it is called again", async () => (await calls(id)).length === 2);
    const [call_again] = await calls(id);
    const { message } = JSON.parse(call_again?.stdout ?? "");
    expect(message).toMatchObject({ to: "topic:mending", payload: 1, causation_id: letter.msg_id });
    expect((await calls(other.id)).length).toBe(1);
    expect(await states("topic:mending")).toEqual(["acked"]);
    for (const { binding_id } of [binding, beside]) await call("DELETE", `/api/icc/bindings/${binding_id}`);
    expect((await post(replay)).status).toBe(404);
    expect((await post(replay, { replay_to_container: letter.container_id })).status).toBe(400);
  });

  it("waits while its function is paused, without failed deliveries", async () => {
    const { id } = await daemon.deploy({ name: "sleeper", handler: "cat" });
    await call("POST", `/api/functions/${id}/pause`);
    const { binding_id } = await bind({ function: id, subject: "queue:paused", max_deliver: 1 });
    await send("queue:paused", 1);
    await eventually("it says why", async () => (await get(`/api/icc/bindings/${binding_id}`)).last_error !== null);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(await states("queue:paused")).toEqual(["unread"]);
    await post(`/api/functions/${id}/resume`);
    await allAcked("queue:paused", 1);
    expect((await get(`/api/icc/bindings/${binding_id}`)).last_error).toBeNull();
    // A binding ends with its function.
    await call("DELETE", `/api/functions/${id}`);
    expect((await call("GET", `/api/icc/bindings/${binding_id}`)).status).toBe(404);
  });

  it("handles messages in their order where asked", async () => {
    const { id } = await daemon.deploy({ name: "order", handler: "cat; sleep 0.0$((RANDOM % 9))" });
    await bind({ function: id, subject: "topic:order", ordered: true, concurrency: 8 });
    for (let n = 0; n < 20; n++) await send("topic:order", n);
    await eventually("all are handled", async () => (await calls(id)).length === 20);
    const seen = (await calls(id)).map(({ stdout }) => JSON.parse(stdout).message.payload).reverse();
    expect(seen).toEqual([...Array(20).keys()]);
  });

  it("is refused for what the tenant has not", async () => {
    const refused = async (fields: Record<string, unknown>) => (await post("/api/icc/bindings", fields)).status;
    expect(await refused({ function: "nothing", subject: "queue:a" })).toBe(404);
    expect(await refused({ function: "echo", subject: "nothing" })).toBe(404);
    expect(await refused({ function: "echo" })).toBe(400);
    // No inbox: a change of a state is no message that a function could get.
    expect(await refused({ function: "echo", subject: "state:color" })).toBe(400);
    const unknown = await post("/api/icc/bindings", { function: "echo", subject: "queues:a" });
    expect(unknown.body.hint).toMatch(/queue:, topic: or state:/);
    expect(await refused({ function: "echo", subject: "queue:a", message_type: "a.*" })).toBe(400);
    expect(await refused({ function: "echo", subject: "box", message_type: "*a" })).toBe(400);
    expect(await refused({ function: "echo", subject: "box", concurrency: 17 })).toBe(400);
    const { tenant_id } = (await post("/api/tenants", { name: "other" })).body;
    const { key } = (await post(`/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
    const fields = { function: "echo", subject: "queue:ask" };
    const strange = await daemon.call("POST", "/api/icc/bindings", fields, { "x-api-key": key });
    expect(strange.status).toBe(404);
  });
});

describe("a daemon that is killed while bindings call functions", () => {
  it("loses no message, and calls for none again after its ack", async () => {
    const { id } = await daemon.deploy({ name: "load", handler: "cat; sleep 0.05" });
    await bind({ function: id, subject: "queue:load", concurrency: 8 });
    const sent: string[] = [];
    const publish = async (count: number) => {
      for (let n = 0; n < count; n++) {
        const { status, body } = await send("queue:load", n).catch(() => ({ status: 0, body: null }));
        if (status === 200) sent.push(body.msg_id);
      }
    };
    const load = publish(60);
    await eventually("some are handled", async () => (await states("queue:load")).includes("acked"));
    await new Promise((resolve) => setTimeout(resolve, 300));
    const listed = (await get("/api/icc/inbox/queue:load?state=acked&limit=1000")).messages;
    const acked = listed.map((one: { envelope_summary: { msg_id: string } }) => one.envelope_summary.msg_id);
    await daemon.stop("SIGKILL");
    await load;
    await daemon.start(SETTINGS);
    const handled = async () =>
      (await calls(id))
        .filter(({ status }) => status === "success")
        .map(({ stdout }) => JSON.parse(stdout).message.msg_id);
    const before = new Set(await handled());
    const left = () => get("/api/icc/inbox/queue:load?state=unread&limit=1000");
    await eventually("all are settled", async () => (await left()).messages.length === 0, 90_000);
    const all = await handled();
    expect(sent.filter((msg_id) => !all.includes(msg_id) && !before.has(msg_id))).toEqual([]);
    expect(
      (await get("/api/icc/dlq")).messages.filter((one: { container_id: string }) => one.container_id === "queue:load"),
    ).toEqual([]);
    const again = acked.filter((msg_id: string) => all.filter((one) => one === msg_id).length > 1);
    expect(again).toEqual([]);
  });
});
