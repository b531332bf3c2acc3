/** Traces of messages, from a publish over containers and bindings to functions, as a collector gets them. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { attributesOf, Collector, type Span } from "../support/collector.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const PARENT_ID = "00f067aa0ba902b7";
const PUBLISH = "POST /api/icc/messages";
const daemon = new Daemon();
const held: { collector: Collector | null } = { collector: null };
let container = "";
let other = "";

beforeAll(async () => {
  held.collector = await Collector.start();
  await daemon.start({ HEARTH_CELLS: "1", HEARTH_OTLP_URL: held.collector.url });
  container = (await daemon.call("POST", "/api/containers", { name: "traced" })).body.container_id;
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "other" })).body;
  other = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body.key;
});
afterAll(async () => {
  await daemon.dispose();
  held.collector?.close();
});

let count = 0;
const newTraceId = () => (++count).toString(16).padStart(32, "4bf92f3577b34da6a3ce929d0e0e4736");
const traceparent = (trace_id: string, flags = "01") => ({ traceparent: `00-${trace_id}-${PARENT_ID}-${flags}` });

async function ok(path: string, body: object, headers: Record<string, string> = {}) {
  const { status, body: answer } = await daemon.call("POST", path, body, { "x-api-key": KEY, ...headers });
  expect(status, JSON.stringify(answer)).toBe(200);
  return answer;
}
const send = (message: object, headers: Record<string, string> = {}) =>
  ok("/api/icc/messages", { type: "t", ...message }, headers);
const receive = async (inbox: string, headers: Record<string, string> = {}) =>
  (await ok(`/api/icc/inbox/${inbox}/receive`, { max: 10, wait_ms: 10_000 }, headers)).messages;
const ack = (msg_id: string, more: object = {}, headers: Record<string, string> = {}) =>
  ok("/api/icc/ack", { msg_id, action: "ack", ...more }, headers);
const exec = async (command: readonly string[]) => {
  const { stdout, stderr, exit_code } = await ok(`/api/containers/${container}/exec`, { command });
  expect(exit_code, stderr).toBe(0);
  return stdout as string;
};
const inside = async (path: string, body: object, headers: readonly string[] = []) => {
  const args = headers.flatMap((header) => ["-H", header]);
  const url = `http://x${path}`;
  const curl = ["curl", "-s", "--unix-socket", "/run/hearth/icc.sock", ...args, "-d", JSON.stringify(body), url];
  return JSON.parse(await exec(curl));
};

/** The spans of a trace once all names are there, by name. */
async function spansOf(trace_id: string, ...names: readonly string[]): Promise<Record<string, Span>> {
  const found = () => held.collector?.spans.filter(({ traceId }) => traceId === trace_id) ?? [];
  await eventually(`${names} of ${trace_id}`, () => names.every((name) => found().some((span) => span.name === name)));
  const spans = found();
  expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length);
  return Object.fromEntries(spans.map((span) => [span.name, span]));
}

