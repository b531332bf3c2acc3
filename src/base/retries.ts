/** Cleaning up that must not be left undone: when it fails it is repeated in the background, by key, within bounds. */
import type { CancelTimer, Clock } from "./clock.ts";
import { errorText } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";

export interface RetriesOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Names in the log what is cleaned up. */
  readonly what: string;
  /** Runs a later attempt; the first is the caller's. */
  later(key: string, attempt: () => Promise<void>): Promise<void>;
}

export class Retries {
  readonly #options: RetriesOptions;
  /** Work that waits for its next attempt. */
  readonly #waiting = new Map<string, CancelTimer>();
  #isClosed = false;

  constructor(options: RetriesOptions) {
    this.#options = options;
  }

  /** Settles with the first attempt. Work of the same key that waits for its next attempt is dropped. */
  async run(key: string, work: () => Promise<void>, attempts = 1): Promise<void> {
    const { clock, log, what, later } = this.#options;
    this.#waiting.get(key)?.();
    this.#waiting.delete(key);
    try {
      await work();
    } catch (error) {
      log.warn(`${what} not cleaned up`, { id: key, attempts, error: errorText(error) });
      if (attempts < LIMITS.removal_attempts_max && !this.#isClosed) {
        const pause_ms = Math.min(LIMITS.removal_retry_ms, LIMITS.removal_retry_ms_min * 2 ** (attempts - 1));
        const again = () => void later(key, () => this.run(key, work, attempts + 1)).catch(() => {});
        this.#waiting.set(key, clock.after(pause_ms, again));
      }
      throw error;
    }
  }

  /** Begins no more attempts. */
  close(): void {
    this.#isClosed = true;
    for (const cancel of this.#waiting.values()) cancel();
    this.#waiting.clear();
  }
}
