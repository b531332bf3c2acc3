/** Snapshots in the store: the SQL of this concern, and rows turned into what the services work with. */
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { hasEntry, isListed, jsonField, jsonItems } from "../base/sql-dialect.ts";
import { tenantGuard } from "../base/tenant-limits.ts";
import type { ContainerRecord } from "../containers/schema.ts";
import type { ContainerOrigin, ContainerSettings } from "../containers/service.ts";
import { numberOrNull, type Row, type Statement, type Store, type StoredNode, textOrNull } from "../store/store.ts";
import type { CreateSnapshot, SnapshotFilter, SnapshotRecord } from "./schema.ts";
import type { SnapshotState } from "./states.ts";

/** A volume in a snapshot: its files are a subvolume of the kind `snapshots`. */
export interface KeptVolume {
  readonly subvolume: string;
  /** Of the volume at that time. */
  readonly id: string;
  readonly name: string;
  readonly quota_mb: number | null;
  /** Path in the container; empty in a snapshot of a volume alone. */
  readonly target: string;
}

/** The fields of a snapshot that have no column of their own, stored as JSON. */
export interface SnapshotDetails extends Pick<CreateSnapshot, "consistency_mode" | "network_mode" | "volume_mode"> {
  /** Settings of the container; null in a snapshot of a volume alone. */
  readonly settings: ContainerSettings | null;
  readonly volumes: readonly KeptVolume[];
  readonly pause_ms: number | null;
  readonly hooks: SnapshotRecord["metadata"]["hooks"];
  readonly warnings: readonly string[];
  readonly capability_downgrades: readonly string[];
}

export interface SnapshotRow {
  readonly id: string;
  readonly tenant_id: string;
  /** The node that holds the snapshot. */
  readonly node_seq: number;
  readonly state: SnapshotState;
  readonly name: string | null;
  readonly container_id: string | null;
  readonly volume_id: string | null;
  /** Name of the container or volume at that time. */
  readonly source_name: string;
  readonly parent_id: string | null;
  readonly is_pinned: boolean;
  /** True if a schedule made it; the schedule also deletes it. */
  readonly is_scheduled: boolean;
  readonly created_at: number;
  readonly ttl_seconds: number | null;
  readonly expires_at: number | null;
  readonly size_bytes: number | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly details: SnapshotDetails;
}

export interface LineageRow {
  readonly id: string;
  readonly parent_id: string | null;
  readonly container_id: string | null;
  readonly name: string | null;
  readonly created_at: number;
}

export interface HeadRow {
  readonly id: string;
  readonly name: string;
  readonly state: ContainerRecord["state"];
  readonly snapshot_id: string;
  readonly origin: ContainerOrigin | null;
}

const COLUMNS = `seq, id, tenant_id, node_seq, state, name, container_id, volume_id, source_name, parent_id, is_pinned,
  is_scheduled, created_at, ttl_seconds, expires_at, size_bytes, labels, details`;
const SELECT = `SELECT ${COLUMNS} FROM snapshots`;
const VISIBLE = "state <> 'deleting'";

export class SnapshotRows {
  readonly #store: Store;
  readonly #node: StoredNode;

  /** `node`: this node, which holds the snapshots that are taken here. */
  constructor(store: Store, node: StoredNode) {
    this.#store = store;
    this.#node = node;
  }

  /** True if this node holds the snapshot. */
  isHeld({ node_seq }: Pick<SnapshotRow, "node_seq">): boolean {
    return node_seq === this.#node.seq;
  }

  async find(tenant_id: string, id: string): Promise<SnapshotRow | null> {
    return this.#one(`${SELECT} WHERE tenant_id = ? AND id = ? AND ${VISIBLE}`, [tenant_id, id]);
  }

  /** For the daemon's own work, one that is being deleted too. */
  byId(id: string): Promise<SnapshotRow | null> {
    return this.#one(`${SELECT} WHERE id = ?`, [id]);
  }

