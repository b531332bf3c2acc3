/**
 * The life of functions: create, find, deploy, pause, delete. A state moves by compare-and-set in the store first, and
 * what it means for the pool follows; so two verbs at the same time cannot both win, and a crash in between is put
 * right by `boot`. What a PUT and a rollback do is `versions.ts`'s.
 *
 * F1. The verbs of one function take turns for as long as they move its state and set or drop its groups, so that the
 *     groups always follow the last state. Waiting (for warm instances, for running calls) is outside of the turn.
 * F2. While a function's state lets calls in, its group is open: it is opened before the state can be seen.
 */
import type { OwnerLimits, Pool } from "../../pool/index.ts";
import type { Clock } from "../base/clock.ts";
import { toEpochSeconds } from "../base/clock.ts";
import { KeyedMutex } from "../base/concurrency.ts";
import { AppError, errorText, publicText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { Traces } from "../base/trace.ts";
import type { CodeStore } from "../code/service.ts";
import type { Adopted, Engine } from "../engine/ports.ts";
import type { Events } from "../events/service.ts";
import { ROLLBACK, type Store, type StoredNode } from "../store/store.ts";
import { Adoption } from "./adoption.ts";
import type { Bindings } from "./calls/bindings.ts";
import type { Call } from "./calls/calling.ts";
import type { FunctionLauncher } from "./calls/launch.ts";
import type { Outcome } from "./calls/outcome.ts";
import type { Classes } from "./classes.ts";
import { type FunctionPoolStatus, Groups, type Opening } from "./groups.ts";
import type { CallObserver } from "./observer.ts";
import { type Author, apiScopes, type FunctionParts, functionEvent } from "./parts.ts";
import type { PoolStats } from "./pool-schema.ts";
import { guards, refusalOf } from "./quota.ts";
import { ALL_RECORDS, deleteExpired } from "./records/byte-paging.ts";
import { type FunctionRow, FunctionRows, versioned } from "./rows.ts";
import { type CreateFunction, type FunctionRecord, hasOwnImage, type Smoke } from "./schema.ts";
import { type FunctionState, type FunctionVerb, functionStates } from "./states.ts";
import { prepare, type Target, TargetCache } from "./target.ts";
import { Activation } from "./versions/activation.ts";
import { Checks } from "./versions/checks.ts";
import { Deployments } from "./versions/deployments.ts";
import {
  type FunctionImages,
  type FunctionProfiles,
  holding,
  type MadeImage,
  VersionImages,
  type Waiting,
} from "./versions/images.ts";
import { type NamedSecrets, Proving } from "./versions/proving.ts";
import { Versions } from "./versions/versions.ts";

export interface FunctionsOptions {
  readonly store: Store;
  readonly pool: Pool<Call, Outcome>;
  readonly launcher: FunctionLauncher;
  readonly engine: Engine;
  readonly classes: Classes;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly queue_max: number;
  readonly node: StoredNode;
  readonly observer: Pick<CallObserver, "deleted">;
  readonly events: Events;
  readonly quotas: Quotas;
  readonly bindings: Bindings;
  readonly code: CodeStore;
  readonly secrets: NamedSecrets;
  readonly traces: Traces;
  readonly images: FunctionImages;
  readonly profiles: FunctionProfiles;
}

/** What a reader of events is told of the verbs that move a state; calls tell nothing. */
const TOLD: { readonly [Verb in FunctionVerb]?: string } = {
  deploy: "deploy_started",
  activate: "activated",
  fail: "failed",
  pause: "paused",
  delete: "delete_started",
};

/** A version whose group is open, with the instances that it needs ready. */
interface Deploying {
  readonly opening: Opening;
  readonly count: number;
}

export class Functions {
  readonly versions: Versions;
  readonly deployments: Deployments;
  readonly #log: Log;
  readonly #parts: FunctionParts;
  readonly #pooled: Pick<FunctionsOptions, "pool" | "launcher">;
  readonly #observer: Pick<CallObserver, "deleted">;

  constructor(options: FunctionsOptions) {
    const { pool, launcher, bindings, code, secrets, queue_max, node, observer, images, profiles, ...shared } = options;
    const { classes, log, store, engine } = shared;
    this.#log = log;
    this.#pooled = { pool, launcher };
    this.#observer = observer;
    const groups = new Groups({ pool, launcher, bindings, classes, log, queue_max });
    this.#parts = {
      ...shared,
      code,
      rows: new FunctionRows(store, node),
      targets: new TargetCache(),
      groups,
      proving: new Proving({ ...shared, pool, groups, secrets }),
      checks: new Checks({ engine, classes, code }),
      images: new VersionImages({ engine, classes, images, profiles }),
      changes: new KeyedMutex(),
      moves: new KeyedMutex(),
    };
    const activation = new Activation(this.#parts);
    this.versions = new Versions(this.#parts, activation);
    this.deployments = new Deployments(this.#parts, activation);
  }

  /** Ids of the images that versions need. */
  images(): Promise<readonly string[]> {
    return this.#parts.rows.images();
  }

  /**
   * Takes up where an earlier process stopped: active functions are invocable again when this resolves, with the
   * instances that outlived it; deployments go on and deletions are finished in the background.
   */
  async boot(adopted: readonly Adopted[]): Promise<void> {
    const { classes, rows, groups } = this.#parts;
    const adoption = new Adoption({ ...this.#pooled, classes, groups, log: this.#log, rows }, adopted);
    for await (const row of rows.inStates(["active", "deploying"])) await adoption.reopen(row);
    adoption.finish();
    failpoint("functions.boot.adopted");
    void this.#resume().catch((error) => this.#log.error("interrupted work not resumed", { error: errorText(error) }));
  }

  /** One after the other: a start has other things to do. A new verb of the same function waits for its turn. */
  async #resume(): Promise<void> {
    const { rows, changes } = this.#parts;
    const failed =
      (what: string, { record }: FunctionRow) =>
      (error: unknown) =>
        this.#log.warn(what, { function_id: record.id, error: errorText(error) });
    for await (const row of rows.inStates(["deploying"])) {
      const { id, tenant_id } = row.record;
      await changes.run(id, () => this.#redeploy(tenant_id, id)).catch(failed("cannot deploy", row));
    }
    for await (const row of rows.inStates(["deleting"])) await this.#erase(row).catch(failed("cannot delete", row));
  }

  /** Goes on with a deployment, unless somebody else has, or has deleted the function. */
  async #redeploy(tenant_id: string, id: string): Promise<void> {
    const { rows, classes, groups, moves, proving } = this.#parts;
    const deploying = await moves.run(id, async () => {
      const row = await rows.byId(tenant_id, id);
      if (row?.record.state !== "deploying") return null;
      const count = proving.countFor(row.record, 0, null);
      const { record, image, settings } = row;
      const opening = { record, image: await classes.available(image, hasOwnImage(record)), settings };
      groups.open(opening, count);
      return { opening, count };
    });
    if (deploying !== null) await this.#warm(deploying, null);
  }

  /**
   * Registers a function in state `pending`, after the build of its image if this node lacks that. Throws NAME_TAKEN,
   * INVALID_ARGUMENT, NOT_FOUND, START_FAILED, CAPACITY_FULL, QUOTA_EXCEEDED.
   */
  async create(author: Author, input: CreateFunction, waiting: Waiting): Promise<FunctionRecord> {
    const { checks, images } = this.#parts;
    const { tenant_id } = author;
    if (images.mustBuild([input])) await this.#checkCreate(tenant_id, input);
    await images.prepare(tenant_id, [input], waiting);
    const chosen = await images.choose({ ...input, tenant_id });
    return holding(chosen, async () => {
      await checks.checked({ ...versioned(input), ...chosen.fields, tenant_id }, chosen);
      return this.#insert(author, input, chosen);
    });
  }

  /** Throws what `create` would throw once the image is there, and changes nothing. */
  async #checkCreate(tenant_id: string, input: CreateFunction): Promise<void> {
    const { checks, images, quotas, store, rows } = this.#parts;
    const foreseen = await images.foresee({ ...input, tenant_id });
    await holding(foreseen, () => checks.checked({ ...versioned(input), ...foreseen.fields, tenant_id }, foreseen));
    if ((await rows.byName(tenant_id, input.name)) !== null) throw nameTaken(input.name);
    const quota = guards(quotas, tenant_id, 1);
    const { conflict } = await store.write([...quota.map(({ statement }) => statement), ROLLBACK]);
    const refusal = conflict === null ? null : refusalOf(quota, conflict);
    if (refusal !== null) throw refusal;
  }

  async #insert(author: Author, input: CreateFunction, chosen: MadeImage): Promise<FunctionRecord> {
    const { ids, clock, rows, events, quotas } = this.#parts;
    const { tenant_id, key_id: by } = author;
    const { image, settings, use } = chosen;
    const api_scopes = apiScopes(author, input);
    const id = ids.next("fn");
    const now = toEpochSeconds(clock.epochMs());
    failpoint("functions.create.begun");
    const statements = rows.insert(
      tenant_id,
      { id, version_id: ids.next("fv"), image, settings, api_scopes, now, by, note: input.note ?? null },
      { ...input, ...chosen.fields },
    );
    const made = { id, name: input.name, version: 1 };
    const quota = [
      ...guards(quotas, tenant_id, 1),
      ...(input.code_sha256 ? [this.#parts.code.guard(tenant_id, input.code_sha256)] : []),
      ...(use === null ? [] : [use]),
    ];
    const { conflict } = await events.write(
      [...quota.map(({ statement }) => statement), ...statements],
      tenant_id,
      [functionEvent("created", { ...made, state: "pending" })],
      { durable: true },
    );
    failpoint("functions.create.stored");
    if (conflict !== null) {
      throw refusalOf(quota, conflict) ?? nameTaken(input.name);
    }
    return (await this.#parts.rows.found(tenant_id, id)).record;
  }

  async get(tenant_id: string, id: string): Promise<FunctionRecord> {
    return (await this.#parts.rows.found(tenant_id, id)).record;
  }

  async byName(tenant_id: string, name: string): Promise<FunctionRecord> {
    return (await this.#parts.rows.foundByName(tenant_id, name)).record;
  }

  list(tenant_id: string, place: Place): Promise<Listed<FunctionRecord>> {
    return this.#parts.rows.list(tenant_id, place);
  }

  /** Instances of a function by state. Throws NOT_FOUND. */
  async poolStatus(tenant_id: string, id: string): Promise<FunctionPoolStatus> {
    return this.#parts.groups.status((await this.targetById(tenant_id, id)).record);
  }

  /** The pools of the tenant's functions that have an instance or a waiting call, newest function first. */
  async pools(tenant_id: string): Promise<({ function_id: string } & FunctionPoolStatus)[]> {
    const { groups, rows } = this.#parts;
    const functions = await rows.currentVersions(tenant_id, groups.inUse(tenant_id));
    return functions.map((found) => ({ function_id: found.id, ...groups.status(found) }));
  }

  /** Instances of all functions of a tenant together, and its waiting calls. */
  async poolTotals(tenant_id: string): Promise<PoolStats> {
    const totals = { warming_count: 0, ready_count: 0, busy_count: 0, recycling_count: 0, terminating_count: 0 };
    let [total_count, calls_running, queued] = [0, 0, 0];
    for (const status of await this.pools(tenant_id)) {
      for (const name of Object.keys(totals) as (keyof typeof totals)[]) totals[name] += status[name];
      total_count += status.total_count;
      calls_running += status.calls_running;
      queued += status.queued_count;
    }
    return { ...totals, total_count, calls_running, queued };
  }

  /** Returns what a call by id needs. Throws NOT_FOUND. */
  targetById(tenant_id: string, id: string): Target | Promise<Target> {
    const { targets } = this.#parts;
    return (
      targets.byId(tenant_id, id) ??
      targets.fill(async () => {
        const row = await this.#parts.rows.found(tenant_id, id);
        return { ...prepare(row.record, row.settings), function_seq: row.function_seq };
      })
    );
  }

  /** Returns what a call by name needs. Throws NOT_FOUND. */
  targetByName(tenant_id: string, name: string): Target | Promise<Target> {
    const { targets, rows } = this.#parts;
    return (
      targets.byName(tenant_id, name) ??
      targets.fill(async () => {
        const row = await rows.foundByName(tenant_id, name);
        return { ...prepare(row.record, row.settings), function_seq: row.function_seq };
      })
    );
  }

  /**
   * Makes the function invocable and warms `min_instances`, at least one of a resident runtime. Resolves when they are ready
   * and the smoke call, if any, has succeeded. When that fails the function is in state `error` with the reason (an active
   * one stays active), and HANDLER_FAILED, START_FAILED or QUOTA_EXCEEDED is thrown.
   */
  deploy(tenant_id: string, id: string, smoke: Smoke | null = null): Promise<FunctionRecord> {
    const { changes, moves } = this.#parts;
    return changes.run(id, async () => {
      await this.#warm(await moves.run(id, () => this.#beginDeploy(tenant_id, id, smoke)), smoke);
      return this.get(tenant_id, id);
    });
  }

  /** Scales to zero: waiting calls are refused, running ones finish. */
  async pause(tenant_id: string, id: string): Promise<void> {
    const { moves, groups } = this.#parts;
    const closed = await moves.run(id, async () => {
      const { record } = await this.#parts.rows.held(tenant_id, id);
      await this.#move(record, "pause", null);
      failpoint("functions.pause.moved");
      return { promise: groups.close(id, "paused") };
    });
    await closed.promise;
  }

  /** Removes the function, its versions and records. Running calls get `group_close_wait_ms` to finish and are then ended. */
  async delete(tenant_id: string, id: string): Promise<void> {
    const { moves, groups } = this.#parts;
    const { row, promise } = await moves.run(id, async () => {
      const row = await this.#parts.rows.held(tenant_id, id);
      await this.#move(row.record, "delete", null);
      failpoint("functions.delete.moved");
      return { row, promise: groups.close(id, "deleted") };
    });
    await promise;
    failpoint("functions.delete.closed");
    await this.#erase(row);
  }

  /** What all instances of a tenant's functions may be together; null: no limit. */
  limitTenant(tenant_id: string, { instances_max, memory_mb_max }: OwnerLimits): void {
    this.#pooled.pool.setOwner(tenant_id, { instances_max, memory_mb_max });
  }

  /** Returns the instances of all functions of a tenant that count against its limits. */
  instancesOf(tenant_id: string): { readonly instances: number; readonly memory_mb: number } {
    const { count, mb } = this.#pooled.pool.ownerUse(tenant_id);
    return { instances: count, memory_mb: mb };
  }

  /** Calls of a tenant that is being deleted run on until their functions go, without the API. */
  endTokens(tenant_id: string): void {
    this.#pooled.launcher.endTokens(tenant_id);
  }

  /** Deletes a function of a tenant that is being deleted, also one that somebody else is deleting. Idempotent. */
  async erase(tenant_id: string, id: string): Promise<void> {
    try {
      await this.delete(tenant_id, id);
    } catch (error) {
      const row = await this.#parts.rows.byId(tenant_id, id);
      if (row === null) return;
      if (row.record.state !== "deleting" || !this.#parts.rows.isHeld(row)) throw error;
      await this.#erase(row);
    }
  }

  /** Opens the group and moves the state (F2). Returns the record as it is then: `deploying`, or `active` as before. */
  async #beginDeploy(tenant_id: string, id: string, smoke: Smoke | null): Promise<Deploying> {
    const { classes, groups, proving, checks, images } = this.#parts;
    const row = await this.#parts.rows.held(tenant_id, id);
    const { record, settings } = row;
    const state = functionStates.next(record.state, "deploy");
    const made = await images.kept(row);
    await holding(made, () => checks.deployable(record, made));
    const count = proving.countFor(record, 0, smoke);
    const opening = { record, image: await classes.available(row.image, hasOwnImage(record)), settings };
    groups.open(opening, count);
    if (state !== "deploying") return { opening, count };
    try {
      await this.#move(record, "deploy", null);
    } catch (error) {
      // The state could not be moved, so no call is let in; nobody waits for what the group had begun to start.
      void groups.close(id, "failed");
      throw error;
    }
    return { opening: { ...opening, record: { ...record, state } }, count };
  }

  /** Proves a version whose group is open; for a record that is `deploying` moves it on to `active` or `error`. */
  async #warm({ opening, count }: Deploying, smoke: Smoke | null): Promise<void> {
    const { groups, moves, proving } = this.#parts;
    const { record } = opening;
    const isNew = record.state === "deploying";
    failpoint("functions.deploy.moved");
    try {
      await proving.prove(opening, count, smoke);
    } catch (error) {
      if (isNew) {
        const closed = await moves.run(record.id, async () => {
          await this.#move(record, "fail", publicText(error));
          return { promise: groups.close(record.id, "failed") };
        });
        await closed.promise;
      } else {
        await this.#relax(opening);
      }
      throw error;
    }
    failpoint("functions.deploy.warmed");
    if (isNew) await moves.run(record.id, () => this.#move(record, "activate", null));
    if (count > record.min_instances) await this.#relax(opening);
  }

  /** Gives the group of an active version its own minimum again. What is ready beyond it stays for a first call. */
  #relax(opening: Opening): Promise<void> {
    const { groups, moves, rows } = this.#parts;
    const { tenant_id, id, version } = opening.record;
    return moves.run(id, async () => {
      const row = await rows.byId(tenant_id, id);
      if (row?.record.state === "active" && row.record.version === version) groups.open(opening);
    });
  }

  /** Compare-and-set of the state; throws WRONG_STATE when the verb is not legal or somebody else moved it meanwhile. */
  async #move(record: FunctionRecord, verb: FunctionVerb, error: string | null): Promise<FunctionState> {
    const { events, clock, rows, targets } = this.#parts;
    const to = functionStates.next(record.state, verb);
    const now = toEpochSeconds(clock.epochMs());
    const event = functionEvent(TOLD[verb] ?? verb, { ...record, state: to, error_message: error });
    const { conflict } = await events
      .write([rows.moveState(record.id, record.state, to, error, now)], record.tenant_id, [event], { durable: true })
      // After a failure too: it may be committed and not be synced.
      .finally(() => targets.forget(record));
    if (conflict !== null) {
      throw new AppError("WRONG_STATE", `cannot ${verb} the function: its state changed at the same time`, {
        hint: "read the function and retry",
      });
    }
    return to;
  }

  async #erase({ record, function_seq }: FunctionRow): Promise<void> {
    const { store, events, rows, targets, code } = this.#parts;
    await deleteExpired(store, function_seq, ALL_RECORDS);
    failpoint("functions.delete.erased");
    const event = functionEvent("deleted", { ...record, state: "deleting" });
    const digests = await rows.codeOf(function_seq);
    await events.write(rows.delete(function_seq), record.tenant_id, [event], { durable: true });
    targets.forget(record);
    this.#observer.deleted(record);
    code.collectSoon(record.tenant_id, digests);
  }
}

function nameTaken(name: string): AppError {
  return new AppError("NAME_TAKEN", `a function named '${name}' exists`, {
    hint: "change it with PUT /api/functions/<id>, or choose another name",
  });
}
