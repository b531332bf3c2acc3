/** The checks before a container is made or started, each a statement of the batch that makes the change. */
import { unknownCredential } from "../base/caller.ts";
import type { LimitName, Quotas } from "../base/tenant-limits.ts";
import type { Guard } from "../store/store.ts";
import type { ContainerRow, ContainerRows } from "./rows.ts";
import { memoryFull, nameTaken, nodeFull, volumeGone } from "./events.ts";

export interface Admission {
  readonly rows: ContainerRows;
  readonly quotas: Quotas;
  readonly containers_max: number;
}

/** Checks before a container runs: the tenant's limits, then the memory of this node. */
export function startChecks(
  { rows, quotas }: Admission,
  { tenant_id, memory_limit_mb }: ContainerRow,
  adds: Partial<Record<LimitName, number>> = {},
): Guard[] {
  const { container_memory_mb } = quotas;
  return [
    ...quotas.guards(tenant_id, { ...adds, container_memory_mb_max: memory_limit_mb }),
    {
      statement: rows.memory(tenant_id, memory_limit_mb, container_memory_mb),
      refusal: () => memoryFull(memory_limit_mb, container_memory_mb),
    },
  ];
}

/** The whole batch that makes a container. */
export function insertChecks(admission: Admission, row: ContainerRow): Guard[] {
  const { rows, containers_max } = admission;
  const { id, tenant_id, make } = row;
  return [
    { statement: rows.guard(tenant_id), refusal: unknownCredential },
    ...startChecks(admission, row, { containers_max: 1, disk_mb_max: make.disk_limit_mb ?? 0 }),
    { statement: rows.room(tenant_id, containers_max), refusal: () => nodeFull(containers_max) },
    { statement: rows.insert(row), refusal: () => nameTaken(row.name) },
    ...make.volumes.map((volume) => ({
      statement: rows.mount(tenant_id, id, volume.id, volume.target),
      refusal: volumeGone,
    })),
  ];
}
