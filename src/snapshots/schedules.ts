/**
 * Schedules: containers and volumes of which snapshots are taken by themselves, the newest of which are kept. A schedule
 * belongs to its container or volume, and goes with it.
 *
 * P1 The next snapshot is due `every_seconds` after the last was begun. What fell due while no daemon ran is taken once.
 * P2 A snapshot that cannot be taken is noted in the schedule, and tried again when the next one is due.
 */
import { unknownCredential } from "../base/caller.ts";
import { type CancelTimer, type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError, errorText, publicText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { tenantGuard } from "../base/tenant-limits.ts";
import type { Containers } from "../containers/service.ts";
import type { Operations } from "../operations/service.ts";
import { type Row, type Store, type StoredNode, textOrNull } from "../store/store.ts";
import type { Volumes } from "../volumes/service.ts";
import type { PutSchedule, ScheduleRecord } from "./schema.ts";
import type { Snapshots } from "./service.ts";
import type { Taking } from "./taking.ts";

export interface SchedulesOptions {
  readonly snapshots: Snapshots;
  readonly taking: Taking;
  readonly containers: Containers;
  readonly volumes: Volumes;
  readonly operations: Operations;
  readonly store: Store;
  readonly node: StoredNode;
  readonly clock: Clock;
  readonly log: Log;
}

interface Source {
  readonly kind: ScheduleRecord["source_kind"];
  readonly id: string;
}

interface DueRow extends ScheduleRecord {
  readonly tenant_id: string;
}

const SELECT = `SELECT tenant_id, source_kind, source_id, every_seconds, keep, settings, created_at, due_at,
  last_snapshot_id, last_error FROM snapshot_schedules`;
/** The condition on a row whose container or volume is deleted. */
const ORPHANED = `(source_kind = 'container' AND NOT EXISTS (SELECT 1 FROM containers WHERE id = source_id AND is_removing = 0))
  OR (source_kind = 'volume' AND NOT EXISTS (SELECT 1 FROM volumes WHERE id = source_id AND status = 'active'))`;

export class Schedules {
  readonly #options: SchedulesOptions;
  #cancelLook: CancelTimer = () => {};
  #isClosed = false;
  /** Sources of which a snapshot is being taken, with their tenants. */
  readonly #taking = new Map<string, string>();

  constructor(options: SchedulesOptions) {
    this.#options = options;
  }

  /** Begins to take what is due. After operations have been taken up. */
  begin(): void {
    this.#lookLater();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelLook();
  }

  /**
   * Makes or replaces the schedule of a container or volume; the first snapshot is due after `every_seconds`. The same time
   * again leaves the next one due when it was.
   */
  async put(tenant_id: string, source: Source, input: PutSchedule): Promise<ScheduleRecord> {
    const { store, node } = this.#options;
    const { every_seconds, keep, ...settings } = input;
    const now = this.#now();
    const sql = `INSERT INTO snapshot_schedules
      (tenant_id, node_seq, source_kind, source_id, every_seconds, keep, settings, created_at, due_at)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source_id) DO UPDATE SET every_seconds = excluded.every_seconds,
      keep = excluded.keep, settings = excluded.settings, last_error = NULL,
      due_at = CASE WHEN every_seconds = excluded.every_seconds THEN due_at ELSE excluded.due_at END`;
    const args = [tenant_id, node.seq, source.kind, source.id, every_seconds, keep, JSON.stringify(settings), now];
    const { conflict } = await store.write(
      [tenantGuard(tenant_id, "state = 'active'"), { sql, args: [...args, now + every_seconds] }],
      { durable: true },
    );
    if (conflict !== null) throw unknownCredential();
    return this.get(tenant_id, source);
  }

  /** Throws NOT_FOUND where there is none. */
  async get(tenant_id: string, { id, kind }: Source): Promise<ScheduleRecord> {
    const row = await this.#options.store.readOne(`${SELECT} WHERE tenant_id = ? AND source_id = ?`, [tenant_id, id]);
    if (row === null) throw notFound(kind);
    const { tenant_id: _, ...record } = rowOf(row);
    return record;
  }

  /** The snapshots that it took stay. Throws NOT_FOUND where there is none. */
  async delete(tenant_id: string, { id, kind }: Source): Promise<void> {
    const sql = "DELETE FROM snapshot_schedules WHERE tenant_id = ? AND source_id = ?";
    const { changes } = await this.#options.store.write([{ sql, args: [tenant_id, id] }], { durable: true });
    if (changes[0] === 0) throw notFound(kind);
  }

  /** Deletes the schedules of a tenant that is being deleted. */
  async eraseAll(tenant_id: string): Promise<void> {
    await this.#options.store.write([{ sql: "DELETE FROM snapshot_schedules WHERE tenant_id = ?", args: [tenant_id] }]);
  }

  /** Deletes the schedules of containers and volumes that are deleted. */
  async prune(): Promise<void> {
    await this.#options.store.write([{ sql: `DELETE FROM snapshot_schedules WHERE ${ORPHANED}` }]);
  }

  #lookLater(): void {
    this.#cancelLook = this.#options.clock.after(LIMITS.schedule_look_ms, () => {
      this.#look()
        .catch((error) => this.#warn(error))
        .finally(() => {
          if (!this.#isClosed) this.#lookLater();
        });
    });
  }

  async #look(): Promise<void> {
    const { store, node } = this.#options;
    const sql = `${SELECT} WHERE node_seq = ? AND due_at <= ? AND NOT (${ORPHANED}) ORDER BY due_at LIMIT ?`;
    const rows = await store.read(sql, [node.seq, this.#now(), LIMITS.schedules_per_pass]);
    for (const row of rows.map(rowOf)) {
      // The hooks of one container must not keep the others waiting.
      if (this.#taking.has(row.source_id) || !this.#hasPlace(row.tenant_id)) continue;
      this.#taking.set(row.source_id, row.tenant_id);
      this.#take(row)
        .catch((error) => this.#warn(error))
        .finally(() => this.#taking.delete(row.source_id));
    }
  }

  /** The schedules of one tenant must not keep those of others. */
  #hasPlace(tenant_id: string): boolean {
    const own_count = [...this.#taking.values()].filter((one) => one === tenant_id).length;
    return this.#taking.size < LIMITS.schedules_at_once && own_count < LIMITS.schedules_per_tenant_at_once;
  }

  #warn(error: unknown): void {
    this.#options.log.warn("scheduled snapshots not taken", { error: errorText(error) });
  }

  /** P1, P2. */
  async #take(row: DueRow): Promise<void> {
    const { store, snapshots } = this.#options;
    const { source_id, every_seconds, keep } = row;
    const due_at = this.#now() + every_seconds;
    // Before the snapshot: a crash in between skips one, rather than taking one after the other.
    await store.write([
      { sql: "UPDATE snapshot_schedules SET due_at = ? WHERE source_id = ?", args: [due_at, source_id] },
    ]);
    let error: string | null = null;
    let snapshot_id: string | null = null;
    try {
      snapshot_id = await this.#taken(row);
    } catch (thrown) {
      error = publicText(thrown);
    }
    await snapshots.trim(source_id, keep).catch((thrown) => this.#warn(thrown));
    const sql = `UPDATE snapshot_schedules SET last_snapshot_id = coalesce(?, last_snapshot_id), last_error = ?
      WHERE source_id = ?`;
    await store.write([{ sql, args: [snapshot_id, error, source_id] }]);
  }

  /** Resolves to the id of the snapshot when it is complete. */
  async #taken({ tenant_id, source_kind, source_id, consistency_mode, volume_mode, labels }: DueRow): Promise<string> {
    const { containers, volumes, taking, operations } = this.#options;
    const common = { name: null, labels, ttl_seconds: null, is_scheduled: true };
    const accept = async () => {
      if (source_kind === "container") {
        const row = await containers.held(tenant_id, source_id);
        const body = { ...common, consistency_mode, volume_mode, network_mode: "reset" as const };
        return taking.accept(tenant_id, row, { ...body, dry_run: false }, null);
      }
      const volume = await volumes.active(tenant_id, source_id);
      if (volume === null) throw new AppError("NOT_FOUND", "the volume was deleted");
      return taking.acceptVolume(tenant_id, volume, common, null);
    };
    const { operation_id } = await accept();
    const ended = await operations.wait(tenant_id, operation_id, { timeout_ms: LIMITS.snapshot_operation_ms });
    if (ended.status !== "succeeded" || ended.snapshot_id === null) {
      throw new AppError("WRONG_STATE", ended.error ?? `the operation ${operation_id} ${ended.status}`);
    }
    return ended.snapshot_id;
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

function notFound(kind: Source["kind"]): AppError {
  return new AppError("NOT_FOUND", `the ${kind} has no schedule of snapshots`);
}

function rowOf(row: Row): DueRow {
  return {
    ...(JSON.parse(String(row.settings)) as Pick<ScheduleRecord, "consistency_mode" | "volume_mode" | "labels">),
    tenant_id: String(row.tenant_id),
    source_kind: row.source_kind as DueRow["source_kind"],
    source_id: String(row.source_id),
    every_seconds: Number(row.every_seconds),
    keep: Number(row.keep),
    created_at: Number(row.created_at),
    due_at: Number(row.due_at),
    last_snapshot_id: textOrNull(row.last_snapshot_id),
    last_error: textOrNull(row.last_error),
  };
}
