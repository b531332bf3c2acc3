/** Sampling of messages' traces, and what the daemon remembers of them. */
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Traces } from "../../src/base/trace.ts";
import type { Delivery } from "../../src/icc/bus/port.ts";
import { type Envelope, encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import type { MessageStep } from "../../src/icc/observer.ts";
import { MessageTracing } from "../../src/icc/tracing.ts";

const traceId = (i: number) => `f${i.toString(16).padStart(31, "0")}`;

function ground(ratio: number) {
  const steps: MessageStep[] = [];
  const traces = new Traces(randomIds(), ratio);
  const tracing = new MessageTracing({ traces, clock: systemClock, onStep: (step) => steps.push(step) });
  const envelope = (trace_id: string): Envelope => ({
    ...{ version: 1, msg_id: "m", request_id: "", trace_id, correlation_id: "", causation_id: "" },
    ...{ from: "api", to: "queue:q", stream_key: "", seq: 0, sent_at: 1, ttl_ms: 60_000 },
    ...{ permission_level: "READ_ONLY", idempotency_key: "" },
    payload: { kind: "state_snapshot", value: { content_type: "text/plain", data: Buffer.from("x") } },
  });
  const sent = (tenant_id: string, trace_id: string, is_sampled: boolean) => {
    const trace = { trace_id, parent_span_id: null, is_sampled, state: null };
    const about = { tenant_id, envelope: envelope(trace_id), target: "queue" as const, trace };
    tracing.sent({ ...about, begun_ms: 0, isNew: true, error: null });
  };
  const delivery = (tenant_id: string, bytes: Uint8Array): Delivery => ({
    ...{ tenant_id, inbox: "queue:q", msg_id: "m", envelope: bytes, stream_seq: 1, state: "unread", deliveries: 1 },
    ...{ created_ms: 0, expires_ms: 0, held_until_ms: 0, lease: "lease_1" },
  });
  const received = (tenant_id: string, trace_id: string): string[] => {
    steps.length = 0;
    tracing.delivered([delivery(tenant_id, encodeEnvelope(envelope(trace_id)))], 0);
    return steps.map(({ operation }) => operation);
  };
  return { tracing, steps, sent, received, delivery };
}

describe("the sampling of a message's trace", () => {
  it("is the caller's decision for its own tenant, and the ratio's for others", () => {
    for (const [ratio, expected] of [
      [1, ["receive"]],
      [0, []],
    ] as const) {
      const { sent, received } = ground(ratio);
      expect(received("acme", traceId(1))).toEqual(expected);
      sent("acme", traceId(1), ratio === 0);
      expect(received("acme", traceId(1))).toEqual(ratio === 0 ? ["receive"] : []);
      expect(received("other", traceId(1))).toEqual(expected);
      sent("acme", traceId(1), ratio === 1);
      expect(received("acme", traceId(1))).toEqual(expected);
    }
  });

  it("is remembered for a bounded number of traces", () => {
    const { sent, received } = ground(1);
    for (let i = 0; i <= LIMITS.message_traces_max; i++) sent("acme", traceId(i + 1), false);
    expect(received("acme", traceId(1))).toEqual(["receive"]);
    expect(received("acme", traceId(2))).toEqual([]);
  });

  it("tells of a settlement once, and of none whose delivery it does not know", () => {
    const { tracing, steps, received } = ground(1);
    const ref = { tenant_id: "acme", inbox: "queue:q", msg_id: "m" };
    received("acme", traceId(1));
    tracing.settled({ ...ref, tenant_id: "other" }, "acked");
    for (let i = 0; i < 2; i++) tracing.settled(ref, "acked");
    expect(steps.map(({ operation }) => operation)).toEqual(["receive", "ack"]);
    expect(steps[1]?.trace.parent_span_id).toBe(steps[0]?.trace.span_id);
  });

  it("survives an envelope that is damaged on the disk", () => {
    const { tracing, steps, delivery } = ground(1);
    tracing.delivered([delivery("acme", Buffer.from("damaged")), delivery("acme", Buffer.alloc(0))], 0);
    expect(steps).toEqual([]);
  });
});
