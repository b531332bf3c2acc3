/** Shapes of clean-up tasks: the removal of what containers leave on this machine. */
import { z } from "zod";
import { acknowledgement, epochSeconds, nextCursor } from "../../base/schema.ts";
import type { RemovedResource } from "../../engine/ports.ts";

const RESOURCES = ["rootfs", "network", "cgroup", "mounts", "volumes", "container", "logs"] as const;
export type CleanedResource = (typeof RESOURCES)[number];
/** Each resource that the engine removes is one of these. */
export const ofEngine = (resource: RemovedResource): CleanedResource => resource;

export const cleanupTask = z
  .object({
    task_id: z.string().describe("Id of the task."),
    container_id: z.string().describe("Id of the container; it may be deleted."),
    resource_type: z
      .enum(RESOURCES)
      .describe(
        "rootfs: files. network: link and address. cgroup: processes and control groups. container: state of the OCI runtime. volumes: a volume that was deleted with it. logs: its log.",
      ),
    resource_path: z.string().describe("Name on this machine, or path below the data directory."),
    status: z
      .enum(["pending", "in_progress", "completed", "failed"])
      .describe("failed: the daemon retries, except a volume."),
    created_at: epochSeconds,
    completed_at: epochSeconds.nullable().describe("Time of the completion; null before."),
    error_message: z.string().nullable().describe("Reason of the last failure; null otherwise."),
  })
  .meta({ id: "CleanupTask" });
export type CleanupTask = Readonly<z.output<typeof cleanupTask>>;

export const cleanupTaskList = z
  .object({ tasks: z.array(cleanupTask).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "CleanupTaskList" });

export const cleanupStatus = z
  .object({
    status: z.enum(["clean", "working", "failing"]).describe("working: tasks are open. failing: a task failed."),
    pending_count: z.int().describe("Number of tasks that wait."),
    in_progress_count: z.int().describe("Number of tasks that run."),
    completed_count: z.int().describe("Number of kept tasks that are completed."),
    failed_count: z.int().describe("Number of tasks whose last attempt failed."),
    oldest_open_at: epochSeconds
      .nullable()
      .describe("Time of the oldest task that is not completed; null without one."),
    last_completed_at: epochSeconds.nullable().describe("Time of the latest completion; null without one."),
  })
  .meta({ id: "CleanupStatus" });

export const forceCleanup = z
  .object({
    confirm: z.literal(true, { error: "must be true" }).describe("Must be true: the files of the container are lost."),
    remove_volumes: z
      .boolean()
      .default(false)
      .describe("True to delete also the volumes that only this container mounts."),
  })
  .meta({ id: "ForceCleanup" });

export const forcedCleanup = acknowledgement
  .extend({
    container_id: z.string().describe("Id of the container, which is deleted."),
    tasks: z.array(cleanupTask).describe("Tasks of the container, newest first."),
  })
  .meta({ id: "ForcedCleanup" });
