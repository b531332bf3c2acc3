/**
 * Events of execs: `exec_started` and `exec_died`, each written in the batch of the job's record. They name the job,
 * not its command or output, which may hold secrets.
 *
 * N1. At most `exec_events_per_window_max` execs of a tenant emit events in one `exec_events_window_ms`: commands that
 *     run often must not displace everything else in the tenant's log. An exec emits both events or neither, and the
 *     next one that does says how many did not (`omitted_count`).
 */
import { LRUCache } from "lru-cache";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import type { NewEvent } from "../../events/schema.ts";
import type { JobRecord } from "./schema.ts";

/** The end of a command. */
export interface JobEnd {
  readonly status: JobRecord["status"];
  readonly exit_code: number | null;
  readonly duration_ms: number | null;
  readonly timed_out: boolean;
  readonly error_message: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
}

export class ExecEvents {
  readonly #clock: Clock;
  #window_ms = Number.NEGATIVE_INFINITY;
  /** Of this window, by tenant. */
  readonly #counts = new Map<string, number>();
  /** Execs without an event since the last one with an event, by tenant. An evicted tenant loses its count. */
  readonly #omitted = new LRUCache<string, number>({ max: LIMITS.exec_events_omitted_tenants_max });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Number of execs before this one that emitted no event; null: this one emits none either (N1). */
  admit(tenant_id: string): number | null {
    const now_ms = this.#clock.monotonicMs();
    if (now_ms - this.#window_ms >= LIMITS.exec_events_window_ms) {
      this.#window_ms = now_ms;
      this.#counts.clear();
    }
    const count = this.#counts.get(tenant_id) ?? 0;
    const omitted_count = this.#omitted.get(tenant_id) ?? 0;
    if (count >= LIMITS.exec_events_per_window_max) {
      this.#omitted.set(tenant_id, omitted_count + 1);
      return null;
    }
    this.#counts.set(tenant_id, count + 1);
    this.#omitted.delete(tenant_id);
    return omitted_count;
  }
}

interface EventOf {
  readonly job_id: string;
  readonly container_id: string;
  readonly pid: number | null;
  readonly omitted_count: number | null;
}

export function startedEvents({ job_id, container_id, pid, omitted_count }: EventOf): readonly NewEvent[] {
  if (omitted_count === null) return [];
  const data = { job_id, pid, ...(omitted_count === 0 ? {} : { omitted_count }) };
  return [{ name: "container_update", event_type: "exec_started", container_id, data }];
}

export function diedEvents({ job_id, container_id, omitted_count }: EventOf, end: JobEnd): readonly NewEvent[] {
  if (omitted_count === null) return [];
  const { status, exit_code, duration_ms, timed_out } = end;
  const data = { job_id, status, exit_code, duration_ms, timed_out };
  return [{ name: "container_update", event_type: "exec_died", container_id, data }];
}
