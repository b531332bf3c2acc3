/**
 * Secrets: small values of a tenant that are encrypted in the store and never shown. This service writes values and shows
 * records; values.ts alone reads them, for the daemon's own use.
 *
 * V1. A kind is a namespace: names of one kind are invisible to services of another kind. The routes serve one kind.
 * V2. Values are encrypted when their batch is enqueued, by the newest key: after a rotation no later batch uses an
 *     earlier key.
 * V3. Values never reach records, events, messages of errors or the log.
 */
import { unknownCredential } from "../base/caller.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { KeyedMutex } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { isListed } from "../base/sql-dialect.ts";
import { type Quotas, tenantGuard } from "../base/tenant-limits.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import type { Guard, Row, Statement, Store } from "../store/store.ts";
import { type SecretPlace, seal } from "./cipher.ts";
import type { SecretsKeys } from "./keys.ts";
import { type SecretRecord, secretsNotFound } from "./schema.ts";

const COLUMNS = "seq, name, size_bytes, created_at, updated_at";
const AT = "tenant_id = ? AND kind = ? AND name = ?";

export interface SecretsOptions {
  readonly store: Store;
  readonly events: Events;
  readonly clock: Clock;
  readonly quotas: Quotas;
  readonly keys: SecretsKeys;
  /** Namespace of this service (V1): `SECRET_KIND` for what the routes serve. */
  readonly kind: string;
}

export class Secrets {
  readonly #options: SecretsOptions;
  /** Changes of one name run one after the other. */
  readonly #changes = new KeyedMutex();

  constructor(options: SecretsOptions) {
    this.#options = options;
  }

