/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import { eachLimit } from "../base/tenant-limits.ts";
import type { AccessToken, ApiKeyRecord, TenantDetail, TenantRecord } from "./schema.ts";

/** Node of whose shares the sample consists. */
const NODE = {
  containers_max: 500,
  instances_max: 1_000,
  memory_budget_mb: 12_288,
  container_memory_mb: 98_304,
  disk_mb: 122_568,
  disk_limit_mb: 1_024,
  processes_max: 32_768,
  store_disk_mb: 245_136,
  image_disk_mb: 245_136,
};

const defaults = eachLimit((_, { share }) => share(NODE));

const tenant: TenantRecord = {
  tenant_id: "ten_6y8kwhcm0mksj007",
  name: "acme",
  state: "active",
  limits: { ...defaults, requests_per_second: 100, functions_max: 50 },
  service_hostnames: [],
  created_at: 1795250210,
};

const key: ApiKeyRecord = {
  id: "key_4hngdpsybs0x",
  tenant_id: "ten_6y8kwhcm0mksj007",
  name: "first",
  prefix: "hk_4hngdpsybs0x",
  scopes: ["read", "invoke", "write", "admin"],
  permissions: ["read", "invoke", "write", "admin"],
  scope_type: "full",
  scope_resource_ids: [],
  created_at: 1795250210,
  expires_at: null,
  last_used_at: null,
};

const container_key: ApiKeyRecord = {
  ...key,
  name: "agent",
  scopes: ["read", "invoke"],
  permissions: ["read", "invoke"],
  scope_type: "container",
  scope_resource_ids: ["ctr_5v1kd6p0sj3c2n8v"],
};

const usage: TenantDetail["usage"] = {
  api_keys: 1,
  functions: 2,
  instances: 3,
  memory_mb: 768,
  processes: 7,
  storage_bytes: 9_215,
  containers: 3,
  networks: 1,
  volumes: 1,
  secrets: 2,
  images: 1,
  image_mb: 8,
  build_contexts: 0,
  build_context_mb: 0,
  disk_mb: 4_096,
  snapshots: 1,
  snapshot_mb: 12,
  messages_bytes: 0,
  services: 1,
  container_memory_mb: 1_024,
  gpus: 0,
  execs: 1,
  streams: 1,
  terminals: 0,
};

export const SAMPLES = {
  tenant,
  detail: { ...tenant, usage } satisfies TenantDetail,
  limited: {
    ...tenant,
    limits: { ...defaults, instances_max: 20 },
  } satisfies TenantRecord,
  key,
  new_key: { ...key, key: "hk_4hngdpsybs0x_8kdwpytmtcn201jz518tn1dsrfktbayp" },
  container_key,
  new_container_key: { ...container_key, key: "hk_4hngdpsybs0x_8kdwpytmtcn201jz518tn1dsrfktbayp" },
  token: {
    access_token:
      "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ0ZW5hbnRfaWQiOiJkZWZhdWx0Iiwic2NvcGUiOiJyZWFkIiwiaXNzIjoiaGVhcnRoIiwiYXVkIjoiaGVhcnRoIiwic3ViIjoiYm9vdHN0cmFwIiwianRpIjoieDM3NWFyZHpjNWV5ZjV6NiIsImlhdCI6MTc5NTI1MDIxMCwiZXhwIjoxNzk1MjUwNTEwfQ.Z9HEzoagdY8sivwLI510UCCrfW7nX1sdIkCJXsDUXZU",
    token_type: "Bearer",
    expires_in: 300,
    scopes: ["read"],
  } satisfies AccessToken,
};
