/**
 * The life of functions: create, find, deploy, pause, delete. A state moves by compare-and-set in the store first, and
 * what it means for the pool follows; so two verbs at the same time cannot both win, and a crash in between is put
 * right by `boot`.
 *
 * F1. The verbs of one function take turns for as long as they move its state and set or drop its group, so that the
 *     group always follows the last state. Waiting (for warm instances, for running calls) is outside of the turn.
 * F2. While a function's state lets calls in, its group is open: it is opened before the state can be seen.
 */
import type { Pool } from "../../pool/index.ts";
import type { Clock } from "../base/clock.ts";
import { toEpochSeconds } from "../base/clock.ts";
import type { Config } from "../base/config.ts";
import { AppError, errorText } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Engine } from "../engine/engine.ts";
import type { Store } from "../store/store.ts";
import type { Call, FunctionLauncher, Outcome } from "./launch.ts";
import { ALL_RECORDS, deleteExpired } from "./portions.ts";
import { type FunctionRow, FunctionRows } from "./rows.ts";
import type { CreateFunction, FunctionRecord, Listed } from "./schema.ts";
import { type FunctionState, type FunctionVerb, functionStates } from "./states.ts";
import { groupKey, prepareTarget, type Target, TargetCache } from "./target.ts";

export interface FunctionsOptions {
  readonly store: Store;
  readonly pool: Pool<Call, Outcome>;
  readonly launcher: FunctionLauncher;
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly config: Config;
  readonly node_id: string;
}

