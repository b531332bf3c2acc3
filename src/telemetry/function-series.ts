/**
 * Counts and durations by function, for the function's own tenant and for the operator.
 *
 * L1. At most `functions_max` functions have series of their own. The least recently called goes into `other`, so that
 *     sums stay true; a deleted one goes altogether.
 * L2. A tenant is shown its own functions only, and `other`, which tells of all tenants, not.
 */
import { LRUCache } from "lru-cache";
import { Counter, Registry } from "prom-client";
import { LIMITS } from "../base/limits.ts";
import type { InvocationRecord, InvocationStatus } from "../functions/schema.ts";

/** Stands in place of both labels; a tenant's id is never this. */
const OTHER = "other";

interface Series {
  readonly tenant_id: string;
  readonly name: string;
  readonly counts: Record<InvocationStatus, number>;
  cold_count: number;
  duration_ms: number;
  idle_cpu_ms: number;
}

const emptySeries = (tenant_id: string, name: string): Series => ({
  tenant_id,
  name,
  counts: { success: 0, failed: 0, timeout: 0, cancelled: 0 },
  cold_count: 0,
  duration_ms: 0,
  idle_cpu_ms: 0,
});

export class FunctionSeries {
  readonly #series: LRUCache<string, Series>;
  readonly #other = emptySeries(OTHER, OTHER);

  constructor(functions_max: number = LIMITS.metrics_functions_max) {
    this.#series = new LRUCache({
      max: functions_max,
      dispose: (series, _, reason) => {
        if (reason === "evict") add(this.#other, series);
      },
    });
  }

  count(tenant_id: string, { function_name, status, cold_start, timings }: InvocationRecord): void {
    const key = keyOf(tenant_id, function_name);
    let series = this.#series.get(key);
    if (series === undefined) {
      series = emptySeries(tenant_id, function_name);
      this.#series.set(key, series);
    }
    series.counts[status] += 1;
    if (cold_start) series.cold_count += 1;
    series.duration_ms += timings.total;
  }

  /** Counts processor time of an instance without a call: in `other` if its function has no series, as a deleted one. */
  idled(tenant_id: string, function_name: string, cpu_ms: number): void {
    const series = this.#series.peek(keyOf(tenant_id, function_name)) ?? this.#other;
    series.idle_cpu_ms += cpu_ms;
  }

  forget(tenant_id: string, name: string): void {
    this.#series.delete(keyOf(tenant_id, name));
  }

  /** The series that `tenant_id` may see, of all tenants for null (L2), as metrics of a registry of their own. */
  registry(tenant_id: string | null): Registry {
    const registry = new Registry();
    const labelNames = ["tenant_id", "function"];
    const counter = (name: string, help: string, more: readonly string[] = []) =>
      new Counter({ name, help, labelNames: [...labelNames, ...more], registers: [registry] });
    const calls = counter("hearth_function_invocations_total", "Calls of a function, by outcome.", ["status"]);
    const cold = counter("hearth_function_cold_starts_total", "Cold starts of a function.");
    const seconds = counter(
      "hearth_function_duration_seconds_total",
      "Duration of a function's calls in seconds, from arrival to outcome.",
    );
    const shown = [...this.#series.values()].filter((one) => tenant_id === null || one.tenant_id === tenant_id);
    const idle = counter(
      "hearth_function_idle_cpu_seconds_total",
      "Processor time that instances of a function used in seconds while they ran no call.",
    );
    const isOtherUsed = Object.values(this.#other.counts).some((count) => count > 0);
    for (const series of tenant_id === null && isOtherUsed ? [...shown, this.#other] : shown) {
      const labels = { tenant_id: series.tenant_id, function: series.name };
      for (const [status, count] of Object.entries(series.counts)) calls.inc({ ...labels, status }, count);
      cold.inc(labels, series.cold_count);
      seconds.inc(labels, series.duration_ms / 1000);
      idle.inc(labels, series.idle_cpu_ms / 1000);
    }
    return registry;
  }
}

function keyOf(tenant_id: string, name: string): string {
  return `${tenant_id}\n${name}`;
}

function add(to: Series, from: Series): void {
  for (const status of Object.keys(from.counts) as InvocationStatus[]) to.counts[status] += from.counts[status];
  to.cold_count += from.cold_count;
  to.duration_ms += from.duration_ms;
  to.idle_cpu_ms += from.idle_cpu_ms;
}
