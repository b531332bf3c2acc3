/**
 * API keys: made, kept (SHA-256 only, so a stolen database opens nothing), revoked, and looked up for every
 * request through a cache, which saves most requests the hash and the read. A bearer token that is a JWT is verified by
 * access-tokens.ts and then treated the same.
 *
 * U1. A cached caller is trusted for `credential_cache_ttl_ms` at most, and never past the credential's own expiry.
 * U2. Whatever ends a credential goes through `forget` after it is committed, and a look-up that began before does not
 *     enter the cache after it: a revoked key, and every token made from it, ends at once.
 * U3. Both caches are bounded; a refused credential is remembered for `credential_refusal_ttl_ms`, not longer.
 * U4. A key has no more scopes than the one that made it.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";
import { type Authenticator, type Caller, lacksScope, SCOPES, type Scope, unknownCredential } from "../base/caller.ts";
import { type Clock, type EpochSeconds, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { ROW_NUMBER } from "../base/sql-dialect.ts";
import { DEFAULT_TENANT_ID } from "../base/tenant-limits.ts";
import type { Events } from "../events/service.ts";
import type { Statement, Store } from "../store/store.ts";
import { type AccessTokens, isAccessToken, type Proven } from "./access-tokens.ts";
import type { AccessToken, ApiKeyRecord, CreateKey, NewApiKey, RequestToken } from "./schema.ts";

/** The operator's key. At most one, replaced when the setting changes. */
const BOOTSTRAP_KEY_ID = "bootstrap";
/** The operator's key before the last rotation, for as long as both are good. */
const PREVIOUS_BOOTSTRAP_KEY_ID = "bootstrap_previous";

const isOperatorKey = (id: string): boolean => id === BOOTSTRAP_KEY_ID || id === PREVIOUS_BOOTSTRAP_KEY_ID;
/** 5 bits each: 60 name a key, 160 keep it. */
const NAME_LENGTH = 12;
const SECRET_LENGTH = 32;

/** A new key's text: `hk_<name>_<secret>`. */
export function newKeyText(ids: Ids): { readonly key_id: string; readonly text: string } {
  const name = ids.random(NAME_LENGTH);
  return { key_id: `key_${name}`, text: `hk_${name}_${ids.random(SECRET_LENGTH)}` };
}

function digestOf(credential: string): string {
  return createHash("sha256").update(credential).digest("hex");
}

interface Grant {
  readonly caller: Caller;
  readonly expires_at: EpochSeconds | null;
}

interface CachedGrant extends Grant {
  readonly until_ms: number;
}

type KeyRow = {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly secret_sha256: string;
  readonly scopes: string;
  readonly created_at: number;
  readonly expires_at: number | null;
};

const SELECT = `SELECT k.${ROW_NUMBER} AS seq, k.id, k.tenant_id, k.name, k.secret_sha256, k.scopes, k.created_at, k.expires_at
  FROM api_keys k JOIN tenants t ON t.id = k.tenant_id AND t.state = 'active'`;

/** Both in number and in length: whoever has no key can send credentials of any length. */
const CACHE_BOUNDS = {
  max: LIMITS.credential_cache_entries,
  maxSize: LIMITS.credential_cache_chars,
  sizeCalculation: (_: unknown, credential: string): number => credential.length,
};

export interface KeysOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly tokens: AccessTokens;
  readonly events: Events;
}

export class Keys implements Authenticator {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #tokens: AccessTokens;
  readonly #events: Events;
  readonly #grants = new LRUCache<string, CachedGrant>(CACHE_BOUNDS);
  /** Monotonic time until which a credential stays refused. */
  readonly #refused = new LRUCache<string, number>(CACHE_BOUNDS);
  /** How often something was forgotten (U2). */
  #changes = 0;

  constructor({ store, clock, ids, tokens, events }: KeysOptions) {
    this.#events = events;
    this.#store = store;
    this.#clock = clock;
    this.#ids = ids;
    this.#tokens = tokens;
  }

