/** Resources of this node, of which the default limits of tenants are shares. */
import { statfsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { ownerMb } from "../../base/storage-owners.ts";
import type { NodeBounds, Quotas } from "../../base/tenant-limits.ts";
import type { Storage } from "../ports/storage.ts";
import type { Engine } from "../ports.ts";
import { readTrackedConnections } from "./kernel-budgets.ts";
import { machineProcesses } from "./tenant-groups.ts";

const MEGABYTE = 1024 * 1024;

/** Reads the resources. Call when the storage pool is open. `data_dir`, `image_dir`: directories of the two stores. */
export async function nodeBounds(
  storage: Pick<Storage, "statistics">,
  { data_dir, image_dir }: { readonly data_dir: string; readonly image_dir: string },
): Promise<Pick<NodeBounds, "disk_mb" | "store_disk_mb" | "image_disk_mb" | "processes_max">> {
  const { size_mb: disk_mb } = await storage.statistics();
  const [store_disk_mb, image_disk_mb] = await Promise.all([diskMegabytes(data_dir), diskMegabytes(image_dir)]);
  return { disk_mb, store_disk_mb, image_disk_mb, processes_max: machineProcesses() };
}

async function diskMegabytes(directory: string): Promise<number> {
  const { blocks, bsize } = await statfs(directory);
  return Math.floor((blocks * bsize) / MEGABYTE);
}

/** Reads how full the disk of a directory is, as df(1) counts: blocks for root alone count as neither used nor free. */
export function readDisk(directory: string): { readonly size_bytes: number; readonly used_bytes: number } {
  const { bsize, blocks, bfree, bavail } = statfsSync(directory);
  const used = blocks - bfree;
  return { size_bytes: (used + bavail) * bsize, used_bytes: used * bsize };
}

/** Returns readers of the use of the storage pool and of the kernel's table of connections, which containers share. */
export function machineUse(engine: Engine) {
  return {
    storage: async () => engine.storage.statistics(),
    connections: () => readTrackedConnections(),
    gpus: async () => {
      const { gpus } = await engine.gpus.states();
      return { count: gpus.length, held_count: gpus.filter(({ holder }) => holder !== null).length };
    },
    flows_refused: () => engine.flowsRefused(),
  };
}

/** Has the engine hold tenants to the limits that it counts itself. */
export function boundTenants(engine: Engine, quotas: Pick<Quotas, "of" | "filesMb">): void {
  engine.containers.boundProcesses((tenant_id) => quotas.of(tenant_id).processes_max);
  engine.gpus.bound((tenant_id) => quotas.of(tenant_id).gpus_max);
  engine.storage.boundOwners((owner) => ownerMb(quotas, owner));
}
