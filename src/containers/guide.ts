/** What the container concern says of itself. The scripts are examples.ts's. */
import type { Guide } from "../docs/guide.ts";
import { CONTAINER_EXAMPLES } from "./examples.ts";
import { type ContainerState, containerStates } from "./states.ts";

const STATES: Readonly<Record<ContainerState, string>> = {
  created: "Made, and never started.",
  starting: "Being started.",
  running: "Its first process runs; commands can be run in it when exec_ready says so.",
  exited: "It does not run; exit_code says how its last run ended. Its files and its log are kept.",
  error: "It could not be started; error_message says why.",
};

export const containersGuide: Guide<"containers"> = {
  concern: "containers",
  about:
    "A container is a root file system of its own, an address, and processes that see nothing but these. It runs a command, or waits for commands that are run in it, and lives until it is stopped or deleted, also while the daemon is restarted.",
  steps: [
    "GET /api/containers/health: the status is ok, so containers can be started.",
    "POST /api/containers with a name answers the running container; keep its container_id.",
    "POST /api/containers/{container_id}/exec runs a command and answers exit_code, stdout and stderr; POST …/stream streams them.",
    "GET /api/containers/{container_id}/logs shows what its own command wrote.",
    "POST /api/containers/{container_id}/stop ends it; POST …/start runs it again, with its files as they were.",
    "DELETE /api/containers/{container_id} removes it.",
  ],
  machine: containerStates,
  states: STATES,
  limits: [
    "containers_max",
    "name_length_max",
    "container_memory_mb_default",
    "memory_limit_mb_min",
    "memory_limit_mb_max",
    "container_pids_max",
    "container_files_max",
    "container_volumes_max",
    "container_ports_max",
    "host_port_first",
    "host_port_last",
    "host_port_min",
    "egress_rules_max",
    "disk_limit_mb_min",
    "labels_max",
    "batch_items_max",
    "arguments_bytes_max",
    "exec_timeout_ms_default",
    "exec_timeout_ms_max",
    "output_bytes_max",
    "execs_per_container_max",
    "jobs_per_container_max",
    "log_lines_max",
    "stop_grace_ms_default",
    "restart_backoff_ms_max",
  ],
  examples: CONTAINER_EXAMPLES,
};
