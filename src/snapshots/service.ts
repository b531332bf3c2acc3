/**
 * Snapshots: read-only copies of the files of a container, with its settings, or of a volume. The bytes are the engine's
 * (subvolumes of the storage pool that share what is the same); here are records, their order of descent, and who may.
 * taking.ts takes them, copies.ts makes containers from them.
 *
 * T1 A row in state `ready` names subvolumes that are complete. A subvolume without a row is what a crash left, and the
 *    next boot removes it.
 * T2 A copy needs nothing of its snapshot once it is made: deleting a snapshot leaves its copies whole.
 * T3 What came after a snapshot that is deleted comes after its parent: the lineage holds only what exists.
 * T4 Nothing is removed while it is being used: a removal waits for all work that began before the row said `deleting`.
 */
import { LRUCache } from "lru-cache";
import { unknownCredential } from "../base/caller.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { each, KeyedMutex } from "../base/concurrency.ts";
import { AppError, errorText } from "../base/errors.ts";
import { Expiries } from "../base/expiries.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import { Retries } from "../base/retries.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { Storage, SubvolumeSpace } from "../engine/ports.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import { type Guard, heldElsewhere, type Statement, type Store, type StoredNode } from "../store/store.ts";
import { type LineageRow, type SnapshotDetails, type SnapshotRow, SnapshotRows } from "./rows.ts";
import type { Lineage, SnapshotDetail, SnapshotFilter, SnapshotRecord } from "./schema.ts";
import { snapshotStates } from "./states.ts";

/** Kind of the subvolumes. */
export const SNAPSHOT_KIND = "snapshots";
const SNAPSHOT = "snp";
/** Prefix of what forks are copied from; it has no row, and goes with its operation. */
export const MOMENT = "fkm";

export interface SnapshotsOptions {
  readonly store: Store;
  readonly node: StoredNode;
  /** There when the engine has booted. */
  readonly storage: () => Storage;
  readonly events: Events;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Quotas;
}