describe("the trace of a message", () => {
  it("leads from the request of its publish to the container that receives and acks it", async () => {
    const trace_id = newTraceId();
    const { msg_id } = await send({ to: "traced", payload: 1 }, traceparent(trace_id));
    const line = await exec(["hearth-icc", "receive", "--wait", "10", "--ack"]);
    expect(JSON.parse(line)).toMatchObject({ msg_id, trace_id });
    const spans = await spansOf(trace_id, PUBLISH, "publish container", "receive container", "ack container");
    const [request, publish, got, acked] = [PUBLISH, "publish container", "receive container", "ack container"].map(
      (name) => spans[name],
    );
    expect(Object.keys(spans)).toHaveLength(4);
    expect([request?.parentSpanId, publish?.parentSpanId]).toEqual([PARENT_ID, request?.spanId]);
    expect([got?.parentSpanId, acked?.parentSpanId]).toEqual([publish?.spanId, got?.spanId]);
    expect([publish?.kind, got?.kind, acked?.kind]).toEqual([4, 5, 1]);
    expect(attributesOf(publish as Span)).toEqual({
      "messaging.system": "hearth",
      "messaging.operation.name": "publish",
      "messaging.destination.name": container,
      "messaging.message.id": msg_id,
      "hearth.tenant_id": "default",
    });
    expect(attributesOf(got as Span)).toMatchObject({ "hearth.message.deliveries": 1 });
    const at = (span: Span | undefined) => BigInt(span?.startTimeUnixNano ?? 0);
    expect(at(publish) <= at(got) && at(got) <= at(acked)).toBe(true);
  });

  it("leads on into a function that a binding calls, and to its reply", async () => {
    const trace_id = newTraceId();
    await daemon.deploy({ name: "bound", handler: 'echo "$TRACEPARENT"' });
    const bound = await daemon.call("POST", "/api/icc/bindings", {
      ...{ function: "bound", subject: "queue:calls", reply: true },
    });
    expect(bound.status, JSON.stringify(bound.body)).toBe(201);
    await send({ to: "queue:calls", from: "queue:answers" }, traceparent(trace_id));
    const [{ message }] = await receive("queue:answers");
    const names = ["publish queue", "receive queue", "ack queue", "queue", "handler", "commit"];
    await spansOf(trace_id, ...names);
    const spans = held.collector?.spans.filter(({ traceId }) => traceId === trace_id) ?? [];
    const of = (name: string, to: string) =>
      spans.find((span) => span.name === name && attributesOf(span)["messaging.destination.name"] === to);
    const call = of("receive queue", "queue:calls");
    expect(call?.parentSpanId).toBe(of("publish queue", "queue:calls")?.spanId);
    for (const name of ["queue", "handler", "commit"]) {
      expect([name, spans.find((span) => span.name === name)?.parentSpanId]).toEqual([name, call?.spanId]);
    }
    expect(message.payload.trim()).toBe(`00-${trace_id}-${call?.spanId}-01`);
    expect(message.trace_id).toBe(trace_id);
    const reply = of("publish queue", "queue:answers");
    expect(reply?.parentSpanId).toBe(call?.spanId);
    expect(attributesOf(reply as Span)["messaging.message.conversation_id"]).toBe(message.correlation_id);
    expect(of("receive queue", "queue:answers")?.parentSpanId).toBe(reply?.spanId);
  });

  it("is the sender's where it names one, and never rewritten", async () => {
    const [own, asking] = [newTraceId(), newTraceId()];
    await send({ to: "queue:own", trace_id: own }, traceparent(asking));
    expect((await receive("queue:own"))[0].message.trace_id).toBe(own);
    const spans = await spansOf(own, "publish queue", "receive queue");
    expect(spans["publish queue"]?.parentSpanId ?? "").toBe("");
    expect(Object.keys(await spansOf(asking, PUBLISH))).toEqual([PUBLISH]);
  });

  it("is none where its id is not W3C's: the text stays, and the publish belongs to the request", async () => {
    const strange = ["order-17", "0".repeat(32), newTraceId().toUpperCase(), `${newTraceId()}0`, "ü".repeat(40)];
    for (const text of strange) {
      const asking = newTraceId();
      const { msg_id } = await send({ to: "queue:strange", trace_id: text }, traceparent(asking));
      expect((await receive("queue:strange"))[0].message.trace_id).toBe(text);
      await ack(msg_id);
      const spans = await spansOf(asking, PUBLISH, "publish queue");
      expect(spans["publish queue"]?.parentSpanId).toBe(spans[PUBLISH]?.spanId);
      expect(Object.keys(spans)).toHaveLength(2);
      expect(held.collector?.spans.filter(({ traceId }) => traceId === text)).toEqual([]);
    }
  });

  it("begins in a container, under the span that its traceparent names", async () => {
    const trace_id = newTraceId();
    const header = `traceparent: ${traceparent(trace_id).traceparent}`;
    await inside("/v1/messages", { to: "queue:inner", type: "t" }, [header]);
    const { msg_id } = await inside("/v1/messages", { to: "queue:inner", type: "t" });
    const messages = await receive("queue:inner");
    expect(messages.map(({ message }: { message: { trace_id: string } }) => message.trace_id)).toEqual([
      trace_id,
      expect.stringMatching(/^[0-9a-f]{32}$/),
    ]);
    expect((await spansOf(trace_id, "publish queue"))["publish queue"]?.parentSpanId).toBe(PARENT_ID);
    const begun = messages[1].message.trace_id;
    expect((await spansOf(begun, "receive queue"))["publish queue"]?.parentSpanId ?? "").toBe("");
    await ack(msg_id);
  });

  it("stays that of a request in the reply of a container", async () => {
    const trace_id = newTraceId();
    const asking = ok("/api/icc/request", { to: "traced", type: "ask", timeout_ms: 20_000 }, traceparent(trace_id));
    const [asked] = (await inside("/v1/receive", { wait_ms: 20_000 })).messages;
    await inside("/v1/reply", { msg_id: asked.msg_id, payload: 4 });
    expect((await asking).reply).toMatchObject({ payload: 4, trace_id });
  });

  it("tells of nacks, of deliveries that are repeated, and of publishes that are repeated or refused", async () => {
    const trace_id = newTraceId();
    const message = { to: "queue:fates", msg_id: "fate", trace_id, idempotency_key: "once" };
    for (let i = 0; i < 2; i++) await inside("/v1/messages", { ...message, type: "t" });
    const refused = await inside("/v1/messages", { ...message, type: "t", msg_id: "fate-2" });
    expect(refused.error_code).toBe("IDEMPOTENCY_CONFLICT");
    await receive("queue:fates");
    await ack("fate", { action: "nack", requeue: true });
    await receive("queue:fates");
    await ack("fate", { action: "nack", reason: "no" });
    await spansOf(trace_id, "requeue queue", "fail queue");
    const spans = held.collector?.spans.filter(({ traceId }) => traceId === trace_id) ?? [];
    const named = (name: string) => spans.filter((span) => span.name === name);
    const publishes = named("publish queue");
    expect(publishes.map((span) => attributesOf(span)["error.type"])).toEqual([
      undefined,
      undefined,
      "IDEMPOTENCY_CONFLICT",
    ]);
    expect(publishes.map(({ status }) => status.code)).toEqual([0, 0, 2]);
    const deliveries = named("receive queue");
    expect(deliveries.map(({ parentSpanId }) => parentSpanId)).toEqual([publishes[0]?.spanId, publishes[0]?.spanId]);
    expect(named("requeue queue")[0]?.parentSpanId).toBe(deliveries[0]?.spanId);
    expect(named("fail queue")).toMatchObject([{ parentSpanId: deliveries[1]?.spanId, status: { code: 2 } }]);
  });

  it("is carried and not exported where its beginner does not sample it", async () => {
    const [quiet, loud] = [newTraceId(), newTraceId()];
    for (const [trace_id, flags] of [
      [quiet, "00"],
      [loud, "01"],
    ] as const) {
      const { msg_id } = await send({ to: "queue:sampled" }, traceparent(trace_id, flags));
      expect((await receive("queue:sampled"))[0].message.trace_id).toBe(trace_id);
      await ack(msg_id);
    }
    await spansOf(loud, "ack queue");
    expect(held.collector?.spans.filter(({ traceId }) => traceId === quiet)).toEqual([]);
  });

  it("shares no span and no decision with another tenant's message of the same ids", async () => {
    const trace_id = newTraceId();
    const message = { to: "queue:same", msg_id: "same", trace_id };
    await daemon.call("GET", "/api/icc/streams", undefined, { "x-api-key": other, ...traceparent(trace_id, "00") });
    await send({ ...message, trace_id: "" }, { "x-api-key": other, ...traceparent(trace_id, "00") });
    await send(message);
    await receive("queue:same", { "x-api-key": other });
    await ack("same", {}, { "x-api-key": other });
    await receive("queue:same");
    await ack("same");
    const spans = await spansOf(trace_id, "publish queue", "receive queue", "ack queue");
    expect(Object.values(spans).map((span) => attributesOf(span)["hearth.tenant_id"])).toEqual(
      Object.keys(spans).map(() => "default"),
    );
  });
});
