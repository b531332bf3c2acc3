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
    "A function has a name and versions. A version has a handler (a shell command line, or a script that starts with #!) and settings. A call runs the handler in a warm container, an instance of the function, and returns an invocation record, which the daemon keeps. The payload is the handler's standard input; its standard output is the result.",
  steps: [
    "GET /health: the daemon is alive.",
    "GET /api/functions/health returns status ok if the daemon can serve calls.",
    "POST /api/functions with name and handler creates the function; keep its id.",
    "POST /api/functions/{function_id}/deploy responds when the function is active.",
    "POST /api/functions/invoke/{name} calls it. Every end of the handler answers 200 with a record: check its status, exit_code, stdout and stderr.",
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
    "concurrency_limit_max",
    "versions_kept_max",
    "output_bytes_max",
    "payload_variable_bytes_max",
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
