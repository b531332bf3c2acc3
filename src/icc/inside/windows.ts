/**
 * Counts of containers and tenants in windows of time of one length. All counts begin anew with each window, so they take no
 * memory beyond one.
 */
import type { Clock } from "../../base/clock.ts";
import type { Self } from "./inside.ts";

export interface WindowBounds {
  readonly window_ms: number;
  /** Of one container, and of all containers of a tenant. */
  readonly container_max: number;
  readonly tenant_max: number;
}

export class Windows {
  readonly #clock: Clock;
  readonly #bounds: WindowBounds;
  readonly #counts = new Map<string, number>();
  #begun_ms = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, bounds: WindowBounds) {
    this.#clock = clock;
    this.#bounds = bounds;
  }

  /** Counts one. Returns 0, or the milliseconds until the next window if a bound is reached: then nothing is counted. */
  take({ container_id, tenant_id }: Self): number {
    const { window_ms, container_max, tenant_max } = this.#bounds;
    const now_ms = this.#clock.monotonicMs();
    if (now_ms - this.#begun_ms >= window_ms) {
      this.#counts.clear();
      this.#begun_ms = now_ms;
    }
    // Ids of containers and tenants have different prefixes.
    const own = this.#counts.get(container_id) ?? 0;
    const all = this.#counts.get(tenant_id) ?? 0;
    if (own >= container_max || all >= tenant_max) return this.#begun_ms + window_ms - now_ms;
    this.#counts.set(container_id, own + 1).set(tenant_id, all + 1);
    return 0;
  }
}
