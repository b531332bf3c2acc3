/**
 * What is going to happen in a simulated history and when, and the dice that decide it. Knows nothing of the pool:
 * `history.ts` and `launcher.ts` plan, `simulation.ts` plays.
 */
import { seededRandom } from "../../bench/stats.ts";
import type { PoolEvent } from "../../pool/protocol.ts";
import { Timers } from "../../pool/timers.ts";
import { invariant } from "../../src/base/errors.ts";

/** An event before it is known what the clock will show. The deadline of a call is by the time of the world. */
export type Untimed = PoolEvent extends infer E ? (E extends PoolEvent ? Omit<E, "now_ms"> : never) : never;

/** Dice that fall the same way for the same seed. */
export class Random {
  /** In [0, 1). */
  readonly unit: () => number;

  constructor(seed: number) {
    this.unit = seededRandom(seed);
  }

  chance(share: number): boolean {
    return this.unit() < share;
  }

  /** A whole number, both ends included. */
  whole(min: number, max: number): number {
    return min + Math.floor(this.unit() * (max - min + 1));
  }

  pick<T>(options: readonly T[]): T {
    const picked = options[Math.floor(this.unit() * options.length)];
    invariant(picked !== undefined, "the simulator picked from nothing");
    return picked;
  }
}

/** Events by the time of the world, which only moves ahead; what the scheduler is shown may differ from it. */
export class Timeline {
  now_ms = 0;
  #next_call = 1;
  readonly #future = new Timers<Untimed>();

  add(delay_ms: number, event: Untimed): void {
    this.#future.add(this.now_ms + delay_ms, event);
  }

  /** A call that will wait for at most `wait_ms`; answers its number. */
  addCall(delay_ms: number, group: string, wait_ms: number, depth = 0): number {
    const call = this.#next_call++;
    this.add(delay_ms, {
      type: "call_arrived",
      call,
      group,
      deadline_ms: this.now_ms + delay_ms + wait_ms,
      depth,
    });
    return call;
  }

  /** Infinity when nothing is planned. */
  nextDue(): number {
    return this.#future.nextDue();
  }

  takeDue(): Untimed | null {
    return this.#future.takeDue(this.now_ms)?.subject ?? null;
  }
}
