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
  "Refused unless null: this service has no clusters.",
);
const minInstances = whole(0, LIMITS.max_instances_max);
const maxInstances = whole(1, LIMITS.max_instances_max);
const concurrencyLimit = whole(1, LIMITS.concurrency_limit_max).nullish();
const sourceCode = refused(
  "is not part of the request: a function is a handler, a runtime and its image",
  "Refused unless null: a function is a handler, a runtime and its image.",
);

/** What each field of a function means, wherever it stands. */
const ABOUT = {
  name: "Unique in the tenant, and the function's for good. Without '/', control characters and spaces at its ends.",
  cluster_id: "Its cluster; null: none.",
  description: "For people; null: none.",
  handler: `A line for /bin/sh -c, run directly where it has no shell syntax, or a script that begins with #!<interpreter>; up to ${LIMITS.handler_bytes_max / 1024} KiB.`,
  runtime: "Runtime of the handler.",
  memory_limit_mb: "Memory of an instance, in MiB.",
  cpu_limit_percent: "Percent of one core for an instance; null: no quota.",
  timeout_seconds: "Seconds that a call may wait for an instance, and seconds that it may then run.",
  environment: `Variables of the handler, by name; up to ${LIMITS.environment_entries_max} and ${LIMITS.environment_bytes_max / 1024} KiB.`,
  min_instances: "Instances that are kept ready.",
  max_instances: "Instances at most.",
  concurrency_limit: "Calls that may wait or run at once; null: no limit.",
  api_access: "True: the handler gets HEARTH_URL and HEARTH_KEY, with which it may call the API for its tenant.",
  cleanup_on_exit: "Whether /tmp and /dev/shm are emptied after each call.",
  working_directory: "An absolute path that exists in the image; null: the image's own.",
  function_id: "Of the function.",
  version: "The version that the function points to.",
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
  .strictObject({ version: whole(1, Number.MAX_SAFE_INTEGER).describe("One that GET …/versions lists.") })
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
    description: `Standard input of the handler: a string as it is, any other value as its JSON text with numbers as doubles, null as nothing. The body holds at most ${LIMITS.json_values_max} values on ${LIMITS.json_depth_max} levels: send larger JSON as a string.`,
  });

export const invokeFunction = z
  .object({
    payload,
    environment: environment.default({}).describe("Variables for this call, on top of the function's."),
    timeout_seconds: timeoutSeconds.optional().describe("For this call; the function's unless given."),
  })
  .meta({ id: "InvokeFunction" });

export type InvokeFunction = z.output<typeof invokeFunction>;

/** A function as the API shows it. */
export const functionRecord = z
  .object({
    id: z.string().describe("The same as function_id."),
    function_id: z.string().describe(ABOUT.function_id),
    tenant_id: z.string().describe("Of its owner."),
    cluster_id: z.string().nullable().describe(ABOUT.cluster_id),
    owner_node_id: z.string().describe("The node that runs it."),
    name: z.string().describe(ABOUT.name),
    description: z.string().nullable().describe(ABOUT.description),
    handler: z.string().describe(ABOUT.handler),
    runtime: z.string().describe(ABOUT.runtime),
    state: z.enum(FUNCTION_STATES).describe("Calls run in active alone; see GET /api/functions/help."),
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
    updated_at: epochSeconds.describe("Seconds since the Unix epoch, of the last change of state, version or field."),
    last_invoked_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null: never."),
    invocation_count: z.int().describe("Calls that were recorded, whatever became of the records."),
    error_count: z.int().describe("Of these, those whose status is not success."),
    error_message: z.string().nullable().describe("Why the last deployment failed; null unless the state is error."),
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
    id: z.string().describe("Of the version."),
    version: z.int().describe("Counted from 1 in each function."),
    description: z.string().nullable().describe("Of the function when the version was made."),
    is_active: z.boolean().describe("True if the function points to it."),
  })
  .meta({ id: "FunctionVersion" });

export type VersionRecord = Readonly<z.output<typeof versionRecord>>;

const milliseconds = z.number().min(0);

