/**
 * The health checks of running containers. A check is a command in the container, as its user, with its environment: exit
 * code 0 within the timeout means healthy. It does not count as a use of the container.
 *
 * H1 At most one check of a container runs at a time, so many of one tenant and of all; a check that finds no place is
 *    postponed, and says nothing about the container.
 * H2 The status is that of the current run: `starting` from its begin, and again when a new daemon takes the container over.
 * H3 An event is emitted when the status differs from that of the last event, at most one in `health_event_ms`.
 */
import { type CancelTimer, type Clock, type EpochMs, toIsoTime } from "../../base/clock.ts";
import { containerEnvironment, withGpus } from "../../base/container-environment.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { Shares } from "../../base/shares.ts";
import type { Engine, GatheredExit } from "../../engine/ports.ts";
import type { ContainerRow } from "../rows.ts";
import type { HealthCheck, HealthRecord, HealthStatus } from "./schema.ts";

export interface HealthChecksOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly log: Log;
  /** Reads the container's present row; null if it is gone. */
  read(id: string): Promise<ContainerRow | null>;
  /** Emits the event of a status. */
  emit(row: ContainerRow, status: HealthStatus, failing_streak: number): Promise<void>;
  /** Stops a container that is to be restarted. */
  restart(id: string, reason: string): Promise<void>;
}

type Check = NonNullable<HealthRecord["last_check"]>;

interface Watched {
  readonly health: HealthCheck;
  /** End of the start period. */
  readonly settled_at_ms: EpochMs;
  status: HealthStatus;
  failing_streak: number;
  last_check: Check | null;
  check_count: number;
  checked_at_ms: EpochMs | null;
  /** Status of the last event, and its time on the monotonic clock. */
  told: HealthStatus;
  told_ms: number;
  cancel: CancelTimer;
  close(): void;
}

const UNAVAILABLE: ReadonlySet<string> = new Set(["CAPACITY_FULL"]);

