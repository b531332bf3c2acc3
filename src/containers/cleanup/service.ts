/** Clean-up of containers by hand: tasks, and the forced removal of a container that does not run. */
import { AppError } from "../../base/errors.ts";
import { firstPage, type Listed, type Place } from "../../base/paging.ts";
import type { Volumes } from "../../volumes/service.ts";
import type { Containers } from "../service.ts";
import type { CleanupTask } from "./schema.ts";
import type { CleanupTasks } from "./tasks.ts";

export interface CleanupOptions {
  readonly tasks: CleanupTasks;
  readonly containers: Containers;
  readonly volumes: Volumes;
}

export class Cleanup {
  readonly #options: CleanupOptions;

  constructor(options: CleanupOptions) {
    this.#options = options;
  }

  status(tenant_id: string) {
    return this.#options.tasks.status(tenant_id);
  }

  list(tenant_id: string, place: Place): Listed<CleanupTask> {
    return this.#options.tasks.list(tenant_id, null, place);
  }

  /** Lists the tasks of a container, also of one that is deleted. Throws NOT_FOUND where nothing is known of it. */
  async listOf(tenant_id: string, id: string, place: Place): Promise<Listed<CleanupTask>> {
    const { tasks, containers } = this.#options;
    const row = await containers.row(tenant_id, id).catch((error) => {
      const isKnown = tasks.list(tenant_id, id, firstPage(1)).items.length > 0;
      if (isKnown && error instanceof AppError && error.code === "NOT_FOUND") return { id };
      throw error;
    });
    return tasks.list(tenant_id, row.id, place);
  }

  /**
   * Removes a container that does not run, with its files and its log, and the volumes that only it mounts. Throws
   * NOT_FOUND, WRONG_STATE. A volume that cannot be deleted has a failed task.
   */
  async force(tenant_id: string, id: string, remove_volumes: boolean) {
    const { tasks, containers, volumes } = this.#options;
    const row = await containers.clear(tenant_id, id);
    const subject = { container_id: row.id, tenant_id, resource: "volumes" as const };
    const kept: string[] = [];
    for (const volume of remove_volumes ? row.volumes : []) {
      const removal = tasks.run({ ...subject, path: `area/volumes/${volume.id}` }, () => volumes.delete(volume.id));
      await removal.catch(() => kept.push(volume.id));
    }
    const message =
      kept.length === 0 ? "container removed" : `container removed; volumes not deleted: ${kept.join(", ")}`;
    const { items } = tasks.list(tenant_id, row.id, firstPage());
    return { success: true as const, message, container_id: row.id, tasks: [...items] };
  }
}
