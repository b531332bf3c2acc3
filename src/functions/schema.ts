/**
 * Shapes of the function concern as zod schemas: requests and records. Validation, types, the API description and the
 * client's types all come from here.
 */
import { z } from "zod";
import { RUNTIME_DEFAULT, RUNTIMES, runtimeOf } from "../../runtimes/index.ts";
import { SCOPES } from "../base/caller.ts";
import { JsonText } from "../base/json-text.ts";
import { LIMITS } from "../base/limits.ts";
import {
  absolutePath,
  cpuLimit,
  egress,
  environment,
  epochSeconds,
  memoryLimit,
  newName as name,
  nextCursor as next_cursor,
  refused,
  resourceName,
  secretEnvironment,
  secretName,
  text,
  textBytes,
  whole,
} from "../base/schema.ts";
import { handlerHint } from "./foreign-handlers.ts";
import { httpFields, payloadComplaint } from "./http-fields.ts";
import { FUNCTION_STATES } from "./states.ts";

/** The image of versions that name none: the daemon mounts it at its start, and keeps cells of it. */
export const PROFILE = "prod";

/**
 * True for a version with an image of its own, an image of the tenant or a release of a profile, which no other image replaces. False
 * for one on the image that all versions share.
 */
export const hasOwnImage = ({ image, oci }: { readonly image: string; readonly oci: boolean }): boolean =>
  oci || image !== PROFILE;

const runtimeNames = [...RUNTIMES.keys()];

const timeoutSeconds = whole(LIMITS.timeout_seconds_min, LIMITS.timeout_seconds_max);

const runtimeName = z
  .string()
  .overwrite((value) => runtimeOf(value)?.name ?? value)
  .refine((value) => RUNTIMES.has(value), {
    error: `expected one of ${runtimeNames.join(", ")}`,
    params: { expected: runtimeNames },
  })
  .meta({ type: "string", enum: [...RUNTIMES.values()].flatMap(({ name, aliases }) => [name, ...aliases]) });
const clusterId = refused(
  "is not supported: this service has no clusters",
  "Must be null: this service has no clusters.",
);
const minInstances = whole(0, LIMITS.max_instances_max);
const maxInstances = whole(1, LIMITS.max_instances_max);
const concurrencyLimit = whole(1, LIMITS.concurrency_limit_max).nullish();
const sourceCode = refused(
  "is not supported: send the handler, or upload code",
  "Must be null: send the handler, or upload code.",
);
const secretFiles = z
  .array(secretName)
  .max(LIMITS.function_secrets_max)
  .refine((names) => new Set(names).size === names.length, { error: "must not contain a name twice" });
const instanceConcurrency = whole(1, LIMITS.resident_calls_max);
const instanceCallsMax = whole(1, LIMITS.instance_calls_max).nullish();
const gpuCount = whole(0, LIMITS.function_gpus_max);
const protocol = z.enum(["http", "lambda"]).nullish();
const codeDigest = z
  .string()
  .regex(/^[0-9a-f]{64}$/, { error: "must be 64 hexadecimal digits" })
  .nullish();
const image = text(LIMITS.image_reference_length_max).min(1).nullish();
const note = text(LIMITS.version_note_length_max).nullish();

