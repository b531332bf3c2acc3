/**
 * The spans of a request, made when all of it is known: the request, and under it what its call went through. Names of
 * attributes are those of OpenTelemetry's semantic conventions where there are any. Loaded only where spans are
 * exported; sending them is otlp.ts's.
 *
 * A container that is started for a call is started while the call waits, so `network`, `rootfs` and `start` lie under
 * `queue` and end with it; one that was under way before the call came may begin before it.
 */
import { type Attributes, createTraceState, SpanKind, SpanStatusCode, TraceFlags } from "@opentelemetry/api";
import type { Resource } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import type { Clock } from "../base/clock.ts";
import type { Served } from "../base/request-observer.ts";
import type { Trace, Traces } from "../base/trace.ts";
import type { ObservedCall } from "../functions/observer.ts";
import type { MessageStep } from "../icc/observer.ts";

export interface SpansOptions {
  readonly clock: Clock;
  readonly traces: Traces;
  readonly resource: Resource;
  readonly version: string;
  /** Takes a finished span. */
  readonly onEnd: (span: ReadableSpan) => void;
}

interface Draft {
  readonly name: string;
  readonly trace: Trace;
  readonly span_id: string;
  readonly parent_span_id: string | null;
  readonly kind: SpanKind;
  /** Monotonic. */
  readonly from_ms: number;
  readonly length_ms: number;
  readonly attributes: Attributes;
  readonly is_error: boolean;
}

const MESSAGE_KINDS = {
  publish: SpanKind.PRODUCER,
  receive: SpanKind.CONSUMER,
  ack: SpanKind.INTERNAL,
  fail: SpanKind.INTERNAL,
  requeue: SpanKind.INTERNAL,
} as const;

/** Beyond this the wall clock was set: what lies between is its resolution of a millisecond. */
const CLOCK_SLACK_MS = 5;

export class Spans {
  readonly #options: SpansOptions;
  /** From monotonic time to the epoch, the same for all spans of a trace unless the clock is set. */
  #epoch_offset_ms = Number.NaN;

  constructor(options: SpansOptions) {
    this.#options = options;
  }

