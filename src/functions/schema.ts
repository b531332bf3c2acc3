/**
 * Shapes of the function concern as zod schemas: requests and records. Validation, types, the API description and the
 * client's types all come from here.
 */
import { z } from "zod";
import { RUNTIME_DEFAULT, RUNTIMES } from "../../runtimes/index.ts";
import { LIMITS } from "../base/limits.ts";
import {
  absolutePath,
  cpuLimit,
  environment,
  epochSeconds,
  memoryLimit,
  resourceName as name,
  nextCursor as next_cursor,
  refused,
  text,
  textBytes,
  whole,
} from "../base/schema.ts";
import { FUNCTION_STATES } from "./states.ts";

const runtimeNames = [...RUNTIMES.keys()];

const timeoutSeconds = whole(LIMITS.timeout_seconds_min, LIMITS.timeout_seconds_max);

const runtimeName = z
  .string()
  .refine((value) => RUNTIMES.has(value), {
    error: `expected one of ${runtimeNames.join(", ")}`,
    params: { expected: runtimeNames },
  })
  .meta({ enum: runtimeNames });
const clusterId = refused(
  "is not supported: this service has no clusters",
  "Must be null: this service has no clusters.",
);
const minInstances = whole(0, LIMITS.max_instances_max);
const maxInstances = whole(1, LIMITS.max_instances_max);
const concurrencyLimit = whole(1, LIMITS.concurrency_limit_max).nullish();
const sourceCode = refused("is not supported: send the handler", "Must be null: send the handler instead.");

/** What each field of a function means, wherever it stands. */
const ABOUT = {
  name: "Name, unique in the tenant and not changeable; without '/', control characters, and leading or trailing spaces.",
  cluster_id: "Always null.",
  description: "Description for people; null if none.",
  handler: `A command line for /bin/sh -c, run directly if it has no shell syntax, or a script that starts with #!<interpreter>; up to ${LIMITS.handler_bytes_max / 1024} KiB.`,
  runtime: "Runtime of the handler.",
  memory_limit_mb: "Memory limit of an instance in MiB.",
  cpu_limit_percent: "CPU limit of an instance in percent of one core; null means no limit.",
  timeout_seconds: "Seconds that a call may wait for an instance, and seconds that it may then run.",
  environment: `Environment of the handler; up to ${LIMITS.environment_entries_max} variables and ${LIMITS.environment_bytes_max / 1024} KiB.`,
  min_instances: "Minimum number of instances, kept ready.",
  max_instances: "Maximum number of instances.",
  concurrency_limit: "Maximum number of calls that wait or run at once; null means no limit.",
  api_access: "Gives the handler HEARTH_URL and HEARTH_KEY, to call the API as its tenant.",
  cleanup_on_exit: "Empties /tmp and /dev/shm after each call.",
  working_directory: "Working directory, an absolute path that exists in the image; null means the image's own.",
  function_id: "Id of the function.",
  version: "Number of the active version.",
} as const;

/** What is wrong between the fields of a function, each of which is right by itself. Null: nothing. */
export function complaintAbout(value: {
  readonly handler: string;
  readonly runtime: string;
  readonly min_instances: number;
  readonly max_instances: number;
}): { readonly field: string; readonly message: string } | null {
  if (value.min_instances > value.max_instances) {
    return { field: "min_instances", message: "must not be greater than max_instances" };
  }
  const message = RUNTIMES.get(value.runtime)?.complaint(value.handler) ?? null;
  return message === null ? null : { field: "handler", message };
}

export const createFunction = z
  .object({
    name: name.describe(ABOUT.name),
    cluster_id: clusterId,
    description: text(LIMITS.description_length_max).nullish().describe(ABOUT.description),
    handler: textBytes(LIMITS.handler_bytes_max).describe(ABOUT.handler),
    runtime: runtimeName.default(RUNTIME_DEFAULT).describe(ABOUT.runtime),
    memory_limit_mb: memoryLimit.default(LIMITS.memory_limit_mb_default).describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: cpuLimit.describe(ABOUT.cpu_limit_percent),
    timeout_seconds: timeoutSeconds.default(LIMITS.timeout_seconds_default).describe(ABOUT.timeout_seconds),
    environment: environment.default({}).describe(ABOUT.environment),
    min_instances: minInstances.default(0).describe(ABOUT.min_instances),
    max_instances: maxInstances.default(LIMITS.max_instances_default).describe(ABOUT.max_instances),
    concurrency_limit: concurrencyLimit.describe(ABOUT.concurrency_limit),
    api_access: z.boolean().default(false).describe(ABOUT.api_access),
    cleanup_on_exit: z.boolean().default(true).describe(ABOUT.cleanup_on_exit),
    working_directory: absolutePath.nullish().describe(ABOUT.working_directory),
    source_code: sourceCode,
  })
  .superRefine((value, context) => {
    const complaint = complaintAbout(value);
    if (complaint) context.addIssue({ code: "custom", path: [complaint.field], message: complaint.message });
  })
  .meta({ id: "CreateFunction" });