  /** The caller when the cache knows it: no promise, no hash, no read. */
  cached(credential: string): Caller | null {
    const entry = this.#grants.get(credential);
    if (entry === undefined || entry.until_ms <= this.#clock.monotonicMs() || this.#isOver(entry.expires_at))
      return null;
    return entry.caller;
  }

  /** Throws UNAUTHORIZED for a credential that is unknown, expired or revoked, with the same text for all three. */
  async caller(credential: string): Promise<Caller> {
    const known = this.cached(credential);
    if (known !== null) return known;
    if (credential.length > LIMITS.credential_length_max) throw unknownCredential();
    const now_ms = this.#clock.monotonicMs();
    if ((this.#refused.get(credential) ?? 0) > now_ms) throw unknownCredential();
    const changes = this.#changes;
    // The operator's key may have any form, that of a token too.
    const proven = isAccessToken(credential) ? await this.#byToken(credential) : null;
    const grant = proven ?? (await this.#byKey(credential));
    if (grant === null || this.#isOver(grant.expires_at)) {
      this.#refused.set(credential, now_ms + LIMITS.credential_refusal_ttl_ms);
      throw unknownCredential();
    }
    if (changes === this.#changes) {
      this.#grants.set(credential, { ...grant, until_ms: now_ms + LIMITS.credential_cache_ttl_ms });
    }
    return grant.caller;
  }

  /** After credentials have ended or changed: the next request of each reads it again (U2). */
  forget(isConcerned: (caller: Caller) => boolean): void {
    this.#changes++;
    for (const [credential, { caller }] of this.#grants.entries()) {
      if (isConcerned(caller)) this.#grants.delete(credential);
    }
    this.#refused.clear();
  }

  /**
   * Makes a key for a tenant, with the scopes of `by` unless told; its text is in this answer and nowhere else. Throws
   * FORBIDDEN for scopes that `by` has not, INVALID_ARGUMENT for an expiry that is over, NOT_FOUND for a tenant that is gone, QUOTA_EXCEEDED.
   */
  async create(tenant_id: string, { name, scopes, expires_at }: CreateKey, by: Caller): Promise<NewApiKey> {
    // Of another tenant's keys only the operator makes any.
    const wanted = SCOPES.filter((scope) => (scopes ?? by.scopes).includes(scope));
    const lacking = wanted.find((scope) => !by.scopes.includes(scope));
    if (lacking !== undefined) throw lacksScope(lacking);
    if (this.#isOver(expires_at ?? null)) throw new AppError("INVALID_ARGUMENT", "expires_at: must be in the future");
    const { key_id, text } = newKeyText(this.#ids);
    const created_at = toEpochSeconds(this.#clock.epochMs());
    const { conflict } = await this.#events.write(
      [
        {
          sql: "UPDATE tenants SET state = state WHERE id = ? AND state = 'active'",
          args: [tenant_id],
          expect_changes: 1,
        },
        {
          sql: `INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at, expires_at)
            SELECT ?, ?, ?, ?, ?, ?, ? WHERE (SELECT count(*) FROM api_keys WHERE tenant_id = ?) < ?`,
          args: [
            key_id,
            tenant_id,
            name,
            digestOf(text),
            JSON.stringify(wanted),
            created_at,
            expires_at ?? null,
            tenant_id,
            LIMITS.api_keys_per_tenant_max,
          ],
          expect_changes: 1,
        },
      ],
      tenant_id,
      [{ name: "api_key_update", event_type: "created", data: { key_id, key_name: name } }],
      { durable: true },
    );
    failpoint("tenants.key.stored");
    if (conflict === 0) throw new AppError("NOT_FOUND", `tenant '${tenant_id}' not found`);
    if (conflict !== null) {
      throw new AppError(
        "QUOTA_EXCEEDED",
        `too many API keys of the tenant (limit ${LIMITS.api_keys_per_tenant_max})`,
        {
          hint: "revoke unused keys",
        },
      );
    }
    const record = {
      id: key_id,
      tenant_id,
      name,
      prefix: prefixOf(key_id),
      scopes: [...wanted],
      created_at,
      expires_at: expires_at ?? null,
    };
    return { ...record, key: text };
  }

  /** Newest first, expired ones too. */
  list(tenant_id: string, place: Place): Promise<Listed<ApiKeyRecord>> {
    const select = `${SELECT} WHERE k.tenant_id = ?`;
    return readPage(this.#store, select, [tenant_id], place, (row) => recordOf(row as KeyRow), `k.${ROW_NUMBER}`);
  }

  /**
   * Ends a key, and the tokens made from it, at once. Throws NOT_FOUND, and WRONG_STATE for the operator's own key,
   * which is a setting.
   */
  async revoke(tenant_id: string, key_id: string): Promise<void> {
    if (key_id === BOOTSTRAP_KEY_ID && tenant_id === DEFAULT_TENANT_ID) {
      throw new AppError("WRONG_STATE", "the operator's key cannot be revoked", {
        hint: "rotate it with POST /api/operator/key/rotate",
      });
    }
    const statement: Statement = {
      sql: "DELETE FROM api_keys WHERE tenant_id = ? AND id = ?",
      args: [tenant_id, key_id],
      expect_changes: 1,
    };
    const event = { name: "api_key_update", event_type: "revoked", data: { key_id } } as const;
    const { conflict } = await this.#events
      .write([statement], tenant_id, [event], { durable: true })
      // After a failure too: it may be committed and not be synced.
      .finally(() => this.forget((caller) => caller.key_id === key_id));
    if (conflict !== null) throw new AppError("NOT_FOUND", `api key '${key_id}' not found`);
  }

  /** A token of at most the caller's scopes and the key's own time; it ends with the key. Throws FORBIDDEN. */
  async token(
    { tenant_id, key_id, scopes: held }: Caller,
    { scopes: asked, expires_in }: RequestToken,
  ): Promise<AccessToken> {
    const lacking = asked?.find((scope) => !held.includes(scope));
    if (lacking !== undefined) throw lacksScope(lacking);
    const scopes = held.filter((scope) => asked === undefined || asked.includes(scope));
    const row = await this.#find("k.id = ?", key_id);
    if (row === null || row.tenant_id !== tenant_id) throw unknownCredential();
    const left = row.expires_at === null ? expires_in : row.expires_at - toEpochSeconds(this.#clock.epochMs());
    const seconds = Math.max(1, Math.min(expires_in, left));
    const { secret_sha256 } = row;
    const access_token = await this.#tokens.issue({ tenant_id, key_id, secret_sha256 }, scopes, seconds);
    return { access_token, token_type: "Bearer", expires_in: seconds, scopes };
  }

  /** Makes the tenant `default`, and `key` its key from now on, in place of an earlier bootstrap key. */
  async ensureBootstrap(key: string): Promise<void> {
    const now = toEpochSeconds(this.#clock.epochMs());
    const digest = digestOf(key);
    const same = await this.#find("k.secret_sha256 = ?", digest);
    if (same?.id === BOOTSTRAP_KEY_ID) return;
    await this.#store.write(
      [
        {
          sql: "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
          args: [DEFAULT_TENANT_ID, DEFAULT_TENANT_ID, now],
        },
        {
          sql: "DELETE FROM api_keys WHERE id IN (?, ?) OR secret_sha256 = ?",
          args: [BOOTSTRAP_KEY_ID, PREVIOUS_BOOTSTRAP_KEY_ID, digest],
        },
        insertBootstrap(digest, now),
      ],
      { durable: true },
    );
    this.forget(({ key_id }) => isOperatorKey(key_id));
  }

  /** Makes `key` the operator's; the one before is good for `overlap_seconds` more. Returns when it ends. */
  async rotateBootstrap(key: string, overlap_seconds: number): Promise<EpochSeconds> {
    const now = toEpochSeconds(this.#clock.epochMs());
    const until = now + overlap_seconds;
    const statements: Statement[] = [
      { sql: "DELETE FROM api_keys WHERE id = ?", args: [PREVIOUS_BOOTSTRAP_KEY_ID] },
      overlap_seconds === 0
        ? { sql: "DELETE FROM api_keys WHERE id = ?", args: [BOOTSTRAP_KEY_ID] }
        : {
            sql: "UPDATE api_keys SET id = ?, name = ?, expires_at = ? WHERE id = ?",
            args: [PREVIOUS_BOOTSTRAP_KEY_ID, "bootstrap before its rotation", until, BOOTSTRAP_KEY_ID],
          },
      insertBootstrap(digestOf(key), now),
    ];
    const event = { name: "api_key_update", event_type: "rotated", data: { key_id: BOOTSTRAP_KEY_ID } } as const;
    await this.#events
      .write(statements, DEFAULT_TENANT_ID, [event], { durable: true })
      // After a failure too: it may be committed and not be synced.
      .finally(() => this.forget(({ key_id }) => isOperatorKey(key_id)));
    return until;
  }

  /** Makes a new key for own tokens; those of earlier ones are good for `overlap_seconds` more. Returns that time. */
  rotateTokenKey(overlap_seconds: number): EpochSeconds {
    const until = this.#tokens.rotate(overlap_seconds);
    this.forget(({ kind }) => kind === "token");
    return until;
  }

  #isOver(expires_at: EpochSeconds | null): boolean {
    return expires_at !== null && expires_at * 1000 <= this.#clock.epochMs();
  }

  async #byKey(credential: string): Promise<Grant | null> {
    const digest = digestOf(credential);
    const row = await this.#find("k.secret_sha256 = ?", digest);
    // The index finds it; the comparison in constant time is what decides.
    if (row === null || !timingSafeEqual(Buffer.from(row.secret_sha256), Buffer.from(digest))) return null;
    const is_operator = isOperatorKey(row.id);
    const scopes = JSON.parse(row.scopes) as Scope[];
    const { tenant_id, id: key_id, expires_at } = row;
    return { caller: { tenant_id, kind: "key", key_id, scopes, is_operator, invocation: null }, expires_at };
  }

  /** A token is as good as what it was made from: its key, or of an outside issuer its tenant. */
  async #byToken(credential: string): Promise<Grant | null> {
    const proven = await this.#tokens.verify(credential);
    if (proven === null) return null;
    const { tenant_id, subject, scopes, isOfKey } = proven;
    const until = isOfKey === null ? await this.#tenantUntil(proven) : await this.#keyUntil(proven, isOfKey);
    if (until === null) return null;
    const expires_at = Math.min(proven.expires_at, until);
    const caller = { tenant_id, kind: "token", key_id: subject, scopes, is_operator: false, invocation: null } as const;
    return { caller, expires_at };
  }

  /** How long the key behind an own token stands; null: not any more. */
  async #keyUntil(
    { subject, tenant_id }: Proven,
    isOfKey: (secret_sha256: string) => boolean,
  ): Promise<EpochSeconds | null> {
    // The operator's key moves to the other id when it is rotated.
    const ids = subject === BOOTSTRAP_KEY_ID ? [subject, PREVIOUS_BOOTSTRAP_KEY_ID] : [subject];
    for (const id of ids) {
      const row = await this.#find("k.id = ?", id);
      if (row === null || row.tenant_id !== tenant_id || !isOfKey(row.secret_sha256)) continue;
      return row.expires_at ?? Number.POSITIVE_INFINITY;
    }
    return null;
  }

  /** How long the tenant of an outside issuer's token stands; null: not any more. */
  async #tenantUntil({ tenant_id }: Proven): Promise<EpochSeconds | null> {
    const row = await this.#store.readOne("SELECT id FROM tenants WHERE id = ? AND state = 'active'", [tenant_id]);
    return row === null ? null : Number.POSITIVE_INFINITY;
  }

  #find(condition: string, value: string): Promise<KeyRow | null> {
    return this.#store.readOne<KeyRow>(`${SELECT} WHERE ${condition}`, [value]);
  }
}

function insertBootstrap(digest: string, now: EpochSeconds): Statement {
  return {
    sql: "INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at) VALUES (?, ?, ?, ?, ?, ?)",
    args: [BOOTSTRAP_KEY_ID, DEFAULT_TENANT_ID, "bootstrap", digest, JSON.stringify(SCOPES), now],
  };
}

/** How a key begins, for people who look for it; null for the operator's, which may have any form. */
function prefixOf(key_id: string): string | null {
  return isOperatorKey(key_id) ? null : key_id.replace(/^key_/, "hk_");
}

function recordOf({ id, tenant_id, name, scopes, created_at, expires_at }: KeyRow): ApiKeyRecord {
  return { id, tenant_id, name, prefix: prefixOf(id), scopes: JSON.parse(scopes), created_at, expires_at };
}
