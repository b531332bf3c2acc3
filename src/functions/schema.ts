/**
 * Shapes of the function concern as zod schemas: requests and records. Validation, types, the API description and the
 * client's types all come from here.
 */
import { z } from "zod";
import { RUNTIME_DEFAULT, RUNTIMES } from "../../runtimes/index.ts";
import { LIMITS } from "../base/limits.ts";
import { queryLimit } from "../http/input.ts";
import { epochSeconds, whole } from "../http/schema.ts";
import { FUNCTION_STATES } from "./states.ts";

const runtimeNames = [...RUNTIMES.keys()];

const withoutNul = z.string().refine((value) => !value.includes("\0"), { error: "must not hold a NUL character" });

const text = (length_max: number) => withoutNul.max(length_max);

/** Text that the kernel takes, whose bounds are in bytes. */
const textBytes = (bytes_max: number) =>
  withoutNul.refine((value) => Buffer.byteLength(value) <= bytes_max, {
    error: `must not be larger than ${bytes_max} bytes`,
  });

const name = z
  .string()
  .min(1)
  .max(LIMITS.function_name_length_max)
  .refine((value) => !/[/\p{Cc}]/u.test(value), { error: "must not hold '/' or control characters" })
  .refine((value) => value.trim() === value && value !== "." && value !== "..", {
    error: "must not start or end with a space, nor be '.' or '..'",
  });

const environment = z
  .record(z.string(), z.string())
  .refine((map) => Object.keys(map).length <= LIMITS.environment_entries_max, {
    error: `must not have more than ${LIMITS.environment_entries_max} entries`,
  })
  .refine((map) => Object.keys(map).every((key) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(key)), {
    error: "names must be letters, digits and '_', not starting with a digit",
  })
  .refine((map) => Object.values(map).every((value) => !value.includes("\0")), {
    error: "values must not hold a NUL character",
  })
  .refine((map) => mapBytes(map) <= LIMITS.environment_bytes_max, {
    error: `must not be larger than ${LIMITS.environment_bytes_max} bytes`,
  });

function mapBytes(map: Readonly<Record<string, string>>): number {
  let bytes = 0;
  for (const [key, value] of Object.entries(map)) bytes += Buffer.byteLength(key) + Buffer.byteLength(value) + 2;
  return bytes;
}

const absolutePath = textBytes(LIMITS.path_bytes_max).refine((value) => value.startsWith("/"), {
  error: "must be an absolute path",
});

const timeoutSeconds = whole(LIMITS.timeout_seconds_min, LIMITS.timeout_seconds_max);

const runtimeName = z
  .string()
  .refine((value) => RUNTIMES.has(value), { error: `expected one of ${runtimeNames.join(", ")}` })
  .meta({ enum: runtimeNames });
const memoryLimit = whole(LIMITS.memory_limit_mb_min, LIMITS.memory_limit_mb_max);
const cpuLimit = z.number().min(LIMITS.cpu_limit_percent_min).max(LIMITS.cpu_limit_percent_max).nullish();
const clusterId = text(LIMITS.function_name_length_max).min(1).nullish();
const minInstances = whole(0, LIMITS.max_instances_max);
const maxInstances = whole(1, LIMITS.max_instances_max);
const concurrencyLimit = whole(1, LIMITS.concurrency_limit_max).nullish();
const sourceCode = z
  .unknown()
  .refine((value) => value === undefined, {
    error: "is not part of the request: a function is a handler, a runtime and its image",
  })
  .optional()
  .meta({ not: {} });

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
    name,
    cluster_id: clusterId,
    description: text(LIMITS.description_length_max).nullish(),
    handler: textBytes(LIMITS.handler_bytes_max),
    runtime: runtimeName.default(RUNTIME_DEFAULT),
    memory_limit_mb: memoryLimit.default(LIMITS.memory_limit_mb_default),
    cpu_limit_percent: cpuLimit,
    timeout_seconds: timeoutSeconds.default(LIMITS.timeout_seconds_default),
    environment: environment.default({}),
    min_instances: minInstances.default(0),
    max_instances: maxInstances.default(LIMITS.max_instances_default),
    concurrency_limit: concurrencyLimit,
    api_access: z.boolean().default(false),
    cleanup_on_exit: z.boolean().default(true),
    working_directory: absolutePath.nullish(),
    source_code: sourceCode,
  })
  .superRefine((value, context) => {
    const complaint = complaintAbout(value);
    if (complaint) context.addIssue({ code: "custom", path: [complaint.field], message: complaint.message });
  })
  .meta({ id: "CreateFunction" });

export type CreateFunction = z.output<typeof createFunction>;

/** A partial record: what is absent stays as it is, null clears. Name and cluster are a function's for good. */
export const updateFunction = z.object({
  name: name.optional(),
  cluster_id: clusterId,
  description: text(LIMITS.description_length_max).nullish(),
  handler: textBytes(LIMITS.handler_bytes_max).optional(),
  runtime: runtimeName.optional(),
  memory_limit_mb: memoryLimit.optional(),
  cpu_limit_percent: cpuLimit,
  timeout_seconds: timeoutSeconds.optional(),
  environment: environment.optional(),
  min_instances: minInstances.optional(),
  max_instances: maxInstances.optional(),
  concurrency_limit: concurrencyLimit,
  api_access: z.boolean().optional(),
  cleanup_on_exit: z.boolean().optional(),
  working_directory: absolutePath.nullish(),
  source_code: sourceCode,
});

