/**
 * A copy of the interface's rows and tables for the areas that exist. A row that is not built yet is not mounted, and
 * not listed here. Types are the interface's words: an epoch or a count is an `integer`.
 */
export type FieldType = "string" | "string or null" | "integer" | "number" | "boolean" | "object" | "array";
export type Fields = Readonly<Record<string, FieldType>>;

export interface InterfaceRow {
  /** Field names and types of the body; all optional but those in `required`. */
  readonly body?: Fields;
  readonly required?: readonly string[];
  readonly query?: Fields;
  /** Fields of the answer, each always there. */
  readonly answer?: Fields;
  readonly public?: true;
}

const CREATE: Fields = {
  name: "string",
  cluster_id: "string",
  description: "string",
  handler: "string",
  runtime: "string",
  memory_limit_mb: "integer",
  cpu_limit_percent: "number",
  timeout_seconds: "integer",
  environment: "object",
  min_instances: "integer",
  max_instances: "integer",
  cleanup_on_exit: "boolean",
  working_directory: "string",
};

const INVOKE: Fields = { payload: "string", environment: "object", timeout_seconds: "integer" };

const RECORD: Fields = {
  invocation_id: "string",
  function_id: "string",
  function_name: "string",
  execution_node_id: "string",
  status: "string",
  started_at: "integer",
  ended_at: "integer",
  duration_ms: "integer",
  exit_code: "integer",
  stdout: "string",
  stderr: "string",
  error_message: "string or null",
  cold_start: "boolean",
};

const POOL: Fields = {
  function_id: "string",
  warming_count: "integer",
  ready_count: "integer",
  busy_count: "integer",
  total_count: "integer",
};

const POOL_TOTALS: Fields = {
  total_count: "integer",
  warming_count: "integer",
  ready_count: "integer",
  busy_count: "integer",
  recycling_count: "integer",
  terminating_count: "integer",
};

const CONTAINER_CREATE: Fields = {
  name: "string",
  image: "string",
  oci: "boolean",
  volumes: "array",
  working_directory: "string",
  memory_limit_mb: "integer",
  cpu_limit_percent: "number",
  strict: "boolean",
  labels: "object",
  environment: "object",
  command: "array",
  gpu_count: "integer",
  gpu_ids: "array",
};

const CONTAINER: Fields = {
  container_id: "string",
  tenant_id: "string",
  name: "string",
  state: "string",
  pid: "integer",
  exit_code: "integer",
  ip_address: "string",
  created_at: "string",
  started_at: "string",
  exited_at: "string or null",
  working_directory: "string",
  memory_limit_mb: "integer",
  cpu_limit_percent: "number",
  strict: "boolean",
  gpu_count: "integer",
  gpu_ids: "array",
  labels: "object",
  exec_ready: "boolean",
  network_ready: "boolean",
};

const EXEC: Fields = { command: "array", workdir: "string", timeout_ms: "integer" };
const EXECUTED: Fields = {
  container_id: "string",
  exit_code: "integer",
  stdout: "string",
  stderr: "string",
  execution_time_ms: "integer",
  timed_out: "boolean",
};
const STREAM: Fields = {
  command: "array",
  working_directory: "string",
  environment: "object",
  timeout_ms: "integer",
};

/** All that the interface shows of it. */
const OPERATION: Fields = { operation_id: "string", status: "string" };

const GUIDE: InterfaceRow = { query: { format: "string" } };

