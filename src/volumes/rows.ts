/** Volumes in the store: the SQL of this concern. */
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { tenantGuard } from "../base/tenant-limits.ts";
import { numberOrNull, type Row, type Statement, type Store, type StoredNode } from "../store/store.ts";
import type { CreateVolume } from "./schema.ts";
import type { VolumeStatus } from "./states.ts";

export interface VolumeRow {
  readonly id: string;
  /** The node that holds the volume. */
  readonly node_seq: number;
  readonly tenant_id: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly quota_mb: number | null;
  readonly status: VolumeStatus;
  readonly created_at: number;
  readonly updated_at: number;
}

const SELECT =
  "SELECT seq, id, tenant_id, node_seq, name, labels, quota_mb, status, created_at, updated_at FROM volumes";

export class VolumeRows {
  readonly #store: Store;
  readonly #node: StoredNode;

  /** `node`: this node, which holds the volumes that are created here. */
  constructor(store: Store, node: StoredNode) {
    this.#store = store;
    this.#node = node;
  }

  /** True if this node holds the volume. */
  isHeld({ node_seq }: Pick<VolumeRow, "node_seq">): boolean {
    return node_seq === this.#node.seq;
  }

  async byName(tenant_id: string, name: string): Promise<VolumeRow | null> {
    const row = await this.#store.readOne(`${SELECT} WHERE tenant_id = ? AND name = ?`, [tenant_id, name]);
    return row === null ? null : rowOf(row);
  }

  async byId(id: string): Promise<VolumeRow | null> {
    const row = await this.#store.readOne(`${SELECT} WHERE id = ?`, [id]);
    return row === null ? null : rowOf(row);
  }

  /** Newest first. */
  list<Item>(tenant_id: string, place: Place, toItem: (row: VolumeRow) => Item): Promise<Listed<Item>> {
    return readPage(this.#store, `${SELECT} WHERE tenant_id = ?`, [tenant_id], place, (row) => toItem(rowOf(row)));
  }

  /** Ids of the volumes of all nodes, and of this node's: those that it holds, and those whose deletion was begun. */
  async ids(): Promise<Record<"all" | "held" | "ending", readonly string[]>> {
    const rows = await this.#store.read("SELECT id, node_seq, status FROM volumes");
    const own = rows.filter(({ node_seq }) => node_seq === this.#node.seq);
    const isEnding = ({ status }: Row) => status === "cleanup_pending";
    const idsOf = (some: readonly Row[]) => some.map(({ id }) => String(id));
    return {
      all: idsOf(rows),
      held: idsOf(own.filter((row) => !isEnding(row))),
      ending: idsOf(own.filter(isEnding)),
    };
  }

  /** Reads the ids of the volumes of a tenant, those of this node first. */
  async ofTenant(tenant_id: string): Promise<readonly string[]> {
    const sql = "SELECT id FROM volumes WHERE tenant_id = ? ORDER BY node_seq <> ?, seq";
    const rows = await this.#store.read(sql, [tenant_id, this.#node.seq]);
    return rows.map(({ id }) => String(id));
  }

  async users(id: string): Promise<string[]> {
    const sql = "SELECT container_id FROM container_volumes WHERE volume_id = ? ORDER BY container_id LIMIT ?";
    const rows = await this.#store.read(sql, [id, LIMITS.list_limit_max]);
    return rows.map(({ container_id }) => String(container_id));
  }

  /** Conflict: the tenant is being deleted; the name is taken. */
  insert(
    tenant_id: string,
    id: string,
    { name, labels, quota_mb }: Pick<CreateVolume, "name" | "labels" | "quota_mb">,
    now: number,
  ): readonly [Statement, Statement] {
    return [
      tenantGuard(tenant_id, "state = 'active'"),
      {
        sql: `INSERT INTO volumes (id, tenant_id, node_seq, name, labels, quota_mb, status, created_at, updated_at)
          VALUES (?, ?, ?, ?, ?, ?, 'active', ?, ?) ON CONFLICT DO NOTHING`,
        args: [id, tenant_id, this.#node.seq, name, JSON.stringify(labels), quota_mb ?? null, now, now],
        expect_changes: 1,
      },
    ];
  }

  /** Reads the volumes of this node without a quota. `tenant_id`: null for all tenants. */
  async withoutQuota(
    tenant_id: string | null,
  ): Promise<readonly { readonly id: string; readonly tenant_id: string }[]> {
    const sql = `SELECT id, tenant_id FROM volumes
      WHERE node_seq = ? AND quota_mb IS NULL AND tenant_id = coalesce(?, tenant_id)`;
    const rows = await this.#store.read(sql, [this.#node.seq, tenant_id]);
    return rows.map(({ id, tenant_id }) => ({ id: String(id), tenant_id: String(tenant_id) }));
  }

  setQuota(id: string, quota_mb: number): Statement {
    return { sql: "UPDATE volumes SET quota_mb = ? WHERE id = ?", args: [quota_mb, id] };
  }

  /** Conflict: another has the name, or it is being deleted. */
  rename(tenant_id: string, id: string, new_name: string, now: number): Statement {
    return {
      sql: `UPDATE volumes SET name = ?, updated_at = ? WHERE id = ? AND status = 'active'
        AND NOT EXISTS (SELECT 1 FROM volumes WHERE tenant_id = ? AND name = ? AND id <> ?)`,
      args: [new_name, now, id, tenant_id, new_name, id],
      expect_changes: 1,
    };
  }

  /** From here on no container gets it. Conflict: one has it. */
  end(id: string, now: number): Statement {
    return {
      sql: `UPDATE volumes SET status = 'cleanup_pending', updated_at = ? WHERE id = ?
        AND NOT EXISTS (SELECT 1 FROM container_volumes WHERE volume_id = volumes.id)`,
      args: [now, id],
      expect_changes: 1,
    };
  }

  /** Conflict: it is gone already. */
  delete(id: string): Statement {
    return { sql: "DELETE FROM volumes WHERE id = ?", args: [id], expect_changes: 1 };
  }
}

function rowOf(row: Row): VolumeRow {
  return {
    id: String(row.id),
    tenant_id: String(row.tenant_id),
    node_seq: Number(row.node_seq),
    name: String(row.name),
    labels: JSON.parse(String(row.labels)),
    quota_mb: numberOrNull(row.quota_mb),
    status: row.status as VolumeStatus,
    created_at: Number(row.created_at),
    updated_at: Number(row.updated_at),
  };
}