  /**
   * Creates or replaces a secret; durable when it resolves. The caller owns `value` and may overwrite it afterwards. Throws
   * INVALID_ARGUMENT for an empty or too large value, QUOTA_EXCEEDED.
   */
  set(tenant_id: string, name: string, value: Uint8Array): Promise<{ record: SecretRecord; is_new: boolean }> {
    checkSize(value);
    return this.#changes.run(JSON.stringify([tenant_id, name]), async () => {
      const is_new = !(await this.#replace(tenant_id, name, value));
      if (is_new) await this.#insert(tenant_id, name, value);
      return { record: await this.get(tenant_id, name), is_new };
    });
  }

  /** Throws NOT_FOUND. */
  async get(tenant_id: string, name: string): Promise<SecretRecord> {
    const row = await this.#options.store.readOne(`SELECT ${COLUMNS} FROM secrets WHERE ${AT}`, [
      tenant_id,
      this.#options.kind,
      name,
    ]);
    if (row === null) throw secretsNotFound([name]);
    return recordOf(row);
  }

  list(tenant_id: string, place: Place): Promise<Listed<SecretRecord>> {
    const { store, kind } = this.#options;
    const select = `SELECT ${COLUMNS} FROM secrets WHERE tenant_id = ? AND kind = ?`;
    return readPage(store, select, [tenant_id, kind], place, recordOf);
  }

  /** Returns the names of which the tenant has no secret. The caller bounds their number. */
  async missing(tenant_id: string, names: readonly string[]): Promise<readonly string[]> {
    const sql = `SELECT name FROM secrets WHERE tenant_id = ? AND kind = ? AND ${isListed("name")}`;
    const rows = await this.#options.store.read(sql, [tenant_id, this.#options.kind, JSON.stringify(names)]);
    const found = new Set(rows.map(({ name }) => String(name)));
    return names.filter((name) => !found.has(name));
  }

  /** Deletes a secret, also one that function versions name: their next instances fail to start. Throws NOT_FOUND. */
  async remove(tenant_id: string, name: string): Promise<void> {
    const sql = `DELETE FROM secrets WHERE ${AT}`;
    const statement = { sql, args: [tenant_id, this.#options.kind, name], expect_changes: 1 };
    // In turn with `set`, which reads what it has written.
    const conflict = await this.#changes.run(JSON.stringify([tenant_id, name]), () =>
      this.#write([statement], tenant_id, name, "removed"),
    );
    if (conflict !== null) throw secretsNotFound([name]);
  }

  /** Deletes the secrets of all kinds of a tenant that is being deleted. */
  async eraseAll(tenant_id: string): Promise<void> {
    const rows_max = LIMITS.delete_rows_per_pass;
    const sql = "DELETE FROM secrets WHERE seq IN (SELECT seq FROM secrets WHERE tenant_id = ? LIMIT ?)";
    for (let isMore = true; isMore; ) {
      const { changes } = await this.#options.store.write([{ sql, args: [tenant_id, rows_max] }]);
      isMore = changes[0] === rows_max;
    }
  }

  /** Returns false if no secret has the name. */
  async #replace(tenant_id: string, name: string, value: Uint8Array): Promise<boolean> {
    const { keys, kind } = this.#options;
    const sql = `UPDATE secrets SET key_id = ?, value = ?, size_bytes = ?, updated_at = ? WHERE ${AT}`;
    const { newest } = keys;
    const sealed = seal(newest, this.#place(tenant_id, name), value);
    const args = [newest.id, sealed, value.length, this.#now(), tenant_id, kind, name];
    const statements = [activeTenant(tenant_id), { sql, args, expect_changes: 1 }];
    const conflict = await this.#write(statements, tenant_id, name, "updated");
    if (conflict === 0) throw unknownCredential();
    return conflict === null;
  }

  /**
   * Makes the statement that inserts a secret, for the batch of another concern that makes what the secret belongs to. It is
   * enqueued at once (V2), checks no limit, and emits no event.
   */
  insertion(tenant_id: string, name: string, value: Uint8Array): Statement {
    const { newest } = this.#options.keys;
    const now = this.#now();
    const sealed = seal(newest, this.#place(tenant_id, name), value);
    return {
      sql: `INSERT INTO secrets (tenant_id, kind, name, size_bytes, created_at, updated_at, key_id, value)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      args: [tenant_id, this.#options.kind, name, value.length, now, now, newest.id, sealed],
    };
  }

  /** Makes the statement that deletes a secret, if there is one; for a batch like that of `insertion`. */
  deletion(tenant_id: string, name: string): Statement {
    return { sql: `DELETE FROM secrets WHERE ${AT}`, args: [tenant_id, this.#options.kind, name] };
  }

  async #insert(tenant_id: string, name: string, value: Uint8Array): Promise<void> {
    const { quotas } = this.#options;
    const insert = this.insertion(tenant_id, name, value);
    const checks: readonly Guard[] = [
      { statement: activeTenant(tenant_id), refusal: unknownCredential },
      ...quotas.guards(tenant_id, { secrets_max: 1 }),
    ];
    const statements = [...checks.map(({ statement }) => statement), insert];
    const conflict = await this.#write(statements, tenant_id, name, "created");
    if (conflict !== null) throw checks[conflict]?.refusal();
  }

  /** Returns the index of the statement that missed its expectation; null: committed. */
  async #write(statements: readonly Statement[], tenant_id: string, name: string, event_type: string) {
    const { events, kind } = this.#options;
    const event: NewEvent = { name: "secret_update", event_type, data: { kind, secret: name } };
    return (await events.write(statements, tenant_id, [event], { durable: true })).conflict;
  }

  #place(tenant_id: string, name: string): SecretPlace {
    return { tenant_id, kind: this.#options.kind, name };
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

const activeTenant = (tenant_id: string): Statement => tenantGuard(tenant_id, "state = 'active'");

function checkSize({ length }: Uint8Array): void {
  const max = LIMITS.secret_bytes_max;
  if (length >= 1 && length <= max) return;
  throw new AppError("INVALID_ARGUMENT", `value: must have 1 to ${max} bytes, received ${length} bytes`, {
    details: { expected: [">= 1 bytes", `<= ${max} bytes`], received: `${length} bytes` },
  });
}

function recordOf({ name, size_bytes, created_at, updated_at }: Row): SecretRecord {
  return {
    name: String(name),
    size_bytes: Number(size_bytes),
    created_at: Number(created_at),
    updated_at: Number(updated_at),
  };
}