export const INTERFACE: Readonly<Record<string, InterfaceRow>> = {
  "GET /health": { public: true },
  "GET /api/system/info": {},
  "GET /api/events": {},
  "GET /api/operations/:operation_id": { answer: OPERATION },
  "GET /api/containers/help": GUIDE,
  "GET /api/containers/examples": GUIDE,
  "GET /api/containers/health": GUIDE,
  "GET /api/containers": { query: { state: "string" } },
  "GET /api/containers/:container_id": { answer: CONTAINER },
  "GET /api/containers/by-name/:name": {},
  "GET /api/containers/:container_id/ready": {},
  "GET /api/containers/:container_id/metrics": {},
  "GET /api/containers/:container_id/logs": { query: { limit: "integer" } },
  "POST /api/containers": { body: CONTAINER_CREATE, required: ["name"] },
  "POST /api/containers/batch": { body: { items: "array" }, required: ["items"] },
  "POST /api/containers/:container_id/start": { body: {} },
  "POST /api/containers/:container_id/resume": { body: {} },
  "POST /api/containers/:container_id/stop": { body: {} },
  "POST /api/containers/:container_id/kill": {},
  "POST /api/containers/:container_id/rename": { body: { new_name: "string" } },
  "DELETE /api/containers/:container_id": {},
  "GET /api/containers/:container_id/env": {},
  "PATCH /api/containers/:container_id/env": { body: { environment: "object" }, required: ["environment"] },
  "PUT /api/containers/:container_id/env": { body: { environment: "object" }, required: ["environment"] },
  "POST /api/containers/:container_id/exec": { body: EXEC, required: ["command"], answer: EXECUTED },
  "POST /api/containers/:container_id/stream": { body: STREAM, required: ["command"] },
  "GET /api/containers/:container_id/processes": {},
  "DELETE /api/containers/:container_id/processes/:pid": { query: { signal: "string" } },
  "POST /api/containers/:container_id/archive": { query: { path: "string", strip_components: "integer" }, body: {} },
  "GET /api/volumes": {},
  "POST /api/volumes": { body: { name: "string", driver: "string", labels: "object" }, required: ["name"] },
  "GET /api/volumes/:name": {},
  "GET /api/volumes/:name/inspect": {},
  "GET /api/volumes/:name/ls": { query: { path: "string", page: "integer", page_size: "integer" } },
  "GET /api/volumes/:name/files/*": {},
  "DELETE /api/volumes/:name/files/*": {},
  "POST /api/volumes/:name/files": {
    body: { path: "string", content: "string", mode: "integer" },
    required: ["path", "content"],
  },
  "POST /api/volumes/:name/archive": { query: { path: "string", strip_components: "integer" }, body: {} },
  "POST /api/volumes/:name/rename": { body: { new_name: "string" } },
  "DELETE /api/volumes/:name": {},
  "GET /api/functions/help": GUIDE,
  "GET /api/functions/examples": GUIDE,
  "GET /api/functions/health": GUIDE,
  "POST /api/functions": { body: CREATE },
  "GET /api/functions": {},
  "GET /api/functions/:function_id": {},
  "GET /api/functions/by-name/:name": {},
  "PUT /api/functions/:function_id": { body: CREATE },
  "GET /api/functions/:function_id/versions": {},
  "POST /api/functions/:function_id/rollback": { body: { version: "integer" }, required: ["version"] },
  "DELETE /api/functions/:function_id": {},
  "POST /api/functions/:function_id/deploy": {},
  "POST /api/functions/:function_id/pause": {},
  "POST /api/functions/:function_id/resume": {},
  "POST /api/functions/:function_id/invoke": { body: INVOKE, answer: RECORD },
  "POST /api/functions/invoke/:name": { body: INVOKE, answer: RECORD },
  "GET /api/functions/:function_id/invocations": { query: { limit: "integer" } },
  "GET /api/functions/:function_id/invocations/:invocation_id": { answer: RECORD },
  "GET /api/functions/:function_id/pool": { answer: POOL },
  "GET /api/functions/pool/stats": { answer: POOL_TOTALS },
};

/** Fields that the interface's create and update have not: extras with a reason each, and what is refused by name. */
export const EXTRA_CREATE_FIELDS: Readonly<Record<string, string>> = {
  concurrency_limit: "calls in flight of one function",
  api_access: "whether handlers may call the API",
  disk_limit_mb: "what a container may write",
  ports: "ports of this machine that lead into a container",
  egress: "what a container may reach",
  restart: "a policy for containers whose command ends",
  ttl_seconds: "containers that are deleted by themselves",
  read_only_root: "containers whose root file system is read-only",
  idle_seconds: "containers that are stopped when nobody uses them",
  content: "of an archive: what older clients send (wire-facts §1)",
  path: "the same",
  strip_components: "the same",
  quota_mb: "what a volume may hold",
  timeout_ms: "of a stop: the grace",
  workdir: "of a stream: as exec calls it",
  working_directory: "of an exec: as stream calls it",
  environment: "of an exec: as stream has it",
  stdin_data: "what a command reads (wire-facts §6)",
  capture_output: "sent by clients (wire-facts §6)",
  detach: "the same",
  name: "of a rename: what older clients send (wire-facts §1)",
  async_mode: "accepted where work is operation-driven, refused elsewhere (wire-facts §2)",
  dry_run: "of a start and a resume: sent by clients (wire-facts §8)",
  idempotency_key: "the same",
  labels: "the same",
  placement_hint: "the same",
  source_code: "described as refused: the create contract has no such field",
};