/** What each field of a function means, wherever it stands. */
const ABOUT = {
  name: "Name, unique in the tenant and not changeable; without '/', control characters, and leading or trailing spaces.",
  cluster_id: "Always null.",
  description: "Description for people; null if none.",
  handler: `What the runtime runs: of shell and custom a command line, of nodejs file.mjs#export, of python3 file.py:function; up to ${LIMITS.handler_bytes_max / 1024} KiB.`,
  runtime: "Runtime of the handler.",
  image: `Image of the instances: a profile, such as ${PROFILE}, rlm, rlm:stable or rlm@<version>, or with oci the reference or id of an image that the tenant has.`,
  oci: "True if image is an OCI image of the tenant.",
  image_id:
    "Id of the image, which stays for the version; null if unknown. A tag or channel that names another image later changes no version.",
  memory_limit_mb: "Memory limit of an instance in MiB.",
  cpu_limit_percent: "CPU limit of an instance in percent of one core; null means no limit.",
  timeout_seconds: "Seconds that a call may wait for an instance, and seconds that it may then run.",
  environment: `Environment of the handler; up to ${LIMITS.environment_entries_max} variables and ${LIMITS.environment_bytes_max / 1024} KiB. A value is text, or {"secret": NAME} for the value of a secret.`,
  secrets: "Names of secrets that instances have as files in /run/secrets.",
  egress: 'Outbound traffic of instances: "on", "off", or a list of allowed destinations ("203.0.113.0/24:443/tcp").',
  instance_concurrency: "Calls that one instance serves at the same time; above 1 for resident runtimes alone.",
  instance_calls_max: "Calls after which an instance is replaced; null means no limit.",
  gpu_count: `GPUs that each instance holds alone; at most ${LIMITS.function_gpus_max}.`,
  protocol:
    "How a command of the runtime custom takes calls: http (POST / on $PORT) or lambda (AWS Lambda Runtime API); null for other runtimes.",
  code_sha256: "Digest of the code, which instances have at /function; null if there is none.",
  code_size_bytes: "Size of the files of the code in bytes; null without code.",
  made_by: "Name of the key that made the version; null if unknown.",
  note: "Note of the person who made the version; null if none.",
  min_instances: "Minimum number of instances, kept ready.",
  max_instances: "Maximum number of instances.",
  concurrency_limit: "Maximum number of calls that wait or run at once; null means no limit.",
  api_access: "Gives the handler HEARTH_URL and HEARTH_KEY, to call the API as its tenant.",
  api_scopes:
    "Scopes of HEARTH_KEY: those of the key that made the version, without admin; none for a version made without api_access.",
  cleanup_on_exit:
    "What a process leaves behind ends with it: processes of the command of a call, or of the resident process, and files in /tmp and /dev/shm. False: those of a command stay for the next call.",
  reset_between_calls:
    "Ends what calls leave behind in a resident process once none runs (processes, timers, open handles), and empties /tmp and /dev/shm (not of custom). False: all of it stays for the next calls, as the connections of a pool. Always false for the runtime shell.",
  working_directory:
    "Working directory, an absolute path that exists in the image or below /function; null means /function with code, else that of the image, else /.",
  function_id: "Id of the function.",
  version: "Number of the active version.",
} as const;

/** What is wrong between the fields of a function, each of which is right by itself. Null: nothing. */
export function complaintAbout(value: {
  readonly handler: string;
  readonly runtime: string;
  readonly min_instances: number;
  readonly max_instances: number;
  readonly instance_concurrency: number;
  readonly instance_calls_max?: number | null | undefined;
  readonly protocol?: "http" | "lambda" | null | undefined;
  readonly reset_between_calls: boolean;
}): { readonly field: string; readonly message: string; readonly hint?: string | undefined } | null {
  if (value.min_instances > value.max_instances) {
    return { field: "min_instances", message: "must not be greater than max_instances" };
  }
  const runtime = RUNTIMES.get(value.runtime);
  if (runtime === undefined) return null;
  const message = runtime.complaint(value.handler);
  if (message !== null) {
    return { field: "handler", message, hint: handlerHint(runtime.name, value.handler) };
  }
  if (runtime.serving.kind === "process" && value.instance_concurrency > 1) {
    return { field: "instance_concurrency", message: `must be 1 for the runtime ${runtime.name}` };
  }
  if (runtime.serving.kind === "process" && value.reset_between_calls) {
    return { field: "reset_between_calls", message: `must be false for the runtime ${runtime.name}` };
  }
  if (!runtime.hasProtocol && (value.protocol ?? null) !== null) {
    return { field: "protocol", message: `must be null for the runtime ${runtime.name}` };
  }
  return null;
}

