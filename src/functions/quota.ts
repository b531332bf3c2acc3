/**
 * What a tenant may own, held in SQL beside the change itself, so that no two requests at the same time pass a limit
 * together and nothing is made in a tenant that is being deleted. The limits are those of src/base/tenant-limits.ts.
 */
import { unknownCredential } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { type Quotas, TENANT_LIMITS, tenantGuard } from "../base/tenant-limits.ts";
import type { Guard, Store } from "../store/store.ts";
import { deleteOldest } from "./records/byte-paging.ts";

const MEGABYTE = 1024 * 1024;
/**
 * What a tenant has of each megabyte of its storage when records had to go: a tenth is free again. Otherwise one that
 * is called would always stand at its limit, and could make nothing between two rounds.
 */
const TRIMMED_MEGABYTE = Math.floor(0.9 * MEGABYTE);

const STORED = TENANT_LIMITS.storage_mb_max.used.sql;

/** In the order of the batch; `refusalOf` reads which of them was missed. */
export function guards(
  quotas: Quotas,
  tenant_id: string,
  /** Functions that the batch makes. */
  new_count: number,
): Guard[] {
  const { storage_mb_max } = quotas.of(tenant_id);
  const room = (max_mb: number): Guard => ({
    statement: tenantGuard(tenant_id, `${STORED} < ?`, [max_mb * MEGABYTE]),
    refusal: noStorage,
  });
  return [
    { statement: tenantGuard(tenant_id, "state = 'active'"), refusal: unknownCredential },
    ...(storage_mb_max === null ? [] : [room(storage_mb_max)]),
    ...quotas.guards(tenant_id, new_count > 0 ? { functions_max: new_count } : {}),
  ];
}

function noStorage(): AppError {
  return new AppError(
    "QUOTA_EXCEEDED",
    "storage of the tenant full: functions, versions, their code, and records reach storage_mb_max",
    {
      hint: "retry in a minute, when the oldest records are deleted; delete functions, or ask the operator for a higher storage_mb_max",
    },
  );
}

/** The refusal for the guard that was missed; null where it was another statement of the batch. */
export function refusalOf(quota: readonly Guard[], conflict: number): AppError | null {
  return quota[conflict]?.refusal() ?? null;
}

/**
 * Deletes the oldest records, of the largest function first, of tenants that have used up their storage, until a tenth
 * of it is free. Ends when `isLate`.
 */
export async function trimStorage(store: Store, quotas: Quotas, log: Log, isLate: () => boolean): Promise<void> {
  for (let after = ""; ; ) {
    const page = await store.read<{ readonly id: string; readonly bytes: number; readonly record_bytes: number }>(
      `SELECT id, ${STORED} AS bytes, (SELECT coalesce(sum(stored_bytes), 0) FROM functions WHERE tenant_id = tenants.id)
        AS record_bytes FROM tenants WHERE id > ? ORDER BY id LIMIT ?`,
      [after, LIMITS.list_limit_max],
    );
    for (const { id, bytes, record_bytes } of page) {
      const max_mb = quotas.of(id).storage_mb_max;
      if (max_mb === null || bytes < max_mb * MEGABYTE) continue;
      // Code may have the whole storage: then the newest records stay within a tenth of it.
      const excess = Math.min(bytes - max_mb * TRIMMED_MEGABYTE, record_bytes - max_mb * (MEGABYTE - TRIMMED_MEGABYTE));
      const freed = await trimOne(store, id, excess, isLate);
      if (freed > 0) log.info("records deleted to free storage", { tenant_id: id, bytes: freed });
    }
    if (page.length < LIMITS.list_limit_max) break;
    after = page.at(-1)?.id ?? "";
  }
}

/** Resolves with the bytes that were freed. */
async function trimOne(store: Store, tenant_id: string, excess: number, isLate: () => boolean): Promise<number> {
  let left = excess;
  while (left > 0 && !isLate()) {
    const largest = await store.readOne(
      `SELECT seq FROM functions WHERE tenant_id = ? AND EXISTS (SELECT 1 FROM invocations WHERE function_seq = functions.seq)
        ORDER BY stored_bytes DESC LIMIT 1`,
      [tenant_id],
    );
    // Only functions are left, which only their owner deletes.
    if (largest === null) break;
    const freed = await deleteOldest(store, Number(largest.seq), left);
    // More was recorded meanwhile than deleted: the next round goes on.
    if (freed <= 0) break;
    left -= freed;
  }
  return excess - left;
}
