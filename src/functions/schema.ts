/**
 * Shapes of the function concern: requests as zod schemas (validation, types and the coming OpenAPI from one place),
 * records as they stand in the store and on the wire.
 */
import { z } from "zod";
import { RUNTIME_DEFAULT, RUNTIMES } from "../../runtimes/index.ts";
import type { EpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import { queryLimit } from "../http/input.ts";
import type { FunctionState } from "./states.ts";

const runtimeNames = [...RUNTIMES.keys()];

/** A number without a fraction in [min, max]; a fraction is a bad value (400), not a wrong type (422). */
const whole = (min: number, max: number) =>
  z.number().refine(Number.isInteger, { error: "expected a whole number" }).min(min).max(max);

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
  .refine((value) => RUNTIMES.has(value), { error: `expected one of ${runtimeNames.join(", ")}` });
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
  .optional();

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
  });

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
export interface FunctionRecord {
  readonly id: string;
  readonly function_id: string;
  readonly tenant_id: string;
  readonly cluster_id: string | null;
  readonly owner_node_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly handler: string;
  readonly runtime: string;
  readonly state: FunctionState;
  readonly current_version: number;
  readonly version: number;
  readonly memory_limit_mb: number;
  /** Percent of one core; null means no quota. */
  readonly cpu_limit_percent: number | null;
  readonly timeout_seconds: number;
  readonly environment: Readonly<Record<string, string>>;
  readonly min_instances: number;
  readonly max_instances: number;
  /** Calls that may wait or run at once; null means no limit. */
  readonly concurrency_limit: number | null;
  /** Whether its handlers get `HEARTH_URL` and `HEARTH_KEY`. */
  readonly api_access: boolean;
  readonly cleanup_on_exit: boolean;
  readonly working_directory: string | null;
  readonly created_at: EpochSeconds;
  readonly updated_at: EpochSeconds;
  readonly last_invoked_at: EpochSeconds | null;
  readonly invocation_count: number;
  readonly error_count: number;
  readonly error_message: string | null;
}

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
export interface VersionRecord extends VersionedFields {
  readonly id: string;
  readonly function_id: string;
  readonly version: number;
  /** Of the function when the version was made. */
  readonly description: string | null;
  readonly is_active: boolean;
  readonly created_at: EpochSeconds;
}

export type InvocationStatus = "success" | "failed" | "timeout";

/** Where the time of one call went, in milliseconds. Phases that did not happen are absent. */
export interface InvocationTimings {
  /** From the arrival to the hand-over to an instance. */
  queue: number;
  /** Binding an instance to the function: limits written. */
  cell?: number;
  /** Of the start of the instance that served, when none was ready: waiting for a network slot, … */
  network?: number;
  /** … writing its bundle, … */
  rootfs?: number;
  /** … and from the OCI runtime's start to minit's first word. */
  start?: number;
  /** From the spawn of the handler to its exit, seen by minit. */
  handler: number;
  /** From the arrival to the outcome. */
  total: number;
}

/** One call, as the API shows it. */
export interface InvocationRecord {
  readonly invocation_id: string;
  readonly function_id: string;
  readonly function_name: string;
  readonly version: number;
  readonly execution_node_id: string;
  readonly status: InvocationStatus;
  readonly started_at: EpochSeconds;
  readonly ended_at: EpochSeconds;
  readonly duration_ms: number;
  readonly exit_code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
  readonly error_message: string | null;
  readonly cold_start: boolean;
  /** The boot nonce of the container that served: equal values mean the same container. */
  readonly instance_nonce: string | null;
  readonly timings: InvocationTimings;
}
