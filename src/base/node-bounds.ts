/** The bounds of this node, and the part of its instances that one tenant has by default. */
import { LIMITS } from "./limits.ts";

/** Bounds of this node, of which default limits are shares. */
export interface NodeBounds {
  readonly containers_max: number;
  /** Function instances and cells. */
  readonly instances_max: number;
  /** Memory of all function instances. */
  readonly memory_budget_mb: number;
  /** Processes and threads. */
  readonly processes_max: number;
  /** Memory of all running containers. */
  readonly container_memory_mb: number;
  /** Size of the storage pool. */
  readonly disk_mb: number;
  /** Default of a container or volume. */
  readonly disk_limit_mb: number;
  /** Size of the disk of the store. */
  readonly store_disk_mb: number;
  /** Size of the disk of the image store. */
  readonly image_disk_mb: number;
}

/**
 * Returns the instances of one tenant: at most half of the node's instances, and so few that their processes, with the
 * instances that a chain of calls adds, are at most half of those that all instances may have together. At least one.
 */
export function instancesShare({ instances_max, processes_max }: NodeBounds): number {
  const ratio = LIMITS.tenant_instances_ratio;
  const processes = processes_max * LIMITS.kind_processes_ratio * ratio;
  const full_count = Math.floor(processes / LIMITS.instance_pids_max) - LIMITS.chain_depth_max;
  return Math.max(1, Math.min(full_count, Math.floor(instances_max * ratio)));
}
