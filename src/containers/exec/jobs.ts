/** Records of what was run in containers: a bounded number for each container, the oldest go first. */
import { toEpochSeconds } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type Listed, type Place, readPage } from "../../base/paging.ts";
import type { Events } from "../../events/service.ts";
import { numberOrNull, type Row, type Statement, type Store, type StoredNode, textOrNull } from "../../store/store.ts";
import { diedEvents, type JobEnd, startedEvents } from "./events.ts";
import type { JobRecord } from "./schema.ts";

export interface JobBegin {
  readonly job_id: string;
  readonly container_id: string;
  readonly command: readonly string[];
  readonly pid: number | null;
  readonly started_at_ms: number;
  readonly tenant_id: string;
  /** As `ExecEvents.admit` says. */
  readonly omitted_count: number | null;
}

const ENDED = `status = ?, exit_code = ?, completed_at = ?, duration_ms = ?, timed_out = ?, error_message = ?, stdout = ?,
  stderr = ?, stdout_truncated = ?, stderr_truncated = ?`;
/** Those above the bound, the oldest; what runs stays. */
const SURPLUS = `DELETE FROM exec_jobs WHERE container_id = ? AND status <> 'running' AND seq <= (SELECT seq FROM exec_jobs
  WHERE container_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)`;
const SIZE = "octet_length(stdout) + octet_length(stderr)";
/** Takes from large ones what they wrote, but from the newest. */
const LIGHTEN = `UPDATE exec_jobs SET stdout = '', stderr = '', stdout_truncated = 1, stderr_truncated = 1
  WHERE container_id = ? AND ${SIZE} > ? AND seq <= (SELECT seq FROM exec_jobs WHERE container_id = ? AND ${SIZE} > ?
  ORDER BY seq DESC LIMIT 1 OFFSET ?)`;
const SUMMARY = `seq, id, container_id, command, status, exit_code, pid, started_at, completed_at, duration_ms, timed_out,
  error_message, stdout_truncated, stderr_truncated`;

/** The end of what ran when the daemon ended. */
const CUT: JobEnd = {
  status: "failed",
  exit_code: null,
  duration_ms: null,
  timed_out: false,
  error_message: "the daemon stopped while the command ran",
  stdout: "",
  stderr: "",
  stdout_truncated: false,
  stderr_truncated: false,
};

/** Selects the running jobs of a node from their index, without reading ended jobs. */
export const RUNNING = `SELECT exec_jobs.id, container_id, tenant_id FROM exec_jobs
  JOIN containers ON containers.id = container_id WHERE exec_jobs.status = 'running' AND node_seq = ?`;

export class Jobs {
  readonly #store: Store;
  readonly #node: StoredNode;
  readonly #events: Events;

  /** `node`: this node, on which the commands of the jobs run. */
  constructor(store: Store, node: StoredNode, events: Events) {
    this.#store = store;
    this.#node = node;
    this.#events = events;
  }

  /** Ends the jobs that an earlier process on this node left running: minit ended their commands with the connection. */
  async boot(now_ms: number): Promise<void> {
    const left = await this.#store.read(RUNNING, [this.#node.seq]);
    for (const { id, container_id, tenant_id } of left) {
      const job = { job_id: String(id), container_id: String(container_id), pid: null, omitted_count: 0 };
      const statement = {
        sql: "UPDATE exec_jobs SET status = ?, completed_at = ?, error_message = ? WHERE id = ?",
        args: [CUT.status, toEpochSeconds(now_ms), CUT.error_message, job.job_id],
      };
      // A crash before these are synced leaves them to the next start.
      await this.#events.write([statement], String(tenant_id), diedEvents(job, CUT));
    }
  }

  async begin(begin: JobBegin): Promise<void> {
    const { job_id, container_id, command, pid, started_at_ms } = begin;
    const statements = [
      {
        sql: `INSERT INTO exec_jobs (id, container_id, command, status, pid, started_at)
          SELECT ?, id, ?, 'running', ?, ? FROM containers WHERE id = ?`,
        args: [job_id, JSON.stringify(command), pid, toEpochSeconds(started_at_ms), container_id],
      },
      surplus(container_id),
    ];
    await this.#events.write(statements, begin.tenant_id, startedEvents(begin));
  }