export class HealthChecks {
  readonly #options: HealthChecksOptions;
  readonly #watched = new Map<string, Watched>();
  /** H1. */
  readonly #places = new Shares({
    each_max: LIMITS.health_checks_per_tenant_max,
    all_max: LIMITS.health_checks_max,
  });

  constructor(options: HealthChecksOptions) {
    this.#options = options;
  }

  /** Begins to check a container that runs. `isAdopted`: an earlier daemon started it. */
  watch({ id, health, started_at_ms }: ContainerRow, isAdopted = false): void {
    this.forget(id);
    if (health === null) return;
    const begun_ms = started_at_ms ?? this.#options.clock.epochMs();
    const watched: Watched = {
      health,
      settled_at_ms: begun_ms + health.start_period_seconds * 1_000,
      status: "starting",
      failing_streak: 0,
      last_check: null,
      check_count: 0,
      checked_at_ms: null,
      told: "starting",
      told_ms: Number.NEGATIVE_INFINITY,
      cancel: () => {},
      close: () => {},
    };
    this.#watched.set(id, watched);
    this.#checkLater(id, watched, isAdopted ? LIMITS.health_adopted_ms : this.#pauseMs(watched));
  }

  /** Ends the checks of a container, a running one too. */
  forget(id: string): void {
    const watched = this.#watched.get(id);
    this.#watched.delete(id);
    watched?.cancel();
    watched?.close();
  }

  close(): void {
    for (const id of [...this.#watched.keys()]) this.forget(id);
  }

  /** Returns the health of a container as its record shows it; null without a health check. */
  recordOf({ id, health }: Pick<ContainerRow, "id" | "health">): HealthRecord | null {
    if (health === null) return null;
    const { command: _, ...parameters } = health;
    const watched = this.#watched.get(id);
    return {
      status: watched?.status ?? null,
      failing_streak: watched?.failing_streak ?? 0,
      last_check: watched?.last_check ?? null,
      ...parameters,
    };
  }

  /** Checks of a container since its present run began, or since this daemon took it over. */
  checksOf(id: string): { readonly count: number; readonly at_ms: EpochMs | null } {
    const watched = this.#watched.get(id);
    return { count: watched?.check_count ?? 0, at_ms: watched?.checked_at_ms ?? null };
  }

  #checkLater(id: string, watched: Watched, pause_ms: number): void {
    watched.cancel = this.#options.clock.after(pause_ms, () => {
      this.#check(id, watched)
        .catch((error) => {
          this.#options.log.warn("health check failed to run", { container_id: id, error: errorText(error) });
          return this.#pauseMs(watched);
        })
        .then((next_ms) => {
          if (this.#watched.get(id) === watched) this.#checkLater(id, watched, next_ms);
        });
    });
  }

  /** Resolves to the pause before the next check. */
  async #check(id: string, watched: Watched): Promise<number> {
    const row = await this.#options.read(id);
    const isLive = row?.state === "running" && this.#options.engine.containers.live(id) !== null;
    if (row === null || !isLive || this.#watched.get(id) !== watched) return LIMITS.health_postponed_ms;
    const give = this.#place(row.tenant_id);
    if (give === null) return LIMITS.health_postponed_ms;
    const { clock } = this.#options;
    const at_ms = clock.epochMs();
    const begun_ms = clock.monotonicMs();
    const end = await this.#run(row, watched).finally(give);
    if (this.#watched.get(id) !== watched) return 0;
    if (end instanceof AppError && UNAVAILABLE.has(end.code)) return LIMITS.health_postponed_ms;
    watched.check_count++;
    watched.checked_at_ms = at_ms;
    watched.last_check = {
      at: toIsoTime(at_ms),
      ...checkOf(end),
      duration_ms: Math.round(clock.monotonicMs() - begun_ms),
    };
    this.#judge(watched, isPassed(end));
    await this.#tell(row, watched);
    const isRestarted = watched.status === "unhealthy" && watched.health.on_unhealthy === "restart";
    if (isRestarted && row.is_wanted) await this.#options.restart(id, reasonOf(watched));
    return this.#pauseMs(watched);
  }

  /** Null: as many checks run as may. */
  #place(tenant_id: string): (() => void) | null {
    try {
      return this.#places.take(tenant_id, () => new AppError("CAPACITY_FULL", "too many concurrent health checks"));
    } catch {
      return null;
    }
  }

  /** Resolves to the end of the command, or to the error because of which it did not run. */
  async #run(row: ContainerRow, watched: Watched): Promise<GatheredExit | AppError> {
    const { command, timeout_seconds } = watched.health;
    const { exited, close } = this.#options.engine.containers.run(row.id, {
      argv: command,
      environment: containerEnvironment(withGpus(row, this.#options.engine.containers.live(row.id))),
      working_directory: row.working_directory,
      timeout_ms: timeout_seconds * 1_000,
      grace_ms: 0,
      output_bytes_max: LIMITS.health_output_bytes,
      is_stream: false,
    });
    watched.close = close;
    try {
      return await exited;
    } catch (error) {
      return error instanceof AppError ? error : new AppError("INTERNAL", errorText(error), { cause: error });
    } finally {
      watched.close = () => {};
    }
  }

  #judge(watched: Watched, hasPassed: boolean): void {
    if (hasPassed) {
      watched.status = "healthy";
      watched.failing_streak = 0;
      return;
    }
    if (watched.status === "starting" && this.#options.clock.epochMs() < watched.settled_at_ms) return;
    watched.failing_streak += 1;
    if (watched.failing_streak >= watched.health.retries) watched.status = "unhealthy";
  }

  /** H3. A status that is not told now is told after a later check, if it lasts. */
  async #tell(row: ContainerRow, watched: Watched): Promise<void> {
    const now_ms = this.#options.clock.monotonicMs();
    if (watched.status === watched.told || now_ms - watched.told_ms < LIMITS.health_event_ms) return;
    watched.told = watched.status;
    watched.told_ms = now_ms;
    await this.#options.emit(row, watched.status, watched.failing_streak);
  }

  /** A container that starts is checked more often: whoever waits for it need not wait for a whole interval. */
  #pauseMs({ health, status, settled_at_ms }: Watched): number {
    const interval_ms = health.interval_seconds * 1_000;
    const isStarting = status === "starting" && this.#options.clock.epochMs() < settled_at_ms;
    return isStarting ? Math.min(interval_ms, LIMITS.health_start_interval_ms) : interval_ms;
  }
}

const isPassed = (end: GatheredExit | AppError): boolean =>
  !(end instanceof AppError) && end.exit_code === 0 && !end.timed_out && !end.spawn_failed;

function checkOf(end: GatheredExit | AppError): Pick<Check, "exit_code" | "timed_out" | "output"> {
  if (end instanceof AppError) return { exit_code: null, timed_out: false, output: end.message };
  const output = Buffer.concat([end.stdout, end.stderr]).subarray(0, LIMITS.health_output_bytes);
  return { exit_code: end.timed_out ? null : end.exit_code, timed_out: end.timed_out, output: output.toString("utf8") };
}

function reasonOf({ failing_streak, last_check }: Watched): string {
  const why = last_check?.timed_out === true ? "timed out" : `exit code ${last_check?.exit_code ?? "unknown"}`;
  return `unhealthy: ${failing_streak} failed health checks in a row, the last one with ${why}`;
}
