/**
 * Rates of what callers without a credential may try: token buckets in memory, a bounded number of them. Every attempt
 * counts before its password is hashed, so that concurrent guesses count, too.
 *
 * A1. A source has a rate at one e-mail address and one for all. Guesses from elsewhere therefore do not lock a user out.
 * A2. All sources together have a rate at one e-mail address. A source from which its user has a login is exempt, so that
 *     guesses from many machines do not lock the user out there.
 * A3. A bucket that is not full is forgotten after as many attempts as there are buckets, each of which cost a hash, since a
 *     refused attempt makes none. So a flood does not empty the memory and let guesses go on.
 */
import { LRUCache } from "lru-cache";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";

interface Rate {
  readonly burst: number;
  readonly per_second: number;
}

interface Bucket {
  tokens: number;
  filled_ms: number;
}

class Buckets {
  readonly #clock: Clock;
  readonly #rate: Rate;
  readonly #buckets = new LRUCache<string, Bucket>({ max: LIMITS.attempt_buckets_max });

  constructor(clock: Clock, rate: Rate) {
    this.#clock = clock;
    this.#rate = rate;
  }

  /** Returns the seconds until the next token; 0 if there is one now. */
  wait(name: string): number {
    const tokens = this.#tokensNow(name);
    return tokens >= 1 ? 0 : (1 - tokens) / this.#rate.per_second;
  }

  take(name: string): void {
    this.#filled(name).tokens -= 1;
  }

  give(name: string): void {
    const bucket = this.#filled(name);
    bucket.tokens = Math.min(this.#rate.burst, bucket.tokens + 1);
  }

  /** Makes no bucket (A3). */
  #tokensNow(name: string): number {
    const { burst, per_second } = this.#rate;
    const found = this.#buckets.get(name);
    if (found === undefined) return burst;
    return Math.min(burst, found.tokens + ((this.#clock.monotonicMs() - found.filled_ms) * per_second) / 1000);
  }

  #filled(name: string): Bucket {
    const bucket = { tokens: this.#tokensNow(name), filled_ms: this.#clock.monotonicMs() };
    this.#buckets.set(name, bucket);
    return bucket;
  }
}

/** The one bucket of a rate that all share. */
const ALL = "";

type Asked = readonly (readonly [buckets: Buckets, name: string])[];

/** Takes one token of each bucket, or none and throws RATE_LIMITED. */
function takeAll(what: string, asked: Asked): void {
  const seconds = Math.max(...asked.map(([buckets, name]) => buckets.wait(name)));
  if (seconds > 0) {
    throw new AppError("RATE_LIMITED", `too many ${what}`, {
      retry_after: Math.max(1, Math.min(Math.ceil(seconds), LIMITS.retry_after_seconds_max)),
    });
  }
  for (const [buckets, name] of asked) buckets.take(name);
}

const rate = (burst: number, per_second: number): Rate => ({ burst, per_second });

/**
 * Each call throws RATE_LIMITED. `source` is an address as `sourceOf` names it. Single writer: one process counts in its
 * memory; a second node would give each source its attempts once more.
 */
export class Attempts {
  readonly #login_sources: Buckets;
  readonly #login_pairs: Buckets;
  readonly #login_emails: Buckets;
  readonly #register_sources: Buckets;
  readonly #register_all: Buckets;
  readonly #refresh_sources: Buckets;

  constructor(clock: Clock) {
    const { login_source_burst, login_source_per_second, login_pair_burst, login_pair_per_second } = LIMITS;
    const { register_source_burst, register_source_per_second, register_all_burst, register_all_per_second } = LIMITS;
    this.#login_sources = new Buckets(clock, rate(login_source_burst, login_source_per_second));
    this.#login_pairs = new Buckets(clock, rate(login_pair_burst, login_pair_per_second));
    this.#login_emails = new Buckets(clock, rate(LIMITS.login_email_burst, LIMITS.login_email_per_second));
    this.#register_sources = new Buckets(clock, rate(register_source_burst, register_source_per_second));
    this.#register_all = new Buckets(clock, rate(register_all_burst, register_all_per_second));
    this.#refresh_sources = new Buckets(clock, rate(LIMITS.refresh_source_burst, LIMITS.refresh_source_per_second));
  }

  /** Counts a password that is tried. `isKnown`: the user has a login from that source (A2). */
  login(source: string, email: string, isKnown: boolean): void {
    takeAll("sign-in attempts", [
      [this.#login_sources, source],
      [this.#login_pairs, pairOf(source, email)],
      ...(isKnown ? [] : ([[this.#login_emails, email]] as const)),
    ]);
  }

  /** The password was right: it counts for its source alone. */
  succeeded(source: string, email: string, isKnown: boolean): void {
    this.#login_pairs.give(pairOf(source, email));
    if (!isKnown) this.#login_emails.give(email);
  }

  register(source: string): void {
    takeAll("registrations", [
      [this.#register_sources, source],
      [this.#register_all, ALL],
    ]);
  }

  refresh(source: string): void {
    takeAll("refreshes", [[this.#refresh_sources, source]]);
  }
}

const pairOf = (source: string, email: string): string => `${source} ${email}`;
