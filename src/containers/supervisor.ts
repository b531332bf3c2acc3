/**
 * What happens to containers by themselves: their command ends and is started again, their time is up, nobody has used
 * them for long. Only times are kept here; what is done is the service's.
 *
 * V1 A restart waits longer after each short run, and begins anew after a long one.
 * V2 A start by the policy that fails does not end it: it is tried again like a short run that failed.
 * V3 An end that the store does not take is tried again for a while: else the container would seem to run, and its policy
 *    would not hear of it, until the next start of the daemon.
 */
import type { CancelTimer, Clock, EpochMs } from "../base/clock.ts";
import { errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Ended } from "../engine/ports.ts";
import type { ContainerRow } from "./rows.ts";

export interface SupervisorOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Notes the end; null where there was none to note. */
  ended(id: string, ended: Ended): Promise<ContainerRow | null>;
  restart(id: string): Promise<void>;
  expire(id: string): Promise<void>;
  idle(id: string): Promise<void>;
}

interface Watched {
  /** Wall clock: it is the container's age, also over restarts of the daemon. Infinity: never. */
  readonly expires_at_ms: number;
  readonly idle_ms: number;
  busy_count: number;
  /** Monotonic. */
  used_ms: number;
  /** Looks at its times. */
  look_count: number;
  looked_at_ms: EpochMs | null;
  backoff_ms: number;
  cancelRestart: CancelTimer;
  isEnding: boolean;
}

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #watched = new Map<string, Watched>();
  #cancelLook: CancelTimer = () => {};
  #isClosed = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /** Begins to look at times. */
  begin(): void {
    this.#lookLater();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelLook();
    for (const { cancelRestart } of this.#watched.values()) cancelRestart();
  }

  /** Takes a container up; one that ended and is to be started again is. Once per container. */
  watch(row: ContainerRow): void {
    const { ttl_seconds, idle_seconds } = row;
    this.#watched.set(row.id, {
      expires_at_ms: ttl_seconds === null ? Number.POSITIVE_INFINITY : row.created_at_ms + ttl_seconds * 1_000,
      idle_ms: idle_seconds === null ? Number.POSITIVE_INFINITY : idle_seconds * 1_000,
      busy_count: 0,
      used_ms: this.#options.clock.monotonicMs(),
      look_count: 0,
      looked_at_ms: null,
      backoff_ms: 0,
      cancelRestart: () => {},
      isEnding: false,
    });
    if (row.state === "exited" || row.state === "error") this.#considerRestart(row);
  }

  forget(id: string): void {
    this.#watched.get(id)?.cancelRestart();
    this.#watched.delete(id);
  }

  /** Looks at a container since it is watched. */
  looksAt(id: string): { readonly count: number; readonly at_ms: EpochMs | null } {
    const watched = this.#watched.get(id);
    return { count: watched?.look_count ?? 0, at_ms: watched?.looked_at_ms ?? null };
  }

  /** A container counts as used from now until `end` is called. */
  use(id: string): () => void {
    const watched = this.#watched.get(id);
    if (watched === undefined) return () => {};
    watched.busy_count++;
    return () => {
      watched.busy_count--;
      watched.used_ms = this.#options.clock.monotonicMs();
    };
  }

  /** The engine's word that a container ended (V3). */
  ended(id: string, ended: Ended, attempts = 1): void {
    const { clock, log } = this.#options;
    this.#options
      .ended(id, ended)
      .then((row) => {
        if (row !== null) this.#considerRestart(row);
      })
      .catch((error) => {
        log.error("cannot record the exit of a container", { container_id: id, attempts, error: errorText(error) });
        if (this.#isClosed || attempts >= LIMITS.operation_end_attempts_max) return;
        clock.after(LIMITS.operation_end_retry_ms, () => this.ended(id, ended, attempts + 1));
      });
  }

  /** V1, V2. */
  #considerRestart(row: ContainerRow): void {
    const { clock, log, restart } = this.#options;
    const watched = this.#watched.get(row.id);
    // Without an exit code it ended with the machine. One that was stopped as unhealthy has failed, whatever its exit code.
    const hasFailed = row.state === "error" || (row.exit_code ?? 0) !== 0 || row.error_message !== null;
    const isDue = row.restart === "always" || (row.restart === "on-failure" && hasFailed);
    if (watched === undefined || this.#isClosed || !row.is_wanted || !isDue) return;
    const ran_ms = row.state === "exited" ? (row.exited_at_ms ?? 0) - (row.started_at_ms ?? 0) : 0;
    const isSettled = ran_ms >= LIMITS.restart_settled_ms;
    watched.backoff_ms = isSettled
      ? LIMITS.restart_backoff_ms_min
      : Math.min(LIMITS.restart_backoff_ms_max, Math.max(LIMITS.restart_backoff_ms_min, watched.backoff_ms * 2));
    watched.cancelRestart();
    watched.cancelRestart = clock.after(watched.backoff_ms, () => {
      watched.used_ms = clock.monotonicMs();
      restart(row.id).catch((error) => {
        log.warn("cannot restart a container", { container_id: row.id, error: errorText(error) });
        // What it takes may be there later.
        this.#considerRestart({ ...row, started_at_ms: row.exited_at_ms });
      });
    });
  }

  #lookLater(): void {
    this.#cancelLook = this.#options.clock.after(this.#pauseMs(), () => {
      this.#look();
      this.#lookLater();
    });
  }

  /** Until the next time comes, which a later container may precede; its shortest time is as long as the longest pause. */
  #pauseMs(): number {
    const { clock } = this.#options;
    const [at_ms, now_ms] = [clock.epochMs(), clock.monotonicMs()];
    let pause_ms: number = LIMITS.container_look_ms;
    for (const { expires_at_ms, used_ms, idle_ms, busy_count, isEnding } of this.#watched.values()) {
      if (isEnding) continue;
      const idle_in_ms = busy_count === 0 ? used_ms + idle_ms - now_ms : Number.POSITIVE_INFINITY;
      pause_ms = Math.min(pause_ms, expires_at_ms - at_ms, idle_in_ms);
    }
    return Math.max(LIMITS.container_look_ms_min, pause_ms);
  }

  #look(): void {
    const { clock, log, expire, idle } = this.#options;
    const now_ms = clock.monotonicMs();
    const at_ms = clock.epochMs();
    for (const [id, watched] of this.#watched) {
      watched.look_count++;
      watched.looked_at_ms = at_ms;
      if (watched.isEnding) continue;
      const isExpired = at_ms >= watched.expires_at_ms;
      const isIdle = watched.busy_count === 0 && now_ms - watched.used_ms >= watched.idle_ms;
      if (!isExpired && !isIdle) continue;
      watched.isEnding = true;
      const work = isExpired ? expire(id) : idle(id);
      work
        .catch((error) => log.warn("container did not stop in time", { container_id: id, error: errorText(error) }))
        .finally(() => {
          watched.isEnding = false;
          watched.used_ms = clock.monotonicMs();
        });
    }
  }
}
