/**
 * What is run in containers: to its end with its output in one answer, or as a stream of frames, on a connection of its
 * own to the container's minit. The connection's end is the command's.
 *
 * X1 At most `execs_per_container_max` run in one container, `execs_max` of its limits for one tenant and `execs_max`
 *    of LIMITS on this node, streams and terminals among them.
 */
import type { Clock } from "../../base/clock.ts";
import { containerEnvironment, unlessRoot, withGpus } from "../../base/container-environment.ts";
import { AppError, errorText, publicText } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { Shares } from "../../base/shares.ts";
import type { TenantShares } from "../../base/tenant-shares.ts";
import type { Engine, GatheredExit, RunRequest } from "../../engine/ports.ts";
import type { ContainerRow } from "../rows.ts";
import type { Containers } from "../service.ts";
import { ExecEvents, type JobEnd } from "./events.ts";
import { Frames } from "./frames.ts";
import type { JobBegin, Jobs } from "./jobs.ts";
import type { ExecInput, ExecResult, StreamInput } from "./schema.ts";

export interface ExecsOptions {
  readonly containers: Containers;
  readonly engine: Engine;
  readonly jobs: Jobs;
  readonly shares: TenantShares;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** What is to be run, by a verb or a terminal. */
export interface Wanted {
  readonly command: readonly string[];
  readonly working_directory?: string | null | undefined;
  readonly workdir?: string | null | undefined;
  readonly environment: Readonly<Record<string, string>>;
  /** In place of the container's. */
  readonly user?: string | null | undefined;
  /** 0: none. */
  readonly timeout_ms: number;
}

/** A command that counts until `release`. */
export interface Begun {
  readonly row: ContainerRow;
  readonly request: Pick<RunRequest, "argv" | "environment" | "working_directory" | "timeout_ms" | "grace_ms" | "user">;
  release(): void;
}

const pidOf = ({ pid }: { readonly pid: number }): number | null => pid;
const nobody = () => null;

export class Execs {
  readonly #options: ExecsOptions;
  /** X1, by container; `shares` has the other bounds. */
  readonly #ofContainers = new Shares({
    each_max: LIMITS.execs_per_container_max,
    all_max: Number.POSITIVE_INFINITY,
  });
  readonly #events: ExecEvents;

  constructor(options: ExecsOptions) {
    this.#options = options;
    this.#events = new ExecEvents(options.clock);
  }

  boot(): Promise<void> {
    return this.#options.jobs.boot(this.#options.clock.epochMs());
  }

  /**
   * Runs a command to its end; that of a client that goes is ended, unless it is detached. Throws NOT_FOUND, NOT_RUNNING,
   * NOT_RESPONDING, CAPACITY_FULL.
   */
  async run(tenant_id: string, id: string, input: ExecInput, signal: AbortSignal): Promise<ExecResult> {
    const { clock, ids, jobs, engine } = this.#options;
    const timeout_ms = input.timeout_ms ?? (input.detach ? 0 : LIMITS.exec_timeout_ms_default);
    const { row, request, release } = await this.begin(tenant_id, id, { ...input, timeout_ms });
    const container_id = row.id;
    const job_id = ids.next("job");
    const started_at_ms = clock.epochMs();
    const output_bytes_max = input.capture_output ? LIMITS.output_bytes_max : 0;
    const stdin = Buffer.from(input.stdin_data);
    const wanted = { ...request, output_bytes_max, is_stream: input.detach, is_detached: input.detach, stdin };
    const { started, exited, close } = engine.containers.run(container_id, wanted);
    const ended = exited.finally(release).then(jobEnd, (error) => {
      if (!input.detach && signal.aborted)
        return { ...UNENDED, error_message: "the client disconnected while the command ran" };
      throw unanswered(container_id, error);
    });
    const omitted_count = this.#events.admit(tenant_id);
    const begin = { tenant_id, job_id, container_id, command: input.command, started_at_ms, omitted_count };
    if (input.detach) {
      // What cannot be started has an end and no beginning.
      const pid = await Promise.race([started.then(pidOf, nobody), ended.then(nobody)]);
      const noted = { ...begin, pid };
      await jobs.begin(noted);
      this.#noteLater(noted, ended);
      return { ...resultOf(container_id, job_id, UNENDED), exit_code: null };
    }
    if (signal.aborted) close();
    signal.addEventListener("abort", close);
    const end = await this.#noted(begin, started.then(pidOf, nobody), ended).finally(() =>
      signal.removeEventListener("abort", close),
    );
    return resultOf(container_id, job_id, end);
  }

  /** The end of a command, once its record has it. One that runs for long is in its record before. */
  async #noted(begun: Omit<JobBegin, "pid">, pid: Promise<number | null>, ended: Promise<JobEnd>): Promise<JobEnd> {
    const { clock, jobs } = this.#options;
    const early: { noted: Promise<JobBegin> | null } = { noted: null };
    const cancel = clock.after(LIMITS.exec_noted_ms, () => {
      early.noted = pid.then(async (known) => {
        const begin = { ...begun, pid: known };
        await jobs.begin(begin);
        return begin;
      });
      // The caller that waits for the end gets the error.
      early.noted.catch(() => {});
    });
    const end = await ended.finally(cancel).catch((error) => {
      if (early.noted !== null) {
        void early.noted.then((begin) => this.#noteLater(begin, Promise.reject(error))).catch(() => {});
      }
      throw error;
    });
    if (early.noted === null) await jobs.record({ ...begun, pid: await pid }, clock.epochMs(), end);
    else await jobs.end(await early.noted, clock.epochMs(), end);
    return end;
  }

  /**
   * A command's frames as they come, one JSON object a line, `started` first. Resolves when the command has started. Throws
   * as `run`, INVALID_ARGUMENT for a command that cannot be started, TIMEOUT.
   */
  async stream(
    tenant_id: string,
    id: string,
    input: StreamInput,
    signal: AbortSignal,
  ): Promise<AsyncIterableIterator<Uint8Array>> {
    const giveStream = this.#options.shares.take("streams", tenant_id);
    try {
      const { row, request, release } = await this.begin(tenant_id, id, input);
      const stdin = Buffer.from(input.stdin_data);
      const wanted = { ...request, output_bytes_max: null, is_stream: true, stdin };
      const frames = new Frames(
        row.id,
        (listener) => this.#options.engine.containers.exec(row.id, wanted, listener),
        () => {
          release();
          giveStream();
        },
      );
      const close = () => void frames.return();
      if (signal.aborted) close();
      signal.addEventListener("abort", close);
      await frames.begun
        .catch((error) => {
          throw unanswered(row.id, error);
        })
        .finally(() => signal.removeEventListener("abort", close));
      return frames;
    } catch (error) {
      giveStream();
      throw error;
    }
  }

  /** What a command needs, counted from now until `release` is called. */
  async begin(tenant_id: string, id: string, wanted: Wanted): Promise<Begun> {
    const { row, live } = await running(this.#options, tenant_id, id);
    if (!live.control.isOpen) throw notResponding(row.id);
    // Minit starts commands as root or as the container's user by itself, an earlier one too.
    const user = wanted.user == null || (row.user === null && unlessRoot(wanted.user) === null) ? null : wanted.user;
    const of = { ...withGpus(row, live), ...(user === null ? {} : { user }) };
    const request = {
      argv: wanted.command,
      user,
      environment: containerEnvironment(of, wanted.environment),
      working_directory: wanted.working_directory ?? wanted.workdir ?? row.working_directory,
      timeout_ms: wanted.timeout_ms,
      grace_ms: LIMITS.exec_grace_ms,
    };
    return { row, request, release: this.#take(row) };
  }

  #noteLater(begin: JobBegin, ended: Promise<JobEnd>): void {
    const { jobs, clock, log } = this.#options;
    ended
      .catch((error) => ({ ...UNENDED, error_message: publicText(error) }))
      .then((end) => jobs.end(begin, clock.epochMs(), end))
      .catch((error) => log.warn("cannot record the end of a job", { job_id: begin.job_id, error: errorText(error) }));
  }

  /** X1. */
  #take({ id, tenant_id }: ContainerRow): () => void {
    const giveTenants = this.#options.shares.take("execs", tenant_id);
    try {
      const give = this.#ofContainers.take(id, (_reached, max) => {
        return new AppError("CAPACITY_FULL", `too many concurrent commands in container ${id} (limit ${max})`, {
          retry_after: 1,
        });
      });
      const unuse = this.#options.containers.use(id);
      let isReleased = false;
      return () => {
        if (isReleased) return;
        isReleased = true;
        give();
        giveTenants();
        unuse();
      };
    } catch (error) {
      giveTenants();
      throw error;
    }
  }
}

