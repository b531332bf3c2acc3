/** Resources of this node, of which the default limits of tenants are shares. */
import { statfs } from "node:fs/promises";
import type { NodeBounds } from "../../base/tenant-limits.ts";
import type { Storage } from "../ports/storage.ts";
import type { Engine } from "../ports.ts";
import { readTrackedConnections } from "./kernel-budgets.ts";
import { machineProcesses } from "./tenant-groups.ts";

const MEGABYTE = 1024 * 1024;

/** Reads the resources. Call when the storage pool is open. `data_dir`: directory of the store. */
export async function nodeBounds(
  storage: Pick<Storage, "statistics">,
  data_dir: string,
): Promise<Pick<NodeBounds, "disk_mb" | "store_disk_mb" | "processes_max">> {
  const { size_mb: disk_mb } = await storage.statistics();
  const { blocks, bsize } = await statfs(data_dir);
  return { disk_mb, store_disk_mb: Math.floor((blocks * bsize) / MEGABYTE), processes_max: machineProcesses() };
}

/** Returns readers of the use of the storage pool and of the kernel's table of connections, which containers share. */
export function machineUse(engine: Engine) {
  return {
    storage: async () => engine.storage.statistics(),
    connections: () => readTrackedConnections(),
    flows_refused: () => engine.flowsRefused(),
  };
}