/** Where the time of one call went, in milliseconds. Phases that did not happen are absent. */
const invocationTimings = z
  .object({
    queue: milliseconds.describe("From the arrival to the hand-over to an instance."),
    cell: milliseconds.optional().describe("Binding an instance to the function: limits written."),
    network: milliseconds
      .optional()
      .describe("Of the start of the instance that served, when none was ready: waiting for a network slot."),
    rootfs: milliseconds.optional().describe("Of that start: writing its bundle."),
    start: milliseconds.optional().describe("Of that start: from the OCI runtime's start to minit's first word."),
    handler: milliseconds.describe("From the spawn of the handler to its exit, seen by minit."),
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
    invocation_id: z.string().describe("Of this call."),
    function_id: z.string().describe("Of the function."),
    function_name: z.string().describe("When it was called."),
    version: z.int().describe("The version that served."),
    execution_node_id: z.string().describe("The node that ran it."),
    status: z
      .enum(["success", "failed", "timeout"])
      .describe("success: exit code 0; timeout: ended at its deadline; failed: all else."),
    started_at: epochSeconds.describe("When the call arrived, in seconds since the Unix epoch."),
    ended_at: epochSeconds.describe("When its outcome was known, in seconds since the Unix epoch."),
    duration_ms: z.int().describe("Of the handler, in whole milliseconds."),
    exit_code: z
      .int()
      .nullable()
      .describe(
        "Of the handler, 128 and the signal's number where one ended it; null where it did not come to an exit.",
      ),
    stdout: z.string().describe("Standard output as UTF-8, up to 1 MiB."),
    stderr: z.string().describe("Standard error, in the same way."),
    stdout_truncated: z.boolean().describe("True if the handler wrote more than is kept."),
    stderr_truncated: z.boolean().describe("The same of stderr."),
    error_message: z.string().nullable().describe("Why the status is not success; null where it is."),
    cold_start: z
      .boolean()
      .describe("False when the instance that served was already ready for this function and version."),
    instance_nonce: z
      .string()
      .nullable()
      .describe("The boot nonce of the container that served: equal values mean the same container."),
    timings: invocationTimings,
  })
  .meta({ id: "Invocation" });

export type InvocationRecord = Readonly<z.output<typeof invocationRecord>>;
export type InvocationStatus = InvocationRecord["status"];

const count = z.int().min(0);

const instanceCounts = z.object({
  warming_count: count.describe("Instances that are being started."),
  ready_count: count.describe("Started and free to be called."),
  busy_count: count.describe("With a call."),
  recycling_count: count.describe("Being cleaned up after a call."),
  terminating_count: count.describe("Being removed."),
  total_count: count.describe("The sum of the five."),
});

export const functionPool = instanceCounts
  .extend({
    function_id: z.string().describe(ABOUT.function_id),
    queued_count: count.describe("Calls that wait for an instance."),
    last_error: z.string().nullable().describe("Why the last start failed; null: it did not."),
    superseded_count: count.describe(
      "Instances of superseded versions: kept for a rollback, outside of max_instances.",
    ),
  })
  .meta({ id: "FunctionPool" });

export const functionPools = z
  .object({
    pools: z
      .array(functionPool)
      .describe("Functions that have an instance or a waiting call, newest function first; all others have none."),
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
  cells: count.optional().describe("Started containers that belong to no function yet."),
  cells_starting: count.optional().describe("Cells that are being started."),
  started_count: count.optional().describe("Containers started since the start of the daemon, as are all that follow."),
  start_failed_count: count.optional().describe("Starts that failed."),
  crashed_count: count.optional().describe("Instances that ended by themselves."),
  evicted_count: count.optional().describe("Idle instances removed because their room or memory was needed."),
  expired_count: count.optional().describe("Idle instances removed at the end of their keep-alive."),
  remove_failed_count: count.optional().describe("Removals that failed and are tried again."),
  cell_hit_count: count.optional().describe("Cold calls that found a cell."),
  cell_miss_count: count.optional().describe("Cold calls that found no cell."),
  classes: z
    .array(cellClass)
    .optional()
    .describe(
      "Instance classes that share the cells, the one needed last at the end. A class without need is not listed.",
    ),
};

export const poolStats = instanceCounts
  .extend({
    queued: count.describe("Calls that wait for an instance."),
    ...nodeCounts,
  })
  .meta({
    id: "PoolStats",
    description: "To the operator of all tenants; to others of their own functions, without the counts of the node.",
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
  .extend({ found: z.literal(true).describe("Always true: what is not found is answered 404.") })
  .meta({ id: "NamedFunction" });
export const functionsReadiness = z
  .object({
    status: z
      .enum(["ok", "degraded"])
      .describe("degraded: since the start of the daemon containers failed to start, and none came up."),
    concern: z.literal("functions").describe("Concern that the readiness is of."),
    runtimes: z.array(z.string()).describe("Runtimes that a function may have."),
    pool: poolStats,
  })
  .meta({ id: "FunctionsHealth" });

export type FunctionsReadiness = z.output<typeof functionsReadiness>;
