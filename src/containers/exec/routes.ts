/** Routes of what runs in a container: exec, stream, jobs, processes, logs, metrics. */
import { uptime } from "node:os";
import { z } from "zod";
import { closing, ListAnswer, ListPieces, Streamed } from "../../base/answer.ts";
import { refuseUser } from "../../base/caller.ts";
import { type Clock, toEpochSeconds, toIsoTime } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { acknowledgement, pageQuery, queryFlag, queryLimit, queryNumber } from "../../base/schema.ts";
import type { TenantShares } from "../../base/tenant-shares.ts";
import type { TransferTurns } from "../../base/transfer-turns.ts";
import type { Engine } from "../../engine/ports.ts";
import { route } from "../../http/route.ts";
import { signalNumber } from "../command-fields.ts";
import { ID_EXAMPLE, SAMPLES } from "../samples.ts";
import { byContainer } from "../schema.ts";
import type { Containers } from "../service.ts";
import { type Execs, notResponding, running } from "./exec.ts";
import type { Jobs } from "./jobs.ts";
import { entriesOf, followed, LogReaders } from "./logs.ts";
import {
  attachQuery,
  containerMetrics,
  execRequest,
  execResult,
  jobList,
  jobRecord,
  logList,
  processList,
  streamRequest,
} from "./schema.ts";
import type { CommandSockets } from "./sockets.ts";

export interface ExecRoutesOptions {
  readonly containers: Containers;
  readonly engine: Engine;
  readonly execs: Execs;
  readonly commandSockets: CommandSockets;
  readonly shares: TenantShares;
  readonly jobs: Jobs;
  readonly clock: Clock;
  readonly turns: TransferTurns;
}

const NDJSON = "application/x-ndjson";
const EXEC_ERRORS = [
  "NOT_FOUND",
  "WRONG_STATE",
  "NOT_RUNNING",
  "NOT_RESPONDING",
  "CONCURRENCY_LIMIT",
  "CAPACITY_FULL",
] as const;

/** A signal as its number. */
const wantedSignal = z
  .string()
  .default("TERM")
  .refine((value) => signalNumber(value) !== null, {
    error: "expected a signal such as TERM, SIGKILL or 9",
    params: { expected: ["signal name", "1 to 64"] },
  })
  .transform((value) => signalNumber(value) ?? 0)
  .meta({ default: "TERM", description: "A signal by its name, with or without SIG, or by its number." });

/** A pid in a path. Throws INVALID_ARGUMENT. */
function pidOf(text: string): number {
  const pid = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (pid === 1) throw new AppError("INVALID_ARGUMENT", "cannot signal pid 1: stop or kill the container instead");
  if (pid > 0) return pid;
  const received = text.slice(0, 32);
  throw new AppError("INVALID_ARGUMENT", `pid invalid: '${received}' (expected a whole number from 2 on)`, {
    details: { expected: ["integer", ">= 2"], received },
    hint: "send a pid of the container's list of processes",
  });
}

const byJob = byContainer.extend({
  job_id: z.string().meta({ description: "Id of the job.", examples: [SAMPLES.job.job_id] }),
});
const byProcess = byContainer.extend({
  pid: z.string().meta({ description: "Pid of the process inside the container.", examples: ["12"] }),
});

/** Epoch seconds or ISO 8601, to epoch milliseconds. */
const moment = z
  .string()
  .transform((text) => (/^\d+(\.\d+)?$/.test(text) ? Number(text) * 1_000 : Date.parse(text)))
  .refine((ms) => Number.isFinite(ms), { error: "expected epoch seconds or ISO 8601" });

const logQuery = z.object({
  limit: queryLimit(LIMITS.log_lines_default, LIMITS.log_lines_max),
  since: moment
    .optional()
    .meta({ type: "string", description: "Only lines at this time or later: epoch seconds or ISO 8601." }),
  after_seq: queryNumber(0, Number.MAX_SAFE_INTEGER).optional().describe("Only lines after this sequence number."),
  follow: queryFlag().describe("Follows the log over later starts until the container is deleted; one entry per line."),
});

export function execRoutes(options: ExecRoutesOptions) {
  return [
    ...runRoutes(options),
    ...socketRoutes(options),
    ...jobRoutes(options),
    ...processRoutes(options),
    ...watchRoutes(options),
  ];
}

