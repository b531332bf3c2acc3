/**
 * A copy of the interface's rows, all of them, with the fields of those that are mounted. Types are the interface's words:
 * an epoch or a count is an `integer`.
 */
export type FieldType = "string" | "string or null" | "integer" | "number" | "boolean" | "object" | "array";
export type Fields = Readonly<Record<string, FieldType>>;

export interface InterfaceRow {
  /** Field names and types of the body; all optional but those in `required`. */
  readonly body?: Fields;
  readonly required?: readonly string[];
  readonly query?: Fields;
  /** The one parameter that a request needs. */
  readonly required_query?: string;
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

const ACK: Fields = { msg_id: "string", action: "string", reason: "string" };

const GUIDE: InterfaceRow = { query: { format: "string" } };

/** Rows that are not mounted yet. The list may only shrink: a row leaves it with the change that mounts its route. */
export const NOT_MOUNTED: readonly string[] = [
  "GET /api/elasticity/help",
  "GET /api/elasticity/examples",
  "GET /api/elasticity/health",
  "GET /api/elasticity/node/status",
  "GET /api/elasticity/control/contract",
  "GET /api/elasticity/control/operations/:operation_id",
  "GET /api/elasticity/control/actions/:action_id/operations",
  "POST /api/elasticity/containers/:container_id/resize",
  "POST /api/elasticity/functions/:function_id/pool-target",
  "POST /api/elasticity/control/containers/:container_id/resize",
  "POST /api/elasticity/control/functions/:function_id/pool-target",
  "PUT /api/elasticity/control/workloads/:workload_id/function-binding",
  "GET /api/elasticity/control/workloads/:workload_id/function-binding",
  "POST /api/elasticity/control/workloads/:workload_id/function-binding/rotate",
  "PUT /api/elasticity/control/workloads/:workload_id/placement-preference",
  "GET /api/elasticity/control/workloads/:workload_id/placement-preference",
  "POST /api/elasticity/control/node-groups/:node_group/scale",
  "POST /api/elasticity/control/actions/:action_id/rollback",
  "POST /api/clusters",
  "GET /api/clusters",
  "GET /api/clusters/:cluster_id",
  "DELETE /api/clusters/:cluster_id",
  "POST /api/clusters/:cluster_id/reconcile",
  "GET /api/clusters/:cluster_id/nodes",
  "GET /api/clusters/:cluster_id/nodes/:node_id",
  "DELETE /api/clusters/:cluster_id/nodes/:node_id",
  "POST /api/clusters/:cluster_id/nodes/:node_id/drain",
  "POST /api/clusters/:cluster_id/workloads",
  "GET /api/clusters/:cluster_id/workloads",
  "GET /api/clusters/:cluster_id/workloads/:workload_id",
  "PUT /api/clusters/:cluster_id/workloads/:workload_id",
  "DELETE /api/clusters/:cluster_id/workloads/:workload_id",
  "GET /api/clusters/:cluster_id/placements",
  "GET /api/clusters/:cluster_id/capabilities",
  "POST /api/clusters/:cluster_id/join-tokens",
  "POST /api/agent/clusters/:cluster_id/nodes/register",
  "POST /api/agent/clusters/:cluster_id/nodes/:node_id/heartbeat",
  "GET /api/agent/clusters/:cluster_id/nodes/:node_id/allocation",
  "GET /api/agent/clusters/:cluster_id/nodes/:node_id/placements",
  "POST /api/agent/clusters/:cluster_id/nodes/:node_id/placements/:placement_id/report",
  "POST /api/agent/clusters/:cluster_id/nodes/:node_id/deregister",
  "GET /api/k8s/schema",
  "POST /api/k8s/validate",
  "POST /api/k8s/diff",
  "POST /api/k8s/apply",
  "POST /api/k8s/export",
  "GET /api/k8s/applies/:operation_id",
  "GET /api/k8s/resources",
  "GET /api/k8s/resources/:resource_id",
  "DELETE /api/k8s/resources/:resource_id",
];

const MOUNTED: Readonly<Record<string, InterfaceRow>> = {
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
  "POST /api/containers/:container_id/snapshot": {
    body: {
      consistency_mode: "string",
      network_mode: "string",
      volume_mode: "string",
      ttl_seconds: "integer",
      labels: "object",
    },
  },
  "POST /api/containers/:container_id/fork": {
    body: {
      consistency_mode: "string",
      network_mode: "string",
      volume_mode: "string",
      resume_policy: "string",
      name: "string",
      labels: "object",
    },
  },
  "GET /api/snapshots": { query: { container_id: "string" } },
  "GET /api/snapshots/:snapshot_id": {
    answer: { source_container_id: "string or null", source_container_name: "string or null" },
  },
  "GET /api/snapshots/:snapshot_id/lineage": {},
  "POST /api/snapshots/:snapshot_id/clone": { body: { resume_policy: "string", name: "string", labels: "object" } },
  "POST /api/snapshots/:snapshot_id/pin": {},
  "POST /api/snapshots/:snapshot_id/unpin": {},
  "DELETE /api/snapshots/:snapshot_id": {},
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
  "GET /api/nightly/help": GUIDE,
  "GET /api/nightly/examples": GUIDE,
  "GET /api/nightly/health": GUIDE,
  "GET /api/oci/help": GUIDE,
  "GET /api/oci/examples": GUIDE,
  "GET /api/oci/health": GUIDE,
  "POST /api/build-contexts": { body: { content: "string" }, required: ["content"] },
  "POST /api/oci/images/build": {
    body: { context_id: "string", image_reference: "string" },
    required: ["context_id", "image_reference"],
  },
  "POST /api/oci/images/pull": { body: { reference: "string" }, required: ["reference"] },
  "GET /api/oci/images": {},
  "GET /api/oci/images/inspect": { query: { reference: "string" }, required_query: "reference" },
  "GET /api/oci/images/history": { query: { reference: "string" }, required_query: "reference" },
  "DELETE /api/oci/images": { query: { reference: "string" }, required_query: "reference" },
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
  "POST /api/functions/:function_id/deploy": { body: {} },
  "POST /api/functions/:function_id/pause": {},
  "POST /api/functions/:function_id/resume": { body: {} },
  "POST /api/functions/:function_id/invoke": { body: INVOKE, answer: RECORD },
  "POST /api/functions/invoke/:name": { body: INVOKE, answer: RECORD },
  "GET /api/functions/:function_id/invocations": { query: { limit: "integer" } },
  "GET /api/functions/:function_id/invocations/:invocation_id": { answer: RECORD },
  "GET /api/functions/:function_id/pool": { answer: POOL },
  "GET /api/functions/pool/stats": { answer: POOL_TOTALS },
  "GET /api/icc/help": GUIDE,
  "GET /api/icc/examples": GUIDE,
  "GET /api/icc/health": GUIDE,
  "GET /api/icc": {},
  "GET /api/icc/streams": {},
  "GET /api/icc/schema": {},
  "GET /api/icc/types": {},
  "GET /api/icc/proto": {},
  "GET /api/icc/descriptor": {},
  "GET /api/icc/dlq": {},
  "GET /api/icc/messages": { query: { container_id: "string", limit: "integer" }, required_query: "container_id" },
  "GET /api/icc/inbox/:container_id": {},
  "GET /api/icc/containers/:container_id/state-version": {},
  "GET /api/containers/:container_id/icc": {},
  "GET /api/containers/:container_id/inbox": {},
  "GET /api/containers/:container_id/messages": {},
  "POST /api/icc/messages": { body: {} },
  "POST /api/icc/messages/broadcast": {
    body: { envelope_b64: "string", targets: "object" },
    required: ["envelope_b64"],
  },
  "POST /api/icc/exec/broadcast": {
    body: { command: "array", timeout_ms: "integer", targets: "object" },
    required: ["command"],
  },
  "POST /api/icc/publish": { body: { envelope_b64: "string" }, required: ["envelope_b64"] },
  "POST /api/icc/ack": { body: ACK },
  "POST /api/icc/replay": { body: { container_id: "string", state: "string", limit: "integer" } },
  "POST /api/icc/dlq/:stream_seq/replay": { body: {} },
  "POST /api/containers/:container_id/icc/publish": { body: {} },
  "POST /api/containers/:container_id/inbox/ack": { body: ACK },
  "POST /api/containers/:container_id/inbox/replay": { body: {} },
  "POST /api/icc/inbox/:container_id/ack": { body: ACK },
  "POST /api/icc/messages/:msg_id/ack": { body: {} },
  "POST /api/icc/inbox/:container_id/replay": { body: {} },
};

/** Every row of the interface. What is not mounted has no fields here. */
export const INTERFACE: Readonly<Record<string, InterfaceRow>> = {
  ...MOUNTED,
  ...Object.fromEntries(NOT_MOUNTED.map((name) => [name, {}])),
};

/** Fields of the interface that are refused until what they name exists. */
export const REFUSED_FIELDS: Readonly<Record<string, string>> = { cluster_id: "there are no clusters" };

/** Fields that the interface's create and update have not: extras with a reason each, and what is refused by name. */
export const EXTRA_CREATE_FIELDS: Readonly<Record<string, string>> = {
  concurrency_limit: "calls in flight of one function",
  api_access: "whether handlers may call the API",
  disk_limit_mb: "what a container may write",
  ports: "ports of this machine that lead into a container",
  egress: "what a container or an instance may reach",
  attach: "whether output of a container waits for who attaches",
  stdin: "whether who attaches writes its standard input",
  network: "the private network of a container",
  dns: "whether containers resolve each other's names",
  secrets: "secrets as files in instances, or those that a build mounts",
  buildfile_path: "the build file in a context",
  dockerfile_path: "the same",
  build_args: "arguments of a build file",
  target_stage: "the stage that becomes the image",
  no_cache: "whether a build runs every step",
  image: "the image of instances",
  oci: "whether the image is the tenant's own",
  gpu_count: "GPUs that each instance of a function holds alone",
  instance_concurrency: "calls that an instance serves at the same time",
  instance_calls_max: "calls after which an instance is replaced",
  reset_between_calls: "whether what calls leave behind in a resident process ends",
  method: "the method of a call's HTTP request",
  headers: "its headers",
  protocol: "how a program of the runtime custom takes calls",
  code_sha256: "the files of a version",
  note: "what people say of a version",
  smoke: "a call that a new version must pass",
  restart: "a policy for containers whose command ends",
  entrypoint: "arguments before the command, in place of the image's",
  volumes: "volumes that a snapshot or fork includes",
  count: "forks of one moment",
  user: "whom the commands of a container run as",
  stop_signal: "the signal that asks a container's command to end",
  health: "a check of a running container",
  ttl_seconds: "containers that are deleted by themselves",
  read_only_root: "containers whose root file system is read-only",
  idle_seconds: "containers that are stopped when nobody uses them",
  content: "of an archive: what older clients send",
  path: "the same",
  strip_components: "the same",
  quota_mb: "what a volume may hold",
  force: "of a pull: whether the registry is asked for what is there",
  platform: "of a pull: which image of an index",
  registry_username: "of a pull: what existing clients send",
  registry_password: "the same",
  timeout_ms: "of a stop: the grace",
  workdir: "of a stream: as exec calls it",
  working_directory: "of an exec: as stream calls it",
  environment: "of an exec: as stream has it",
  stdin_data: "what a command reads",
  capture_output: "sent by clients",
  detach: "the same",
  name: "of a rename: what older clients send",
  async_mode: "accepted where work is operation-driven, refused elsewhere",
  dry_run: "of a start and a resume: sent by clients",
  idempotency_key: "the same",
  labels: "the same",
  placement_hint: "the same",
  envelope_b64: "where a message may also be plain JSON",
  ...Object.fromEntries(
    ["to", "from", "type", "payload", "ttl_ms", "msg_id", "request_id", "trace_id", "correlation_id", "causation_id"]
      .concat("stream_key", "seq", "permission_level")
      .map((field) => [field, "a message in plain JSON"]),
  ),
  ...Object.fromEntries(
    ["lease", "requeue", "delay_ms", "action", "reason", "container_id"].map((field) => [field, "of an ack"]),
  ),
  ...Object.fromEntries(
    ["from_seq", "to_seq", "state", "limit", "replay_to_container"].map((field) => [field, "of a replay"]),
  ),
  source_code: "described as refused: the create contract has no such field",
};
