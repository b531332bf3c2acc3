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
 * U5. Keys of containers are never cached: such a key ends with its last container, which no code here hears of.
 * U6. Uses are noted in memory and written once in `key_use_interval_ms`, and at the end; a crash loses those since.
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
import {
  BOOTSTRAP_KEY_ID,
  containersOf,
  insertBootstrap,
  insertKey,
  isOperatorKey,
  type KeyRow,
  OF_CONTAINER,
  PREVIOUS_BOOTSTRAP_KEY_ID,
  recordOf,
  SELECT_KEYS as SELECT,
} from "./key-rows.ts";
import type { AccessToken, ApiKeyRecord, NewApiKey, RequestToken } from "./schema.ts";

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

/** Both in number and in length: whoever has no key can send credentials of any length. */
const CACHE_BOUNDS = {
  max: LIMITS.credential_cache_entries,
  maxSize: LIMITS.credential_cache_chars,
  sizeCalculation: (_: unknown, credential: string): number => credential.length,
};

/** Logins of users, which are sources of access tokens as keys are. */
export interface LoginSource {
  /** Null: the login has ended. */
  find(login_id: string): Promise<{ readonly tenant_id: string; readonly expires_at: EpochSeconds } | null>;
}

/** A key that is to be made. */
export interface WantedKey {
  readonly name: string;
  readonly scopes?: readonly Scope[] | undefined;
  readonly expires_at?: EpochSeconds | null | undefined;
  /** Null: it reaches all of its tenant. */
  readonly container_ids?: readonly string[] | null;
}

/** The key or login behind an own token. */
interface Source {
  readonly tenant_id: string;
  readonly secret_sha256: string;
  readonly expires_at: EpochSeconds | null;
  readonly container_ids: readonly string[] | null;
}

/** Ids of logins begin like this, and no ids of keys. */
const LOGIN_ID = /^lgn_/;
const API_KEY_ID = /^(key_|bootstrap)/;

