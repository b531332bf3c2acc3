/** Shapes of what runs in a container: exec, stream, jobs, processes, logs, metrics. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { absolutePath, epochSeconds, isoTime, nextCursor, queryFlag, wellFormed, whole } from "../../base/schema.ts";
import { containerUser } from "../command-fields.ts";
import { argv, containerEnvironment } from "../schema.ts";

const containerId = z.string().describe("Id of the container.");
const truncated = z.boolean().describe("True if the command wrote more than the daemon keeps.");
const deadline = whole(1, LIMITS.exec_timeout_ms_max);
const timeoutMs = deadline
  .default(LIMITS.exec_timeout_ms_default)
  .describe("Milliseconds after which the daemon kills the command and its processes.");
const stdinData = wellFormed.default("").describe("Standard input of the command.");
const ownEnvironment = containerEnvironment
  .default({})
  .describe("Variables in addition to the container's; same names are replaced.");
const directory = absolutePath.nullish().describe("Working directory (default: the container's).");

const user = containerUser
  .nullish()
  .describe(
    "User of the command, as <user> or <user>:<group>, each a name or a number in the container's /etc/passwd and /etc/group (default: the container's).",
  );

export const execRequest = z
  .object({
    command: argv.describe("Command as argv. Name a shell as first element to use shell syntax."),
    workdir: directory,
    working_directory: directory,
    environment: ownEnvironment,
    user,
    timeout_ms: deadline
      .nullish()
      .describe(
        `Milliseconds after which the daemon kills the command and its processes. Default: ${LIMITS.exec_timeout_ms_default}; with detach none.`,
      ),
    stdin_data: stdinData,
    capture_output: z.boolean().default(true).describe("Keeps the output."),
    detach: z.boolean().default(false).describe("Answers when the command has started; its job has the result."),
  })
  .meta({ id: "ExecRequest" });
export type ExecInput = z.output<typeof execRequest>;

export const streamRequest = z
  .object({
    command: argv.describe("Command as argv."),
    working_directory: directory,
    workdir: directory,
    environment: ownEnvironment,
    user,
    timeout_ms: timeoutMs,
    stdin_data: stdinData,
  })
  .meta({ id: "StreamRequest" });
export type StreamInput = z.output<typeof streamRequest>;

export const attachQuery = z.object({
  stdin: queryFlag().describe("Writes the standard input of the command, where the container was created with stdin."),
});

/** What a client sends as text on the socket of a command. */
export const clientFrame = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("start"),
    command: argv,
    working_directory: directory,
    environment: ownEnvironment,
    user,
    timeout_ms: timeoutMs,
  }),
  z.object({ type: z.literal("stdin_end") }),
]);
export type CommandRequest = Extract<z.output<typeof clientFrame>, { readonly type: "start" }>;

const JOB_STATUSES = ["running", "completed", "failed", "timed_out"] as const;

export const execResult = z
  .object({
    container_id: containerId,
    job_id: z.string().describe("Id of the job record: GET …/jobs/{job_id}."),
    exit_code: z
      .int()
      .nullable()
      .describe("Exit code; 128 plus the signal number if a signal killed it; null while it runs (detach)."),
    stdout: z.string().describe("Output as UTF-8, up to 1 MiB."),
    stderr: z.string().describe("Output as UTF-8, up to 1 MiB."),
    stdout_truncated: truncated,
    stderr_truncated: truncated,
    execution_time_ms: z.int().describe("Run time in milliseconds."),
    timed_out: z.boolean().describe("True if the daemon killed the command at timeout_ms."),
  })
  .meta({ id: "ExecResult" });
export type ExecResult = z.output<typeof execResult>;

const kept = `Output, with include_output. A container keeps the output of only the newest ${LIMITS.jobs_large_max} large jobs.`;

