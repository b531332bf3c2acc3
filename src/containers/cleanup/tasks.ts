/**
 * Clean-up tasks of each tenant: what the engine and the services report about the removals that they do. Kept in memory: a
 * daemon that starts anew repeats every removal that an earlier one did not complete, and has its tasks again. Completed
 * tasks of the earlier daemon are gone.
 *
 * C1 A tenant has at most `cleanup_tasks_per_tenant_max` tasks: the oldest completed one makes room, else the oldest.
 */
import { LRUCache } from "lru-cache";
import { type Clock, toEpochSeconds } from "../../base/clock.ts";
import { publicText } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import { type Listed, type Place, pageOf } from "../../base/paging.ts";
import type { CleanedResource, CleanupTask } from "./schema.ts";

interface Kept {
  readonly number: number;
  task: CleanupTask;
}

/** The part of a container that a task removes. */
export interface TaskSubject {
  readonly container_id: string;
  readonly tenant_id: string;
  readonly resource: CleanedResource;
  readonly path: string;
}

export class CleanupTasks {
  readonly #clock: Clock;
  readonly #ids: Ids;
  /** By tenant, then by subject, the oldest first. */
  readonly #tenants = new LRUCache<string, Map<string, Kept>>({ max: LIMITS.cleanup_tenants_max });
  #last_number = 0;

  constructor({ clock, ids }: { readonly clock: Clock; readonly ids: Ids }) {
    this.#clock = clock;
    this.#ids = ids;
  }

  /** Notes the progress of a removal; a repeated removal of what was removed is a new task. */
  note(subject: TaskSubject, status: CleanupTask["status"], error: string | null): void {
    const { container_id, tenant_id, resource, path } = subject;
    const tasks = this.#tenants.get(tenant_id) ?? new Map<string, Kept>();
    this.#tenants.set(tenant_id, tasks);
    const key = `${container_id} ${resource} ${path}`;
    const now = toEpochSeconds(this.#clock.epochMs());
    const known = tasks.get(key);
    const isNew = known === undefined || known.task.status === "completed";
    const task: CleanupTask = {
      task_id: isNew ? this.#ids.next("cln") : known.task.task_id,
      container_id,
      resource_type: resource,
      resource_path: path,
      status,
      created_at: isNew ? now : known.task.created_at,
      completed_at: status === "completed" ? now : null,
      error_message: error,
    };
    if (!isNew) {
      known.task = task;
      return;
    }
    tasks.delete(key);
    tasks.set(key, { number: ++this.#last_number, task });
    if (tasks.size > LIMITS.cleanup_tasks_per_tenant_max) dropOne(tasks);
  }

  /** Does a removal and notes its progress. Rejects as `work`. */
  async run(subject: TaskSubject, work: () => Promise<void>): Promise<void> {
    this.note(subject, "in_progress", null);
    try {
      await work();
    } catch (error) {
      this.note(subject, "failed", publicText(error));
      throw error;
    }
    this.note(subject, "completed", null);
  }

  /** Returns one page of a tenant's tasks, newest first. `container_id`: null for those of all containers. */
  list(tenant_id: string, container_id: string | null, place: Place): Listed<CleanupTask> {
    const all = [...(this.#tenants.get(tenant_id)?.values() ?? [])].reverse();
    const found = all.filter(
      ({ number, task }) => number < place.below && (container_id === null || task.container_id === container_id),
    );
    return pageOf(
      found,
      place.limit,
      ({ number }) => number,
      ({ task }) => task,
    );
  }

  status(tenant_id: string) {
    const tasks = [...(this.#tenants.get(tenant_id)?.values() ?? [])].map(({ task }) => task);
    const count = (status: CleanupTask["status"]) => tasks.filter((task) => task.status === status).length;
    const completed = tasks.flatMap(({ completed_at }) => (completed_at === null ? [] : [completed_at]));
    const open = tasks.filter((task) => task.status !== "completed").map(({ created_at }) => created_at);
    const failed_count = count("failed");
    return {
      status: failed_count > 0 ? ("failing" as const) : open.length > 0 ? ("working" as const) : ("clean" as const),
      pending_count: count("pending"),
      in_progress_count: count("in_progress"),
      completed_count: completed.length,
      failed_count,
      oldest_open_at: open.length === 0 ? null : Math.min(...open),
      last_completed_at: completed.length === 0 ? null : Math.max(...completed),
    };
  }

  /** Drops the tasks of a tenant that was deleted. */
  forget(tenant_id: string): void {
    this.#tenants.delete(tenant_id);
  }
}

function dropOne(tasks: Map<string, Kept>): void {
  const [oldest] = tasks.keys();
  const completed = [...tasks].find(([, { task }]) => task.status === "completed")?.[0];
  const key = completed ?? oldest;
  if (key !== undefined) tasks.delete(key);
}