/** Resolves to a container that runs here. Throws NOT_FOUND, WRONG_STATE, NOT_RUNNING. */
export async function running(
  { containers, engine }: Pick<ExecsOptions, "containers" | "engine">,
  tenant_id: string,
  id: string,
) {
  const row = await containers.held(tenant_id, id);
  const live = engine.containers.live(row.id);
  if (row.state !== "running" || live === null) throw notRunning(row);
  return { row, live };
}

function notRunning(row: ContainerRow): AppError {
  return new AppError("NOT_RUNNING", `container '${row.id}' is not running: ${row.state}`, {
    details: { state: row.state, expected: ["running"], exit_code: row.exit_code },
    hint: `start it with POST /api/containers/${row.id}/start`,
  });
}

/** The client's word for a minit that never greeted is that of a start; here the container runs. */
export function unanswered(id: string, error: unknown): unknown {
  return error instanceof AppError && error.code === "START_FAILED" ? notResponding(id) : error;
}

export function notResponding(id: string): AppError {
  return new AppError("NOT_RESPONDING", `the first process of container '${id}' does not respond`, { retry_after: 1 });
}

function jobEnd(end: GatheredExit): JobEnd {
  return {
    status: end.timed_out ? "timed_out" : "completed",
    exit_code: end.exit_code,
    duration_ms: Math.round(end.duration_ms),
    timed_out: end.timed_out,
    error_message: null,
    stdout: end.stdout.toString("utf8"),
    stderr: end.stderr.toString("utf8"),
    stdout_truncated: end.stdout_truncated,
    stderr_truncated: end.stderr_truncated,
  };
}

const UNENDED: JobEnd = {
  status: "failed",
  exit_code: null,
  duration_ms: null,
  timed_out: false,
  error_message: null,
  stdout: "",
  stderr: "",
  stdout_truncated: false,
  stderr_truncated: false,
};

function resultOf(container_id: string, job_id: string, end: JobEnd): ExecResult {
  return {
    container_id,
    job_id,
    exit_code: end.exit_code,
    stdout: end.stdout,
    stderr: end.stderr,
    stdout_truncated: end.stdout_truncated,
    stderr_truncated: end.stderr_truncated,
    execution_time_ms: end.duration_ms ?? 0,
    timed_out: end.timed_out,
  };
}
