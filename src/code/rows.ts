/** Functions' code in the store: the SQL of this concern. A row is one tenant's right to one tree. */
import { unknownCredential } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type Quotas, TENANT_LIMITS, tenantGuard } from "../base/tenant-limits.ts";
import type { Guard, Row, Statement, Store } from "../store/store.ts";
import type { CodeRecord } from "./schema.ts";

const MIB = 1024 * 1024;
const COLUMNS = "digest, size_bytes, entry_count, created_at";
const STORED = TENANT_LIMITS.storage_mb_max.used.sql;
/** True for a row that no version of its tenant names. */
const UNUSED = `NOT EXISTS (SELECT 1 FROM function_versions JOIN functions ON functions.seq = function_versions.function_seq
  WHERE function_versions.code = code.digest AND functions.tenant_id = code.tenant_id)`;

/** The code of one tenant. */
export interface CodeKey {
  readonly tenant_id: string;
  readonly digest: string;
}

export class CodeRows {
  readonly #store: Store;
  readonly #quotas: Quotas;

  constructor(store: Store, quotas: Quotas) {
    this.#store = store;
    this.#quotas = quotas;
  }

  async find({ tenant_id, digest }: CodeKey): Promise<CodeRecord | null> {
    const sql = `SELECT ${COLUMNS} FROM code WHERE tenant_id = ? AND digest = ?`;
    const row = await this.#store.readOne(sql, [tenant_id, digest]);
    return row === null ? null : recordOf(row);
  }

  /** Returns true if any tenant has the code. */
  async has(digest: string): Promise<boolean> {
    return (await this.#store.readOne("SELECT 1 FROM code WHERE digest = ? LIMIT 1", [digest])) !== null;
  }

  /**
   * Stores the tenant's row, or renews the time of the one that is there. A new one counts in the tenant's storage, in the
   * statement itself. Throws QUOTA_EXCEEDED.
   */
  async put(tenant_id: string, record: CodeRecord): Promise<void> {
    const { digest, size_bytes, entry_count, created_at } = record;
    const checks: Guard[] = [
      { statement: tenantGuard(tenant_id, "state = 'active'"), refusal: unknownCredential },
      ...this.#room(tenant_id, record),
    ];
    const insert: Statement = {
      sql: `INSERT INTO code (tenant_id, digest, size_bytes, entry_count, created_at) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (tenant_id, digest) DO UPDATE SET created_at = excluded.created_at`,
      args: [tenant_id, digest, size_bytes, entry_count, created_at],
    };
    const statements = [...checks.map(({ statement }) => statement), insert];
    const { conflict } = await this.#store.write(statements, { durable: true });
    if (conflict !== null) throw checks[conflict]?.refusal();
  }

  /** Renews the time of the tenant's row, as an upload does. Resolves to false if there is none. */
  async renew({ tenant_id, digest }: CodeKey, now: number): Promise<boolean> {
    const sql = "UPDATE code SET created_at = ? WHERE tenant_id = ? AND digest = ?";
    const { changes } = await this.#store.write([{ sql, args: [now, tenant_id, digest] }], { durable: true });
    return changes[0] === 1;
  }

  #room(tenant_id: string, { digest, size_bytes, entry_count }: CodeRecord): Guard[] {
    const { storage_mb_max } = this.#quotas.of(tenant_id);
    if (storage_mb_max === null) return [];
    const bytes = size_bytes + LIMITS.code_entry_bytes * entry_count + LIMITS.code_tree_bytes;
    const condition = `(EXISTS (SELECT 1 FROM code WHERE tenant_id = tenants.id AND digest = ?) OR ${STORED} + ? <= ?)`;
    return [
      {
        statement: tenantGuard(tenant_id, condition, [digest, bytes, storage_mb_max * MIB]),
        refusal: () => noStorage(bytes, storage_mb_max),
      },
    ];
  }

  /** For the batch of a version that names the code. Missed if the tenant does not have it (any more). */
  guard({ tenant_id, digest }: CodeKey): Guard {
    return {
      statement: {
        sql: "UPDATE code SET digest = digest WHERE tenant_id = ? AND digest = ?",
        args: [tenant_id, digest],
        expect_changes: 1,
      },
      refusal: () => noSuchCode(digest),
    };
  }

  /** Yields pages of rows that no version names and whose upload is older than the time. */
  async *unused(uploaded_before: number): AsyncGenerator<readonly CodeKey[], void, undefined> {
    for (let after = 0; ; ) {
      const page = await this.#store.read(
        `SELECT seq, tenant_id, digest, (created_at < ? AND ${UNUSED}) AS is_unused FROM code
          WHERE seq > ? ORDER BY seq LIMIT ?`,
        [uploaded_before, after, LIMITS.code_rows_per_pass],
      );
      const keys = page.filter(({ is_unused }) => Number(is_unused) === 1).map(keyOf);
      if (keys.length > 0) yield keys;
      if (page.length < LIMITS.code_rows_per_pass) return;
      after = Number(page.at(-1)?.seq);
    }
  }

  /** Yields the digests of all rows, page by page. A digest of several tenants comes several times. */
  async *digests(): AsyncGenerator<readonly string[], void, undefined> {
    for (let after = 0; ; ) {
      const sql = "SELECT seq, digest FROM code WHERE seq > ? ORDER BY seq LIMIT ?";
      const page = await this.#store.read(sql, [after, LIMITS.code_rows_per_pass]);
      yield page.map(({ digest }) => String(digest));
      if (page.length < LIMITS.code_rows_per_pass) return;
      after = Number(page.at(-1)?.seq);
    }
  }

  /** Deletes the row unless a version names it or its upload is too recent. Resolves to true if it is gone. */
  async delete({ tenant_id, digest }: CodeKey, uploaded_before: number): Promise<boolean> {
    const sql = `DELETE FROM code WHERE tenant_id = ? AND digest = ? AND created_at < ? AND ${UNUSED}`;
    const { changes } = await this.#store.write([{ sql, args: [tenant_id, digest, uploaded_before] }]);
    return changes[0] === 1;
  }

  /** Returns the digests of a tenant, some at a time. */
  async ofTenant(tenant_id: string): Promise<readonly string[]> {
    const sql = "SELECT digest FROM code WHERE tenant_id = ? ORDER BY seq LIMIT ?";
    const rows = await this.#store.read(sql, [tenant_id, LIMITS.code_rows_per_pass]);
    return rows.map(({ digest }) => String(digest));
  }
}

function recordOf({ digest, size_bytes, entry_count, created_at }: Row): CodeRecord {
  return {
    digest: String(digest),
    size_bytes: Number(size_bytes),
    entry_count: Number(entry_count),
    created_at: Number(created_at),
  };
}

function keyOf({ tenant_id, digest }: Row): CodeKey {
  return { tenant_id: String(tenant_id), digest: String(digest) };
}

function noStorage(bytes: number, storage_mb_max: number): AppError {
  return new AppError(
    "QUOTA_EXCEEDED",
    `code of ${bytes} bytes exceeds the storage of the tenant (limit ${storage_mb_max} MiB)`,
    {
      details: { expected: [String(storage_mb_max)] },
      hint: "delete functions or versions that are not needed, or ask the operator for a higher storage_mb_max",
    },
  );
}

export function noSuchCode(digest: string): AppError {
  return new AppError("NOT_FOUND", `code ${digest} not found`, { hint: "upload the files again" });
}