/** A call's payload as the text that the handler reads. JSON.stringify recurses: the body's depth has a bound. */
function payloadText(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof JsonText) return value.json;
  return value === null ? "" : JSON.stringify(value);
}

/** The payload of a call as the text that the handler gets. */
const payload = z
  .unknown()
  .transform(payloadText)
  .default("")
  .meta({
    type: ["string", "object", "array", "number", "boolean", "null"],
    description: `Payload of the call: the string itself, any other value as JSON text with its numbers as they were sent, nothing for null. It is the standard input of a command, and the first argument of a handler of nodejs and python3, parsed where it is JSON. A body has at most ${LIMITS.json_values_max} values on ${LIMITS.json_depth_max} levels: send larger JSON as a string.`,
  });

/** A call of a new version that must succeed before the version becomes active. */
export const smoke = z
  .strictObject({
    payload,
    expect_status: z
      .enum(["success", "failed", "timeout"])
      .default("success")
      .describe("Status that the call must have."),
    timeout_seconds: timeoutSeconds.optional().describe("Timeout of the call in seconds (default: the function's)."),
  })
  .meta({
    id: "Smoke",
    description: "A call of the new version. If it does not have the expected status, the active version stays.",
  });

export type Smoke = z.output<typeof smoke>;

export const smokeField = smoke
  .nullish()
  .describe("A call of the new version that must end as expected before it is activated.");

export const createFunction = z
  .object({
    name: name.describe(ABOUT.name),
    cluster_id: clusterId,
    description: text(LIMITS.description_length_max).nullish().describe(ABOUT.description),
    handler: textBytes(LIMITS.handler_bytes_max).describe(ABOUT.handler),
    runtime: runtimeName.default(RUNTIME_DEFAULT).describe(ABOUT.runtime),
    image: image.describe(`${ABOUT.image} Default: ${PROFILE}.`),
    oci: z.boolean().default(false).describe(ABOUT.oci),
    memory_limit_mb: memoryLimit.default(LIMITS.memory_limit_mb_default).describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: cpuLimit.describe(ABOUT.cpu_limit_percent),
    timeout_seconds: timeoutSeconds.default(LIMITS.timeout_seconds_default).describe(ABOUT.timeout_seconds),
    environment: secretEnvironment.default({}).describe(ABOUT.environment),
    secrets: secretFiles.default([]).describe(ABOUT.secrets),
    egress: egress.default("on").describe(ABOUT.egress),
    instance_concurrency: instanceConcurrency.default(1).describe(ABOUT.instance_concurrency),
    instance_calls_max: instanceCallsMax.describe(ABOUT.instance_calls_max),
    reset_between_calls: z.boolean().default(false).describe(ABOUT.reset_between_calls),
    gpu_count: gpuCount.default(0).describe(ABOUT.gpu_count),
    protocol: protocol.describe(ABOUT.protocol),
    code_sha256: codeDigest.describe(`${ABOUT.code_sha256} It must have been uploaded.`),
    note: note.describe(ABOUT.note),
    min_instances: minInstances.default(0).describe(ABOUT.min_instances),
    max_instances: maxInstances.default(LIMITS.max_instances_default).describe(ABOUT.max_instances),
    concurrency_limit: concurrencyLimit.describe(ABOUT.concurrency_limit),
    api_access: z.boolean().default(false).describe(ABOUT.api_access),
    cleanup_on_exit: z.boolean().default(true).describe(ABOUT.cleanup_on_exit),
    working_directory: absolutePath.nullish().describe(ABOUT.working_directory),
    source_code: sourceCode,
  })
  .superRefine((value, context) => {
    const hasNoImage = value.oci && (value.image ?? null) === null;
    const complaint = hasNoImage ? { field: "image", message: "missing, and oci is true" } : complaintAbout(value);
    if (complaint === null) return;
    const { field, message, hint } = { hint: undefined, ...complaint };
    context.addIssue({ code: "custom", path: [field], message, params: { hint } });
  })
  .meta({ id: "CreateFunction" });

