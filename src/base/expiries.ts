/** Removes what expires when its time comes: one timer, for the next of many. The rows are the owner's. */
import type { CancelTimer, Clock, EpochSeconds } from "./clock.ts";
import { errorText } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";

export interface ExpiriesOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Names in the log what expires. */
  readonly what: string;
  /** Removes what has expired, or some of it. */
  expire(): Promise<void>;
  /** The nearest time at which something expires, past ones included; null: nothing does. */
  next(): Promise<EpochSeconds | null>;
}

export class Expiries {
  readonly #options: ExpiriesOptions;
  /** Wall clock, in seconds: when the timer is due. */
  #due_at = Number.POSITIVE_INFINITY;
  #cancel: CancelTimer = () => {};
  #isClosed = false;

  constructor(options: ExpiriesOptions) {
    this.#options = options;
  }

  /** Looks for the nearest time, and from then on at each that comes. */
  begin(): Promise<void> {
    return this.#arm(0);
  }

  /** Something expires at that time. Null: never. */
  note(at: EpochSeconds | null): void {
    if (at !== null) this.#note(at, 0);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  /** `pause_ms_min`: so that what cannot be removed is not tried without a pause. */
  #note(at: EpochSeconds, pause_ms_min: number): void {
    if (at >= this.#due_at || this.#isClosed) return;
    this.#cancel();
    this.#due_at = at;
    // The wall clock may be set meanwhile, and a timer holds 24 days at most.
    const pause_ms = Math.min(
      LIMITS.expiry_look_ms_max,
      Math.max(pause_ms_min, at * 1_000 - this.#options.clock.epochMs()),
    );
    this.#cancel = this.#options.clock.after(pause_ms, () => {
      this.#due_at = Number.POSITIVE_INFINITY;
      void this.#expire();
    });
  }

  async #expire(): Promise<void> {
    const { expire, log, what } = this.#options;
    await expire().catch((error) => log.warn(`expired ${what} not removed`, { error: errorText(error) }));
    await this.#arm(LIMITS.expiry_retry_ms);
  }

  async #arm(pause_ms_min: number): Promise<void> {
    const { next, log, what } = this.#options;
    try {
      const at = await next();
      if (at !== null) this.#note(at, pause_ms_min);
    } catch (error) {
      // The periodic work removes it later.
      log.warn(`expiry of ${what} not known`, { error: errorText(error) });
    }
  }
}
