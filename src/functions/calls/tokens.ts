/**
 * The credentials of running invocations (`HEARTH_KEY` of a function with
 * `api_access`): what the inner listener accepts, and nothing else. They live in memory only, since no invocation
 * outlives the daemon that knows its token. Who may have one, and at which depth a chain ends, is the invoker's.
 *
 * K1. A token is good from `issue` until `revoke` or its deadline, whichever comes first; no timer is needed, since
 *     the look-up compares.
 * K2. Tokens are bounded: past `invocation_tokens_max` the ended ones are dropped, and with none of these it is full.
 */
import { type Authenticator, type Caller, type Scope, unknownCredential } from "../../base/caller.ts";
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";

/** 5 bits each: as hard to guess as an API key. */
const TOKEN_RANDOM_LENGTH = 32;

export interface TokenRequest {
  readonly tenant_id: string;
  readonly function_id: string;
  readonly invocation_id: string;
  /** Those of its version. */
  readonly scopes: readonly Scope[];
  /** Invocations above this one in its chain. */
  readonly depth: number;
  /** Monotonic: the deadline of the invocation. */
  readonly expires_ms: number;
}

export class InvocationTokens implements Authenticator {
  readonly #ids: Ids;
  readonly #clock: Clock;
  readonly #tokens_max: number;
  readonly #callers = new Map<string, Caller>();

  constructor(ids: Ids, clock: Clock, tokens_max: number = LIMITS.invocation_tokens_max) {
    this.#ids = ids;
    this.#clock = clock;
    this.#tokens_max = tokens_max;
  }

  /** Throws CAPACITY_FULL when there are too many. Whoever issues revokes, whatever becomes of the call. */
  issue({ tenant_id, function_id, invocation_id, scopes, depth, expires_ms }: TokenRequest): string {
    if (this.#callers.size >= this.#tokens_max) this.#dropEnded();
    const token = `hi_${this.#ids.random(TOKEN_RANDOM_LENGTH)}`;
    const invocation = { invocation_id, function_id, depth, deadline_ms: expires_ms };
    this.#callers.set(token, {
      tenant_id,
      kind: "invocation",
      key_id: invocation_id,
      scopes,
      is_operator: false,
      invocation,
    });
    return token;
  }

  /** The invocation has ended. Harmless for a token that is no longer there. */
  revoke(token: string): void {
    this.#callers.delete(token);
  }

  /** Ends the tokens of all running calls of a tenant. */
  revokeAll(tenant_id: string): void {
    for (const [token, caller] of this.#callers) if (caller.tenant_id === tenant_id) this.#callers.delete(token);
  }

  /** All that is ever known of a token is known at once: null is a refusal. */
  cached(token: string): Caller | null {
    const caller = this.#callers.get(token);
    return caller === undefined || this.#isOver(caller) ? null : caller;
  }

  async caller(token: string): Promise<Caller> {
    const caller = this.cached(token);
    if (caller === null) throw unknownCredential();
    return caller;
  }

  #isOver({ invocation }: Caller): boolean {
    return invocation === null || invocation.deadline_ms <= this.#clock.monotonicMs();
  }

  #dropEnded(): void {
    for (const [token, caller] of this.#callers) if (this.#isOver(caller)) this.#callers.delete(token);
    if (this.#callers.size >= this.#tokens_max) {
      throw new AppError("CAPACITY_FULL", `too many running calls with api_access (limit ${this.#tokens_max})`, {
        retry_after: 1,
      });
    }
  }
}