  /** Notes the end of what `begin` noted. */
  async end(begin: JobBegin, ended_at_ms: number, end: JobEnd): Promise<void> {
    const statements = [
      { sql: `UPDATE exec_jobs SET ${ENDED} WHERE id = ?`, args: [...ended(ended_at_ms, end), begin.job_id] },
      ...lighten(begin.container_id, end),
    ];
    await this.#events.write(statements, begin.tenant_id, diedEvents(begin, end));
  }

  /** Notes both at once. Where the container is gone by now there is nothing to note. */
  async record(begin: JobBegin, ended_at_ms: number, end: JobEnd): Promise<void> {
    const { job_id, container_id, command, pid, started_at_ms } = begin;
    const statements = [
      {
        sql: `INSERT INTO exec_jobs (status, exit_code, completed_at, duration_ms, timed_out, error_message, stdout,
          stderr, stdout_truncated, stderr_truncated, id, command, pid, started_at, container_id)
          SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, id FROM containers WHERE id = ?`,
        args: [
          ...ended(ended_at_ms, end),
          job_id,
          JSON.stringify(command),
          pid,
          toEpochSeconds(started_at_ms),
          container_id,
        ],
      },
      surplus(container_id),
      ...lighten(container_id, end),
    ];
    await this.#events.write(statements, begin.tenant_id, [...startedEvents(begin), ...diedEvents(begin, end)]);
  }

  /** Newest first. */
  list(container_id: string, place: Place): Promise<Listed<JobRecord>> {
    const select = `SELECT ${SUMMARY} FROM exec_jobs WHERE container_id = ?`;
    return readPage(this.#store, select, [container_id], place, recordOf);
  }

  async get(container_id: string, job_id: string, withOutput: boolean): Promise<JobRecord> {
    const sql = `SELECT ${SUMMARY}, stdout, stderr FROM exec_jobs WHERE container_id = ? AND id = ?`;
    const row = await this.#store.readOne(sql, [container_id, job_id]);
    if (row === null) throw new AppError("NOT_FOUND", `job '${job_id}' not found`);
    const output = withOutput ? { stdout: String(row.stdout), stderr: String(row.stderr) } : {};
    return { ...recordOf(row), ...output };
  }
}

function surplus(container_id: string): Statement {
  return { sql: SURPLUS, args: [container_id, container_id, LIMITS.jobs_per_container_max] };
}

/** Nothing to do after what wrote little, as most do: it would be looked for in vain. */
function lighten(container_id: string, { stdout, stderr }: JobEnd): readonly Statement[] {
  const { job_output_bytes_small: small, jobs_large_max } = LIMITS;
  if (Buffer.byteLength(stdout) + Buffer.byteLength(stderr) <= small) return [];
  return [{ sql: LIGHTEN, args: [container_id, small, container_id, small, jobs_large_max] }];
}

function ended(ended_at_ms: number, end: JobEnd) {
  return [
    end.status,
    end.exit_code,
    toEpochSeconds(ended_at_ms),
    end.duration_ms,
    end.timed_out ? 1 : 0,
    end.error_message,
    end.stdout,
    end.stderr,
    end.stdout_truncated ? 1 : 0,
    end.stderr_truncated ? 1 : 0,
  ];
}

function recordOf(row: Row): JobRecord {
  const container_id = String(row.container_id);
  const job_id = String(row.id);
  return {
    job_id,
    container_id,
    command: JSON.parse(String(row.command)),
    status: row.status as JobRecord["status"],
    success: row.exit_code === 0,
    exit_code: numberOrNull(row.exit_code),
    pid: numberOrNull(row.pid),
    started_at: Number(row.started_at),
    completed_at: numberOrNull(row.completed_at),
    duration_ms: numberOrNull(row.duration_ms),
    timed_out: row.timed_out === 1,
    error_message: textOrNull(row.error_message),
    stdout_truncated: row.stdout_truncated === 1,
    stderr_truncated: row.stderr_truncated === 1,
    status_url: `/api/containers/${container_id}/jobs/${job_id}`,
  };
}
