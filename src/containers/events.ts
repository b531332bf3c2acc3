/** What is told of containers: the events of their changes, and why something is refused. */
import { AppError } from "../base/errors.ts";
import type { ContainerRow } from "./rows.ts";
import type { ContainerState } from "./states.ts";

export function eventOf(
  { id, name, tenant_id }: ContainerRow,
  event_type: string,
  state: ContainerState,
  exit_code?: number | null,
) {
  const data = { name, state, ...(exit_code === undefined ? {} : { exit_code }) };
  return { tenant_id, event: { name: "container_update" as const, event_type, container_id: id, data } };
}

/** What a state that was reached is called as an event. */
export const EVENTS: Readonly<Record<ContainerState, string>> = {
  created: "created",
  starting: "starting",
  running: "started",
  exited: "died",
  error: "failed",
};

export function nodeFull(containers_max: number): AppError {
  return new AppError("CAPACITY_FULL", `container limit of this node reached (${containers_max})`, {
    hint: "delete some, or ask the operator for a higher HEARTH_CONTAINERS_MAX",
  });
}

export function memoryFull(wanted_mb: number, max_mb: number): AppError {
  return new AppError(
    "CAPACITY_FULL",
    `this node has no ${wanted_mb} MB left for containers (limit ${max_mb} MB in all)`,
    {
      details: { expected: [String(max_mb)], received: String(wanted_mb) },
      hint: "stop containers, ask for less memory_limit_mb, or ask the operator for a higher HEARTH_MEMORY_OVERCOMMIT",
    },
  );
}

export function volumeGone(): AppError {
  return new AppError("NOT_FOUND", "one of the volumes was deleted just now");
}

export function stateChanged(verb: string): AppError {
  return new AppError("WRONG_STATE", `cannot ${verb} the container: its state changed at the same time`, {
    hint: "read the container and try again",
  });
}

export function noGpu(gpu_count: number): AppError {
  return new AppError("CAPACITY_FULL", `this node has no GPU, ${gpu_count} were asked for`, {
    retryable: false,
    hint: "leave gpu_count out, or ask a node with GPUs",
  });
}

export function nameTaken(name: string): AppError {
  return new AppError("NAME_TAKEN", `a container named '${name}' exists`, {
    hint: "delete it, or choose another name",
  });
}

export function filesInUse(id: string): AppError {
  return new AppError("IN_USE", `files of container '${id}' are being read or written`, {
    hint: "try again when that is over",
  });
}
