/** API keys in the store: the SQL of keys.ts, and rows turned into records. */
import { SCOPES, type Scope } from "../base/caller.ts";
import type { EpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import { asList, ROW_NUMBER } from "../base/sql-dialect.ts";
import { DEFAULT_TENANT_ID } from "../base/tenant-limits.ts";
import type { Statement } from "../store/store.ts";
import type { ApiKeyRecord } from "./schema.ts";

/** The operator's key. At most one, replaced when the setting changes. */
export const BOOTSTRAP_KEY_ID = "bootstrap";
/** The operator's key before the last rotation, for as long as both are good. */
export const PREVIOUS_BOOTSTRAP_KEY_ID = "bootstrap_previous";

export const isOperatorKey = (id: string): boolean => id === BOOTSTRAP_KEY_ID || id === PREVIOUS_BOOTSTRAP_KEY_ID;

export type KeyRow = {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly secret_sha256: string;
  readonly scopes: string;
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly last_used_at: number | null;
  /** JSON; null: all of the tenant. */
  readonly container_ids: string | null;
};

const CONTAINERS = `SELECT ${asList("container_id")} FROM api_key_containers WHERE key_id = k.id`;
export const SELECT_KEYS = `SELECT k.${ROW_NUMBER} AS seq, k.id, k.tenant_id, k.name, k.secret_sha256, k.scopes, k.created_at,
  k.expires_at, k.last_used_at, CASE k.scope_type WHEN 'container' THEN (${CONTAINERS}) END AS container_ids
  FROM api_keys k JOIN tenants t ON t.id = k.tenant_id AND t.state = 'active'`;
/** The condition on a key of SELECT_KEYS that it has this container, the parameter. */
export const OF_CONTAINER = "k.id IN (SELECT key_id FROM api_key_containers WHERE container_id = ?)";

/** Ids of the containers of a key; null: all of the tenant. */
export function containersOf({ container_ids }: KeyRow): readonly string[] | null {
  return container_ids === null ? null : (JSON.parse(container_ids) as string[]);
}

export interface NewKeyRow {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly secret_sha256: string;
  readonly scopes: readonly Scope[];
  readonly created_at: EpochSeconds;
  readonly expires_at: EpochSeconds | null;
  readonly container_ids: readonly string[] | null;
}

/** Conflicts: the tenant is gone, it has too many keys, and of each container that it is gone or has too many keys. */
export function insertKey({ container_ids, scopes, ...row }: NewKeyRow): Statement[] {
  const fields = { ...row, scopes: JSON.stringify(scopes), scope_type: container_ids === null ? "full" : "container" };
  const names = Object.keys(fields);
  return [
    {
      sql: "UPDATE tenants SET state = state WHERE id = ? AND state = 'active'",
      args: [row.tenant_id],
      expect_changes: 1,
    },
    {
      sql: `INSERT INTO api_keys (${names.join(", ")}) SELECT ${names.map(() => "?").join(", ")}
        WHERE (SELECT count(*) FROM api_keys WHERE tenant_id = ?) < ?`,
      args: [...Object.values(fields), row.tenant_id, LIMITS.api_keys_per_tenant_max],
      expect_changes: 1,
    },
    ...(container_ids ?? []).map((container_id) => ({
      sql: `INSERT INTO api_key_containers (key_id, container_id)
        SELECT ?, id FROM containers WHERE tenant_id = ? AND id = ? AND is_removing = 0
          AND (SELECT count(*) FROM api_key_containers WHERE container_id = ?) < ?`,
      args: [row.id, row.tenant_id, container_id, container_id, LIMITS.keys_per_container_max],
      expect_changes: 1,
    })),
  ];
}

/** Makes the operator's key of a digest. */
export function insertBootstrap(digest: string, now: EpochSeconds): Statement {
  return {
    sql: "INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at) VALUES (?, ?, ?, ?, ?, ?)",
    args: [BOOTSTRAP_KEY_ID, DEFAULT_TENANT_ID, "bootstrap", digest, JSON.stringify(SCOPES), now],
  };
}

/** Returns the first characters of a key, by which people recognise it; null for the operator's, which may have any form. */
function prefixOf(key_id: string): string | null {
  return isOperatorKey(key_id) ? null : key_id.replace(/^key_/, "hk_");
}

export function recordOf(row: KeyRow): ApiKeyRecord {
  const { id, tenant_id, name, created_at, expires_at, last_used_at } = row;
  const scopes = JSON.parse(row.scopes) as Scope[];
  const container_ids = containersOf(row);
  return {
    ...{ id, tenant_id, name, prefix: prefixOf(id), scopes, permissions: scopes },
    scope_type: container_ids === null ? "full" : "container",
    scope_resource_ids: [...(container_ids ?? [])],
    ...{ created_at, expires_at, last_used_at },
  };
}
