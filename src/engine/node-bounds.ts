/** Resources of this node, of which the default limits of tenants are shares. */
import { statfs } from "node:fs/promises";
import type { NodeBounds } from "../base/tenant-limits.ts";
import type { ContainerEngine } from "./container-engine.ts";
import { readTrackedConnections } from "./kernel-budgets.ts";
import type { LocalEngine } from "./local-engine.ts";
import { machineProcesses } from "./tenant-groups.ts";

const MEGABYTE = 1024 * 1024;

/** Call when the store area is open. `data_dir`: where the store lies. */
export async function nodeBounds(
  containers: ContainerEngine,
  data_dir: string,
): Promise<Pick<NodeBounds, "disk_mb" | "store_disk_mb" | "processes_max">> {
  const { size_mb: disk_mb } = await containers.area.statistics();
  const { blocks, bsize } = await statfs(data_dir);
  return { disk_mb, store_disk_mb: Math.floor((blocks * bsize) / MEGABYTE), processes_max: machineProcesses() };
}

/** Returns readers of what containers share: the storage pool, and the kernel's table of connections. */
export function machineUse(engine: LocalEngine) {
  return {
    storage: async () => engine.containers.area.statistics(),
    connections: () => readTrackedConnections(),
    flows_refused: () => engine.flowsRefused(),
  };
}
