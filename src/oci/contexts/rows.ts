/** Build contexts in the store: the SQL of this part. */
import { LIMITS } from "../../base/limits.ts";
import { type Listed, type Place, readPage } from "../../base/paging.ts";
import type { Row, Statement, Store, StoredNode } from "../../store/store.ts";
import type { ContextRecord } from "./schema.ts";

const COLUMNS = "seq, id, size_bytes, created_at, expires_at";
/** Sum of the contexts of one node. */
const NODE_MEGABYTES = "(SELECT coalesce(sum(disk_mb), 0) FROM build_contexts WHERE node_seq = ?)";

export interface NewContext extends ContextRecord {
  readonly tenant_id: string;
  /** Counted in the limits. */
  readonly disk_mb: number;
}

export class ContextRows {
  readonly #store: Store;
  readonly #node: StoredNode;

  /** `node`: this node, which holds the contexts that are uploaded here. Other nodes do not see them. */
  constructor(store: Store, node: StoredNode) {
    this.#store = store;
    this.#node = node;
  }

  /** Reads a context that has not expired at `now`. */
  async find(tenant_id: string, id: string, now: number): Promise<ContextRecord | null> {
    const sql = `SELECT ${COLUMNS} FROM build_contexts
      WHERE id = ? AND tenant_id = ? AND node_seq = ? AND expires_at > ?`;
    const row = await this.#store.readOne(sql, [id, tenant_id, this.#node.seq, now]);
    return row === null ? null : recordOf(row);
  }

  /** Newest first, without those that have expired at `now`. */
  list(tenant_id: string, place: Place, now: number): Promise<Listed<ContextRecord>> {
    const select = `SELECT ${COLUMNS} FROM build_contexts WHERE tenant_id = ? AND node_seq = ? AND expires_at > ?`;
    return readPage<Row, string | number, ContextRecord>(
      this.#store,
      select,
      [tenant_id, this.#node.seq, now],
      place,
      recordOf,
    );
  }

  /** Sums of the contexts of the tenant and of the node, in MiB. */
  async megabytes(tenant_id: string): Promise<{ readonly tenant: number; readonly node: number }> {
    const sql = `SELECT ${NODE_MEGABYTES} AS node, coalesce(sum(disk_mb), 0) AS tenant
      FROM build_contexts WHERE tenant_id = ?`;
    const row = await this.#store.readOne(sql, [this.#node.seq, tenant_id]);
    return { tenant: Number(row?.tenant ?? 0), node: Number(row?.node ?? 0) };
  }

  /** Conflict: contexts of this node would exceed `node_mb_max`. */
  insert(context: NewContext, node_mb_max: number): Statement {
    const { context_id, tenant_id, size_bytes, disk_mb, created_at, expires_at } = context;
    const { seq } = this.#node;
    return {
      sql: `INSERT INTO build_contexts (id, tenant_id, node_seq, size_bytes, disk_mb, created_at, expires_at)
        SELECT ?, ?, ?, ?, ?, ?, ? WHERE ${NODE_MEGABYTES} + ? <= ?`,
      args: [context_id, tenant_id, seq, size_bytes, disk_mb, created_at, expires_at, seq, disk_mb, node_mb_max],
      expect_changes: 1,
    };
  }

  /** Deletes one of the tenant. Resolves to false if there is none. */
  async delete(tenant_id: string, id: string): Promise<boolean> {
    const sql = "DELETE FROM build_contexts WHERE id = ? AND tenant_id = ? AND node_seq = ?";
    const { changes } = await this.#store.write([{ sql, args: [id, tenant_id, this.#node.seq] }]);
    return changes[0] === 1;
  }

  /** Deletes one of this node, whoever has it. */
  async drop(id: string): Promise<void> {
    const sql = "DELETE FROM build_contexts WHERE id = ? AND node_seq = ?";
    await this.#store.write([{ sql, args: [id, this.#node.seq] }]);
  }

  /** Ids of the contexts of this node. */
  async ids(): Promise<readonly string[]> {
    const sql = "SELECT id FROM build_contexts WHERE node_seq = ?";
    return (await this.#store.read(sql, [this.#node.seq])).map(({ id }) => String(id));
  }

  /** Ids of the contexts of this node that have expired at `now`, the oldest first, some of many. */
  async expired(now: number): Promise<readonly string[]> {
    const sql = "SELECT id FROM build_contexts WHERE node_seq = ? AND expires_at <= ? ORDER BY expires_at, seq LIMIT ?";
    const rows = await this.#store.read(sql, [this.#node.seq, now, LIMITS.list_limit_max]);
    return rows.map(({ id }) => String(id));
  }

  /** Ids of the contexts of a tenant on this node, some of many. */
  async ofTenant(tenant_id: string): Promise<readonly string[]> {
    const sql = "SELECT id FROM build_contexts WHERE tenant_id = ? AND node_seq = ? ORDER BY seq LIMIT ?";
    const rows = await this.#store.read(sql, [tenant_id, this.#node.seq, LIMITS.list_limit_max]);
    return rows.map(({ id }) => String(id));
  }
}

function recordOf({ id, size_bytes, created_at, expires_at }: Row): ContextRecord {
  return {
    context_id: String(id),
    size_bytes: Number(size_bytes),
    created_at: Number(created_at),
    expires_at: Number(expires_at),
  };
}