export const jobRecord = z
  .object({
    job_id: z.string().describe("Id of the job."),
    container_id: containerId,
    command: z.array(z.string()).describe("Command as argv."),
    status: z
      .enum(JOB_STATUSES)
      .describe("completed: the command exited, whatever its exit code; failed: it has no exit code."),
    success: z.boolean().describe("True if the exit code is 0."),
    exit_code: z.int().nullable().describe("Exit code; null while the command runs, and if it failed."),
    pid: z.int().nullable().describe("Pid inside the container."),
    started_at: epochSeconds,
    completed_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null while it runs."),
    duration_ms: z.int().nullable().describe("Run time in milliseconds; null while it runs, and if it failed."),
    timed_out: z.boolean().describe("True if the daemon killed the command at timeout_ms."),
    error_message: z.string().nullable().describe("Reason if the command failed, otherwise null."),
    stdout_truncated: truncated,
    stderr_truncated: truncated,
    stdout: z.string().optional().describe(kept),
    stderr: z.string().optional().describe(kept),
    status_url: z.string().describe("Path of the job's record."),
  })
  .meta({ id: "ExecJob" });
export type JobRecord = z.output<typeof jobRecord>;

export const jobList = z
  .object({ jobs: z.array(jobRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "ExecJobList" });

const processRecord = z
  .object({
    pid: z.int().describe("Pid inside the container."),
    ppid: z.int().describe("Pid of the parent inside the container; 0 if the parent is outside."),
    command: z
      .string()
      .describe("Command line; in brackets the name of a process that has none; init for the first process."),
    state: z.string().describe("State as one letter, as in proc_pid_stat(5)."),
    memory_kb: z.int().describe("Resident memory, in KiB."),
    started_at: isoTime,
  })
  .meta({ id: "ContainerProcess" });

export const processList = z
  .object({
    container_id: containerId,
    processes: z.array(processRecord).describe("Ordered by pid."),
    truncated: z
      .literal(true)
      .optional()
      .describe(
        `True if the list is truncated: more than ${LIMITS.process_list_max} processes, ${LIMITS.command_line_bytes_max} bytes of a command line, or ${LIMITS.process_list_bytes_max} bytes in all.`,
      ),
  })
  .meta({ id: "ContainerProcessList" });

const counter = (about: string) => z.int().min(0).describe(about);

export const containerMetrics = z
  .object({
    container_id: containerId,
    timestamp: epochSeconds,
    cpu_usage_usec: counter("CPU time in microseconds."),
    cpu_user_usec: counter("CPU time in user mode."),
    cpu_system_usec: counter("CPU time in kernel mode."),
    cpu_throttled_usec: counter("Time throttled by cpu_limit_percent."),
    memory_current_bytes: counter("Memory charged to the container."),
    memory_peak_bytes: counter("Peak memory."),
    memory_limit_bytes: counter("Memory limit."),
    memory_cache_bytes: counter("File pages in memory_current_bytes."),
    memory_rss_bytes: counter("Anonymous pages in memory_current_bytes."),
    network_rx_bytes: counter("Bytes received."),
    network_tx_bytes: counter("Bytes sent."),
    network_rx_packets: counter("Packets received."),
    network_tx_packets: counter("Packets sent."),
    network_rx_errors: counter("Inbound packets dropped."),
    network_tx_errors: counter("Outbound packets dropped."),
    disk_read_bytes: counter("Bytes read from disk."),
    disk_write_bytes: counter("Bytes written to disk."),
    disk_read_count: counter("Reads from disk."),
    disk_write_count: counter("Writes to disk."),
    processes_count: counter("Number of processes."),
  })
  .meta({ id: "ContainerMetrics" });

export const logEntry = z
  .object({
    seq: z
      .int()
      .describe(
        "Number of the line, from 1 over all runs of the container; gaps are lines that are no longer kept or were lost.",
      ),
    timestamp: isoTime,
    stream: z.enum(["stdout", "stderr"]).describe("Stream that the command wrote to."),
    level: z.enum(["info", "error"]).describe("info for standard output, error for standard error."),
    message: z.string().describe("A line without its newline; very long lines are split."),
    partial: z.boolean().describe("The line continues in the next entry."),
  })
  .meta({ id: "LogEntry" });

export const logList = z
  .object({ container_id: containerId, logs: z.array(logEntry).describe("Oldest first.") })
  .meta({ id: "ContainerLogs" });
