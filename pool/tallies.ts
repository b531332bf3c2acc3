/**
 * The pool's memory: the gaps between a group's calls, plain totals since the start, and the last events for the report
 * of a fault. Nothing here decides; `policy.ts` reads.
 */
import { LIMITS } from "../src/base/limits.ts";
import { ARRIVAL_BUCKETS, arrivalBucket } from "./policy.ts";
import type { PoolEvent } from "./protocol.ts";

/** Histogram of the gaps between calls, by powers of two. Halved when full, so that recent habits outweigh old ones. */
export class Arrivals {
  readonly buckets = new Uint32Array(ARRIVAL_BUCKETS);
  sample_count = 0;
  #last_ms: number | null = null;

  note(now_ms: number): void {
    const last = this.#last_ms;
    this.#last_ms = now_ms;
    if (last === null) return;
    const bucket = arrivalBucket(now_ms - last);
    this.buckets[bucket] = (this.buckets[bucket] ?? 0) + 1;
    this.sample_count += 1;
    if (this.sample_count >= LIMITS.arrival_samples_max) this.#halve();
  }

  #halve(): void {
    this.sample_count = 0;
    for (let i = 0; i < ARRIVAL_BUCKETS; i++) {
      const half = (this.buckets[i] ?? 0) >> 1;
      this.buckets[i] = half;
      this.sample_count += half;
    }
  }
}

/** Totals since the start. */
export class Tally {
  started_count = 0;
  start_failed_count = 0;
  crashed_count = 0;
  evicted_count = 0;
  expired_count = 0;
  remove_failed_count = 0;
  cell_hit_count = 0;
  cell_miss_count = 0;
}

/** The last events, oldest first. Noting one stores a reference. */
export class Recent {
  readonly #ring: (PoolEvent | undefined)[] = new Array(LIMITS.recent_events_max).fill(undefined);
  #next = 0;

  note(event: PoolEvent): void {
    this.#ring[this.#next] = event;
    this.#next = this.#next + 1 === LIMITS.recent_events_max ? 0 : this.#next + 1;
  }

  list(): PoolEvent[] {
    const ordered = [...this.#ring.slice(this.#next), ...this.#ring.slice(0, this.#next)];
    return ordered.filter((event) => event !== undefined);
  }
}
