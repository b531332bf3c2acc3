/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */

import type { FunctionsReadiness } from "./pool-schema.ts";
import { versioned } from "./rows.ts";
import type { FunctionRecord, InvocationRecord, VersionRecord } from "./schema.ts";

const created: FunctionRecord = {
  id: "fn_fmp27v1sbb969xa2",
  function_id: "fn_fmp27v1sbb969xa2",
  tenant_id: "default",
  cluster_id: null,
  owner_node_id: "node_kazrx9hwtznykwp7",
  name: "hello",
  description: null,
  handler: "echo hello, $(cat)",
  runtime: "shell",
  image: "prod",
  oci: false,
  image_id: "sha256:4b1e0f6f0c3e7a9d2c5b8a6f1e0d3c2b5a4f7e6d9c8b1a0f3e2d5c4b7a6f9e8d",
  environment: {},
  memory_limit_mb: 256,
  cpu_limit_percent: null,
  timeout_seconds: 30,
  working_directory: null,
  secrets: [],
  egress: "on",
  instance_concurrency: 1,
  gpu_count: 0,
  instance_calls_max: null,
  reset_between_calls: false,
  protocol: null,
  code_sha256: null,
  code_size_bytes: null,
  state: "pending",
  current_version: 1,
  version: 1,
  min_instances: 0,
  max_instances: 10,
  concurrency_limit: null,
  api_access: false,
  api_scopes: [],
  cleanup_on_exit: true,
  created_at: 1795250210,
  updated_at: 1795250210,
  last_invoked_at: null,
  invocation_count: 0,
  error_count: 0,
  error_message: null,
};

const CODE = "9f0e6a4f1d8b5f3f4b8f9f5a6d1f0c8e7a2b3c4d5e6f708192a3b4c5d6e7f809";

const active: FunctionRecord = { ...created, state: "active", last_invoked_at: 1795250210, invocation_count: 1 };

const updated: FunctionRecord = { ...active, handler: "echo good day, $(cat)", current_version: 2, version: 2 };

const first: VersionRecord = {
  id: "fv_ve2c7mc07jhtv444",
  function_id: created.function_id,
  version: 1,
  ...versioned(created),
  description: null,
  is_active: false,
  made_by: "bootstrap",
  note: null,
  created_at: created.created_at,
};

const invocation: InvocationRecord = {
  invocation_id: "inv_2e7h5z1c8d_p9j0wmxb",
  function_id: "fn_fmp27v1sbb969xa2",
  function_name: "hello",
  version: 1,
  execution_node_id: "node_kazrx9hwtznykwp7",
  status: "success",
  started_at: 1795250210,
  ended_at: 1795250210,
  duration_ms: 1,
  exit_code: 0,
  result: null,
  stdout: "hello, world\n",
  stderr: "",
  stdout_truncated: false,
  stderr_truncated: false,
  error_message: null,
  cold_start: true,
  instance_nonce: "07ec5c19fa98298a3d7e5d77d2cc5a07",
  timings: { queue: 0, cell: 0.211, handler: 1.363, total: 3.512 },
};

const pool_stats: FunctionsReadiness["pool"] = {
  warming_count: 0,
  ready_count: 2,
  busy_count: 0,
  recycling_count: 0,
  terminating_count: 0,
  total_count: 2,
  cells: 2,
  cells_starting: 2,
  calls_running: 0,
  queued: 0,
  started_count: 4,
  start_failed_count: 0,
  crashed_count: 0,
  evicted_count: 0,
  expired_count: 0,
  remove_failed_count: 0,
  cell_hit_count: 1,
  cell_miss_count: 0,
  classes: [
    {
      class: "shell-5f0b6c6d7e21",
      cells_target: 4,
      cells: 2,
      cells_starting: 2,
      cell_hit_count: 1,
      cell_miss_count: 0,
    },
  ],
};

const handle = {
  success: true as const,
  operation_id: "op_7bq2m9vtx4c1h8ke",
  status_url: "/api/operations/op_7bq2m9vtx4c1h8ke",
};

export const SAMPLES = {
  handle,
  created,
  active,
  updated,
  versions: [
    { ...first, id: "fv_c1189549x5ggkzt7", version: 2, handler: "echo good day, $(cat)", is_active: true },
    first,
  ],
  version: { ...first, is_active: true },
  with_code: { ...active, runtime: "nodejs", handler: "index.mjs#handler", code_sha256: CODE, code_size_bytes: 1_204 },
  uploaded_code: { code_sha256: CODE, size_bytes: 1_204, entry_count: 3, created_at: 1795250210 },
  version_diff: {
    from_version: 1,
    to_version: 2,
    changes: [{ field: "handler", from: "echo hello, $(cat)", to: "echo good day, $(cat)" }],
    files: [],
    is_truncated: false,
  },
  deployed: {
    functions: [
      {
        name: "hello",
        function_id: created.function_id,
        action: "updated" as const,
        version: 3,
        changes: [{ field: "handler", from: "echo good day, $(cat)", to: "echo good evening, $(cat)" }],
      },
    ],
  },
  invocation,
  function_pool: {
    function_id: "fn_fmp27v1sbb969xa2",
    warming_count: 0,
    ready_count: 1,
    busy_count: 0,
    recycling_count: 0,
    terminating_count: 0,
    total_count: 1,
    calls_running: 0,
    queued_count: 0,
    last_error: null,
    superseded_count: 1,
  },
  pool_stats,
  health: { status: "ok", concern: "functions", runtimes: ["shell"], pool: pool_stats } satisfies FunctionsReadiness,
};
