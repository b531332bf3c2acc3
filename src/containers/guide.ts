/** What the container concern says of itself. The scripts are examples.ts's. */
import type { Guide } from "../docs/guide.ts";
import { CONTAINER_EXAMPLES } from "./examples.ts";
import { type ContainerState, containerStates } from "./states.ts";

const STATES: Readonly<Record<ContainerState, string>> = {
  created: "Created, but never started.",
  starting: "The daemon starts it.",
  running: "Its first process runs; exec is possible if exec_ready is true.",
  exited: "It does not run; exit_code is that of its last run. The daemon keeps its files and its log.",
  error: "It failed to start; error_message has the reason.",
};

export const containersGuide: Guide<"containers"> = {
  concern: "containers",
  about:
    "A container has its own root file system, address and processes. It runs a command, or waits for exec. It runs until it is stopped or deleted, and survives daemon restarts.",
  steps: [
    "GET /api/containers/health returns status ok if the daemon can start containers.",
    "POST /api/containers with a name returns the running container; keep its container_id.",
    "POST /api/containers/{container_id}/exec runs a command and answers exit_code, stdout and stderr; POST …/stream streams them.",
    "With oci: true the image's entrypoint, command, environment, working directory, user, stop signal and health check apply; a field of the request replaces the image's. Empty lists for entrypoint and command make a container that waits for exec.",
    "GET /api/containers/{container_id}/logs returns the output of its main command.",
    "POST /api/containers/{container_id}/stop stops it; POST …/start runs it again with its files unchanged.",
    "POST /api/containers/{container_id}/snapshot takes a snapshot of its files; POST /api/containers/{container_id}/fork makes copies of it as it is now. Both require the header X-Tenant-Id.",
    "Containers that name the same network reach each other by name on all ports; GET /api/networks lists them.",
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
    "network_members_max",
    "dns_label_length_max",
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
    "health_interval_seconds_default",
    "health_timeout_seconds_default",
    "health_retries_default",
    "health_checks_per_tenant_max",
    "image_config_bytes_max",
    "restart_backoff_ms_max",
  ],
  examples: CONTAINER_EXAMPLES,
};