export type CreateFunction = z.output<typeof createFunction>;

/** A partial record: what is absent stays as it is, null clears. The name is a function's for good. */
export const updateFunction = z
  .object({
    name: name.optional().describe(ABOUT.name),
    cluster_id: clusterId,
    description: text(LIMITS.description_length_max).nullish().describe(ABOUT.description),
    handler: textBytes(LIMITS.handler_bytes_max).optional().describe(ABOUT.handler),
    runtime: runtimeName.optional().describe(ABOUT.runtime),
    memory_limit_mb: memoryLimit.optional().describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: cpuLimit.describe(ABOUT.cpu_limit_percent),
    timeout_seconds: timeoutSeconds.optional().describe(ABOUT.timeout_seconds),
    environment: environment.optional().describe(ABOUT.environment),
    min_instances: minInstances.optional().describe(ABOUT.min_instances),
    max_instances: maxInstances.optional().describe(ABOUT.max_instances),
    concurrency_limit: concurrencyLimit.describe(ABOUT.concurrency_limit),
    api_access: z.boolean().optional().describe(ABOUT.api_access),
    cleanup_on_exit: z.boolean().optional().describe(ABOUT.cleanup_on_exit),
    working_directory: absolutePath.nullish().describe(ABOUT.working_directory),
    source_code: sourceCode,
  })
  .meta({ id: "UpdateFunction" });

export type UpdateFunction = z.output<typeof updateFunction>;

export const rollbackFunction = z
  .strictObject({ version: whole(1, Number.MAX_SAFE_INTEGER).describe("Version number, as listed by GET …/versions.") })
  .meta({ id: "RollbackFunction" });

/** A call's payload as the text that the handler reads. JSON.stringify recurses: the body's depth has a bound. */
function payloadText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === null ? "" : JSON.stringify(value);
}

const payload = z
  .unknown()
  .transform(payloadText)
  .default("")
  .meta({
    type: ["string", "object", "array", "number", "boolean", "null"],
    description: `Standard input of the handler: the string itself, any other value as JSON text with numbers as doubles, nothing for null. A body has at most ${LIMITS.json_values_max} values on ${LIMITS.json_depth_max} levels: send larger JSON as a string.`,
  });

export const invokeFunction = z
  .object({
    payload,
    environment: environment
      .default({})
      .describe("Variables for this call, in addition to the function's; same names are replaced."),
    timeout_seconds: timeoutSeconds.optional().describe("Timeout of this call in seconds (default: the function's)."),
  })
  .meta({ id: "InvokeFunction" });

export type InvokeFunction = z.output<typeof invokeFunction>;

/** A function as the API shows it. */
export const functionRecord = z
  .object({
    id: z.string().describe("The same as function_id."),
    function_id: z.string().describe(ABOUT.function_id),
    tenant_id: z.string().describe("Id of the tenant that owns it."),
    cluster_id: z.string().nullable().describe(ABOUT.cluster_id),
    owner_node_id: z.string().describe("Node that runs the function."),
    name: z.string().describe(ABOUT.name),
    description: z.string().nullable().describe(ABOUT.description),
    handler: z.string().describe(ABOUT.handler),
    runtime: z.string().describe(ABOUT.runtime),
    state: z.enum(FUNCTION_STATES).describe("State; calls run only in state active. See GET /api/functions/help."),
    current_version: z.int().describe("The same as version."),
    version: z.int().describe(ABOUT.version),
    memory_limit_mb: z.int().describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: z.number().nullable().describe(ABOUT.cpu_limit_percent),
    timeout_seconds: z.int().describe(ABOUT.timeout_seconds),
    environment: z.record(z.string(), z.string()).describe(ABOUT.environment),
    min_instances: z.int().describe(ABOUT.min_instances),
    max_instances: z.int().describe(ABOUT.max_instances),
    concurrency_limit: z.int().nullable().describe(ABOUT.concurrency_limit),
    api_access: z.boolean().describe(ABOUT.api_access),
    cleanup_on_exit: z.boolean().describe(ABOUT.cleanup_on_exit),
    working_directory: z.string().nullable().describe(ABOUT.working_directory),
    created_at: epochSeconds,
    updated_at: epochSeconds.describe(
      "Time of the last change of state, version or field, in seconds since the Unix epoch.",
    ),
    last_invoked_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null if never."),
    invocation_count: z.int().describe("Number of all recorded calls, deleted records included."),
    error_count: z.int().describe("Number of recorded calls with another status than success."),
    error_message: z
      .string()
      .nullable()
      .describe("Reason why the last deployment failed; null unless the state is error."),
  })
  .meta({ id: "Function" });

