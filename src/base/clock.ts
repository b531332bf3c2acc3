/**
 * Time as an input. Every other module gets a `Clock` through its constructor, so that tests can hold time still;
 * this is also the only place that converts between the two time formats of the interface (containers: ISO 8601,
 * all else: integer epoch seconds).
 */

/** Milliseconds since the Unix epoch, may be fractional. */
export type EpochMs = number;
/** Whole seconds since the Unix epoch: the wire format of every record but a container's. */
export type EpochSeconds = number;
/** ISO 8601 text with milliseconds and `Z`: the wire format of containers. */
export type IsoTime = string;

/** Cancels a pending timer. Harmless when the timer has already fired. */
export type CancelTimer = () => void;

export interface Clock {
  /** Wall clock, for records and deadlines that leave the process. It can jump. */
  epochMs(): EpochMs;
  /** Monotonic milliseconds with microsecond digits, for durations and waits. It never goes back. */
  monotonicMs(): number;
  /** Calls `fn` once after `delay_ms`. The timer does not keep the process alive. */
  after(delay_ms: number, fn: () => void): CancelTimer;
}

export const systemClock: Clock = {
  epochMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delay_ms, fn) {
    const timer = setTimeout(fn, delay_ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
};

export function toEpochSeconds(ms: EpochMs): EpochSeconds {
  return Math.floor(ms / 1000);
}

const SECOND_MS = 1_000;
/** Text of the second that was asked for last: a busy daemon asks thousands of times a second. */
const last = { second: Number.NaN, text: "" };

export function toIsoTime(ms: EpochMs): IsoTime {
  const second = Math.floor(ms / SECOND_MS);
  if (second !== last.second) {
    last.text = new Date(second * SECOND_MS).toISOString().slice(0, -4);
    last.second = second;
  }
  return `${last.text}${String(Math.floor(ms) - second * SECOND_MS).padStart(3, "0")}Z`;
}

/** As HTTP headers show it (RFC 9110 §5.6.7). */
export function toHttpDate(ms: EpochMs): string {
  return new Date(ms).toUTCString();
}

/** Resolves after `delay_ms` on the given clock. */
export function sleep(clock: Clock, delay_ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delay_ms, resolve);
  });
}