function runRoutes({ execs }: ExecRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/exec",
      auth: "tenant",
      scope: "invoke",
      operation: "execInContainer",
      summary: "Runs a command and responds when it exits; the status is 200 whatever the exit code.",
      early_status: () => 200,
      params: byContainer,
      body: execRequest,
      response: execResult,
      errors: EXEC_ERRORS,
      example: { params: ID_EXAMPLE, body: { command: ["echo", "hello"] }, response: SAMPLES.exec },
      handler: ({ caller, params, body, signal }) => execs.run(caller.tenant_id, params.container_id, body, signal),
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/stream",
      auth: "tenant",
      scope: "invoke",
      operation: "streamFromContainer",
      summary:
        "Runs a command and streams its output, one object per line: started, stdout, stderr, exit; refuses what cannot be started.",
      params: byContainer,
      body: streamRequest,
      content: [NDJSON],
      errors: [...EXEC_ERRORS, "TIMEOUT"],
      example: { params: ID_EXAMPLE, body: { command: ["echo", "hello"] } },
      handler: async ({ caller, params, body, signal }) => {
        const frames = await execs.stream(caller.tenant_id, params.container_id, body, signal);
        return new Streamed(frames, { content_type: NDJSON });
      },
    }),
  ];
}

/** Binary messages are bytes behind a byte for their stream, text messages are frames: sockets.ts. */
function socketRoutes({ commandSockets }: ExecRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/ws/containers/:container_id/attach",
      auth: "tenant",
      scope: "invoke",
      operation: "attachContainer",
      summary:
        "Attaches to the container's command by WebSocket: its output as bytes until it ends, and with stdin its standard input. One client at a time.",
      params: byContainer,
      query: attachQuery,
      query_credential: true,
      socket: { protocol: "command" },
      errors: [...EXEC_ERRORS, "IN_USE"],
      handler: ({ caller, params, query }) => commandSockets.attach(caller.tenant_id, params.container_id, query.stdin),
    }),
    route({
      method: "GET",
      path: "/ws/containers/:container_id/exec",
      auth: "tenant",
      scope: "invoke",
      operation: "execInContainerSocket",
      summary:
        "Runs a command by WebSocket: a start frame names it, then its standard input goes in and its output comes out as bytes.",
      params: byContainer,
      query_credential: true,
      socket: { protocol: "command" },
      errors: EXEC_ERRORS,
      handler: ({ caller, params }) =>
        commandSockets.exec(caller.tenant_id, params.container_id, ({ user }) => refuseUser(caller, user)),
    }),
  ];
}

function jobRoutes({ containers, jobs }: ExecRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/containers/:container_id/jobs",
      auth: "tenant",
      scope: "read",
      operation: "listJobs",
      summary: `Lists the exec jobs of a container, newest first; a container keeps ${LIMITS.jobs_per_container_max}.`,
      params: byContainer,
      query: pageQuery,
      response: jobList,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: { jobs: [SAMPLES.job], next_cursor: null } },
      handler: async (request) => {
        const { caller, params } = request;
        const page = request.page();
        const { id } = await containers.row(caller.tenant_id, params.container_id);
        return page.answer("jobs", await jobs.list(id, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/jobs/:job_id",
      auth: "tenant",
      scope: "read",
      operation: "getJob",
      summary: "Returns an exec job; with include_output also its output.",
      params: byJob,
      query: z.object({ include_output: queryFlag().describe("Includes the output of the job.") }),
      response: jobRecord,
      errors: ["NOT_FOUND"],
      example: {
        params: { ...ID_EXAMPLE, job_id: "{job_id}" },
        query: { include_output: "true" },
        response: { ...SAMPLES.job, stdout: "hello\n", stderr: "" },
      },
      handler: async ({ caller, params, query }) => {
        const { id } = await containers.row(caller.tenant_id, params.container_id);
        return jobs.get(id, params.job_id, query.include_output);
      },
    }),
  ];
}

