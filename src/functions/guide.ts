/** What the function concern says of itself. The scripts are examples.ts's. */
import type { PoolTotals } from "../../pool/index.ts";
import { RUNTIMES } from "../../runtimes/index.ts";
import type { Guide } from "../docs/guide.ts";
import { FUNCTION_EXAMPLES } from "./examples.ts";
import type { FunctionsReadiness, PoolStats } from "./pool-schema.ts";
import { type FunctionState, functionStates } from "./states.ts";

const STATES: Readonly<Record<FunctionState, string>> = {
  pending: "Created. Calls are refused until it is deployed.",
  deploying: "The daemon starts min_instances. Calls wait.",
  active: "Calls run.",
  paused: "Scaled to zero. Calls are refused until it is resumed.",
  error: "The last deployment failed; error_message has the reason. Deploy it again.",
  deleting: "Running calls finish. Then the function is deleted with its versions and records.",
};

export const functionsGuide: Guide<"functions"> = {
  concern: "functions",
  about:
    "A function has a name and versions. A version has a handler, a runtime, settings, and code: files that instances see at /function. Runtimes: shell (a command line, or a script that starts with #!), nodejs (file.mjs#export), python3 (file.py:function), custom (a program that serves HTTP on $PORT, or speaks the AWS Lambda Runtime API). Instances run in the image prod, in another profile, such as rlm, or with oci in an image of the tenant. A call runs the handler in a warm container, an instance of the function, and returns an invocation record, which the daemon keeps. For a command line the payload is the standard input, and its standard output is the answer. For other handlers the payload is the first argument, or the body of a request, and the returned value is the result of the record.",
  steps: [
    "GET /health: the daemon is alive.",
    "GET /api/functions/health returns status ok if the daemon can serve calls.",
    "POST /api/functions with name and handler creates the function; keep its id.",
    "POST /api/functions/{function_id}/deploy responds when the function is active.",
    "POST /api/functions/invoke/{name} calls it. Every end of the handler answers 200 with a record: check its status, result, exit_code, stdout and stderr.",
    "For a handler of your own files send them as tar, tar.gz or zip to POST /api/functions/code, and its code_sha256 with POST /api/functions/deployments, which creates or updates functions and activates them, all or none.",
    "A smoke in a PUT, deploy or deployment is a call that must succeed before the new version becomes active. GET /api/functions/{function_id}/versions/{version}/diff/{other_version} shows what two versions differ in.",
    "After 429 or 503 send the same request again once the seconds of Retry-After have passed. After other refusals error_code, details and hint name the necessary change.",
    "PUT /api/functions/{function_id} with the changed fields creates the next version; POST /api/functions/{function_id}/rollback activates an earlier one.",
    "DELETE /api/functions/{function_id} deletes it with its records.",
  ],
  machine: functionStates,
  states: STATES,
  limits: [
    "body_bytes_max",
    "name_length_max",
    "handler_bytes_max",
    "description_length_max",
    "environment_entries_max",
    "environment_bytes_max",
    "memory_limit_mb_min",
    "memory_limit_mb_max",
    "memory_limit_mb_default",
    "cpu_limit_percent_min",
    "cpu_limit_percent_max",
    "timeout_seconds_min",
    "timeout_seconds_max",
    "timeout_seconds_default",
    "max_instances_default",
    "max_instances_max",
    "resident_calls_max",
    "instance_calls_max",
    "concurrency_limit_max",
    "versions_kept_max",
    "version_note_length_max",
    "code_archive_bytes_max",
    "code_bytes_max",
    "code_entries_max",
    "code_unused_seconds",
    "deployment_functions_max",
    "diff_files_max",
    "function_secrets_max",
    "load_timeout_ms",
    "result_bytes_max",
    "error_message_length_max",
    "error_output_length_max",
    "output_bytes_max",
    "payload_variable_bytes_max",
    "call_path_bytes_max",
    "call_headers_max",
    "call_headers_bytes_max",
    "chain_depth_max",
    "queue_per_function_max",
    "list_limit_max",
    "tmpfs_mb",
    "instance_pids_max",
    "instance_files_max",
    "group_close_wait_ms",
    "retry_after_seconds_max",
  ],
  examples: FUNCTION_EXAMPLES,
};

/**
 * Readiness of the concern: `ok` when calls can be served; `degraded` when since the start of the daemon containers
 * failed to start and none came up. `shown`: the counts that the caller may see.
 */
export function functionsHealth(totals: PoolTotals, shown: PoolStats): FunctionsReadiness {
  const canStart = totals.start_failed_count === 0 || totals.started_count > 0;
  return {
    status: canStart ? "ok" : "degraded",
    concern: "functions",
    runtimes: [...RUNTIMES.keys()],
    pool: shown,
  };
}
