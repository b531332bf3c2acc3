/** Work of which only so much is done at once; the rest waits its turn, within a bound. */
import type { AppError } from "./errors.ts";

export class Gate {
  readonly #at_once: number;
  readonly #waiting_max: number;
  readonly #full: () => AppError;
  readonly #waiting: (() => void)[] = [];
  #running_count = 0;

  /** `full`: the refusal when `waiting_max` wait already. */
  constructor(at_once: number, waiting_max: number, full: () => AppError) {
    this.#at_once = at_once;
    this.#waiting_max = waiting_max;
    this.#full = full;
  }

  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running_count >= this.#at_once) {
      if (this.#waiting.length >= this.#waiting_max) throw this.#full();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else {
      this.#running_count++;
    }
    try {
      return await work();
    } finally {
      // The place goes to the work that waits longest.
      const next = this.#waiting.shift();
      if (next === undefined) this.#running_count--;
      else next();
    }
  }
}
