/**
 * Receives the reports of the other folders: each request and each call goes into the metrics, each request into the log,
 * and sampled ones into spans if these are exported.
 *
 * O1. A line of the log holds ids, names and numbers. Keys, paths, queries, payloads, environment values and outputs
 *     are not among what is reported, so none of them can get there.
 */
import type { Log } from "../base/log.ts";
import type { Observer, Served } from "../base/request-observer.ts";
import type { CallObserver, ObservedCall } from "../functions/observer.ts";
import type { FunctionRecord } from "../functions/schema.ts";
import type { MessageStep } from "../icc/observer.ts";
import type { Metrics } from "./metrics.ts";

/** What makes spans; `Spans` where a collector is set. */
export interface SpanMaker {
  invoked(call: ObservedCall): void;
  served(request: Served): void;
  stepped(step: MessageStep): void;
}

export class Telemetry implements Observer, CallObserver {
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #spans: SpanMaker | null;

  constructor(log: Log, metrics: Metrics, spans: SpanMaker | null) {
    this.#log = log;
    this.#metrics = metrics;
    this.#spans = spans;
  }

  served(request: Served): void {
    this.#metrics.served(request);
    this.#spans?.served(request);
    const { request_id, method, route, status, error_code, is_poll, caller, notes, trace } = request;
    const fields = {
      request_id,
      method,
      route: route ?? undefined,
      status,
      error_code: error_code ?? undefined,
      tenant_id: caller?.tenant_id,
      key_id: caller?.key_id,
      function: notes.function,
      version: notes.version,
      invocation_id: notes.invocation_id,
      cold: notes.cold,
      outcome: notes.outcome,
      ms: Math.round((request.ended_ms - request.begun_ms) * 1000) / 1000,
      trace_id: trace.trace_id,
    };
    // Monitors and open pages repeat these every few seconds.
    const isRepeated = route === "/health" || (is_poll && error_code === null);
    if (isRepeated) this.#log.debug("request", fields);
    else this.#log.info("request", fields);
  }

  invoked(call: ObservedCall): void {
    this.#metrics.invoked(call.tenant_id, call.record);
    this.#spans?.invoked(call);
  }

  stepped(step: MessageStep): void {
    this.#spans?.stepped(step);
  }

  deleted({ tenant_id, name }: Pick<FunctionRecord, "tenant_id" | "name">): void {
    this.#metrics.deleted(tenant_id, name);
  }
}
