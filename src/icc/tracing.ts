/**
 * Traces of messages. A message carries the id of its trace and no span, so the ids of spans follow from the message: a receiver
 * finds the span of the publish without a record of it, also after a restart of the daemon.
 *
 * G1. A trace_id that a sender sets is never changed. One that is not a W3C trace id belongs to no trace: its publish is a span
 *     of the request, and its receivers have no span.
 * G2. The beginner of a trace decides whether it is sampled. The daemon remembers the decisions of the last traces of requests;
 *     for other traces the ratio decides by the trace id, so that all spans of a trace are exported or none.
 * G3. A settlement has a span if the daemon remembers the delivery: it is one of the last, and of this process.
 */
import { createHash } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../base/clock.ts";
import { AppError, type ErrorCode } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { isTraceId, type Trace, type Traces } from "../base/trace.ts";
import type { Delivery, EntryRef } from "./bus/port.ts";
import { decodeStored, type Envelope } from "./envelope/envelope.ts";
import { kindOf, type MessageStep, type Settlement } from "./observer.ts";

/** The trace of a sender's request. `parent_span_id`: span under which a publish goes. */
export type SenderTrace = Pick<Trace, "trace_id" | "parent_span_id" | "is_sampled" | "state">;

/** The trace of a request whose own span is exported. */
export const underRequest = ({ span_id, ...trace }: Trace): SenderTrace => ({ ...trace, parent_span_id: span_id });

export interface MessageTracingOptions {
  readonly traces: Traces;
  readonly clock: Clock;
  /** Takes a step of a sampled trace. Never throws. Null: no spans are exported. */
  readonly onStep: ((step: MessageStep) => void) | null;
}

/** A publish that has ended; `isNew`: it wrote the message. */
export interface Sent {
  readonly tenant_id: string;
  readonly envelope: Envelope;
  readonly target: MessageStep["target"];
  readonly trace: SenderTrace | null;
  readonly begun_ms: number;
  readonly isNew: boolean;
  readonly error: unknown;
}

interface Held {
  readonly trace: Trace;
  readonly correlation_id: string;
  readonly deliveries: number;
  readonly delivered_ms: number;
}

const OPERATIONS = { acked: "ack", failed: "fail", requeued: "requeue" } as const;

export class MessageTracing {
  readonly #options: MessageTracingOptions;
  /** Decisions that differ from the ratio's (G2), by tenant and trace. */
  readonly #decided = new LRUCache<string, boolean>({ max: LIMITS.message_traces_max });
  /** Deliveries of sampled traces (G3), by tenant, inbox and message. */
  readonly #held = new LRUCache<string, Held>({ max: LIMITS.message_traces_max });

  constructor(options: MessageTracingOptions) {
    this.#options = options;
  }

  /** True if publishes are to be told. */
  get isExporting(): boolean {
    return this.#options.onStep !== null;
  }

  sent({ tenant_id, envelope, target, trace: request, begun_ms, isNew, error }: Sent): void {
    if (request !== null) this.#remember(tenant_id, request);
    const trace = this.#publishTrace(tenant_id, envelope, request, isNew);
    if (trace === null) return;
    const { to: inbox, msg_id, correlation_id } = envelope;
    this.#step({
      ...{ operation: "publish", target, trace, tenant_id, inbox, msg_id, correlation_id, deliveries: null },
      ...{ from_ms: begun_ms, error_code: codeOf(error) },
    });
  }

  delivered(deliveries: readonly Delivery[], begun_ms: number): void {
    if (!this.isExporting) return;
    for (const delivery of deliveries) {
      const envelope = readable(delivery.envelope);
      const trace = envelope === null ? null : this.traceOf(delivery, envelope);
      if (envelope === null || trace?.is_sampled !== true) continue;
      const { tenant_id, inbox, msg_id, deliveries: count } = delivery;
      const { correlation_id } = envelope;
      const delivered_ms = this.#options.clock.monotonicMs();
      this.#held.set(nameOf(delivery), { trace, correlation_id, deliveries: count, delivered_ms });
      this.#step({
        ...{ operation: "receive", target: kindOf(inbox), trace, tenant_id, inbox, msg_id, correlation_id },
        ...{ deliveries: count, from_ms: begun_ms, error_code: null },
      });
    }
  }

  settled(ref: EntryRef, how: Settlement): void {
    const held = this.#held.get(nameOf(ref));
    if (held === undefined) return;
    this.#held.delete(nameOf(ref));
    const { trace: delivery, correlation_id, deliveries, delivered_ms: from_ms } = held;
    const trace = { ...delivery, span_id: this.#options.traces.spanId(), parent_span_id: delivery.span_id };
    this.#step({
      ...{ operation: OPERATIONS[how], target: kindOf(ref.inbox), trace, ...ref, correlation_id, deliveries },
      ...{ from_ms, error_code: null },
    });
  }

  /** The place of a delivery in the trace of its message, for work on it; null: the message belongs to no trace. */
  traceOf({ tenant_id, inbox, msg_id, deliveries }: Delivery, { trace_id, to }: Envelope): Trace | null {
    if (!isTraceId(trace_id)) return null;
    return {
      trace_id,
      span_id: spanIdOf(tenant_id, trace_id, inbox, msg_id, String(deliveries)),
      parent_span_id: spanIdOf(tenant_id, trace_id, to, msg_id),
      is_sampled: this.#isSampled(tenant_id, trace_id),
      state: null,
    };
  }

  /** The span of a publish is that of its message, if it wrote the message. */
  #publishTrace(tenant_id: string, envelope: Envelope, request: SenderTrace | null, isNew: boolean): Trace | null {
    const { trace_id, to, msg_id } = envelope;
    const fresh = (): string => this.#options.traces.spanId();
    // G1.
    if (!isTraceId(trace_id)) return request === null ? null : { ...request, span_id: fresh() };
    const span_id = isNew ? spanIdOf(tenant_id, trace_id, to, msg_id) : fresh();
    if (request?.trace_id === trace_id) return { ...request, span_id };
    return { trace_id, span_id, parent_span_id: null, is_sampled: this.#isSampled(tenant_id, trace_id), state: null };
  }

  #remember(tenant_id: string, { trace_id, is_sampled }: SenderTrace): void {
    const key = `${tenant_id}\n${trace_id}`;
    if (this.#options.traces.samples(trace_id) !== is_sampled) this.#decided.set(key, is_sampled);
    else this.#decided.delete(key);
  }

  #isSampled(tenant_id: string, trace_id: string): boolean {
    return this.#decided.get(`${tenant_id}\n${trace_id}`) ?? this.#options.traces.samples(trace_id);
  }

  #step(step: Omit<MessageStep, "length_ms">): void {
    if (!step.trace.is_sampled) return;
    this.#options.onStep?.({ ...step, length_ms: this.#options.clock.monotonicMs() - step.from_ms });
  }
}

const nameOf = ({ tenant_id, inbox, msg_id }: EntryRef): string => `${tenant_id}\n${inbox}\n${msg_id}`;

/** 16 hexadecimal digits that follow from the parts: identifiers without line breaks. */
function spanIdOf(...parts: readonly string[]): string {
  return createHash("sha256").update(parts.join("\n")).digest("hex").slice(0, 16);
}

function codeOf(error: unknown): ErrorCode | null {
  if (error === null) return null;
  return error instanceof AppError ? error.code : "INTERNAL";
}

function readable(bytes: Uint8Array): Envelope | null {
  try {
    return decodeStored(bytes);
  } catch {
    return null;
  }
}
