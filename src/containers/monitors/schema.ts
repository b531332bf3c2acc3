/** Shapes of monitors: how the daemon watches the runs of containers. */
import { z } from "zod";
import { epochSeconds, nextCursor } from "../../base/schema.ts";

const MONITOR_STATUSES = ["monitoring", "completed", "failed", "aborted"] as const;
export type MonitorStatus = (typeof MONITOR_STATUSES)[number];

export const monitorRecord = z
  .object({
    container_id: z.string().describe("Id of the container."),
    container_name: z.string().describe("Name of the container."),
    pid: z.int().nullable().describe("Pid of its first process on this machine; null unless it runs."),
    status: z
      .enum(MONITOR_STATUSES)
      .describe(
        "monitoring: it starts or runs. completed: its last run exited with 0. failed: it exited otherwise, or failed to start. aborted: a request stopped it.",
      ),
    started_at: epochSeconds.nullable().describe("Time of the last start; null if it never started."),
    last_check: epochSeconds.nullable().describe("Time of the last check; null before the first one of this daemon."),
    check_count: z
      .int()
      .describe(
        "Number of checks of lifetime and idleness since the daemon watches it, and of health checks of its run.",
      ),
    error_message: z.string().nullable().describe("Reason of a failure; null otherwise."),
  })
  .meta({ id: "Monitor" });
export type MonitorRecord = Readonly<z.output<typeof monitorRecord>>;

export const monitorList = z
  .object({ monitors: z.array(monitorRecord).describe("Newest container first."), next_cursor: nextCursor })
  .meta({ id: "MonitorList" });

export const monitoredProcesses = z
  .object({
    processes: z
      .array(
        monitorRecord
          .extend({ process_count: z.int().describe("Number of processes in the container.") })
          .meta({ id: "MonitoredProcess" }),
      )
      .describe("First processes of running containers, newest container first."),
    next_cursor: nextCursor,
  })
  .meta({ id: "MonitoredProcessList" });

export const monitorProfile = z
  .object({
    container_count: z.int().describe("Number of the tenant's containers that were started at least once."),
    monitoring_count: z.int().describe("Number of monitors with the status monitoring."),
    completed_count: z.int().describe("Number of monitors with the status completed."),
    failed_count: z.int().describe("Number of monitors with the status failed."),
    aborted_count: z.int().describe("Number of monitors with the status aborted."),
    process_count: z.int().describe("Number of processes and threads in the tenant's containers."),
    check_interval_seconds: z.number().describe("Interval between two checks of lifetime and idleness."),
    profiled_at: epochSeconds,
  })
  .meta({ id: "MonitorProfile" });