export class Snapshots {
  readonly #options: SnapshotsOptions;
  readonly #rows: SnapshotRows;
  /** Removals that failed. */
  readonly #retries: Retries;
  readonly #expiries: Expiries;
  /** T4: the work that uses each snapshot. */
  readonly #users = new Map<string, Set<Promise<void>>>();
  /** Counts of bytes, one of each tenant at a time: each reads all extents of a snapshot. */
  readonly #counting = new KeyedMutex();
  /** Resolved at each change of a snapshot, and made anew. */
  #changed = Promise.withResolvers<void>();
  readonly #spaces = new LRUCache<string, SubvolumeSpace>({
    max: LIMITS.snapshot_spaces_cached,
    ttl: LIMITS.snapshot_space_cached_ms,
  });

  constructor(options: SnapshotsOptions) {
    const { store, node, clock, log } = options;
    this.#options = options;
    this.#rows = new SnapshotRows(store, node);
    this.#retries = new Retries({ clock, log, what: "snapshot", later: (_id, attempt) => attempt() });
    this.#expiries = new Expiries({
      ...{ clock, log, what: "snapshot" },
      expire: () => this.prune(),
      next: () => this.#rows.nextExpiry(),
    });
  }

  /** Removes what a crash left, before anything is taken anew under the same ids (T1). */
  async boot(): Promise<void> {
    const { storage, log } = this.#options;
    const isOwn = (id: string) => id.startsWith(SNAPSHOT) || id.startsWith(MOMENT);
    const found = new Set((await storage().list(SNAPSHOT_KIND)).filter(isOwn));
    const rows = await this.#rows.ids();
    const lost = rows.filter(({ id, state }) => state === "ready" && !found.has(id)).map(({ id }) => id);
    if (lost.length > 0) {
      const snapshots = lost.slice(0, LOST_NAMED_MAX).join(" ");
      log.error("the storage pool lacks files of snapshots", { count: lost.length, snapshots });
    }
    const known = new Set([...rows.map(({ id }) => id), ...(await this.#rows.volumeParts())]);
    // A fork that is resumed takes its moment under the id of the one that is removed here.
    await this.discardParts([...found].filter((id) => !known.has(id)));
    const clear = async () => {
      for (const { id, state } of rows) if (state === "deleting") await this.#erase(id).catch(() => {});
    };
    void clear();
    await this.#expiries.begin();
  }

  /** Begins no more attempts at removals. */
  close(): void {
    this.#retries.close();
    this.#expiries.close();
  }

  readonly newId = (): string => this.#options.ids.next(SNAPSHOT);

  /** Ids of the images below snapshots of this node. */
  images(): Promise<readonly string[]> {
    return this.#rows.images();
  }

  /** The checks of a batch that makes the row of a snapshot in state `creating`. */
  insertChecks(row: SnapshotRow): readonly Guard[] {
    const { tenant_id } = row;
    return [
      { statement: this.#rows.guard(tenant_id), refusal: unknownCredential },
      ...this.#options.quotas.guards(tenant_id, { snapshots_max: 1 }),
      { statement: this.#rows.insert(row), refusal: () => new AppError("INTERNAL", "the id of a snapshot is taken") },
    ];
  }

  /** Notes that a snapshot is complete. Throws QUOTA_EXCEEDED, NOT_FOUND where it was deleted meanwhile. */
  async finish(row: SnapshotRow, details: SnapshotDetails, size_bytes: number): Promise<void> {
    const disk_mb = Math.ceil(size_bytes / MEGABYTE);
    const { container_id, tenant_id, id } = row;
    const checks: readonly Guard[] = [
      ...this.#options.quotas.guards(tenant_id, { snapshot_mb_max: disk_mb }),
      { statement: this.#rows.finish(id, details, size_bytes, disk_mb), refusal: () => notFound(id) },
    ];
    const head = container_id === null ? [] : [this.#rows.setHead(container_id, id)];
    const conflict = await this.#write([...checks.map(({ statement }) => statement), ...head], row, "created");
    if (conflict !== null) throw checks[conflict]?.refusal();
    this.#expiries.note(dueAt(row));
  }

  async get(tenant_id: string, id: string): Promise<SnapshotDetail> {
    const row = await this.row(tenant_id, id);
    const space = row.state === "ready" && this.#rows.isHeld(row) ? await this.#space(row) : null;
    return {
      ...recordOf(row),
      exclusive_bytes: space?.exclusive_bytes ?? null,
      shared_bytes: space === null ? null : space.total_bytes - space.exclusive_bytes,
    };
  }

  list(tenant_id: string, filter: SnapshotFilter, place: Place): Promise<Listed<SnapshotRecord>> {
    return this.#rows.list(tenant_id, filter, place, recordOf);
  }

  /** Resolves when a snapshot was finished or removed, or after a moment. */
  async changed(): Promise<void> {
    // Of this wait alone: a promise of all that a timer had resolved would end all later waits at once.
    const late = Promise.withResolvers<void>();
    const cancel = this.#options.clock.after(LIMITS.snapshot_look_ms, late.resolve);
    await Promise.race([this.#changed.promise, late.promise]);
    cancel();
  }

  /** Throws NOT_FOUND. */
  async row(tenant_id: string, id: string): Promise<SnapshotRow> {
    const row = await this.#rows.find(tenant_id, id);
    if (row === null) throw notFound(id);
    return row;
  }

  /** Like `row`, for work that needs more than the store. Throws WRONG_STATE if another node holds the snapshot. */
  async held(tenant_id: string, id: string): Promise<SnapshotRow> {
    const row = await this.row(tenant_id, id);
    if (!this.#rows.isHeld(row)) throw heldElsewhere(`snapshot '${id}'`);
    return row;
  }

  /** For the daemon's own work. Null: it is gone. */
  byIdAlone(id: string): Promise<SnapshotRow | null> {
    return this.#rows.byId(id);
  }

  /** The newest snapshot of a volume; null: it has none. */
  headOfVolume(volume_id: string): Promise<string | null> {
    return this.#rows.headOfVolume(volume_id);
  }

  /**
   * Does work on the files of a complete snapshot, which stay until it has ended (T4). Any number at a time. Throws NOT_FOUND,
   * WRONG_STATE while it is made.
   */
  async using<Result>(tenant_id: string, id: string, work: (row: SnapshotRow) => Promise<Result>): Promise<Result> {
    const done = Promise.withResolvers<void>();
    const users = this.#users.get(id) ?? new Set();
    this.#users.set(id, users);
    // Before the look at the row: what is ready then is there until the end.
    users.add(done.promise);
    try {
      const row = await this.held(tenant_id, id);
      if (row.state !== "ready") throw unfinished(row);
      return await work(row);
    } finally {
      users.delete(done.promise);
      if (users.size === 0) this.#users.delete(id);
      done.resolve();
    }
  }

  async lineage(tenant_id: string, id: string): Promise<Lineage> {
    await this.row(tenant_id, id);
    const max = LIMITS.lineage_nodes_max;
    const found = await this.#rows.lineage(tenant_id, id, max);
    const rows = found.slice(0, max);
    const depths = depthsOf(rows);
    const nodes = rows.map(({ id: snapshot_id, parent_id, container_id, name, created_at }) => {
      const depth = depths.get(snapshot_id) ?? 0;
      return { snapshot_id, parent_snapshot_id: parent_id, container_id, name, created_at, depth };
    });
    const heads = await this.#rows.heads(
      tenant_id,
      rows.map((row) => row.id),
      max,
    );
    const containers = heads.slice(0, max).map(({ origin, id: container_id, ...head }) => ({
      ...{ container_id, ...head, kind: origin?.kind ?? ("source" as const) },
      parent_container_id: origin?.container_id ?? null,
    }));
    return { snapshot_id: id, nodes, containers, is_truncated: found.length > max || heads.length > max };
  }

  /** Throws NOT_FOUND, WRONG_STATE while it is made. */
  async pin(tenant_id: string, id: string, is_pinned: boolean): Promise<void> {
    const row = await this.row(tenant_id, id);
    snapshotStates.next(row.state, "pin");
    const statement = this.#rows.pin(tenant_id, id, is_pinned);
    const conflict = await this.#write([statement], row, is_pinned ? "pinned" : "unpinned");
    if (conflict !== null) throw notFound(id);
    if (!is_pinned) this.#expiries.note(dueAt(row));
  }

  /** Throws NOT_FOUND, SNAPSHOT_PINNED, WRONG_STATE while it is made, or if another node holds it. */
  async delete(tenant_id: string, id: string): Promise<void> {
    const row = await this.held(tenant_id, id);
    this.checkDelete(row);
    await this.#end(row, false);
  }

  /** Throws SNAPSHOT_PINNED, WRONG_STATE. */
  checkDelete({ id, state, is_pinned }: SnapshotRow): void {
    if (is_pinned) throw pinned(id);
    snapshotStates.next(state, "delete");
  }

  /** Deletes a snapshot that was not finished, with what there is of it. Never rejects: the rest goes later. */
  async discard(row: SnapshotRow): Promise<void> {
    await this.#end(row, true).catch((error) => {
      this.#options.log.warn("unfinished snapshot not removed", { snapshot_id: row.id, error: errorText(error) });
    });
  }

  /** Removes subvolumes that belong to no row. Never rejects. */
  async discardParts(ids: readonly string[]): Promise<void> {
    for (const id of ids) await this.#discard(id);
  }

  /** The statement that notes that a container has the files of a snapshot. */
  head(container_id: string, snapshot_id: string): Statement {
    return this.#rows.setHead(container_id, snapshot_id);
  }

  /** Deletes what has expired, and what no operation will finish any more. */
  async prune(): Promise<void> {
    const now = this.#now();
    const unfinished_before = now - Math.ceil((2 * LIMITS.snapshot_operation_ms) / 1_000);
    // Side by side: one that a clone still reads must not keep the others.
    await each(await this.#rows.due(now, unfinished_before), LIMITS.leftovers_at_once, async (id) => {
      const row = await this.#rows.byId(id);
      if (row !== null && row.state !== "deleting") await this.#expire(row);
    });
  }

  /** Deletes the snapshots that a schedule took of a container or volume, beyond the `keep` newest ones. */
  async trim(source_id: string, keep: number): Promise<void> {
    for (const id of await this.#rows.surplus(source_id, keep)) {
      const row = await this.#rows.byId(id);
      if (row?.state === "ready") await this.#end(row, false);
    }
  }

  /** Deletes all snapshots of a tenant that is being deleted, after its operations have ended. Safe to repeat. */
  async eraseAll(tenant_id: string): Promise<void> {
    await this.#options.store.write([this.#rows.unpinAll(tenant_id)]);
    for (let ids = await this.#rows.ofTenant(tenant_id); ids.length > 0; ids = await this.#rows.ofTenant(tenant_id)) {
      for (const id of ids) {
        const row = await this.#rows.byId(id);
        if (row === null) continue;
        if (!this.#rows.isHeld(row)) throw heldElsewhere(`snapshot '${id}'`);
        if (row.state === "deleting") await this.#erase(id);
        else await this.#end(row, true);
      }
    }
  }

  /** Never rejects: one that cannot be deleted must not keep the others. */
  async #expire(row: SnapshotRow): Promise<void> {
    await this.#end(row, row.state === "creating").catch((error) => {
      this.#options.log.warn("expired snapshot not removed", { snapshot_id: row.id, error: errorText(error) });
    });
  }

  async #end(row: SnapshotRow, isUnfinished: boolean): Promise<void> {
    const { id } = row;
    const conflict = await this.#write(this.#rows.end(row, isUnfinished), row, "removing");
    if (conflict !== null) {
      const now = await this.#rows.byId(id);
      throw now?.is_pinned === true ? pinned(id) : notFound(id);
    }
    failpoint("snapshots.delete.ended");
    await this.#erase(id);
  }

  /** Removes the files and the row of a hidden snapshot. Retries a failed removal for a while, and at the next start. */
  #erase(id: string): Promise<void> {
    return this.#retries.run(id, async () => {
      const row = await this.#rows.byId(id);
      if (row === null) return;
      await Promise.all(this.#users.get(id) ?? []);
      for (const { subvolume } of row.details.volumes) await this.#options.storage().remove(SNAPSHOT_KIND, subvolume);
      await this.#options.storage().remove(SNAPSHOT_KIND, id);
      failpoint("snapshots.delete.removed");
      await this.#write([this.#rows.delete(id)], row, "removed");
    });
  }

  async #discard(id: string): Promise<void> {
    await this.#retries.run(id, () => this.#options.storage().remove(SNAPSHOT_KIND, id)).catch(() => {});
  }

  /** Null: the count took too long. */
  async #space(row: SnapshotRow): Promise<SubvolumeSpace | null> {
    const cached = this.#spaces.get(row.id);
    if (cached !== undefined) return cached;
    return this.#counting.run(row.tenant_id, async () => {
      const space = this.#spaces.get(row.id) ?? (await this.#measure(partsOf(row)).catch(() => null));
      if (space !== null) this.#spaces.set(row.id, space);
      return space;
    });
  }

  /** Counts the bytes of a snapshot that is being taken, for its record and the next `get`; null: that took too long. */
  async measureNew(row: SnapshotRow): Promise<SubvolumeSpace | null> {
    const space = await this.#counting.run(row.tenant_id, () => this.#measure(partsOf(row)));
    if (space !== null) this.#spaces.set(row.id, space);
    return space;
  }

  /** Counts the bytes of subvolumes together; null: that took too long. */
  async #measure(parts: readonly string[]): Promise<SubvolumeSpace | null> {
    let sum: SubvolumeSpace = { total_bytes: 0, exclusive_bytes: 0 };
    for (const part of parts) {
      const space = await this.#options.storage().space(SNAPSHOT_KIND, part);
      if (space === null) return null;
      sum = {
        total_bytes: sum.total_bytes + space.total_bytes,
        exclusive_bytes: sum.exclusive_bytes + space.exclusive_bytes,
      };
    }
    return sum;
  }

  /** Returns the number of the statement that was missed, or null. */
  async #write(
    statements: readonly Statement[],
    { id, tenant_id, container_id, name, source_name }: SnapshotRow,
    event_type: string,
  ): Promise<number | null> {
    const event: NewEvent = {
      name: "snapshot_update",
      ...{ event_type, snapshot_id: id, container_id },
      data: { name, source_name },
    };
    const { conflict } = await this.#options.events.write(statements, tenant_id, [event], { durable: true });
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
    return conflict;
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

/** Largest number of snapshots that one log line names. */
const LOST_NAMED_MAX = 10;
const MEGABYTE = 1024 * 1024;

/** The subvolumes of a snapshot, that of the container or volume itself first. */
function partsOf({ id, details }: Pick<SnapshotRow, "id" | "details">): readonly string[] {
  return [...new Set([id, ...details.volumes.map(({ subvolume }) => subvolume)])];
}

/** Number of snapshots before each. A parent may be younger: of several that are taken at once, it was finished first. */
function depthsOf(rows: readonly LineageRow[]): ReadonlyMap<string, number> {
  const parents = new Map(rows.map(({ id, parent_id }) => [id, parent_id]));
  const depths = new Map<string, number>();
  for (const { id } of rows) {
    const path: string[] = [];
    let at: string | null = id;
    while (at !== null && parents.has(at) && !depths.has(at)) {
      path.push(at);
      depths.set(at, 0);
      at = parents.get(at) ?? null;
    }
    let depth = at === null ? -1 : (depths.get(at) ?? 0);
    for (const one of path.reverse()) depths.set(one, ++depth);
  }
  return depths;
}

function recordOf(row: SnapshotRow): SnapshotRecord {
  const { details, container_id, volume_id } = row;
  return {
    snapshot_id: row.id,
    id: row.id,
    tenant_id: row.tenant_id,
    kind: volume_id === null ? "container" : "volume",
    name: row.name,
    state: row.state === "ready" ? "ready" : "creating",
    source_container_id: container_id,
    source_container_name: container_id === null ? null : row.source_name,
    container_id,
    source_volume: volume_id === null ? null : row.source_name,
    parent_snapshot_id: row.parent_id,
    consistency_mode: details.consistency_mode,
    network_mode: details.network_mode,
    volume_mode: details.volume_mode,
    volumes: volume_id === null ? details.volumes.map(({ name, target }) => ({ name, target })) : [],
    image: details.settings?.image ?? null,
    created_at: row.created_at,
    ttl_seconds: row.ttl_seconds,
    expires_at: row.expires_at,
    labels: { ...row.labels },
    pinned: row.is_pinned,
    size_bytes: row.size_bytes,
    metadata: { pause_ms: details.pause_ms, memory: false, hooks: details.hooks },
    warnings: [...details.warnings],
    capability_downgrades: [...details.capability_downgrades],
  };
}

/** The same for one that was deleted, one of another tenant, and one that never was. */
export function notFound(id: string): AppError {
  return new AppError("NOT_FOUND", `snapshot '${id}' not found`, { reason_code: "SNAPSHOT_NOT_FOUND" });
}

/** Refuses work on the files of a snapshot that has none yet. */
export function unfinished({ state }: Pick<SnapshotRow, "state">): AppError {
  return new AppError("WRONG_STATE", "the snapshot is being taken", {
    details: { state },
    hint: "retry when its operation has ended",
  });
}

function pinned(id: string): AppError {
  return new AppError("SNAPSHOT_PINNED", `snapshot '${id}' is pinned`, { hint: "unpin it first" });
}

/** A snapshot lives as long as its TTL at least: its times are whole seconds, so the second of `expires_at` has to end. */
const dueAt = ({ expires_at }: SnapshotRow): number | null => (expires_at === null ? null : expires_at + 1);