export type UpdateFunction = z.output<typeof updateFunction>;

export const rollbackFunction = z.strictObject({ version: whole(1, Number.MAX_SAFE_INTEGER) });

export const invokeFunction = z.object({
  payload: z.string().default(""),
  environment: environment.default({}),
  timeout_seconds: timeoutSeconds.optional(),
});

export type InvokeFunction = z.output<typeof invokeFunction>;

export const listQuery = z.object({ limit: queryLimit() });

/** The newest records that fit into one answer. */
export interface Listed<Item> {
  readonly items: readonly Item[];
  /** Whether `list_bytes_max` left out records that `limit` would have allowed. */
  readonly is_cut: boolean;
}

/** A function as the API shows it (wire-facts §9). */
export const functionRecord = z
  .object({
    id: z.string(),
    function_id: z.string(),
    tenant_id: z.string(),
    cluster_id: z.string().nullable(),
    owner_node_id: z.string(),
    name: z.string(),
    description: z.string().nullable(),
    handler: z.string(),
    runtime: z.string(),
    state: z.enum(FUNCTION_STATES),
    current_version: z.int(),
    version: z.int(),
    memory_limit_mb: z.int(),
    cpu_limit_percent: z.number().nullable().describe("Percent of one core; null means no quota."),
    timeout_seconds: z.int(),
    environment: z.record(z.string(), z.string()),
    min_instances: z.int(),
    max_instances: z.int(),
    concurrency_limit: z.int().nullable().describe("Calls that may wait or run at once; null means no limit."),
    api_access: z.boolean().describe("Whether its handlers get HEARTH_URL and HEARTH_KEY."),
    cleanup_on_exit: z.boolean(),
    working_directory: z.string().nullable(),
    created_at: epochSeconds,
    updated_at: epochSeconds,
    last_invoked_at: epochSeconds.nullable(),
    invocation_count: z.int(),
    error_count: z.int(),
    error_message: z.string().nullable(),
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

/** A version as the API shows it (wire-facts §9). */
export const versionRecord = functionRecord
  .pick({
    id: true,
    function_id: true,
    version: true,
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
    description: z.string().nullable().describe("Of the function when the version was made."),
    is_active: z.boolean(),
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
  .meta({ id: "InvocationTimings" });

export type InvocationTimings = Readonly<z.output<typeof invocationTimings>>;

/** One call, as the API shows it. */
export const invocationRecord = z
  .object({
    invocation_id: z.string(),
    function_id: z.string(),
    function_name: z.string(),
    version: z.int(),
    execution_node_id: z.string(),
    status: z.enum(["success", "failed", "timeout"]),
    started_at: epochSeconds,
    ended_at: epochSeconds,
    duration_ms: z.int(),
    exit_code: z.int().nullable(),
    stdout: z.string(),
    stderr: z.string(),
    stdout_truncated: z.boolean(),
    stderr_truncated: z.boolean(),
    error_message: z.string().nullable(),
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
  warming_count: count,
  ready_count: count.describe("Started and free to be called."),
  busy_count: count,
  recycling_count: count,
  terminating_count: count,
  total_count: count.describe("The sum of the five."),
});

export const functionPool = instanceCounts
  .extend({
    function_id: z.string(),
    queued_count: count,
    last_error: z.string().nullable(),
    superseded_count: count.describe(
      "Instances of superseded versions: kept for a rollback, outside of max_instances.",
    ),
  })
  .meta({ id: "FunctionPool" });

export const poolStats = instanceCounts
  .extend({
    cells: count.describe("Started containers that belong to no function yet."),
    cells_starting: count,
    queued: count,
    started_count: count.describe("Since the start of the daemon, as are those that follow."),
    start_failed_count: count,
    crashed_count: count,
    evicted_count: count,
    expired_count: count,
    remove_failed_count: count,
    cell_hit_count: count,
    cell_miss_count: count.describe("Cold calls that found no cell."),
  })
  .meta({ id: "PoolStats" });

/** Of a list answer: it stands there only where `list_bytes_max` left out records that `limit` would have allowed. */
const truncated = z.literal(true).optional();

export const functionList = z.object({ functions: z.array(functionRecord), truncated });
export const versionList = z.object({ versions: z.array(versionRecord), truncated });
export const invocationList = z.object({ invocations: z.array(invocationRecord), truncated });
export const namedFunction = functionRecord.extend({ found: z.literal(true) }).meta({ id: "NamedFunction" });
export const functionsReadiness = z
  .object({
    status: z.enum(["ok", "degraded"]),
    concern: z.literal("functions"),
    runtimes: z.array(z.string()),
    pool: poolStats,
  })
  .meta({ id: "FunctionsHealth" });

export type FunctionsReadiness = z.output<typeof functionsReadiness>;
