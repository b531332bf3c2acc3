/**
 * Trace context as W3C writes it (https://www.w3.org/TR/trace-context/): taken from a request where it is
 * valid, made where it is not, and handed on to the handler. Recording and exporting are src/telemetry's.
 *
 * T1. Whoever sent a context has decided whether it is sampled; for a trace that begins here the ratio decides.
 */
import type { Ids } from "./ids.ts";
import { LIMITS } from "./limits.ts";

/** One request's place in a trace. */
export interface Trace {
  /** 32 hexadecimal digits. */
  readonly trace_id: string;
  /** The request's own span, 16 hexadecimal digits: the parent of what the handler does. */
  readonly span_id: string;
  /** The caller's span; null where the trace begins here. */
  readonly parent_span_id: string | null;
  readonly is_sampled: boolean;
  /** The caller's `tracestate`, untouched. */
  readonly state: string | null;
}

const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;
const TRACEPARENT = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;
const TRACESTATE = new RegExp(`^[\\x20-\\x7e]{1,${LIMITS.tracestate_length_max}}$`);
const SAMPLED = 1;

/** True for the id of a trace as W3C writes it. */
export const isTraceId = (text: string): boolean => TRACE_ID.test(text);

export class Traces {
  readonly #ids: Ids;
  readonly #sample_ratio: number;

  /** `sample_ratio`: of the traces that begin here, from 0 to 1. */
  constructor(ids: Ids, sample_ratio: number) {
    this.#ids = ids;
    this.#sample_ratio = sample_ratio;
  }

  /** The context of a request from its two headers. Anything but version 00 in exact form begins a trace (T1). */
  begin(traceparent: unknown, tracestate: unknown): Trace {
    const span_id = this.#ids.hex(16);
    const match = typeof traceparent === "string" ? TRACEPARENT.exec(traceparent) : null;
    if (match === null) {
      const trace_id = this.#ids.hex(32);
      return { trace_id, span_id, parent_span_id: null, is_sampled: this.samples(trace_id), state: null };
    }
    const [, trace_id = "", parent_span_id = "", flags = ""] = match;
    const state = typeof tracestate === "string" && TRACESTATE.test(tracestate) ? tracestate : null;
    return { trace_id, span_id, parent_span_id, is_sampled: (Number.parseInt(flags, 16) & SAMPLED) !== 0, state };
  }

  /** The decision of the ratio, the same each time for one trace. */
  samples(trace_id: string): boolean {
    return this.#sample_ratio > 0 && Number.parseInt(trace_id.slice(-8), 16) < this.#sample_ratio * 2 ** 32;
  }

  /** An id for a span inside a request. */
  spanId(): string {
    return this.#ids.hex(16);
  }
}

/** The `traceparent` that what this request calls is given. */
export function traceparentOf({ trace_id, span_id, is_sampled }: Trace): string {
  return `00-${trace_id}-${span_id}-${is_sampled ? "01" : "00"}`;
}
