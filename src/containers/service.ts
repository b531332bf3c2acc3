/**
 * The life of API containers: made, started, stopped, deleted, found. A state moves by compare-and-set in the store,
 * with its event in the same batch; what runs on the machine is the engine's. What happens to a container by itself
 * (its command ends, its time is up) is supervisor.ts's.
 *
 * L1 The verbs of one container take turns for as long as they change what runs.
 * L2 `running` in the store is written only after the container answered, `exited` only after nothing of it is left.
 *    After a crash in between, recovery.ts corrects the state.
 * L3 A failed start leaves no container in `starting`, also when the store refuses to note it: that is repeated until
 *    the store takes it.
 */
import { EventEmitter } from "node:events";
import { KeyedMutex } from "../base/concurrency.ts";
import { AppError, publicText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Listed, Place } from "../base/paging.ts";
import { Retries } from "../base/retries.ts";
import type { Ended, Engine, FileOwner, FileSession, GpuRequest } from "../engine/ports.ts";
import { heldElsewhere } from "../store/store.ts";
import { type Admission, filesInUse, nameTaken, neverRan, readinessOf, startChecks } from "./admission.ts";
import { stopSignalOf } from "./command-fields.ts";
import { limitDisks, startLimited } from "./disk-limits.ts";
import { ContainerChanges, eventOf, healthEvent } from "./events.ts";
import { HealthChecks } from "./health/checks.ts";
import { ImageLookups } from "./image-lookups.ts";
import { Making } from "./making.ts";
import type { Watchers } from "./monitors/service.ts";
import { checkName } from "./network/schema.ts";
import type { ContainersOptions } from "./options.ts";
import { endFields, recover } from "./recovery.ts";
import { Removals } from "./removals.ts";
import { BEGUN, type ContainerCopy, type ContainerFilter, type ContainerRow, ContainerRows } from "./rows.ts";
import type { ContainerRecord, CreateContainer } from "./schema.ts";
import { containerStates } from "./states.ts";
import { Supervisor } from "./supervisor.ts";
import { View } from "./view.ts";

export { DESKTOP_PROFILE, imageName, isDesktop } from "./desktop.ts";
export { checkName } from "./network/schema.ts";
export {
  type ContainerCopy,
  type ContainerOrigin,
  type ContainerRow,
  type ContainerSettings,
  settingsOf,
} from "./rows.ts";

export class Containers {
  readonly #options: ContainersOptions;
  readonly #rows: ContainerRows;
  readonly #admission: Admission;
  readonly #changes: ContainerChanges;
  readonly #turns = new KeyedMutex();
  readonly #making: Making;
  readonly #view: View;
  readonly #supervisor: Supervisor;
  readonly #health: HealthChecks;
  /** Removals that failed, and states that the store did not take (L3). */
  readonly #retries: Retries;
  /** `removed`: a container is deleted, before it ends. */
  readonly deletions = new EventEmitter<{ removed: [id: string] }>();
  readonly #removals: Removals;