function processRoutes({ containers, engine, clock }: ExecRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/containers/:container_id/processes",
      auth: "tenant",
      scope: "read",
      operation: "listProcesses",
      summary: "Lists the processes of a container by their pid inside it.",
      params: byContainer,
      response: processList,
      errors: ["NOT_FOUND", "WRONG_STATE", "NOT_RUNNING", "CAPACITY_FULL"],
      example: {
        params: ID_EXAMPLE,
        response: { container_id: SAMPLES.running.container_id, processes: [SAMPLES.process] },
      },
      handler: async ({ caller, params }) => {
        const { row } = await running({ containers, engine }, caller.tenant_id, params.container_id);
        const { processes, isTruncated } = await engine.containers.processes(row.id);
        const listed = processes.map(({ started_s, ...process }) => ({
          ...process,
          started_at: toIsoTime(clock.epochMs() - (uptime() - started_s) * 1_000),
        }));
        return { container_id: row.id, processes: listed, ...(isTruncated ? { truncated: true as const } : {}) };
      },
    }),
    route({
      method: "DELETE",
      path: "/api/containers/:container_id/processes/:pid",
      auth: "tenant",
      scope: "invoke",
      operation: "signalProcess",
      summary: "Sends a signal to a process, but not to the first one: stop or kill the container instead.",
      params: byProcess,
      query: z.object({ signal: wantedSignal }),
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE", "NOT_RUNNING", "NOT_RESPONDING"],
      example: { params: { ...ID_EXAMPLE, pid: "{pid}" }, query: { signal: "TERM" }, response: SAMPLES.signalled },
      handler: async ({ caller, params, query }) => {
        const { live } = await running({ containers, engine }, caller.tenant_id, params.container_id);
        const pid = pidOf(params.pid);
        if (!live.control.isOpen) throw notResponding(live.id);
        await engine.containers.signalPid(live.id, pid, query.signal);
        return { success: true as const, message: `sent signal ${query.signal} to process ${pid}` };
      },
    }),
  ];
}

function watchRoutes({ containers, engine, shares, clock, turns }: ExecRoutesOptions) {
  const readers = new LogReaders();
  return [
    route({
      method: "GET",
      path: "/api/containers/:container_id/metrics",
      auth: "tenant",
      scope: "read",
      operation: "containerMetrics",
      summary: "Returns the CPU, memory, network and disk usage of a container. Counters start with its last start.",
      params: byContainer,
      response: containerMetrics,
      errors: ["NOT_FOUND", "WRONG_STATE", "NOT_RUNNING"],
      example: { params: ID_EXAMPLE, response: SAMPLES.metrics },
      handler: async ({ caller, params }) => {
        const { row } = await running({ containers, engine }, caller.tenant_id, params.container_id);
        return {
          container_id: row.id,
          timestamp: toEpochSeconds(clock.epochMs()),
          ...engine.containers.metrics(row.id),
        };
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/logs",
      auth: "tenant",
      scope: "read",
      operation: "containerLogs",
      summary: "Returns the newest lines of output of a container's command, oldest first. follow streams new ones.",
      params: byContainer,
      query: logQuery,
      response: logList,
      content: ["application/json", NDJSON],
      errors: ["NOT_FOUND", "WRONG_STATE", "CONCURRENCY_LIMIT", "CAPACITY_FULL"],
      example: {
        params: ID_EXAMPLE,
        query: { limit: "100" },
        response: { container_id: SAMPLES.running.container_id, logs: [SAMPLES.log] },
      },
      handler: async (request) => {
        const { caller, params, query, signal } = request;
        const { id } = await containers.held(caller.tenant_id, params.container_id);
        const log = engine.containers.log(id);
        const { limit, since, after_seq, follow } = query;
        const reader = { tenant_id: caller.tenant_id, turn: turns.of(caller.tenant_id), signal };
        const wanted = { limit, since_ms: since ?? 0, after_seq: after_seq ?? 0, is_own: true };
        if (!follow) {
          const lines = readers.read(reader, log, wanted);
          return new ListAnswer({ container_id: id, logs: new ListPieces(entriesOf(lines)) });
        }
        const leave = shares.take("streams", caller.tenant_id);
        try {
          // Whoever says what it has gets all that comes after, however much that is.
          const first_seq = after_seq === undefined ? await readers.first(reader, log, wanted) : null;
          const before_seq = first_seq === null ? wanted.after_seq : first_seq - 1;
          const source = followed(log, before_seq, reader, () => request.recheck());
          return new Streamed(closing(source, leave), { content_type: NDJSON });
        } catch (error) {
          leave();
          throw error;
        }
      },
    }),
  ];
}
