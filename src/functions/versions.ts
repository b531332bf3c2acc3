/**
 * Versions of functions: what a PUT makes, and which one is current. A version never changes once it is written; the
 * function's pointer selects one. Moving it costs no call: the next version is warmed before, calls under way finish
 * on the version that they began with, and the version left behind keeps its instances for a while.
 *
 * V1. Version and pointer are written in one batch, after the version is warm: a PUT that fails changes nothing.
 * V2. A group is open before the pointer can lead to it, and retired only after no new call is led to it.
 * V3. Changes of one function (deploy, PUT, rollback) take turns from beginning to end; pause and delete do not wait
 *     for them, and end what is being warmed.
 */
import type { Clock } from "../base/clock.ts";
import { toEpochSeconds } from "../base/clock.ts";
import type { KeyedMutex } from "../base/concurrency.ts";
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { Engine } from "../engine/ports.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import type { Guard, Statement, Store } from "../store/store.ts";
import type { Classes } from "./classes.ts";
import type { Groups, Opening } from "./groups.ts";
import { guards, refusalOf } from "./quota.ts";
import { type FunctionRows, versioned } from "./rows.ts";
import { complaintAbout, type FunctionRecord, type UpdateFunction, type VersionRecord } from "./schema.ts";
import { functionStates } from "./states.ts";
import type { TargetCache } from "./target.ts";

/** What the verbs of this concern share. */
export interface FunctionParts {
  readonly store: Store;
  readonly engine: Engine;
  readonly classes: Classes;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly events: Events;
  readonly quotas: Quotas;
  readonly rows: FunctionRows;
  readonly targets: TargetCache;
  readonly groups: Groups;
  /** Changes of a function, by its id (V3). */
  readonly changes: KeyedMutex;
  /** Moves of a function's state or pointer together with its groups, by its id. */
  readonly moves: KeyedMutex;
}

/** What a reader of events is told of a change. */
export function functionEvent(
  event_type: string,
  { id, name, state, version, error_message = null }: ToldFunction,
): NewEvent {
  const error = error_message === null ? {} : { error: error_message.slice(0, LIMITS.operation_message_length_max) };
  return {
    name: "function_update",
    event_type,
    data: { function_id: id, function_name: name, state, version, ...error },
  };
}
type ToldFunction = Pick<FunctionRecord, "id" | "name" | "state" | "version"> &
  Partial<Pick<FunctionRecord, "error_message">>;

/** Throws INVALID_ARGUMENT unless the working directory is in the image that the version's instances are made from. */
export async function checkDirectory(
  { engine, classes }: Pick<FunctionParts, "engine" | "classes">,
  version: { readonly runtime: string; readonly working_directory?: string | null | undefined },
): Promise<void> {
  const directory = version.working_directory ?? null;
  if (directory === null || (await engine.instances.hasDirectory(classes.of(version), directory))) return;
  throw new AppError("INVALID_ARGUMENT", `working_directory '${directory}' does not exist in the image`);
}

/** A record with the fields of an update; what is absent stays. Throws INVALID_ARGUMENT where the whole makes no sense. */
export function updated(record: FunctionRecord, input: UpdateFunction): FunctionRecord {
  if (input.name !== undefined && input.name !== record.name) {
    throw new AppError("INVALID_ARGUMENT", "name: cannot be changed", {
      details: { expected: [record.name], received: input.name },
    });
  }
  const { source_code: _, cluster_id: __, ...fields } = input;
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const merged: FunctionRecord = { ...record, ...given };
  const complaint = complaintAbout(merged);
  if (complaint !== null) throw new AppError("INVALID_ARGUMENT", `${complaint.field}: ${complaint.message}`);
  return merged;
}

/** What moves a pointer: statements that must find the tenant within its limits, then those that do it. */
interface Change {
  readonly event_type: string;
  readonly quota: readonly Guard[];
  readonly move: () => readonly Statement[];
}

function changedMeanwhile(): AppError {
  return new AppError("WRONG_STATE", "cannot update the function: its state changed at the same time", {
    hint: "read the function and retry",
  });
}

export class Versions {
  readonly #parts: FunctionParts;

  constructor(parts: FunctionParts) {
    this.#parts = parts;
  }