export class Functions {
  readonly #options: FunctionsOptions;
  readonly #rows: FunctionRows;
  readonly #targets = new TargetCache();
  /** The last turn of each function that has one (F1). As many as requests are under way. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(options: FunctionsOptions) {
    this.#options = options;
    this.#rows = new FunctionRows(options.store, options.node_id);
  }

  /** Takes up where an earlier process stopped: active functions are invocable again, deletions are finished. */
  async boot(): Promise<void> {
    for await (const row of this.#rows.inStates(["active", "deploying"])) {
      if (row.record.state === "deploying") await this.#move(row.record, "activate", null);
      this.#openGroup(row.record);
    }
    for await (const row of this.#rows.inStates(["deleting"])) await this.#erase(row);
  }

  /** Registers a function in state `pending`. Throws NAME_TAKEN, INVALID_ARGUMENT. */
  async create(tenant_id: string, input: CreateFunction): Promise<FunctionRecord> {
    const { ids, store, engine, clock } = this.#options;
    const directory = input.working_directory ?? null;
    if (directory !== null && !(await engine.hasDirectory(directory))) {
      throw new AppError("INVALID_ARGUMENT", `working_directory '${directory}' does not exist in the image`);
    }
    const id = ids.next("fn");
    const now = toEpochSeconds(clock.epochMs());
    const statements = this.#rows.insert(tenant_id, id, ids.next("fv"), input, now);
    const { conflict } = await store.write(statements, { durable: true });
    if (conflict !== null) throw new AppError("NAME_TAKEN", `a function named '${input.name}' exists`);
    return (await this.#row(tenant_id, id)).record;
  }

  async get(tenant_id: string, id: string): Promise<FunctionRecord> {
    return (await this.#row(tenant_id, id)).record;
  }

  async byName(tenant_id: string, name: string): Promise<FunctionRecord> {
    const row = await this.#rows.byName(tenant_id, name);
    if (row === null) throw new AppError("NOT_FOUND", `function '${name}' not found`);
    return row.record;
  }

  list(tenant_id: string, limit: number): Promise<Listed<FunctionRecord>> {
    return this.#rows.list(tenant_id, limit);
  }

  /** Hot path: what a call by id needs. Throws NOT_FOUND. */
  targetById(tenant_id: string, id: string): Target | Promise<Target> {
    return (
      this.#targets.byId(tenant_id, id) ??
      this.#targets.fill(async () => {
        const row = await this.#row(tenant_id, id);
        return prepareTarget(row.record, row.function_seq);
      })
    );
  }

  /** Hot path: what a call by name needs. Throws NOT_FOUND. */
  targetByName(tenant_id: string, name: string): Target | Promise<Target> {
    return (
      this.#targets.byName(tenant_id, name) ??
      this.#targets.fill(async () => {
        const row = await this.#rows.byName(tenant_id, name);
        if (row === null) throw new AppError("NOT_FOUND", `function '${name}' not found`);
        return prepareTarget(row.record, row.function_seq);
      })
    );
  }

  /**
   * Makes the function invocable and warms `min_instances`. Resolves when they are ready. When warming fails the
   * function is in state `error` with the reason, and START_FAILED is thrown.
   */
  async deploy(tenant_id: string, id: string): Promise<FunctionRecord> {
    const { pool } = this.#options;
    const record = await this.#inTurn(id, () => this.#beginDeploy(tenant_id, id));
    const isNew = record.state === "deploying";
    try {
      if (record.min_instances > 0) await pool.warm(groupKey(id, record.current_version), LIMITS.deploy_wait_ms);
    } catch (error) {
      if (isNew) {
        const closed = await this.#inTurn(id, async () => {
          await this.#move(record, "fail", errorText(error));
          return { promise: this.#closeGroup(record, "failed") };
        });
        await closed.promise;
      }
      throw error;
    }
    if (isNew) await this.#inTurn(id, () => this.#move(record, "activate", null));
    return this.get(tenant_id, id);
  }

  /** Scales to zero: waiting calls are refused, running ones finish. */
  async pause(tenant_id: string, id: string): Promise<void> {
    const closed = await this.#inTurn(id, async () => {
      const { record } = await this.#row(tenant_id, id);
      await this.#move(record, "pause", null);
      return { promise: this.#closeGroup(record, "paused") };
    });
    await closed.promise;
  }

  /** Removes the function, its versions and records. Running calls get `group_close_wait_ms` to finish and are then ended. */
  async delete(tenant_id: string, id: string): Promise<void> {
    const { row, promise } = await this.#inTurn(id, async () => {
      const row = await this.#row(tenant_id, id);
      await this.#move(row.record, "delete", null);
      return { row, promise: this.#closeGroup(row.record, "deleted") };
    });
    await promise;
    await this.#erase(row);
  }

  /** Runs `work` when all earlier turns of this function are over (F1). */
  async #inTurn<Result>(id: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#turns.get(id) ?? Promise.resolve();
    const turn = before.then(work, work);
    this.#turns.set(id, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(id) === turn) this.#turns.delete(id);
    }
  }

  /** Opens the group and moves the state (F2). Returns the record as it is then: `deploying`, or `active` as before. */
  async #beginDeploy(tenant_id: string, id: string): Promise<FunctionRecord> {
    const { record } = await this.#row(tenant_id, id);
    const state = functionStates.next(record.state, "deploy");
    this.#openGroup(record);
    if (state !== "deploying") return record;
    try {
      await this.#move(record, "deploy", null);
    } catch (error) {
      // The state could not be moved, so no call is let in; nobody waits for what the group had begun to start.
      void this.#closeGroup(record, "failed");
      throw error;
    }
    return { ...record, state };
  }

  async #row(tenant_id: string, id: string): Promise<FunctionRow> {
    const row = await this.#rows.byId(tenant_id, id);
    if (row === null) throw new AppError("NOT_FOUND", `function '${id}' not found`);
    return row;
  }

  /** Compare-and-set of the state; throws WRONG_STATE when the verb is not legal or somebody else moved it meanwhile. */
  async #move(record: FunctionRecord, verb: FunctionVerb, error: string | null): Promise<FunctionState> {
    const { store, clock } = this.#options;
    const to = functionStates.next(record.state, verb);
    const now = toEpochSeconds(clock.epochMs());
    const { conflict } = await store.write([this.#rows.moveState(record.id, record.state, to, error, now)], {
      durable: true,
    });
    this.#targets.forget(record);
    if (conflict !== null) {
      throw new AppError("WRONG_STATE", `cannot ${verb} the function: its state changed at the same time`, {
        hint: "read the function and try again",
      });
    }
    return to;
  }

  #openGroup(record: FunctionRecord): void {
    const { pool, launcher, config } = this.#options;
    const group = groupKey(record.id, record.current_version);
    launcher.setLimits(group, record);
    pool.setGroup(group, {
      min_instances: record.min_instances,
      max_instances: record.max_instances,
      queue_max: config.queue_max,
    });
  }

  /** The group takes no call any more when this returns. Resolves when it is gone; rejects only for `deleted`. */
  async #closeGroup(record: FunctionRecord, reason: "paused" | "failed" | "deleted"): Promise<void> {
    const { pool, log } = this.#options;
    const group = groupKey(record.id, record.current_version);
    try {
      await pool.dropGroup(group, reason, { deadline_ms: LIMITS.group_close_wait_ms });
    } catch (error) {
      if (reason !== "deleted") return;
      log.warn("ending running calls of a deleted function", { function_id: record.id, reason: errorText(error) });
      await pool.dropGroup(group, reason, { deadline_ms: LIMITS.group_close_wait_ms, force: true });
    }
  }

  async #erase({ record, function_seq }: FunctionRow): Promise<void> {
    const { store } = this.#options;
    await deleteExpired(store, function_seq, ALL_RECORDS);
    await store.write(this.#rows.delete(function_seq), { durable: true });
    this.#targets.forget(record);
  }
}
