/**
 * What a tenant may own, held in SQL beside the change itself, so that no two requests at the same time pass a limit
 * together and nothing is made in a tenant that is being deleted. The limits are those of src/base/tenant-limits.ts.
 */
import { AppError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { limitColumn, TENANT_LIMITS, tenantGuard } from "../base/tenant-limits.ts";
import { unknownCredential } from "../http/auth.ts";
import type { Statement, Store } from "../store/store.ts";
import { deleteOldest } from "./portions.ts";

const MEGABYTE = 1024 * 1024;
/**
 * What a tenant has of each megabyte of its storage when records had to go: a tenth is free again. Otherwise one that
 * is called would always stand at its limit, and could make nothing between two rounds.
 */
const TRIMMED_MEGABYTE = Math.floor(0.9 * MEGABYTE);

const STORED = TENANT_LIMITS.storage_mb_max.used.sql;
const STORAGE_MB_MAX = limitColumn("storage_mb_max");
const FUNCTIONS_MAX = limitColumn("functions_max");

/** Stand before the statements of a change; `refusal` reads which of them was missed. */
export function guards(tenant_id: string, { isNewFunction }: { readonly isNewFunction: boolean }): Statement[] {
  return [
    tenantGuard(tenant_id, "state = 'active'"),
    tenantGuard(tenant_id, `(${STORAGE_MB_MAX} IS NULL OR ${STORAGE_MB_MAX} * ${MEGABYTE} > ${STORED})`),
    ...(isNewFunction
      ? [
          tenantGuard(
            tenant_id,
            `(${FUNCTIONS_MAX} IS NULL OR ${FUNCTIONS_MAX} > ${TENANT_LIMITS.functions_max.used.sql})`,
          ),
        ]
      : []),
  ];
}

/** The refusal for the guard that was missed. */
export function refusalOf(conflict: number): AppError | null {
  switch (conflict) {
    case 0:
      return unknownCredential();
    case 1:
      return new AppError("QUOTA_EXCEEDED", "the tenant's functions and records take all the storage it may use", {
        hint: "wait a minute for the oldest records to go, delete functions, or ask the operator for a higher storage_mb_max",
      });
    case 2:
      return new AppError("QUOTA_EXCEEDED", "the tenant has as many functions as it may have", {
        hint: "delete functions, or ask the operator for a higher functions_max",
      });
    default:
      return null;
  }
}

/**
 * Deletes the oldest records, of the largest function first, of tenants that have used up their storage, until a tenth
 * of it is free. Ends when `isLate`.
 */
export async function trimStorage(store: Store, log: Log, isLate: () => boolean): Promise<void> {
  const over = await store.read<{ readonly id: string; readonly excess: number }>(
    `SELECT id, ${STORED} - ${STORAGE_MB_MAX} * ${TRIMMED_MEGABYTE} AS excess FROM tenants
      WHERE ${STORAGE_MB_MAX} IS NOT NULL AND ${STORED} >= ${STORAGE_MB_MAX} * ${MEGABYTE} LIMIT 1000`,
  );
  for (const { id, excess } of over) {
    let left = excess;
    while (left > 0 && !isLate()) {
      const largest = await store.readOne(
        `SELECT seq FROM functions WHERE tenant_id = ? AND EXISTS (SELECT 1 FROM invocations WHERE function_seq = functions.seq)
          ORDER BY stored_bytes DESC LIMIT 1`,
        [id],
      );
      // What is left are functions, which only their owner deletes.
      if (largest === null) break;
      const freed = await deleteOldest(store, Number(largest.seq), left);
      // More was recorded meanwhile than deleted: the next round goes on.
      if (freed <= 0) break;
      left -= freed;
    }
    if (left < excess) log.info("records deleted for want of storage", { tenant_id: id, bytes: excess - left });
  }
}