export type FunctionRecord = Readonly<z.output<typeof functionRecord>>;

/** What belongs to a version and not to its function. Never changes once written. */
export type VersionedFields = Pick<
  FunctionRecord,
  | "handler"
  | "runtime"
  | "environment"
  | "memory_limit_mb"
  | "cpu_limit_percent"
  | "timeout_seconds"
  | "working_directory"
>;

/** A version as the API shows it. */
const versionRecord = functionRecord
  .pick({
    function_id: true,
    handler: true,
    runtime: true,
    environment: true,
    memory_limit_mb: true,
    cpu_limit_percent: true,
    timeout_seconds: true,
    working_directory: true,
    created_at: true,
  })
  .extend({
    id: z.string().describe("Id of the version."),
    version: z.int().describe("Version number, from 1 in each function."),
    description: z.string().nullable().describe("Description of the function when the version was created."),
    is_active: z.boolean().describe("True if this is the active version."),
  })
  .meta({ id: "FunctionVersion" });

export type VersionRecord = Readonly<z.output<typeof versionRecord>>;

const milliseconds = z.number().min(0);

/** Where the time of one call went, in milliseconds. Phases that did not happen are absent. */
const invocationTimings = z
  .object({
    queue: milliseconds.describe("From the arrival to the hand-over to an instance."),
    cell: milliseconds.optional().describe("Binding an instance to the function: writing its limits."),
    network: milliseconds.optional().describe("Start of the instance, if none was ready: waiting for a network slot."),
    rootfs: milliseconds.optional().describe("Start of the instance: writing its bundle."),
    start: milliseconds
      .optional()
      .describe("Start of the instance: from the OCI runtime's start until minit is ready."),
    handler: milliseconds.describe("From the spawn of the handler to its exit, measured by minit."),
    total: milliseconds.describe("From the arrival to the outcome."),
  })
  .meta({
    id: "InvocationTimings",
    description: "Phases of the call in milliseconds; phases that did not happen are absent.",
  });

export type InvocationTimings = Readonly<z.output<typeof invocationTimings>>;

/** One call, as the API shows it. */
export const invocationRecord = z
  .object({
    invocation_id: z.string().describe("Id of the invocation."),
    function_id: z.string().describe("Id of the function."),
    function_name: z.string().describe("Name of the function at the time of the call."),
    version: z.int().describe("Version that served the call."),
    execution_node_id: z.string().describe("Node that ran the call."),
    status: z
      .enum(["success", "failed", "timeout"])
      .describe("success: exit code 0; timeout: killed at its deadline; failed: all other results."),
    started_at: epochSeconds.describe("Arrival of the call, in seconds since the Unix epoch."),
    ended_at: epochSeconds.describe("End of the call, in seconds since the Unix epoch."),
    duration_ms: z.int().describe("Run time of the handler, in whole milliseconds."),
    exit_code: z
      .int()
      .nullable()
      .describe("Exit code of the handler; 128 plus the signal number if a signal killed it; null if it has none."),
    stdout: z.string().describe("Standard output as UTF-8, up to 1 MiB."),
    stderr: z.string().describe("Standard error as UTF-8, up to 1 MiB."),
    stdout_truncated: z.boolean().describe("True if the handler wrote more standard output than the daemon keeps."),
    stderr_truncated: z.boolean().describe("True if the handler wrote more standard error than the daemon keeps."),
    error_message: z.string().nullable().describe("Reason if the status is not success, otherwise null."),
    cold_start: z.boolean().describe("False if a ready instance of this version served the call."),
    instance_nonce: z
      .string()
      .nullable()
      .describe("Boot nonce of the container that served the call: equal values mean the same container."),
    timings: invocationTimings,
  })
  .meta({ id: "Invocation" });