export type CreateFunction = z.output<typeof createFunction>;

/** A partial record: what is absent stays as it is, null clears. The name is a function's for good. */
export const updateFunction = z
  .object({
    // Not changeable: the name of an earlier version may have the form of an id.
    name: resourceName.optional().describe(ABOUT.name),
    cluster_id: clusterId,
    description: text(LIMITS.description_length_max).nullish().describe(ABOUT.description),
    handler: textBytes(LIMITS.handler_bytes_max).optional().describe(ABOUT.handler),
    runtime: runtimeName.optional().describe(ABOUT.runtime),
    image: image.describe(
      `${ABOUT.image} Given again, a tag or channel is resolved again. null: ${PROFILE}. Absent: the image stays; ${PROFILE} means its present release.`,
    ),
    oci: z.boolean().optional().describe(ABOUT.oci),
    memory_limit_mb: memoryLimit.optional().describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: cpuLimit.describe(ABOUT.cpu_limit_percent),
    timeout_seconds: timeoutSeconds.optional().describe(ABOUT.timeout_seconds),
    environment: secretEnvironment.optional().describe(ABOUT.environment),
    secrets: secretFiles.optional().describe(ABOUT.secrets),
    egress: egress.optional().describe(ABOUT.egress),
    instance_concurrency: instanceConcurrency.optional().describe(ABOUT.instance_concurrency),
    instance_calls_max: instanceCallsMax.describe(ABOUT.instance_calls_max),
    reset_between_calls: z.boolean().optional().describe(ABOUT.reset_between_calls),
    gpu_count: gpuCount.optional().describe(ABOUT.gpu_count),
    protocol: protocol.describe(ABOUT.protocol),
    code_sha256: codeDigest.describe(`${ABOUT.code_sha256} It must have been uploaded.`),
    note: note.describe(ABOUT.note),
    smoke: smokeField,
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

export const invokeFunction = z
  .object({
    payload,
    environment: environment
      .default({})
      .describe("Variables for this call, in addition to the function's; same names are replaced."),
    timeout_seconds: timeoutSeconds.optional().describe("Timeout of this call in seconds (default: the function's)."),
    ...httpFields,
  })
  .superRefine((value, context) => {
    const message = payloadComplaint(value);
    if (message !== null) context.addIssue({ code: "custom", path: ["payload"], message });
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
    image: z.string().describe(ABOUT.image),
    oci: z.boolean().describe(ABOUT.oci),
    image_id: z.string().nullable().describe(ABOUT.image_id),
    state: z.enum(FUNCTION_STATES).describe("State; calls run only in state active. See GET /api/functions/help."),
    current_version: z.int().describe("The same as version."),
    version: z.int().describe(ABOUT.version),
    memory_limit_mb: z.int().describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: z.number().nullable().describe(ABOUT.cpu_limit_percent),
    timeout_seconds: z.int().describe(ABOUT.timeout_seconds),
    environment: z
      .record(z.string(), z.union([z.string(), z.object({ secret: z.string() })]))
      .describe(ABOUT.environment),
    secrets: z.array(z.string()).describe(ABOUT.secrets),
    egress: z.union([z.enum(["on", "off"]), z.array(z.string())]).describe(ABOUT.egress),
    instance_concurrency: z.int().describe(ABOUT.instance_concurrency),
    instance_calls_max: z.int().nullable().describe(ABOUT.instance_calls_max),
    reset_between_calls: z.boolean().describe(ABOUT.reset_between_calls),
    gpu_count: z.int().describe(ABOUT.gpu_count),
    protocol: z.enum(["http", "lambda"]).nullable().describe(ABOUT.protocol),
    code_sha256: z.string().nullable().describe(ABOUT.code_sha256),
    code_size_bytes: z.int().nullable().describe(ABOUT.code_size_bytes),
    min_instances: z.int().describe(ABOUT.min_instances),
    max_instances: z.int().describe(ABOUT.max_instances),
    concurrency_limit: z.int().nullable().describe(ABOUT.concurrency_limit),
    api_access: z.boolean().describe(ABOUT.api_access),
    api_scopes: z.array(z.enum(SCOPES)).describe(ABOUT.api_scopes),
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
  | "image"
  | "oci"
  | "image_id"
  | "environment"
  | "memory_limit_mb"
  | "cpu_limit_percent"
  | "timeout_seconds"
  | "working_directory"
  | "secrets"
  | "egress"
  | "instance_concurrency"
  | "instance_calls_max"
  | "reset_between_calls"
  | "gpu_count"
  | "protocol"
  | "code_sha256"
  | "code_size_bytes"
  | "api_scopes"
>;

/** A version as the API shows it. */
export const versionRecord = functionRecord
  .pick({
    function_id: true,
    handler: true,
    runtime: true,
    image: true,
    oci: true,
    image_id: true,
    environment: true,
    memory_limit_mb: true,
    cpu_limit_percent: true,
    timeout_seconds: true,
    working_directory: true,
    secrets: true,
    egress: true,
    instance_concurrency: true,
    instance_calls_max: true,
    reset_between_calls: true,
    gpu_count: true,
    protocol: true,
    code_sha256: true,
    code_size_bytes: true,
    api_scopes: true,
    created_at: true,
  })
  .extend({
    id: z.string().describe("Id of the version."),
    version: z.int().describe("Version number, from 1 in each function."),
    description: z.string().nullable().describe("Description of the function when the version was created."),
    is_active: z.boolean().describe("True if this is the active version."),
    made_by: z.string().nullable().describe(ABOUT.made_by),
    note: z.string().nullable().describe(ABOUT.note),
  })
  .meta({ id: "FunctionVersion" });

export type VersionRecord = Readonly<z.output<typeof versionRecord>>;

const milliseconds = z.number().min(0);

/** Where the time of one call went, in milliseconds. Phases that did not happen are absent. */
const invocationTimings = z
  .object({
    queue: milliseconds.describe("From the arrival to the hand-over to an instance."),
    cell: milliseconds
      .optional()
      .describe("Binding an instance to the function: its limits, code, secrets and network."),
    load: milliseconds.optional().describe("Loading the handler in the instance's process, once per instance."),
    network: milliseconds.optional().describe("Start of the instance, if none was ready: waiting for a network slot."),
    rootfs: milliseconds.optional().describe("Start of the instance: writing its bundle."),
    start: milliseconds
      .optional()
      .describe("Start of the instance: from the OCI runtime's start until minit is ready."),
    open: milliseconds.optional().describe("Start of the instance: until its resident process takes calls."),
    handler: milliseconds.describe(
      "From the spawn of the handler to its exit, or from the call to its result; measured by minit.",
    ),
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
      .enum(["success", "failed", "timeout", "cancelled"])
      .describe(
        "success: the handler returned, or exited with 0; timeout: it passed its deadline; cancelled: it was ended with the process of its instance, because another call passed its deadline; failed: all other results.",
      ),
    started_at: epochSeconds.describe("Arrival of the call, in seconds since the Unix epoch."),
    ended_at: epochSeconds.describe("End of the call, in seconds since the Unix epoch."),
    duration_ms: z.int().describe("Run time of the handler, in whole milliseconds."),
    exit_code: z
      .int()
      .nullable()
      .describe("Exit code of the handler; 128 plus the signal number if a signal killed it; null if it has none."),
    result: z
      .json()
      .describe("JSON value that the handler returned; null for a command line, and if it returned nothing."),
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
