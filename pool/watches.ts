/**
 * Those who wait for the pool to get somewhere (warm, dropped, drained): conditions that are looked at after every
 * event while there are any. There are as many as deploys, deletes and shutdowns under way. Each has a deadline.
 */
import type { Clock } from "../src/base/clock.ts";
import type { AppError } from "../src/base/errors.ts";

export interface Condition {
  /** Calls one of the two when it is decided. */
  readonly check: (resolve: () => void, reject: (error: AppError) => void) => void;
  /** Returns the error of the wait at its deadline. */
  readonly late: () => AppError;
}

export class Watches {
  readonly #clock: Clock;
  /** Each settles its waiter and answers true when its condition is decided. */
  readonly #open = new Set<() => boolean>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get open_count(): number {
    return this.#open.size;
  }

  /** Waits at most `wait_ms` for a condition. */
  until(wait_ms: number, condition: Condition): Promise<void> {
    return new Promise((resolve, reject) => {
      let isDecided = false;
      const check = (): boolean => {
        condition.check(
          () => {
            isDecided = true;
            resolve();
          },
          (error) => {
            isDecided = true;
            reject(error);
          },
        );
        return isDecided;
      };
      if (check()) return;
      const cancel = this.#clock.after(wait_ms, () => {
        this.#open.delete(watch);
        if (!check()) reject(condition.late());
      });
      const watch = (): boolean => {
        if (!check()) return false;
        cancel();
        return true;
      };
      this.#open.add(watch);
    });
  }

  /** Looks at all conditions. */
  check(): void {
    for (const watch of this.#open) if (watch()) this.#open.delete(watch);
  }
}
