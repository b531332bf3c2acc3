/**
 * Sends spans to a collector by OTLP over HTTP. Loaded only if a collector is set. Metrics are scraped at /metrics.
 *
 * X1. Nothing waits for the collector: spans queue up to a bound and are dropped above it, and the end of the daemon
 *     waits `otlp_end_ms` at most.
 * X2. A collector that fails is named in the log once a minute at most.
 */
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, type ReadableSpan } from "@opentelemetry/sdk-trace";
import { type Clock, sleep } from "../base/clock.ts";
import { errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Traces } from "../base/trace.ts";
import { Spans } from "./spans.ts";

export interface OtlpOptions {
  /** Of the collector, without the path. */
  readonly url: string;
  readonly version: string;
  readonly node_id: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly traces: Traces;
}

export interface Otlp {
  readonly spans: Spans;
  /** Sends what is left (X1). */
  close(): Promise<void>;
}

export function startOtlp({ url, version, node_id, clock, log, traces }: OtlpOptions): Otlp {
  const resource = resourceFromAttributes({
    "service.name": "hearth",
    "service.version": version,
    "service.instance.id": node_id,
  });
  const complaints = new Complaints(url, clock, log);
  const timeoutMillis = LIMITS.otlp_timeout_ms;
  const processor = new BatchSpanProcessor({
    exporter: new WatchedSpans({ url: `${url}/v1/traces`, timeoutMillis }, complaints),
    maxQueueSize: LIMITS.spans_waiting_max,
    maxExportBatchSize: LIMITS.spans_batch_max,
    scheduledDelayMillis: LIMITS.spans_interval_ms,
    exportTimeoutMillis: timeoutMillis,
  });
  return {
    spans: new Spans({ clock, traces, resource, version, onEnd: (span) => processor.onEnd(span) }),
    async close() {
      // The exporter has logged its failure already.
      await Promise.race([processor.shutdown().catch(() => {}), sleep(clock, LIMITS.otlp_end_ms)]);
    },
  };
}

type Result = Parameters<Parameters<OTLPTraceExporter["export"]>[1]>[0];
type Config = ConstructorParameters<typeof OTLPTraceExporter>[0];

class WatchedSpans extends OTLPTraceExporter {
  readonly #complaints: Complaints;

  constructor(config: Config, complaints: Complaints) {
    super(config);
    this.#complaints = complaints;
  }

  override export(spans: ReadableSpan[], done: (result: Result) => void): void {
    super.export(spans, (result) => {
      if (result.error !== undefined) this.#complaints.note(result.error, spans.length);
      done(result);
    });
  }
}

/** What is said of failures, seldom (X2). */
class Complaints {
  readonly #url: string;
  readonly #clock: Clock;
  readonly #log: Log;
  #quiet_until_ms = 0;
  #lost_count = 0;

  constructor(url: string, clock: Clock, log: Log) {
    this.#url = url;
    this.#clock = clock;
    this.#log = log;
  }

  note(error: unknown, lost_count: number): void {
    this.#lost_count += lost_count;
    const now_ms = this.#clock.monotonicMs();
    if (now_ms < this.#quiet_until_ms) return;
    this.#quiet_until_ms = now_ms + LIMITS.otlp_complaint_interval_ms;
    this.#log.warn("the collector refuses exports", {
      url: this.#url,
      error: errorText(error),
      spans_lost: this.#lost_count,
    });
    this.#lost_count = 0;
  }
}