export interface KeysOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly tokens: AccessTokens;
  readonly events: Events;
  /** Null: this node has no users. */
  readonly logins: LoginSource | null;
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
  readonly #logins: LoginSource | null;
  /** How often something was forgotten (U2). */
  #changes = 0;
  /** Last use of each key since its uses were written, in milliseconds since the epoch (U6). */
  readonly #uses = new Map<string, number>();

  constructor({ store, clock, ids, tokens, events, logins }: KeysOptions) {
    this.#logins = logins;
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
    this.#noteUse(entry.caller.key_id);
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
    this.#noteUse(grant.caller.key_id);
    if (changes === this.#changes && grant.caller.container_ids === undefined) {
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
   * FORBIDDEN for scopes that `by` has not, INVALID_ARGUMENT for an expiry that is over and for `admin` of a container's
   * key, NOT_FOUND for a tenant or container that is gone, QUOTA_EXCEEDED.
   */
  async create(
    tenant_id: string,
    { name, scopes, expires_at, container_ids = null }: WantedKey,
    by: Caller,
  ): Promise<NewApiKey> {
    // Of another tenant's keys only the operator makes any.
    const asked = scopes ?? by.scopes.filter((scope) => container_ids === null || scope !== "admin");
    const wanted = SCOPES.filter((scope) => asked.includes(scope));
    const lacking = wanted.find((scope) => !by.scopes.includes(scope));
    if (lacking !== undefined) throw lacksScope(lacking);
    if (container_ids !== null && wanted.includes("admin")) {
      throw new AppError("INVALID_ARGUMENT", "scopes: a container's key cannot have the scope 'admin'");
    }
    if (this.#isOver(expires_at ?? null)) throw new AppError("INVALID_ARGUMENT", "expires_at: must be in the future");
    const { key_id, text } = newKeyText(this.#ids);
    const row = {
      ...{ id: key_id, tenant_id, name, secret_sha256: digestOf(text), container_ids },
      created_at: toEpochSeconds(this.#clock.epochMs()),
      expires_at: expires_at ?? null,
    };
    const { conflict } = await this.#events.write(
      insertKey({ ...row, scopes: wanted }),
      tenant_id,
      [{ name: "api_key_update", event_type: "created", data: { key_id, key_name: name } }],
      { durable: true },
    );
    failpoint("tenants.key.stored");
    if (conflict !== null) throw await this.#notMade(tenant_id, conflict, container_ids ?? []);
    const of_containers = container_ids === null ? null : JSON.stringify(container_ids);
    const stored = { ...row, scopes: JSON.stringify(wanted), container_ids: of_containers, last_used_at: null };
    return { ...recordOf(stored), key: text };
  }

  /** The refusal of a key whose statement of this number was missed. */
  async #notMade(tenant_id: string, conflict: number, container_ids: readonly string[]): Promise<AppError> {
    if (conflict === 0) return new AppError("NOT_FOUND", `tenant '${tenant_id}' not found`);
    const hint = "revoke unused keys";
    if (conflict === 1) {
      const message = `too many API keys of the tenant (limit ${LIMITS.api_keys_per_tenant_max})`;
      return new AppError("QUOTA_EXCEEDED", message, { hint });
    }
    const container_id = container_ids[conflict - 2] ?? "";
    const sql = "SELECT id FROM containers WHERE tenant_id = ? AND id = ? AND is_removing = 0";
    if ((await this.#store.readOne(sql, [tenant_id, container_id])) === null) {
      return new AppError("NOT_FOUND", `container '${container_id}' not found`);
    }
    const message = `too many API keys of the container (limit ${LIMITS.keys_per_container_max})`;
    return new AppError("QUOTA_EXCEEDED", message, { hint });
  }

  /** Newest first, expired ones too. */
  list(tenant_id: string, place: Place): Promise<Listed<ApiKeyRecord>> {
    return this.#page(`${SELECT} WHERE k.tenant_id = ?`, [tenant_id], place);
  }

  /** Those that reach a container, newest first. */
  listOfContainer(tenant_id: string, container_id: string, place: Place): Promise<Listed<ApiKeyRecord>> {
    return this.#page(`${SELECT} WHERE k.tenant_id = ? AND ${OF_CONTAINER}`, [tenant_id, container_id], place);
  }

  #page(select: string, args: readonly string[], place: Place): Promise<Listed<ApiKeyRecord>> {
    const toItem = (row: object) => {
      const record = recordOf(row as KeyRow);
      const used_ms = this.#uses.get(record.id);
      return used_ms === undefined ? record : { ...record, last_used_at: toEpochSeconds(used_ms) };
    };
    return readPage(this.#store, select, args, place, toItem, `k.${ROW_NUMBER}`);
  }

  /** Revokes a key that reaches a container. Throws NOT_FOUND. */
  async revokeOfContainer(tenant_id: string, container_id: string, key_id: string): Promise<void> {
    const sql = `${SELECT} WHERE k.tenant_id = ? AND k.id = ? AND ${OF_CONTAINER}`;
    const row = await this.#store.readOne(sql, [tenant_id, key_id, container_id]);
    if (row === null) throw new AppError("NOT_FOUND", `api key '${key_id}' not found`);
    await this.revoke(tenant_id, key_id);
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

  /**
   * Ends all keys of a tenant but the operator's own, with their tokens, in one batch after `statements`. Resolves to their
   * number, and to the index of the statement that missed its expectation.
   */
  async revokeAll(
    tenant_id: string,
    statements: readonly Statement[],
  ): Promise<{ readonly conflict: number | null; readonly revoked_count: number }> {
    const rows = await this.#store.read("SELECT id FROM api_keys WHERE tenant_id = ?", [tenant_id]);
    const told = rows
      .map(({ id }) => String(id))
      .filter((id) => !isOperatorKey(id))
      .map((key_id) => ({ name: "api_key_update", event_type: "revoked", data: { key_id } }) as const);
    const remove: Statement = {
      sql: "DELETE FROM api_keys WHERE tenant_id = ? AND id NOT IN (?, ?)",
      args: [tenant_id, BOOTSTRAP_KEY_ID, PREVIOUS_BOOTSTRAP_KEY_ID],
    };
    const { conflict, changes } = await this.#events
      .write([...statements, remove], tenant_id, told, { durable: true })
      // After a failure too: it may be committed and not be synced.
      .finally(() => this.forget((caller) => caller.tenant_id === tenant_id));
    return { conflict, revoked_count: changes[statements.length] ?? 0 };
  }

  /** Number of keys of a tenant, expired ones too. */
  async count(tenant_id: string): Promise<number> {
    const row = await this.#store.readOne("SELECT count(*) AS count FROM api_keys WHERE tenant_id = ?", [tenant_id]);
    return Number(row?.count ?? 0);
  }

  /** A token of at most the caller's scopes and the key's own time; it ends with the key. Throws FORBIDDEN. */
  async token(
    { tenant_id, key_id, scopes: held }: Caller,
    { scopes: asked, expires_in }: RequestToken,
  ): Promise<AccessToken> {
    const lacking = asked?.find((scope) => !held.includes(scope));
    if (lacking !== undefined) throw lacksScope(lacking);
    const scopes = held.filter((scope) => asked === undefined || asked.includes(scope));
    const source = await this.#source(key_id);
    if (source === null || source.tenant_id !== tenant_id) throw unknownCredential();
    const { secret_sha256, expires_at } = source;
    const left = expires_at === null ? expires_in : expires_at - toEpochSeconds(this.#clock.epochMs());
    const seconds = Math.max(1, Math.min(expires_in, left));
    const access_token = await this.#tokens.issue({ tenant_id, key_id, secret_sha256 }, scopes, seconds);
    return { access_token, token_type: "Bearer", expires_in: seconds, scopes };
  }

  /** The access token of a user: all scopes of its tenant for as long as the login stands. */
  loginToken(
    { tenant_id, login_id }: { readonly tenant_id: string; readonly login_id: string },
    seconds: number,
  ): Promise<string> {
    return this.#tokens.issue({ tenant_id, key_id: login_id, secret_sha256: login_id }, SCOPES, seconds, true);
  }

  /** Writes the last use of each key since the last time (U6). Rejects where the store does; then they wait for the next. */
  async writeUses(): Promise<void> {
    const uses = [...this.#uses];
    for (let i = 0; i < uses.length; i += LIMITS.key_uses_per_batch) {
      const batch = uses.slice(i, i + LIMITS.key_uses_per_batch);
      const sql = "UPDATE api_keys SET last_used_at = ? WHERE id = ?";
      await this.#store.write(batch.map(([id, at_ms]) => ({ sql, args: [toEpochSeconds(at_ms), id] })));
      for (const [id, at_ms] of batch) if (this.#uses.get(id) === at_ms) this.#uses.delete(id);
    }
  }

  /** Called for each request, so it only notes. */
  #noteUse(key_id: string): void {
    if (!API_KEY_ID.test(key_id)) return;
    if (this.#uses.size < LIMITS.credential_cache_entries || this.#uses.has(key_id)) {
      this.#uses.set(key_id, this.#clock.epochMs());
    }
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
    const caller = { tenant_id, kind: "key", key_id, scopes, is_operator, invocation: null } as const;
    return { caller: confined(caller, containersOf(row)), expires_at };
  }

  /** A token is as good as what it was made from: its key or login, or of an outside issuer its tenant. */
  async #byToken(credential: string): Promise<Grant | null> {
    const proven = await this.#tokens.verify(credential);
    if (proven === null) return null;
    const { tenant_id, subject, scopes, isOfKey, isOfUser } = proven;
    const source = isOfKey === null ? await this.#outsideSource(proven) : await this.#sourceOf(proven, isOfKey);
    if (source === null) return null;
    const expires_at = Math.min(proven.expires_at, source.expires_at ?? Number.POSITIVE_INFINITY);
    const kind = isOfUser ? "user" : "token";
    const caller = { tenant_id, kind, key_id: subject, scopes, is_operator: false, invocation: null } as const;
    return { caller: confined(caller, source.container_ids), expires_at };
  }

  /** The key or login behind an own token; null: it has ended. */
  async #sourceOf({ subject, tenant_id }: Proven, isOfKey: (secret_sha256: string) => boolean): Promise<Source | null> {
    // The operator's key moves to the other id when it is rotated.
    const ids = subject === BOOTSTRAP_KEY_ID ? [subject, PREVIOUS_BOOTSTRAP_KEY_ID] : [subject];
    for (const id of ids) {
      const source = await this.#source(id);
      if (source !== null && source.tenant_id === tenant_id && isOfKey(source.secret_sha256)) return source;
    }
    return null;
  }

  /** A login has no text that others may take: its id, which is given once, stands for it. */
  async #source(id: string): Promise<Source | null> {
    if (LOGIN_ID.test(id)) {
      const login = (await this.#logins?.find(id)) ?? null;
      return login === null ? null : { ...login, secret_sha256: id, container_ids: null };
    }
    const row = await this.#find("k.id = ?", id);
    return row === null ? null : { ...row, container_ids: containersOf(row) };
  }

  /** The tenant of an outside issuer's token; null: it is gone. */
  async #outsideSource({ tenant_id }: Proven): Promise<Source | null> {
    const row = await this.#store.readOne("SELECT id FROM tenants WHERE id = ? AND state = 'active'", [tenant_id]);
    return row === null ? null : { tenant_id, secret_sha256: "", expires_at: null, container_ids: null };
  }

  #find(condition: string, value: string): Promise<KeyRow | null> {
    return this.#store.readOne<KeyRow>(`${SELECT} WHERE ${condition}`, [value]);
  }
}

function confined(caller: Caller, container_ids: readonly string[] | null): Caller {
  return container_ids === null ? caller : { ...caller, container_ids: new Set(container_ids) };
}
