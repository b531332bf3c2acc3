/** Owners of files in the storage pool, each with one bound: a tenant, and beside it the builds of that tenant. */
import type { Quotas } from "./tenant-limits.ts";

const BUILDS_OF = "builds of ";

/** Owner of the files of all builds of a tenant and of its build cache: apart from its containers, volumes and snapshots. */
export const buildsOwner = (tenant_id: string): string => `${BUILDS_OF}${tenant_id}`;
export const isBuildsOwner = (owner: string): boolean => owner.startsWith(BUILDS_OF);

/** The most that the files of an owner may take, in MiB; null: no limit. */
export function ownerMb(quotas: Pick<Quotas, "of" | "filesMb">, owner: string): number | null {
  return isBuildsOwner(owner) ? quotas.of(owner.slice(BUILDS_OF.length)).disk_mb_max : quotas.filesMb(owner);
}