  /** Newest first. */
  list<Item>(
    tenant_id: string,
    { container_id, volume, label }: SnapshotFilter,
    place: Place,
    toItem: (row: SnapshotRow) => Item,
  ): Promise<Listed<Item>> {
    const args: string[] = [tenant_id];
    let where = `tenant_id = ? AND ${VISIBLE}`;
    if (container_id !== undefined) {
      where += " AND container_id = ?";
      args.push(container_id);
    }
    if (volume !== undefined) {
      where += " AND volume_id IS NOT NULL AND source_name = ?";
      args.push(volume);
    }
    for (const text of label) {
      where += ` AND ${hasEntry("labels")}`;
      const at = text.indexOf("=");
      args.push(text.slice(0, at), text.slice(at + 1));
    }
    return readPage(this.#store, `${SELECT} WHERE ${where}`, args, place, (row) => toItem(rowOf(row)));
  }

  /** Ids of all snapshots of this node by their state. */
  async ids(): Promise<readonly { readonly id: string; readonly state: SnapshotState }[]> {
    const rows = await this.#store.read("SELECT id, state FROM snapshots WHERE node_seq = ?", [this.#node.seq]);
    return rows.map(({ id, state }) => ({ id: String(id), state: state as SnapshotState }));
  }

  /** Subvolumes of volumes in the snapshots of this node. */
  async volumeParts(): Promise<readonly string[]> {
    const sql = `SELECT ${jsonField("item.value", "subvolume")} AS subvolume
      FROM snapshots, ${jsonItems("details", "volumes")} AS item WHERE node_seq = ?`;
    return (await this.#store.read(sql, [this.#node.seq])).map(({ subvolume }) => String(subvolume));
  }

  /** Ids of the snapshots of a tenant, in all states, some of many. */
  async ofTenant(tenant_id: string): Promise<readonly string[]> {
    const sql = "SELECT id FROM snapshots WHERE tenant_id = ? ORDER BY seq LIMIT ?";
    return (await this.#store.read(sql, [tenant_id, LIMITS.list_limit_max])).map(({ id }) => String(id));
  }

  /** Time at which the next snapshot of this node is due, or the last one should have been; null: none is. */
  async nextExpiry(): Promise<number | null> {
    const sql = `SELECT min(expires_at) + 1 AS at FROM snapshots WHERE node_seq = ? AND is_pinned = 0 AND state = 'ready'`;
    return numberOrNull((await this.#store.readOne(sql, [this.#node.seq]))?.at);
  }

  /** Snapshots of this node that a round of the periodic work deletes: expired, or never finished. */
  async due(now: number, unfinished_before: number): Promise<readonly string[]> {
    const sql = `SELECT id FROM snapshots WHERE node_seq = ? AND is_pinned = 0
      AND ((state = 'ready' AND expires_at < ?) OR (state = 'creating' AND created_at <= ?)) ORDER BY seq LIMIT ?`;
    const args = [this.#node.seq, now, unfinished_before, LIMITS.snapshots_expired_per_pass];
    return (await this.#store.read(sql, args)).map(({ id }) => String(id));
  }

  /** Snapshots of a container or volume that a schedule took, beyond the `keep` newest ones. */
  async surplus(source_id: string, keep: number): Promise<readonly string[]> {
    const sql = `SELECT id FROM snapshots WHERE (container_id = ? OR volume_id = ?) AND is_scheduled = 1
      AND is_pinned = 0 AND state = 'ready' ORDER BY seq DESC LIMIT ? OFFSET ?`;
    const args = [source_id, source_id, LIMITS.snapshots_expired_per_pass, keep];
    return (await this.#store.read(sql, args)).map(({ id }) => String(id));
  }

  /** Ids of all images below snapshots of this node. */
  async images(): Promise<readonly string[]> {
    const sql = "SELECT DISTINCT image_id FROM snapshots WHERE node_seq = ? AND image_id IS NOT NULL";
    return (await this.#store.read(sql, [this.#node.seq])).map(({ image_id }) => String(image_id));
  }

  /** The newest snapshot of a volume. */
  async headOfVolume(volume_id: string): Promise<string | null> {
    const sql = "SELECT id FROM snapshots WHERE volume_id = ? AND state <> 'deleting' ORDER BY seq DESC LIMIT 1";
    return textOrNull((await this.#store.readOne(sql, [volume_id]))?.id);
  }

  /** The snapshots that share an ancestor with one, oldest first, and one more than `max` where there are more. */
  async lineage(tenant_id: string, id: string, max: number): Promise<readonly LineageRow[]> {
    // A condition on the tenant in each step would make SQLite read all of the tenant's snapshots there.
    const sql = `WITH RECURSIVE
      up (id, parent_id, height) AS (
        SELECT id, parent_id, 0 FROM snapshots WHERE id = ? AND tenant_id = ?
        UNION SELECT s.id, s.parent_id, up.height + 1 FROM snapshots AS s JOIN up ON s.id = up.parent_id
          WHERE s.tenant_id = ?),
      down (id) AS (
        SELECT id FROM (SELECT id FROM up ORDER BY height DESC LIMIT 1) AS root
        UNION SELECT s.id FROM snapshots AS s JOIN down ON s.parent_id = down.id)
      SELECT s.id, s.parent_id, s.container_id, s.name, s.created_at FROM snapshots AS s JOIN down ON s.id = down.id
        WHERE s.tenant_id = ? AND s.state <> 'deleting' ORDER BY s.seq LIMIT ?`;
    const rows = await this.#store.read(sql, [id, tenant_id, tenant_id, tenant_id, max + 1]);
    return rows.map((row) => ({
      id: String(row.id),
      parent_id: textOrNull(row.parent_id),
      container_id: textOrNull(row.container_id),
      name: textOrNull(row.name),
      created_at: Number(row.created_at),
    }));
  }

  /** The containers whose files are nearest to one of these snapshots. */
  async heads(tenant_id: string, ids: readonly string[], max: number): Promise<readonly HeadRow[]> {
    const sql = `SELECT id, name, state, head_snapshot_id, ${jsonField("make", "origin")} AS origin FROM containers
      WHERE tenant_id = ? AND is_removing = 0 AND ${isListed("head_snapshot_id")} ORDER BY seq LIMIT ?`;
    const rows = await this.#store.read(sql, [tenant_id, JSON.stringify(ids), max + 1]);
    return rows.map((row) => ({
      id: String(row.id),
      name: String(row.name),
      state: row.state as ContainerRecord["state"],
      snapshot_id: String(row.head_snapshot_id),
      origin: row.origin === null ? null : JSON.parse(String(row.origin)),
    }));
  }

  /** Conflict: the tenant is being deleted. */
  guard(tenant_id: string): Statement {
    return tenantGuard(tenant_id, "state = 'active'");
  }

  insert(row: SnapshotRow): Statement {
    const { settings } = row.details;
    return {
      sql: `INSERT INTO snapshots (id, tenant_id, node_seq, state, name, container_id, volume_id, source_name, parent_id,
        image_id, image_release, is_scheduled, created_at, ttl_seconds, expires_at, labels, details)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      args: [
        row.id,
        row.tenant_id,
        this.#node.seq,
        row.state,
        row.name,
        row.container_id,
        row.volume_id,
        row.source_name,
        row.parent_id,
        settings?.image_id ?? null,
        settings?.release ?? null,
        row.is_scheduled ? 1 : 0,
        row.created_at,
        row.ttl_seconds,
        row.expires_at,
        JSON.stringify(row.labels),
        JSON.stringify(row.details),
      ],
      expect_changes: 1,
    };
  }

  /** Conflict: it is being deleted, or was finished before. */
  finish(id: string, details: SnapshotDetails, size_bytes: number, disk_mb: number): Statement {
    // The container may have been copied, restored or snapshotted since this one was accepted.
    const head = "SELECT head_snapshot_id FROM containers WHERE containers.id = snapshots.container_id";
    return {
      sql: `UPDATE snapshots SET state = 'ready', details = ?, size_bytes = ?, disk_mb = ?,
        parent_id = CASE WHEN container_id IS NULL THEN parent_id ELSE (${head}) END
        WHERE id = ? AND state = 'creating'`,
      args: [JSON.stringify(details), size_bytes, disk_mb, id],
      expect_changes: 1,
    };
  }

  /** Notes the snapshot that a container's files are nearest to. */
  setHead(container_id: string, snapshot_id: string): Statement {
    return { sql: "UPDATE containers SET head_snapshot_id = ? WHERE id = ?", args: [snapshot_id, container_id] };
  }

  /** Conflict: it is gone, or not finished. */
  pin(tenant_id: string, id: string, is_pinned: boolean): Statement {
    return {
      sql: "UPDATE snapshots SET is_pinned = ? WHERE tenant_id = ? AND id = ? AND state = 'ready'",
      args: [is_pinned ? 1 : 0, tenant_id, id],
      expect_changes: 1,
    };
  }

  /**
   * Hides the snapshot from all reads and attaches its children to its parent. The first statement conflicts if the
   * snapshot is pinned or already deleted; `isUnfinished` also allows one that is not complete.
   */
  end({ id }: Pick<SnapshotRow, "id">, isUnfinished: boolean): readonly Statement[] {
    // The statement reads the parent itself: it may have been deleted since the row was read.
    const parent = "SELECT p.parent_id FROM snapshots AS p WHERE p.id = ?";
    const states = isUnfinished ? "state <> 'deleting'" : "state = 'ready'";
    return [
      {
        sql: `UPDATE snapshots SET state = 'deleting' WHERE id = ? AND is_pinned = 0 AND ${states}`,
        args: [id],
        expect_changes: 1,
      },
      { sql: `UPDATE snapshots SET parent_id = (${parent}) WHERE parent_id = ?`, args: [id, id] },
      { sql: `UPDATE containers SET head_snapshot_id = (${parent}) WHERE head_snapshot_id = ?`, args: [id, id] },
    ];
  }

  /** Of a tenant that is being deleted: a pin does not hold. */
  unpinAll(tenant_id: string): Statement {
    return { sql: "UPDATE snapshots SET is_pinned = 0 WHERE tenant_id = ?", args: [tenant_id] };
  }

  delete(id: string): Statement {
    return { sql: "DELETE FROM snapshots WHERE id = ?", args: [id] };
  }

  async #one(sql: string, args: readonly string[]): Promise<SnapshotRow | null> {
    const row = await this.#store.readOne(sql, args);
    return row === null ? null : rowOf(row);
  }
}

function rowOf(row: Row): SnapshotRow {
  return {
    id: String(row.id),
    tenant_id: String(row.tenant_id),
    node_seq: Number(row.node_seq),
    state: row.state as SnapshotState,
    name: textOrNull(row.name),
    container_id: textOrNull(row.container_id),
    volume_id: textOrNull(row.volume_id),
    source_name: String(row.source_name),
    parent_id: textOrNull(row.parent_id),
    is_pinned: row.is_pinned === 1,
    is_scheduled: row.is_scheduled === 1,
    created_at: Number(row.created_at),
    ttl_seconds: numberOrNull(row.ttl_seconds),
    expires_at: numberOrNull(row.expires_at),
    size_bytes: numberOrNull(row.size_bytes),
    labels: JSON.parse(String(row.labels)),
    details: JSON.parse(String(row.details)),
  };
}
