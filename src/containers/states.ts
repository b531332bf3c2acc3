/** The life of a container. Its file system and its log stay from `created` until it is deleted. */
import { machine } from "../base/state-machine.ts";

export const CONTAINER_STATES = ["created", "starting", "running", "exited", "error"] as const;
export type ContainerState = (typeof CONTAINER_STATES)[number];
export type ContainerVerb = "start" | "run" | "fail" | "exit";

export const containerStates = machine<ContainerState, ContainerVerb>("container", "created", {
  created: { start: "starting" },
  // A start that a crash of the daemon cut short ends in `exited`, or in `running` where the container lives.
  starting: { run: "running", fail: "error", exit: "exited" },
  running: { exit: "exited" },
  exited: { start: "starting" },
  error: { start: "starting" },
});
