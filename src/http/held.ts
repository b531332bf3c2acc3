/**
 * Hot path. What the requests of one listener hold in memory at the same time: bodies until their request is answered,
 * answers until the client has taken them. Each alone has a bound; without one for all together a few clients that send
 * much and read nothing would end the daemon.
 *
 * B1. The sum never passes `held_bytes_max`. The last quarter is kept for requests that hold little, so that large ones
 *     cannot shut out the others.
 * B2. What a share holds it gives back once, when it is ended.
 * B3. A client that takes nothing of a large answer for `answer_stall_ms` is cut, so that those who never read do not
 *     hold their shares for good. serve.ts does it.
 */
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";

const LARGE_PART = 0.75;

export class Held {
  /** Of one client that takes nothing (B3). */
  readonly stall_ms: number;
  readonly #bytes_max: number;
  #bytes = 0;

  constructor(bytes_max: number = LIMITS.held_bytes_max, stall_ms: number = LIMITS.answer_stall_ms) {
    this.#bytes_max = bytes_max;
    this.stall_ms = stall_ms;
  }

  /** Of all shares that have not ended. */
  get bytes(): number {
    return this.#bytes;
  }

  share(): Share {
    return new Share(this);
  }

  /** For `Share`. False, and nothing changed, when `bytes` more would be too much for one that holds `own_bytes`. */
  take(bytes: number, own_bytes: number): boolean {
    const isSmall = own_bytes + bytes <= LIMITS.held_small_bytes_max;
    if (this.#bytes + bytes > this.#bytes_max * (isSmall ? 1 : LARGE_PART)) return false;
    this.#bytes += bytes;
    return true;
  }

  /** For `Share`. */
  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** What one request holds. */
export class Share {
  readonly #held: Held;
  #bytes = 0;

  constructor(held: Held) {
    this.#held = held;
  }

  get stall_ms(): number {
    return this.#held.stall_ms;
  }

  /** Undefined, or the refusal when there is no room (B1). */
  add(bytes: number): AppError | undefined {
    if (this.#held.take(bytes, this.#bytes)) {
      this.#bytes += bytes;
      return undefined;
    }
    return new AppError("CAPACITY_FULL", "other requests hold all the memory there is for requests", {
      retry_after: 1,
    });
  }

  /** Gives everything back. Harmless the second time (B2). */
  end(): void {
    this.#held.give(this.#bytes);
    this.#bytes = 0;
  }
}