export type InvocationRecord = Readonly<z.output<typeof invocationRecord>>;
export type InvocationStatus = InvocationRecord["status"];

const count = z.int().min(0);

const instanceCounts = z.object({
  warming_count: count.describe("Starting instances."),
  ready_count: count.describe("Idle instances that can serve a call."),
  busy_count: count.describe("Instances that serve a call."),
  recycling_count: count.describe("Instances in clean-up after a call."),
  terminating_count: count.describe("Instances in removal."),
  total_count: count.describe("Sum of the five."),
});

export const functionPool = instanceCounts
  .extend({
    function_id: z.string().describe(ABOUT.function_id),
    calls_running: count.describe("Calls in flight. Instances of a runtime with concurrency serve several at once."),
    queued_count: count.describe("Calls waiting for an instance."),
    last_error: z.string().nullable().describe("Reason why the last start failed; null if it succeeded."),
    superseded_count: count.describe(
      "Instances of superseded versions, kept for a rollback and not counted in max_instances.",
    ),
  })
  .meta({ id: "FunctionPool" });

export const functionPools = z
  .object({
    pools: z.array(functionPool).describe("Functions with an instance or a waiting call, newest first."),
  })
  .meta({ id: "FunctionPools" });

/** Cells of one instance class. */
const cellClass = z
  .object({
    class: z.string().describe("Key of the class: its runtime, then a digest of image, runtime and engine options."),
    cells_target: count.describe("Cells that the class has by its share of the budget."),
    cells: count.describe("Started containers of the class that belong to no function yet."),
    cells_starting: count.describe("Cells of the class that are being started."),
    cell_hit_count: count.describe("Cold calls of its functions that found a cell."),
    cell_miss_count: count.describe("Cold calls of its functions that found no cell."),
  })
  .meta({ id: "CellClass" });

/** Of the node and all tenants: in answers to the operator alone. */
const nodeCounts = {
  cells: count.optional().describe("Cells: started containers that belong to no function yet."),
  cells_starting: count.optional().describe("Starting cells."),
  started_count: count.optional().describe("Containers started; all counts from here on start with the daemon."),
  start_failed_count: count.optional().describe("Failed starts."),
  crashed_count: count.optional().describe("Instances that exited unexpectedly."),
  evicted_count: count.optional().describe("Idle instances evicted for capacity or memory."),
  expired_count: count.optional().describe("Idle instances removed at the end of their keep-alive."),
  remove_failed_count: count.optional().describe("Failed removals, which are retried."),
  cell_hit_count: count.optional().describe("Cold calls with a ready cell."),
  cell_miss_count: count.optional().describe("Cold calls without a ready cell."),
  classes: z
    .array(cellClass)
    .optional()
    .describe(
      "Instance classes that share the cells, the one needed last at the end. A class without need is not listed.",
    ),
};

export const poolStats = instanceCounts
  .extend({
    calls_running: count.describe("Calls in flight."),
    queued: count.describe("Calls waiting for an instance."),
    ...nodeCounts,
  })
  .meta({
    id: "PoolStats",
    description: "For the operator: all tenants. For others: their own functions, without the counts of the node.",
  });
export type PoolStats = z.output<typeof poolStats>;

export const functionList = z
  .object({ functions: z.array(functionRecord).describe("Newest first."), next_cursor })
  .meta({ id: "FunctionList" });
export const versionList = z
  .object({ versions: z.array(versionRecord).describe("Newest first."), next_cursor })
  .meta({ id: "FunctionVersionList" });
export const invocationList = z
  .object({ invocations: z.array(invocationRecord).describe("Newest first."), next_cursor })
  .meta({ id: "InvocationList" });
export const namedFunction = functionRecord
  .extend({ found: z.literal(true).describe("Always true; an unknown function is a 404.") })
  .meta({ id: "NamedFunction" });
export const functionsReadiness = z
  .object({
    status: z
      .enum(["ok", "degraded"])
      .describe("degraded: every container start since the start of the daemon failed."),
    concern: z.literal("functions").describe("Concern of this health report."),
    runtimes: z.array(z.string()).describe("Available runtimes."),
    pool: poolStats,
  })
  .meta({ id: "FunctionsHealth" });

export type FunctionsReadiness = z.output<typeof functionsReadiness>;
