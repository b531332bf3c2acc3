/** Shapes of what runs in a container: exec, stream, jobs, processes, logs, metrics. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { absolutePath, epochSeconds, isoTime, nextCursor, wellFormed, whole } from "../../base/schema.ts";
import { argv, containerEnvironment } from "../schema.ts";

const containerId = z.string().describe("Of the container.");
const truncated = z.boolean().describe("True if the command wrote more than is kept.");
const deadline = whole(1, LIMITS.exec_timeout_ms_max);
const timeoutMs = deadline
  .default(LIMITS.exec_timeout_ms_default)
  .describe("Milliseconds after which it is ended, with all that it started.");
const stdinData = wellFormed.default("").describe("Standard input of the command.");
const ownEnvironment = containerEnvironment.default({}).describe("Variables on top of the container's.");
const directory = absolutePath.nullish().describe("Working directory; the container's unless given.");

export const execRequest = z
  .object({
    command: argv.describe("Command as argv: no shell reads it unless it is the first element."),
    workdir: directory,
    working_directory: directory,
    environment: ownEnvironment,
    timeout_ms: deadline
      .nullish()
      .describe(
        `Milliseconds after which it is ended, with all that it started. Default: ${LIMITS.exec_timeout_ms_default}; with detach none.`,
      ),
    stdin_data: stdinData,
    capture_output: z.boolean().default(true).describe("False: output is not kept."),
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
    timeout_ms: timeoutMs,
    stdin_data: stdinData,
  })
  .meta({ id: "StreamRequest" });
export type StreamInput = z.output<typeof streamRequest>;

const JOB_STATUSES = ["running", "completed", "failed", "timed_out"] as const;

export const execResult = z
  .object({
    container_id: containerId,
    job_id: z.string().describe("Its record: GET …/jobs/{job_id}."),
    exit_code: z.int().nullable().describe("128 and the signal's number where one ended it; null: it runs (detach)."),
    stdout: z.string().describe("As UTF-8, up to 1 MiB."),
    stderr: z.string().describe("As UTF-8, up to 1 MiB."),
    stdout_truncated: truncated,
    stderr_truncated: truncated,
    execution_time_ms: z.int().describe("From its start to its end, in milliseconds."),
    timed_out: z.boolean().describe("It was ended at timeout_ms."),
  })
  .meta({ id: "ExecResult" });
export type ExecResult = z.output<typeof execResult>;

const kept = `With include_output. Of jobs that wrote much a container keeps that of the newest ${LIMITS.jobs_large_max}.`;

export const jobRecord = z
  .object({
    job_id: z.string().describe("Of the job."),
    container_id: containerId,
    command: z.array(z.string()).describe("As argv."),
    status: z
      .enum(JOB_STATUSES)
      .describe("completed: it ended, whatever its exit code; failed: it never came to an exit."),
    success: z.boolean().describe("It ended with exit code 0."),
    exit_code: z.int().nullable().describe("Null: it runs, or never came to an exit."),
    pid: z.int().nullable().describe("Inside the container."),
    started_at: epochSeconds,
    completed_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null: it runs."),
    duration_ms: z.int().nullable().describe("In milliseconds; null: it runs, or never came to an exit."),
    timed_out: z.boolean().describe("It was ended at timeout_ms."),
    error_message: z.string().nullable().describe("Why it never came to an exit; null: it did."),
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
    pid: z.int().describe("Inside the container."),
    ppid: z.int().describe("Inside the container; 0: none of its."),
    command: z.string().describe("With its arguments; in brackets where it has none left."),
    state: z.string().describe("One letter, as in proc_pid_stat(5)."),
    memory_kb: z.int().describe("Resident memory, in KiB."),
    started_at: isoTime,
  })
  .meta({ id: "ContainerProcess" });

export const processList = z
  .object({
    container_id: containerId,
    processes: z.array(processRecord).describe("By pid."),
    truncated: z
      .literal(true)
      .optional()
      .describe(
        `Processes or ends of command lines are left out: above ${LIMITS.process_list_max} processes, ${LIMITS.command_line_bytes_max} bytes of a command line, or ${LIMITS.process_list_bytes_max} bytes of all.`,
      ),
  })
  .meta({ id: "ContainerProcessList" });

const counter = (about: string) => z.int().min(0).describe(about);

export const containerMetrics = z
  .object({
    container_id: containerId,
    timestamp: epochSeconds,
    cpu_usage_usec: counter("Processor time, in microseconds."),
    cpu_user_usec: counter("Of that in programs."),
    cpu_system_usec: counter("Of that in the kernel."),
    cpu_throttled_usec: counter("Time that it waited because of cpu_limit_percent."),
    memory_current_bytes: counter("Memory charged to it."),
    memory_peak_bytes: counter("The most that was."),
    memory_limit_bytes: counter("The most that may be."),
    memory_cache_bytes: counter("Of memory_current_bytes, pages of files."),
    memory_rss_bytes: counter("Of memory_current_bytes, pages of processes."),
    network_rx_bytes: counter("Bytes that it received."),
    network_tx_bytes: counter("Bytes that it sent."),
    network_rx_packets: counter("Packets that it received."),
    network_tx_packets: counter("Packets that it sent."),
    network_rx_errors: counter("Packets that did not reach it."),
    network_tx_errors: counter("Packets that it could not send."),
    disk_read_bytes: counter("Bytes read from disk."),
    disk_write_bytes: counter("Bytes written to disk."),
    disk_read_count: counter("Reads from disk."),
    disk_write_count: counter("Writes to disk."),
    processes_count: counter("Processes in it."),
  })
  .meta({ id: "ContainerMetrics" });

export const logEntry = z
  .object({
    seq: z
      .int()
      .describe("Counted from 1 over all runs of the container; a gap: lines that are no longer kept, or were lost."),
    timestamp: isoTime,
    stream: z.enum(["stdout", "stderr"]).describe("Stream that the command wrote to."),
    level: z.enum(["info", "error"]).describe("info for standard output, error for standard error."),
    message: z.string().describe("A line without its end; a very long one comes in pieces."),
    partial: z.boolean().describe("The line continues in the next entry."),
  })
  .meta({ id: "LogEntry" });

export const logList = z
  .object({ container_id: containerId, logs: z.array(logEntry).describe("Oldest first.") })
  .meta({ id: "ContainerLogs" });
