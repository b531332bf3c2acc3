/**
 * Recovers the containers of an earlier daemon: brings their states in the store in line with the machine. Live
 * containers keep running. Records the exits that no daemon saw, and removes containers that the store does not know.
 */
import type { Clock, EpochMs } from "../base/clock.ts";
import { each } from "../base/concurrency.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Ended, Engine } from "../engine/ports.ts";
import type { Store } from "../store/store.ts";
import type { ContainerChanges } from "./events.ts";
import type { HealthChecks } from "./health/checks.ts";
import type { HostPorts } from "./network/ports.ts";
import { BEGUN, type ContainerRow, type ContainerRows, type MoveFields } from "./rows.ts";
import type { Supervisor } from "./supervisor.ts";

export interface RecoveryOptions {
  readonly engine: Engine;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly rows: ContainerRows;
  readonly changes: ContainerChanges;
  readonly ports: HostPorts;
  readonly supervisor: Supervisor;
  readonly health: HealthChecks;
  /** Ends a container whose stop was begun. */
  stop(row: ContainerRow, grace_ms: number): Promise<unknown>;
  /** Removes a container whose removal was begun. */
  erase(id: string): Promise<void>;
  /** Repeats work that the store refuses. */
  settle(id: string, work: () => Promise<unknown>): Promise<void>;
}

/**
 * Brings all states in line with the machine. Kills and removals continue in the background; restart policies follow
 * later.
 */
export async function recover(options: RecoveryOptions): Promise<void> {
  const { engine, rows, ports } = options;
  await noteImages(options);
  const failed = (id: string) => (error: unknown) =>
    options.log.warn("container not adopted", { container_id: id, error: errorText(error) });
  const isLive = (id: string) => engine.containers.live(id) !== null;
  const known = new Set<string>();
  const dead: ContainerRow[] = [];
  for await (const row of rows.all()) {
    known.add(row.id);
    // Containers of other nodes are left alone.
    if (!rows.isHeld(row)) continue;
    ports.keep(row.id, row.ports);
    const lives = isLive(row.id);
    // It may have been renamed after its start, from which the engine knows its name.
    if (lives) engine.containers.rename(row.id, row.name);
    // An earlier daemon may have stored a change of its policy that is not in force yet.
    if (lives) await engine.networks.apply(row).catch(failed(row.id));
    if (row.state === "starting" && lives) {
      await options.changes.move(row, "run", { ...BEGUN, started_at_ms: options.clock.epochMs() });
      options.supervisor.watch({ ...row, state: "running" });
    } else if ((row.state === "running" || row.state === "starting") && !lives) {
      dead.push(row);
    } else {
      // The container should not run any more, and its end was not recorded.
      if (lives && row.state !== "running") void engine.containers.kill(row.id).catch(failed(row.id));
      options.supervisor.watch(row);
    }
    if (lives && row.is_wanted && (row.state === "running" || row.state === "starting"))
      await resumeHealth(options, row);
    // An earlier daemon began a stop and did not answer it.
    if (lives && !row.is_wanted) {
      void options.stop(row, LIMITS.stop_grace_ms_default).catch(failed(row.id));
    }
  }
  for (const row of dead) await options.settle(row.id, () => noteDeath(options, row));
  const leaving = (await rows.removing()).filter((row) => rows.isHeld(row));
  for (const row of leaving) ports.keep(row.id, row.ports);
  const removing = leaving.map(({ id }) => id);
  for (const id of engine.containers.ids) {
    if (!known.has(id) && !removing.includes(id)) void engine.containers.kill(id).catch(failed(id));
  }
  for (const id of removing) void options.erase(id).catch(failed(id));
  const kept = new Set([...known, ...removing]);
  const unknown = (await engine.containers.kept()).filter((id) => !kept.has(id));
  for (const id of unknown.filter(isLive)) {
    void engine.containers
      .kill(id)
      .then(() => engine.containers.remove(id))
      .catch(failed(id));
  }
  // Not in the background: operations that are resumed make copies anew under these ids.
  await each(
    unknown.filter((id) => !isLive(id)),
    LIMITS.leftovers_at_once,
    (id) => engine.containers.remove(id).catch(failed(id)),
  );
}

/** Checks a container anew that an earlier daemon may have been about to stop as unhealthy. */
async function resumeHealth({ store, rows, health }: RecoveryOptions, row: ContainerRow): Promise<void> {
  if (row.error_message !== null) await store.write([rows.setStopReason(row.id, null)]);
  health.watch({ ...row, error_message: null }, true);
}

/** Records the image of containers that have only a reference: a later image of that name is not theirs. */
async function noteImages({ engine, store, rows, log }: RecoveryOptions): Promise<void> {
  for (const image of await rows.withoutImage()) {
    try {
      const { id } = await engine.images.find(image);
      await store.write([rows.setImage(image, id)]);
    } catch (error) {
      log.warn("the image of containers of an earlier version is not noted", { image, error: errorText(error) });
      // The store does not answer: the next start of the daemon asks again.
      if (!(error instanceof AppError) || error.code !== "NOT_FOUND") return;
    }
  }
}

/** Records an exit that no daemon saw. After a reboot of the machine its exit code is unknown. */
async function noteDeath({ engine, clock, changes, supervisor }: RecoveryOptions, row: ContainerRow): Promise<void> {
  const exit = await engine.containers.exit(row.id);
  const why = row.error_message ?? (row.state === "starting" ? "interrupted: the daemon ended during the start" : null);
  const fields =
    exit === null
      ? { exit_code: null, oom_killed: false, exited_at_ms: endedAt(row, clock.epochMs()), error_message: why }
      : await endFields(engine, row, exit);
  await changes.move(row, "exit", fields);
  supervisor.watch({ ...row, ...fields, state: "exited" });
}

/** Returns the fields of a container's row that record its exit. A row that runs has the reason of its stop, if any. */
export async function endFields(engine: Engine, row: ContainerRow, end: Ended) {
  const { id, error_message } = row;
  return {
    exit_code: end.exit_code,
    oom_killed: end.is_oom,
    exited_at_ms: endedAt(row, end.ended_at_ms),
    error_message: (await unstarted(engine, id, end)) ?? error_message,
  } satisfies MoveFields;
}

/**
 * The end of a container as its record has it: never before its start. The two times are read from the wall clock by two
 * processes, and the clock may be set between them.
 */
const endedAt = ({ started_at_ms }: Pick<ContainerRow, "started_at_ms">, ended_at_ms: EpochMs): EpochMs =>
  Math.max(ended_at_ms, started_at_ms ?? 0);

/** Returns why the command could not be started, which is minit's last line in the log; null: it was started. */
async function unstarted(engine: Engine, id: string, { has_command, is_started }: Ended): Promise<string | null> {
  if (!has_command || is_started) return null;
  const [last] = await engine.containers.log(id).tail({ limit: 1 });
  return last?.stream === "minit" ? last.message.replace(/^minit: /, "") : null;
}