  /**
   * Makes the next version and points to it; on an active function after as many of its instances are ready as the
   * version before had. Throws START_FAILED when they do not get ready, QUOTA_EXCEEDED where the tenant
   * may not have them; the pointer then stays, and nothing is changed.
   */
  update(tenant_id: string, id: string, input: UpdateFunction): Promise<FunctionRecord> {
    const { changes, classes, rows, ids, clock, quotas } = this.#parts;
    const begun_ms = clock.monotonicMs();
    return changes.run(id, async () => {
      const row = await rows.held(tenant_id, id);
      functionStates.next(row.record.state, "update");
      const merged = updated(row.record, input);
      const { image } = classes.of(merged);
      if (merged.working_directory !== row.record.working_directory || image !== row.image) {
        await checkDirectory(this.#parts, merged);
      }
      const version = (await rows.newestVersion(row.function_seq)) + 1;
      const next: FunctionRecord = { ...merged, version, current_version: version };
      const version_id = ids.next("fv");
      const quota = guards(quotas, tenant_id, { isNewFunction: false });
      await this.#activate(row.record, { record: next, image }, begun_ms, {
        event_type: "updated",
        quota,
        move: () => rows.update(row.record, next, { version_id, image, now: toEpochSeconds(clock.epochMs()) }),
      });
      return (await rows.found(tenant_id, id)).record;
    });
  }

  /** Points to an earlier (or later) version. Throws NOT_FOUND when there is none of that number, else as `update`. */
  rollback(tenant_id: string, id: string, version: number): Promise<FunctionRecord> {
    const { changes, classes, rows, clock } = this.#parts;
    const begun_ms = clock.monotonicMs();
    return changes.run(id, async () => {
      const row = await rows.held(tenant_id, id);
      functionStates.next(row.record.state, "update");
      if (version === row.record.version) return row.record;
      const found = await rows.version(row, version);
      if (found === null) {
        throw new AppError("NOT_FOUND", `function '${row.record.name}' has no version ${version}`, {
          hint: "list the versions with GET /api/functions/<id>/versions",
        });
      }
      const next: FunctionRecord = { ...row.record, ...versioned(found.record), version, current_version: version };
      const image = await classes.available(found.image);
      await this.#activate(row.record, { record: next, image }, begun_ms, {
        event_type: "rolled_back",
        quota: [],
        move: () => [rows.movePointer(row.record, version, toEpochSeconds(clock.epochMs()))],
      });
      return (await rows.found(tenant_id, id)).record;
    });
  }

  /** Newest first. */
  async list(tenant_id: string, id: string, place: Place): Promise<Listed<VersionRecord>> {
    return this.#parts.rows.versions(await this.#parts.rows.found(tenant_id, id), place);
  }

  /**
   * Warms `next` where calls run, moves the pointer by `change`, and lets go of the version before (V1, V2). Calls
   * follow the pointer as soon as it is committed; this resolves when it is on the disk too.
   */
  async #activate(from: FunctionRecord, opening: Opening, begun_ms: number, change: Change): Promise<void> {
    const { groups, moves, store, clock, log } = this.#parts;
    const { record: next } = opening;
    const isServing = from.state === "active";
    const since = () => Math.round((clock.monotonicMs() - begun_ms) * 1000) / 1000;
    try {
      if (isServing) await this.#warm(from, opening);
      failpoint("functions.version.warmed");
      const warmed_ms = since();
      await moves.run(from.id, async () => {
        await this.#commit(from, next, change);
        failpoint("functions.version.moved");
        if (isServing) {
          groups.open(opening);
          groups.retire(from);
        }
        const moved_ms = since();
        await store.write([], { durable: true });
        log.info("active version changed", {
          function_id: from.id,
          from: from.version,
          to: next.version,
          warmed_ms,
          moved_ms,
        });
      });
    } catch (error) {
      if (isServing) await moves.run(from.id, () => this.#settle(from, opening));
      throw error;
    }
  }

  /**
   * After a failure, which may have been that of a store that moved the pointer all the same: the groups follow what is
   * there. A version that did not come to be leaves no instances, for the next one of its number has other limits.
   */
  async #settle(from: FunctionRecord, opening: Opening): Promise<void> {
    const { groups, rows } = this.#parts;
    const { record: next, image } = opening;
    try {
      const row = await rows.byId(from.tenant_id, from.id);
      if (row?.record.version === next.version && row.record.state === from.state) {
        groups.open({ record: row.record, image });
        groups.retire(from);
      } else if (row !== null && (await rows.version(row, next.version)) !== null) {
        groups.retire(next);
      } else {
        groups.discard(next);
      }
    } catch {
      // The failure before is the one to tell.
      groups.retire(next);
    }
  }

  async #warm(from: FunctionRecord, opening: Opening): Promise<void> {
    const { groups, moves, rows } = this.#parts;
    const { record: next } = opening;
    const count = Math.min(next.max_instances, Math.max(next.min_instances, groups.heirCount(from)));
    await moves.run(from.id, async () => {
      const { record } = await rows.found(from.tenant_id, from.id);
      if (record.state !== from.state) throw changedMeanwhile();
      groups.open(opening, count);
    });
    if (count === 0) return;
    try {
      await groups.warm(next);
    } catch (cause) {
      // A pause or a deletion ended what was being warmed.
      if (cause instanceof AppError && ["WRONG_STATE", "NOT_FOUND"].includes(cause.code)) throw changedMeanwhile();
      if (!(cause instanceof AppError) || cause.code !== "START_FAILED") throw cause;
      const text = `cannot warm version ${next.version}; version ${from.version} stays active: ${errorText(cause)}`;
      throw new AppError("START_FAILED", text, { cause, retry_after: 1 });
    }
  }

  async #commit(from: FunctionRecord, next: FunctionRecord, { event_type, quota, move }: Change): Promise<void> {
    const { events, targets } = this.#parts;
    const { conflict } = await events
      .write([...quota.map(({ statement }) => statement), ...move()], from.tenant_id, [functionEvent(event_type, next)])
      .finally(() => targets.forget(from));
    if (conflict !== null) throw refusalOf(quota, conflict) ?? changedMeanwhile();
  }
}