  /** What a call went through, under its request's span. */
  invoked({ record, tenant_id, trace, arrived_ms, commit_ms }: ObservedCall): void {
    if (!trace.is_sampled) return;
    const { queue, cell = 0, load = 0, network, rootfs, start, open, handler, total } = record.timings;
    const queue_id = this.#phase(trace, "queue", trace.span_id, arrived_ms, queue);
    let ends_ms = arrived_ms + queue;
    for (const [name, length_ms] of [
      ["open", open] as const,
      ["start", start] as const,
      ["rootfs", rootfs] as const,
      ["network", network] as const,
    ]) {
      if (length_ms === undefined) continue;
      ends_ms -= length_ms;
      this.#phase(trace, name, queue_id, ends_ms, length_ms);
    }
    if (record.timings.cell !== undefined) this.#phase(trace, "cell", trace.span_id, arrived_ms + queue, cell);
    if (load > 0) this.#phase(trace, "load", trace.span_id, arrived_ms + queue + cell, load);
    this.#end({
      name: "handler",
      trace,
      span_id: this.#options.traces.spanId(),
      parent_span_id: trace.span_id,
      kind: SpanKind.INTERNAL,
      from_ms: arrived_ms + queue + cell + load,
      length_ms: handler,
      attributes: {
        "faas.name": record.function_name,
        "faas.version": String(record.version),
        "faas.invocation_id": record.invocation_id,
        "faas.coldstart": record.cold_start,
        "hearth.function_id": record.function_id,
        "hearth.tenant_id": tenant_id,
        "hearth.invocation.status": record.status,
        ...(record.exit_code === null ? {} : { "process.exit.code": record.exit_code }),
      },
      is_error: record.status !== "success",
    });
    this.#phase(trace, "commit", trace.span_id, arrived_ms + total, commit_ms);
  }

  /** The request as a whole. */
  served({ trace, method, route, status, error_code, caller, request_id, notes, begun_ms, ended_ms }: Served): void {
    if (!trace.is_sampled) return;
    this.#end({
      name: route === null ? method : `${method} ${route}`,
      trace,
      span_id: trace.span_id,
      parent_span_id: trace.parent_span_id,
      kind: SpanKind.SERVER,
      from_ms: begun_ms,
      length_ms: ended_ms - begun_ms,
      attributes: {
        "http.request.method": method,
        "http.response.status_code": status,
        "hearth.request_id": request_id,
        ...(route === null ? {} : { "http.route": route }),
        ...(error_code === null ? {} : { "error.type": error_code }),
        ...(caller === null ? {} : { "hearth.tenant_id": caller.tenant_id, "hearth.key_id": caller.key_id }),
        ...(notes.function === undefined ? {} : { "faas.name": notes.function, "faas.trigger": "http" }),
        ...(notes.version === undefined ? {} : { "faas.version": String(notes.version) }),
        ...(notes.invocation_id === undefined ? {} : { "faas.invocation_id": notes.invocation_id }),
        ...(notes.cold === undefined ? {} : { "faas.coldstart": notes.cold }),
        ...(notes.outcome === undefined ? {} : { "hearth.invocation.status": notes.outcome }),
      },
      is_error: status >= 500,
    });
  }

  /** A step of a message, under the step before. */
  stepped(step: MessageStep): void {
    const { operation, target, trace, from_ms, length_ms, correlation_id, deliveries, error_code } = step;
    if (!trace.is_sampled) return;
    this.#end({
      name: `${operation} ${target}`,
      trace,
      span_id: trace.span_id,
      parent_span_id: trace.parent_span_id,
      kind: MESSAGE_KINDS[operation],
      ...{ from_ms, length_ms },
      attributes: {
        "messaging.system": "hearth",
        "messaging.operation.name": operation,
        "messaging.destination.name": step.inbox,
        "messaging.message.id": step.msg_id,
        "hearth.tenant_id": step.tenant_id,
        ...(correlation_id === "" ? {} : { "messaging.message.conversation_id": correlation_id }),
        ...(deliveries === null ? {} : { "hearth.message.deliveries": deliveries }),
        ...(error_code === null ? {} : { "error.type": error_code }),
      },
      is_error: error_code !== null || operation === "fail",
    });
  }

  /** Returns its id. */
  #phase(trace: Trace, name: string, parent_span_id: string, from_ms: number, length_ms: number): string {
    const span_id = this.#options.traces.spanId();
    const kind = SpanKind.INTERNAL;
    this.#end({ name, trace, span_id, parent_span_id, kind, from_ms, length_ms, attributes: {}, is_error: false });
    return span_id;
  }

  #end({ name, trace, span_id, parent_span_id, kind, from_ms, length_ms, attributes, is_error }: Draft): void {
    const { resource, version, onEnd } = this.#options;
    const { trace_id, state } = trace;
    const startTime = hrTime(from_ms + this.#epochOffset());
    const context = {
      traceId: trace_id,
      traceFlags: TraceFlags.SAMPLED,
      ...(state === null ? {} : { traceState: createTraceState(state) }),
    };
    onEnd({
      name,
      kind,
      spanContext: () => ({ ...context, spanId: span_id }),
      ...(parent_span_id === null
        ? {}
        : { parentSpanContext: { ...context, spanId: parent_span_id, isRemote: kind === SpanKind.SERVER } }),
      startTime,
      endTime: hrTime(from_ms + length_ms + this.#epochOffset()),
      duration: hrTime(length_ms),
      status: { code: is_error ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
      attributes,
      links: [],
      events: [],
      ended: true,
      resource,
      instrumentationScope: { name: "hearth", version },
      droppedAttributesCount: 0,
      droppedEventsCount: 0,
      droppedLinksCount: 0,
    });
  }

  #epochOffset(): number {
    const { clock } = this.#options;
    const offset_ms = clock.epochMs() - clock.monotonicMs();
    if (!(Math.abs(offset_ms - this.#epoch_offset_ms) < CLOCK_SLACK_MS)) this.#epoch_offset_ms = offset_ms;
    return this.#epoch_offset_ms;
  }
}

/** Seconds and nanoseconds. */
function hrTime(ms: number): [number, number] {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.min(999_999_999, Math.round((ms - seconds * 1000) * 1e6))];
}
