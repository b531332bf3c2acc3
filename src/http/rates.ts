/**
 * Requests per second of a tenant, over all its credentials and both listeners: a token bucket for each
 * tenant that has a limit, and nothing for the others.
 *
 * R1. A bucket holds one second's worth, at least one request, and is full when it is made.
 */
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { TransferTurns } from "../base/transfer-turns.ts";

interface Bucket {
  readonly per_second: number;
  readonly capacity: number;
  tokens: number;
  filled_ms: number;
}

/** What a request has been told of its tenant's rate. */
export interface Taken {
  /** `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers). */
  readonly headers: Readonly<Record<string, string>>;
  /** What to answer, where the bucket was empty. */
  readonly refusal: AppError | null;
}

/**
 * The port of the limiter of requests. Single writer: one process counts in its memory; a second node would let each
 * tenant send its rate once more.
 */
export interface RateLimiter {
  /** Null: no limit. A tenant whose limit changes begins with a full bucket. */
  set(tenant_id: string, per_second: number | null): void;
  /** Counts one request. Null for a tenant without a limit. Synchronous. */
  take(tenant_id: string): Taken | null;
}

export class LocalRates implements RateLimiter {
  readonly #clock: Clock;
  readonly #turns: TransferTurns;
  readonly #buckets = new Map<string, Bucket>();

  /** `turns` hear of each request that counts here. */
  constructor(clock: Clock, turns: TransferTurns) {
    this.#clock = clock;
    this.#turns = turns;
  }

  set(tenant_id: string, per_second: number | null): void {
    if (per_second === null) this.#buckets.delete(tenant_id);
    else if (this.#buckets.get(tenant_id)?.per_second !== per_second) {
      const capacity = Math.max(1, Math.ceil(per_second));
      this.#buckets.set(tenant_id, { per_second, capacity, tokens: capacity, filled_ms: this.#clock.monotonicMs() });
    }
  }

  take(tenant_id: string): Taken | null {
    const now_ms = this.#clock.monotonicMs();
    this.#turns.seen(tenant_id, now_ms);
    const bucket = this.#buckets.get(tenant_id);
    if (bucket === undefined) return null;
    const { per_second, capacity } = bucket;
    bucket.tokens = Math.min(capacity, bucket.tokens + ((now_ms - bucket.filled_ms) * per_second) / 1000);
    bucket.filled_ms = now_ms;
    const isEmpty = bucket.tokens < 1;
    if (!isEmpty) bucket.tokens -= 1;
    const full_seconds = Math.ceil((capacity - bucket.tokens) / per_second);
    const headers = {
      "ratelimit-policy": `"tenant";q=${capacity};w=${Math.ceil(capacity / per_second)}`,
      ratelimit: `"tenant";r=${Math.floor(bucket.tokens)};t=${full_seconds}`,
    };
    return { headers, refusal: isEmpty ? tooMany(per_second, (1 - bucket.tokens) / per_second) : null };
  }
}

function tooMany(per_second: number, wait_seconds: number): AppError {
  return new AppError("RATE_LIMITED", `too many requests of the tenant (limit ${per_second} per second)`, {
    retry_after: Math.min(Math.ceil(wait_seconds), LIMITS.retry_after_seconds_max),
  });
}
