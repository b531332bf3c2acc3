/**
 * The groups of a function in the pool: the one of its current version, and those of superseded versions for as long
 * as they have instances. What is current is the service's; here it is only told to the pool.
 *
 * G1. Every group of a function that the pool may know is in `#known`, so that closing reaches all of them.
 */
import type { GroupStatus, Pool } from "../../pool/index.ts";
import { errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Bindings } from "./calls/bindings.ts";
import type { Call } from "./calls/calling.ts";
import type { FunctionLauncher } from "./calls/launch.ts";
import type { Ending, Outcome } from "./calls/outcome.ts";
import type { Classes } from "./classes.ts";
import type { FunctionRecord } from "./schema.ts";
import { groupKey, type ImageSettings, parseGroupKey, prepare } from "./target.ts";

export interface FunctionPoolStatus extends GroupStatus {
  /** Instances of superseded versions: kept for a rollback, outside of `max_instances`. */
  readonly superseded_count: number;
}

/** A version as the record of its function says it. */
export interface Opening {
  readonly record: FunctionRecord;
  /** Id of its image; null: the present one of the profile. */
  readonly image: string | null;
  /** What the image gives to its calls; absent or null for a profile. */
  readonly settings?: ImageSettings | null;
}

export interface GroupsOptions {
  readonly pool: Pool<Call, Outcome>;
  readonly launcher: Pick<FunctionLauncher, "onForget">;
  readonly bindings: Bindings;
  readonly classes: Classes;
  readonly log: Log;
  readonly queue_max: number;
}

export class Groups {
  readonly #options: GroupsOptions;
  /** By function: the tenant, and the class of each version whose group is open. */
  readonly #known = new Map<string, { readonly tenant_id: string; readonly classes: Map<number, string> }>();

  constructor(options: GroupsOptions) {
    this.#options = options;
    options.launcher.onForget((group) => this.#forget(group));
  }

  /** Opens the group of a record's version, or gives it the record's policy. Calls are taken when this returns. */
  open({ record, image, settings = null }: Opening, min_instances = record.min_instances): void {
    const { pool, bindings, classes, queue_max } = this.#options;
    const version = prepare(record, settings, classes.runtimes);
    const { group } = version;
    bindings.set(version);
    const { tenant_id: owner, max_instances, memory_limit_mb: memory_mb } = record;
    // An open group keeps its class (S5 in pool/states.ts), also if the image store has lost the version's image since.
    const of = this.#known.get(record.id)?.classes.get(record.version) ?? classes.register(record, image).key;
    this.#note(record, of);
    const concurrency = record.instance_concurrency;
    const is_ungated = version.runtime.serving.kind === "resident";
    const policy = { min_instances, max_instances, queue_max, owner, memory_mb, concurrency, is_ungated };
    pool.setGroup(group, { class: of, ...policy, devices: record.gpu_count, family: record.id });
  }

  /** The version is not current any more: its calls finish, its idle instances stay for the grace period of a rollback. */
  retire(record: FunctionRecord): void {
    this.#options.pool.retireGroup(groupKey(record.id, record.version));
  }

  /** Ends all instances of a version that was not committed. */
  discard(record: FunctionRecord): void {
    void this.#drop(groupKey(record.id, record.version), "failed");
  }

  /**
   * Resolves when no instance is left of an earlier attempt at this version. The next attempt has the same number, and may
   * have another class and other code. In the function's turn.
   */
  async clear({ id, version }: FunctionRecord): Promise<void> {
    if (this.#known.get(id)?.classes.has(version) === true) await this.#drop(groupKey(id, version), "failed", true);
  }

  /** Returns the failure of the last attempt to load a version's handler; null if it succeeded, or none was made. */
  faultOf(record: FunctionRecord): Ending | null {
    return this.#options.bindings.faultOf(groupKey(record.id, record.version));
  }

  /** Resolves when the open group of a version has its minimum. Rejects with START_FAILED, or with what a drop says. */
  warm(record: FunctionRecord): Promise<void> {
    return this.#options.pool.warm(groupKey(record.id, record.version), LIMITS.deploy_wait_ms);
  }

  /** How many instances a version that takes over from this one needs so that none of its first calls is cold. */
  heirCount(record: FunctionRecord): number {
    // They may be all that the node has.
    if (record.gpu_count > 0) return 0;
    const { ready_count, busy_count, recycling_count } = this.#options.pool.status(groupKey(record.id, record.version));
    return ready_count + busy_count + recycling_count;
  }

  /**
   * No version takes calls any more when this returns. Resolves when all instances are gone; for `deleted` those that
   * do not end in time are ended, for other reasons they may still run a call then.
   */
  async close(function_id: string, reason: "paused" | "failed" | "deleted"): Promise<void> {
    const versions = this.#versionsOf(function_id);
    await Promise.all(versions.map((version) => this.#drop(groupKey(function_id, version), reason)));
  }

  /** Ids of the tenant's functions that have an instance or a waiting call: at most one for each of these. */
  inUse(tenant_id: string): string[] {
    const { pool } = this.#options;
    const isInUse = (group: string) => {
      const { total_count, queued_count } = pool.status(group);
      return total_count + queued_count > 0;
    };
    return [...this.#known].flatMap(([id, known]) =>
      known.tenant_id === tenant_id && [...known.classes.keys()].some((version) => isInUse(groupKey(id, version)))
        ? [id]
        : [],
    );
  }

  /** `version` is the current one. */
  status({ id, version }: Pick<FunctionRecord, "id" | "version">): FunctionPoolStatus {
    const { pool } = this.#options;
    let superseded_count = 0;
    for (const other of this.#versionsOf(id)) {
      if (other !== version) superseded_count += pool.status(groupKey(id, other)).total_count;
    }
    return { ...pool.status(groupKey(id, version)), superseded_count };
  }

  async #drop(
    group: string,
    reason: "paused" | "failed" | "deleted",
    mustEnd: boolean = reason === "deleted",
  ): Promise<void> {
    const { pool, log } = this.#options;
    try {
      await pool.dropGroup(group, reason, { deadline_ms: LIMITS.group_close_wait_ms });
    } catch (error) {
      if (!mustEnd) return;
      log.warn("killing running calls of a version that ends", { group, reason: errorText(error) });
      await pool.dropGroup(group, reason, { deadline_ms: LIMITS.group_close_wait_ms, force: true });
    }
  }

  #versionsOf(function_id: string): readonly number[] {
    return [...(this.#known.get(function_id)?.classes.keys() ?? [])];
  }

  #note({ id, tenant_id, version }: FunctionRecord, of: string): void {
    const known = this.#known.get(id);
    if (known === undefined) this.#known.set(id, { tenant_id, classes: new Map([[version, of]]) });
    else known.classes.set(version, of);
  }

  #forget(group: string): void {
    const key = parseGroupKey(group);
    const known = key === null ? undefined : this.#known.get(key.function_id);
    if (key === null || known === undefined) return;
    const of = known.classes.get(key.version);
    known.classes.delete(key.version);
    if (known.classes.size === 0) this.#known.delete(key.function_id);
    if (of !== undefined) this.#release(of);
  }

  /** The class of a tenant's image is of no use without a group: its cells would keep the image mounted. */
  #release(of: string): void {
    const { classes, pool } = this.#options;
    for (const known of this.#known.values()) for (const other of known.classes.values()) if (other === of) return;
    if (classes.release(of)) pool.dropClass(of);
  }
}
