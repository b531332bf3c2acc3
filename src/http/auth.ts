/**
 * Hot path. Who is calling: the port through which a listener asks, and API keys, sent as `X-Api-Key` or as a bearer
 * token. Owns the key format, the keys at rest (SHA-256 only, so a stolen database opens nothing) and the cache that
 * keeps hashing and reading off the hot path. The tokens of running invocations are src/functions/tokens.ts's.
 *
 * U1. A cached caller is trusted for `credential_cache_ttl_ms` at most, and never past the key's own expiry.
 * U2. Revoking goes through `forget`, so in this process a revoked key ends at once.
 * U3. Both caches are bounded; a refused credential is remembered for `credential_refusal_ttl_ms`, not longer.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { LRUCache } from "lru-cache";
import { type Clock, type EpochSeconds, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Store } from "../store/store.ts";

/** The invocation inside which a request was made. */
export interface CallingInvocation {
  readonly invocation_id: string;
  readonly function_id: string;
  /** Invocations above it in its chain: 0 for one that was called with an API key. */
  readonly depth: number;
  /** Monotonic. */
  readonly deadline_ms: number;
}

export interface Caller {
  readonly tenant_id: string;
  /** Of the API key, or of the invocation whose token was sent. */
  readonly key_id: string;
  readonly scopes: readonly string[];
  /** Null for an API key. */
  readonly invocation: CallingInvocation | null;
}

/** What one listener accepts as a credential. Both calls may be made by any number of requests at the same time. */
export interface Authenticator {
  /** The caller where that is known at once, else null, which says nothing of the credential yet. Never throws. */
  cached(credential: string): Caller | null;
  /** Rejects with `unknownCredential()` for whatever it does not accept. */
  caller(credential: string): Promise<Caller>;
}

/** The one refusal of a bad credential: its text tells nothing of what the credential was or had been. */
export function unknownCredential(): AppError {
  return new AppError("UNAUTHORIZED", "the key is not valid");
}

export const DEFAULT_TENANT_ID = "default";
/** The operator's key. At most one, replaced when the setting changes. */
const BOOTSTRAP_KEY_ID = "bootstrap";
export const ALL_SCOPES: readonly string[] = ["*"];

/** The credential that a request carries. Throws TWO_CREDENTIALS, or UNAUTHORIZED where there is none. */
export function credentialOf(headers: IncomingHttpHeaders): string {
  const key = headers["x-api-key"];
  const authorization = headers.authorization;
  if (key !== undefined && authorization !== undefined) {
    throw new AppError("TWO_CREDENTIALS", "both X-Api-Key and Authorization were sent", {
      hint: "send one of the two",
    });
  }
  if (typeof key === "string" && key !== "") return key;
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+)$/i.exec(authorization)?.[1];
  if (bearer !== undefined) return bearer;
  throw new AppError("UNAUTHORIZED", "no usable credential was sent", {
    hint: "send the key as 'X-Api-Key: <key>' or 'Authorization: Bearer <key>'",
  });
}

function digestOf(credential: string): string {
  return createHash("sha256").update(credential).digest("hex");
}

interface CachedCaller {
  readonly caller: Caller;
  readonly expires_at: EpochSeconds | null;
  readonly until_ms: number;
}

type KeyRow = {
  readonly id: string;
  readonly tenant_id: string;
  readonly secret_sha256: string;
  readonly scopes: string;
  readonly expires_at: number | null;
  readonly revoked_at: number | null;
};

export class Keys implements Authenticator {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #callers = new LRUCache<string, CachedCaller>({ max: LIMITS.credential_cache_entries });
  /** Monotonic time until which a credential stays refused. */
  readonly #refused = new LRUCache<string, number>({ max: LIMITS.credential_cache_entries });

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** The caller when the cache knows it: no promise, no hash, no read. */
  cached(credential: string): Caller | null {
    const entry = this.#callers.get(credential);
    if (entry === undefined || entry.until_ms <= this.#clock.monotonicMs() || this.#isOver(entry.expires_at))
      return null;
    return entry.caller;
  }

  /** Throws UNAUTHORIZED for a key that is unknown, expired or revoked, with the same text for all three. */
  async caller(credential: string): Promise<Caller> {
    const known = this.cached(credential);
    if (known !== null) return known;
    const refusal = unknownCredential();
    if (credential.length > LIMITS.credential_length_max) throw refusal;
    const now_ms = this.#clock.monotonicMs();
    if ((this.#refused.get(credential) ?? 0) > now_ms) throw refusal;
    const row = await this.#find(digestOf(credential));
    if (row === null || row.revoked_at !== null || this.#isOver(row.expires_at)) {
      this.#refused.set(credential, now_ms + LIMITS.credential_refusal_ttl_ms);
      throw refusal;
    }
    const caller: Caller = {
      tenant_id: row.tenant_id,
      key_id: row.id,
      scopes: JSON.parse(row.scopes),
      invocation: null,
    };
    this.#callers.set(credential, {
      caller,
      expires_at: row.expires_at,
      until_ms: now_ms + LIMITS.credential_cache_ttl_ms,
    });
    return caller;
  }

  /** After a key was revoked or changed: the next request reads it again (U2). */
  forget(key_id: string): void {
    for (const [credential, { caller }] of this.#callers.entries()) {
      if (caller.key_id === key_id) this.#callers.delete(credential);
    }
    this.#refused.clear();
  }

  /** Makes the tenant `default`, and `key` its key from now on, in place of an earlier bootstrap key. */
  async ensureBootstrap(key: string): Promise<void> {
    const now = toEpochSeconds(this.#clock.epochMs());
    const digest = digestOf(key);
    const same = await this.#find(digest);
    if (same !== null && same.revoked_at === null) return;
    await this.#store.write(
      [
        {
          sql: "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
          args: [DEFAULT_TENANT_ID, DEFAULT_TENANT_ID, now],
        },
        { sql: "DELETE FROM api_keys WHERE id = ? OR secret_sha256 = ?", args: [BOOTSTRAP_KEY_ID, digest] },
        {
          sql: `INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at, expires_at, revoked_at)
                VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)`,
          args: [BOOTSTRAP_KEY_ID, DEFAULT_TENANT_ID, "bootstrap", digest, JSON.stringify(ALL_SCOPES), now],
        },
      ],
      { durable: true },
    );
    this.forget(BOOTSTRAP_KEY_ID);
  }

  #isOver(expires_at: EpochSeconds | null): boolean {
    return expires_at !== null && expires_at * 1000 <= this.#clock.epochMs();
  }

  /** The row with this digest. The index finds it; the comparison in constant time is what decides. */
  async #find(digest: string): Promise<KeyRow | null> {
    const row = await this.#store.readOne<KeyRow>(
      "SELECT id, tenant_id, secret_sha256, scopes, expires_at, revoked_at FROM api_keys WHERE secret_sha256 = ?",
      [digest],
    );
    return row !== null && timingSafeEqual(Buffer.from(row.secret_sha256), Buffer.from(digest)) ? row : null;
  }
}