  constructor(options: ContainersOptions) {
    this.#options = options;
    this.#rows = new ContainerRows(options.store, options.node);
    this.#admission = { ...options, rows: this.#rows };
    this.#changes = new ContainerChanges({ events: options.events, rows: this.#rows });
    this.#making = new Making({
      ...options,
      ...{ admission: this.#admission, changes: this.#changes, images: new ImageLookups(options) },
      watch: (row) => this.#supervisor.watch(row),
    });
    this.#health = new HealthChecks({
      ...options,
      read: (id) => this.#rows.byIdAlone(id),
      emit: async (row, status, failing_streak) => {
        await this.#changes.write([], healthEvent(row, status, failing_streak));
      },
      restart: (id, reason) => this.#stopUnhealthy(id, reason),
    });
    this.#view = new View({ ...options, health: this.#health });
    const later = (id: string, attempt: () => Promise<void>) => this.#turns.run(id, attempt);
    this.#retries = new Retries({ clock: options.clock, log: options.log, what: "container", later });
    this.#removals = new Removals({
      ...options,
      rows: this.#rows,
      changes: this.#changes,
      turns: this.#turns,
      retries: () => this.#retries,
      held: (tenant_id, id) => this.held(tenant_id, id),
      hidden: (id) => void this.deletions.emit("removed", id),
      forget: (id) => {
        this.#supervisor.forget(id);
        this.#health.forget(id);
      },
    });
    this.#supervisor = new Supervisor({
      ...options,
      ended: (id, ended) => this.#turns.run(id, () => this.#noteEnd(id, ended)),
      restart: (id) => this.#restart(id),
      expire: (id) => this.#expire(id),
      idle: (id) => this.#idle(id),
    });
    options.engine.containers.onEnded((id, ended) => this.#supervisor.ended(id, ended));
    options.engine.containers.onRemoval((step) => options.tasks.note(step, step.status, step.error));
  }

  /** Resumes what an earlier daemon left: see recovery.ts. Containers that ended meanwhile are started again by their policy. */
  async boot(): Promise<void> {
    await this.limitDisks(null);
    await recover({
      ...this.#options,
      rows: this.#rows,
      changes: this.#changes,
      supervisor: this.#supervisor,
      health: this.#health,
      stop: (row, grace_ms) => this.stop(row.tenant_id, row.id, grace_ms),
      erase: (id) => this.#removals.erase(id),
      settle: (id, work) => this.#settle(id, work),
    });
    this.#supervisor.begin();
  }

  /** Limits the unlimited disks of a tenant that has a limit by now; null: of all tenants. */
  readonly limitDisks = (tenant_id: string | null) => limitDisks(this.#admission, this.#options, tenant_id);

  /** Ids of the images that containers of this node need. */
  readonly images = (): Promise<readonly string[]> => this.#rows.images();

  /** Stops watching. What runs goes on. */
  close(): void {
    this.#supervisor.close();
    this.#health.close();
    this.#retries.close();
  }

  /** Sources of checks of containers. */
  get watchers(): Watchers {
    return { supervisor: this.#supervisor, health: this.#health };
  }

  /** A container counts as used from now until what is returned is called. */
  readonly use = (id: string): (() => void) => this.#supervisor.use(id);

  /**
   * Makes a container and starts it; resolves when it is ready. Throws NAME_TAKEN, INVALID_ARGUMENT, NOT_FOUND (a
   * volume, an image), CAPACITY_FULL, START_FAILED; then nothing is left of it.
   */
  async create(tenant_id: string, input: CreateContainer, id = this.newId()): Promise<ContainerRecord> {
    const row = await this.insert(tenant_id, input, id);
    failpoint("containers.create.stored");
    await this.#turns.run(id, async () => {
      try {
        await this.#options.engine.containers.create(id, row.disk_limit_mb, tenant_id);
        failpoint("containers.create.made");
        await this.#run(row);
      } catch (error) {
        await this.#settle(id, () => this.#removals.discard(row));
        throw error;
      }
    });
    await this.#untilNoted(id);
    await this.#view.untilShown(row);
    return this.get(tenant_id, id);
  }

  /** Whether containers can be started. */
  async readiness(tenant_id: string) {
    return readinessOf(this.#options, tenant_id, await this.#rows.runningCount(tenant_id));
  }

  readonly newId = (): string => this.#options.ids.next("ctr");

  /** See `Making`. */
  insert(tenant_id: string, input: CreateContainer, id: string): Promise<ContainerRow> {
    return this.#making.insert(tenant_id, input, id);
  }

  /** See `Making`. */
  insertCopy(tenant_id: string, copy: ContainerCopy, id: string): Promise<void> {
    return this.#making.insertCopy(tenant_id, copy, id);
  }

  /** Throws NAME_TAKEN if the tenant has containers of all these names now. */
  async checkFree(tenant_id: string, names: readonly string[]): Promise<void> {
    const taken = await this.#rows.taken(tenant_id, names);
    const [first] = names;
    if (first !== undefined && names.every((name) => taken.has(name))) throw nameTaken(first);
  }

  /** Throws as `create` would before anything is made, and changes nothing: for a request whose image is to be built yet. */
  checkCreate(tenant_id: string, input: CreateContainer): Promise<void> {
    return this.#making.check(tenant_id, input);
  }

  /** True if the store has the container. */
  readonly exists = async (id: string): Promise<boolean> => (await this.#rows.byIdAlone(id)) !== null;

  /** Does work on a container that must neither start nor end meanwhile. */
  readonly inTurn = <Result>(id: string, work: () => Promise<Result>) => this.#turns.run(id, work);

  async get(tenant_id: string, id: string): Promise<ContainerRecord> {
    return this.#view.record(await this.row(tenant_id, id));
  }

  /** By id, or by name where no container has that id; null: the tenant has none. */
  async idOf(tenant_id: string, id: string): Promise<string | null> {
    const row = (await this.#rows.byId(tenant_id, id)) ?? (await this.#rows.byName(tenant_id, id));
    return row?.id ?? null;
  }

  /** Null: the tenant has no container of that name. */
  async byName(tenant_id: string, name: string): Promise<ContainerRecord | null> {
    const row = await this.#rows.byName(tenant_id, name);
    return row === null ? null : this.#view.record(row);
  }

  async list(tenant_id: string, filter: ContainerFilter, place: Place): Promise<Listed<ContainerRecord>> {
    return this.#view.list(await this.#rows.list(tenant_id, filter, place, (row) => row));
  }

  /** By id, or by name where no container has that id. Throws NOT_FOUND. */
  async row(tenant_id: string, id: string): Promise<ContainerRow> {
    const row = (await this.#rows.byId(tenant_id, id)) ?? (await this.#rows.byName(tenant_id, id));
    if (row === null) throw new AppError("NOT_FOUND", `container '${id}' not found`);
    return row;
  }

  /** Like `row`, for work that needs more than the store. Throws WRONG_STATE if another node holds the container. */
  async held(tenant_id: string, id: string): Promise<ContainerRow> {
    const row = await this.row(tenant_id, id);
    if (!this.#rows.isHeld(row)) throw heldElsewhere(`container '${id}'`);
    return row;
  }

  /** Throws WRONG_STATE unless it may be started here, IN_USE while its files are read or written. */
  async checkStart(tenant_id: string, id: string): Promise<ContainerRow> {
    const row = await this.held(tenant_id, id);
    containerStates.next(row.state, "start");
    this.#checkLeft(row.id);
    return row;
  }

  /** Throws CAPACITY_FULL, QUOTA_EXCEEDED unless the GPUs are free now. */
  readonly checkGpus = (tenant_id: string, asked: GpuRequest) => this.#options.engine.gpus.check(tenant_id, asked);

  #checkLeft(id: string): void {
    if (this.#options.engine.containers.isLookedInto(id)) throw filesInUse(id);
  }

  /** Starts a container that does not run. Resolves when it is ready. Throws as `checkStart`, START_FAILED, CAPACITY_FULL. */
  async start(tenant_id: string, id: string): Promise<ContainerRecord> {
    const started = await this.#turns.run(id, async () => {
      const row = await this.checkStart(tenant_id, id);
      await this.checkGpus(tenant_id, row);
      const fields = { is_wanted: true, restart_count: 0, error_message: null };
      await this.#changes.move(row, "start", fields, startChecks(this.#admission, row));
      await this.#runOrFail({ ...row, state: "starting" });
      return row;
    });
    await this.#untilNoted(started.id);
    await this.#view.untilShown(started);
    return this.get(tenant_id, id);
  }

  /** Throws NOT_FOUND, WRONG_STATE if another node holds it, NOT_RUNNING for a container that has never run. */
  async checkEnd(tenant_id: string, id: string): Promise<ContainerRow> {
    const row = await this.held(tenant_id, id);
    if (row.state === "created") throw neverRan(row);
    return row;
  }

  /** Ends a container by its stop signal, after the grace by force. Nothing to do for one that has ended. Throws as `checkEnd`. */
  async stop(tenant_id: string, id: string, grace_ms: number): Promise<ContainerRecord> {
    const row = await this.checkEnd(tenant_id, id);
    await this.#end(row.id, (engine) => engine.containers.stop(row.id, stopSignalOf(row), grace_ms));
    return this.get(tenant_id, row.id);
  }

  /** Ends a container by force. Nothing to do for one that has ended. Throws as `checkEnd`. */
  async kill(tenant_id: string, id: string): Promise<ContainerRecord> {
    const row = await this.checkEnd(tenant_id, id);
    await this.#end(row.id, (engine) => engine.containers.kill(row.id));
    return this.get(tenant_id, row.id);
  }

  /** Throws NOT_FOUND, NAME_TAKEN, INVALID_ARGUMENT for a name that DNS does not allow where the container has names. */
  async rename(
    tenant_id: string,
    id: string,
    new_name: string,
  ): Promise<{ id: string; old_name: string; dns_updated: boolean }> {
    const row = await this.row(tenant_id, id);
    const renamed = { ...row, name: new_name };
    checkName(renamed);
    const statement = this.#rows.rename(tenant_id, row.id, new_name);
    const conflict = await this.#changes.write([statement], eventOf(renamed, "renamed", row.state));
    if (conflict !== null) throw nameTaken(new_name);
    const dns_updated = this.#options.engine.containers.rename(row.id, new_name);
    return { id: row.id, old_name: row.name, dns_updated };
  }

  /** Kills it where it runs, then removes it with its file system and its log. */
  async delete(tenant_id: string, id: string): Promise<void> {
    const row = await this.held(tenant_id, id);
    await this.#removals.hide(row);
    await this.#turns.run(row.id, () => this.#removals.erase(row.id));
  }

  /** See `Removals.clear`. */
  readonly clear = (tenant_id: string, id: string): Promise<ContainerRow> => this.#removals.clear(tenant_id, id);

  /**
   * Deletes all that a tenant has on this node, for the tenant's own deletion. Safe to repeat. Throws WRONG_STATE where
   * another node still holds some, which that node removes at its next start.
   */
  readonly eraseAll = (tenant_id: string): Promise<void> => this.#removals.eraseAll(tenant_id);

  async environment(tenant_id: string, id: string): Promise<Readonly<Record<string, string>>> {
    return (await this.row(tenant_id, id)).environment;
  }

  /** Sets what later commands and the next start get. What runs keeps what it has. */
  async setEnvironment(
    tenant_id: string,
    id: string,
    change: (before: Readonly<Record<string, string>>) => Readonly<Record<string, string>>,
  ): Promise<void> {
    const { id: found } = await this.held(tenant_id, id);
    // One after the other, or the second of two would undo the first.
    await this.#turns.run(`${found} environment`, async () => {
      const row = await this.row(tenant_id, found);
      const statement = this.#rows.setEnvironment(found, change(row.environment));
      const conflict = await this.#changes.write([statement], eventOf(row, "environment", row.state));
      if (conflict !== null) throw new AppError("NOT_FOUND", `container '${id}' not found`);
    });
  }

  /** L1: keeps the policy from starting it again, ends it, and waits until the end is noted. */
  async #end(id: string, end: (engine: Engine) => Promise<void>): Promise<void> {
    await this.#options.store.write([this.#rows.setWanted(id, false)], { durable: true });
    failpoint("containers.stop.unwanted");
    // What starts just now is ended when it has.
    await this.#untilNoted(id);
    await end(this.#options.engine);
    await this.#untilNoted(id);
  }

  /** Waits until the end of a command that was over at once is noted: it then is in the answer to its start. */
  readonly #untilNoted = (id: string): Promise<void> => this.#turns.run(id, () => Promise.resolve());

  /** Starts what was noted as `starting`, and notes it as `running`. Throws what the engine threw. */
  async #run(row: ContainerRow): Promise<void> {
    const { engine, clock } = this.#options;
    const ended = await startLimited(this.#admission, this.#options, row);
    failpoint("containers.start.live");
    // One that is over already began before its end, which its exit record tells.
    const started_at_ms = Math.min(clock.epochMs(), ended?.ended_at_ms ?? Number.POSITIVE_INFINITY);
    try {
      await this.#changes.move(row, "run", { ...BEGUN, started_at_ms });
    } catch (error) {
      await engine.containers.kill(row.id);
      throw error;
    }
    // The end is noted in the next turn, for which `create` and `start` wait.
    if (ended !== null) this.#supervisor.ended(row.id, ended);
    else this.#health.watch({ ...row, started_at_ms });
  }

  async #runOrFail(row: ContainerRow): Promise<void> {
    try {
      await this.#run(row);
    } catch (error) {
      await this.#settle(row.id, () => this.#changes.move(row, "fail", { error_message: publicText(error) }));
      throw error;
    }
  }

  async #restart(id: string): Promise<void> {
    await this.#turns.run(id, async () => {
      const row = await this.#rows.byIdAlone(id);
      if (row === null || !row.is_wanted || !containerStates.can(row.state, "start")) return;
      this.#checkLeft(id);
      await this.checkGpus(row.tenant_id, row);
      const restart_count = row.restart_count + 1;
      await this.#changes.move(row, "start", { restart_count, error_message: null }, startChecks(this.#admission, row));
      await this.#runOrFail({ ...row, state: "starting", restart_count });
    });
  }

  async #noteEnd(id: string, end: Ended): Promise<ContainerRow | null> {
    const row = await this.#rows.byIdAlone(id);
    if (row === null || !containerStates.can(row.state, "exit")) return null;
    this.#health.forget(id);
    const fields = await endFields(this.#options.engine, row, end);
    await this.#changes.move(row, "exit", fields);
    return { ...row, ...fields, state: "exited" };
  }

  /** The container's files, for one piece of work. Throws NOT_FOUND, WRONG_STATE. */
  async openFiles(tenant_id: string, id: string) {
    const row = await this.held(tenant_id, id);
    const unuse = this.use(row.id);
    try {
      const { session, close } = await this.#options.engine.containers.openFiles(row);
      return {
        session,
        close: () => {
          close();
          unuse();
        },
      };
    } catch (error) {
      unuse();
      throw error;
    }
  }

  /**
   * To whom files belong that a request puts into the container: the user of one with `strict`, where nobody inside can change
   * owners. Null: root, also for a user that its files do not know, because one who adds it has to be able to. Throws NOT_FOUND.
   */
  async findOwner(tenant_id: string, id: string, session: FileSession): Promise<FileOwner | null> {
    const { strict, user } = await this.row(tenant_id, id);
    return strict && user !== null ? session.findOwner(user) : null;
  }

  /** Its exit counts as a failure, also after a crash of the daemon: the reason is noted before. */
  async #stopUnhealthy(id: string, reason: string): Promise<void> {
    const row = await this.#rows.byIdAlone(id);
    if (row?.state !== "running" || !row.is_wanted) return;
    await this.#options.store.write([this.#rows.setStopReason(id, reason)], { durable: true });
    try {
      await this.#options.engine.containers.stop(id, stopSignalOf(row), LIMITS.stop_grace_ms_default);
    } catch (error) {
      await this.#options.store.write([this.#rows.setStopReason(id, null)]);
      throw error;
    }
  }

  async #expire(id: string): Promise<void> {
    const row = await this.#rows.byIdAlone(id);
    if (row !== null) await this.delete(row.tenant_id, id);
  }

  async #idle(id: string): Promise<void> {
    const row = await this.#rows.byIdAlone(id);
    if (row?.state === "running") await this.stop(row.tenant_id, id, LIMITS.stop_grace_ms_default);
  }

  /** L3. Resolves after the first attempt, whichever way it went; a state that was changed meanwhile stands. */
  async #settle(id: string, work: () => Promise<unknown>): Promise<void> {
    const unlessMoved = (error: unknown) => {
      if (!(error instanceof AppError) || error.code !== "WRONG_STATE") throw error;
    };
    await this.#retries.run(id, () => work().then(() => {}, unlessMoved)).catch(() => {});
  }
}
