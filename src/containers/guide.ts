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
    "POST /api/containers/{container_id}/exec runs a command and answers exit_code, stdout and stderr; POST …/stream answers them as they come.",
    "GET /api/containers/{container_id}/logs shows what its own command wrote.",
    "POST /api/containers/{container_id}/stop ends it; POST …/start runs it again, with its files as they were.",
    "DELETE /api/containers/{container_id} removes it.",
  ],
  machine: containerStates,
  states: STATES,
  limits: {
    containers_max: "Containers on this node, unless set otherwise.",
    name_length_max: "Characters of a name.",
    container_memory_mb_default: "MiB of memory unless given.",
    memory_limit_mb_min: "MiB of memory, at least.",
    memory_limit_mb_max: "MiB of memory, at most.",
    container_pids_max: "Processes of a container.",
    container_files_max: "Open files of a process.",
    container_volumes_max: "Volumes of a container.",
    container_ports_max: "Ports that a container publishes.",
    host_port_first: "The lowest port of this machine that a container may publish, unless set otherwise.",
    host_port_last: "The highest, unless set otherwise.",
    host_port_min: "The lowest that a container of the operator's tenant may publish; it may publish all above.",
    egress_rules_max: "Addresses and networks in the list of what a container may send to.",
    disk_limit_mb_min: "The smallest disk_limit_mb.",
    labels_max: "Labels of a container.",
    batch_items_max: "Containers in one batch.",
    arguments_bytes_max: "Bytes of a command.",
    exec_timeout_ms_default: "Milliseconds of a command unless given; with detach there is no deadline.",
    exec_timeout_ms_max: "Milliseconds of a command, at most.",
    output_bytes_max: "Bytes that are kept of standard output, and of standard error, of an exec.",
    execs_per_container_max: "Commands, streams and terminals at once in one container.",
    jobs_per_container_max: "Records of commands that a container keeps.",
    log_lines_max: "Lines in one answer of its log.",
    stop_grace_ms_default: "Milliseconds between SIGTERM and the end by force, unless given.",
    restart_backoff_ms_max: "The longest pause before a restart policy starts it again.",
  },
  examples: CONTAINER_EXAMPLES,
};
