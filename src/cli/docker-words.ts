/**
 * Flags and commands of docker that hearth does not have, each with a hint: what stands in its place. What hearth has under
 * another name, and can take as it is meant, is an alias in `verbs`, not here.
 */
import { LIMITS } from "../base/limits.ts";

/** By the flag, of `run`. */
const RUN_FLAGS: Readonly<Record<string, string>> = {
  "-h": "-h shows the help; the name of a container is its host name: --name <name>",
  "--hostname": "the name of a container is its host name: --name <name>",
  "--privileged": "no container is privileged; for GPUs: --gpus",
  "--cap-add": "capabilities are fixed; --strict drops all of them",
  "--cap-drop": "to drop all capabilities: --strict",
  "--security-opt": "to drop all capabilities and narrow the seccomp filter: --strict",
  "--device": "containers have no devices but GPUs: --gpus",
  "--mount": "to mount a volume: -v <volume>:/path",
  "--tmpfs": "/dev/shm is in memory, with --read-only /tmp and /run, too; leave --tmpfs out",
  "--shm-size": `/dev/shm holds ${LIMITS.tmpfs_mb} MiB, charged to --memory; leave --shm-size out`,
  "--net": "to join a private network: --network <name>; without network: --egress off",
  "--network-alias": "containers of a network find each other by name: --name <name>",
  "--link": "containers of a network find each other by name: --network <name>",
  "--ip": "the daemon selects addresses; containers of a network find each other by name: --network <name>",
  "--add-host": "containers of a network find each other by name: --network <name>",
  "--dns": "--dns has no value: it shares names with other containers; no flag selects a name server",
  "--dns-search": "no flag selects a search domain; containers of a network find each other by name: --network <name>",
  "--expose": "to publish a port: -p <port>",
  "-P": "to publish a port: -p <port>",
  "--publish-all": "to publish a port: -p <port>",
  "--cpu-shares": "to limit the CPU: --cpus <n>",
  "--cpu-quota": "to limit the CPU: --cpus <n>",
  "--cpu-period": "to limit the CPU: --cpus <n>",
  "--cpuset-cpus": "to limit the CPU: --cpus <n>",
  "--memory-swap": "no flag limits swap; to limit the memory: --memory <mb>",
  "--memory-reservation": "to limit the memory: --memory <mb>",
  "--pids-limit": "the daemon sets the limit of processes; 'hearth help limits' lists it",
  "--ulimit": "the daemon sets the limits of processes; 'hearth help limits' lists them",
  "--storage-opt": "to limit the disk: --disk <mb>",
  "--stop-timeout": "the stop says how long it waits: hearth stop -t <s>",
  "--volumes-from": "to mount the same volume: -v <volume>:/path",
  "--volume-driver": "volumes have no drivers: hearth volumes create <name>",
  "--platform": "to pull another platform: hearth pull --platform <os/architecture>",
  "--log-driver": "the daemon keeps the log: hearth logs",
  "--log-opt": "the daemon keeps the log: hearth logs",
  "--cidfile": "to print the id: --json",
  "--init": "every container has an init process; leave --init out",
  "--pid": "every container has a process namespace of its own; leave --pid out",
  "--ipc": "every container has an IPC namespace of its own; leave --ipc out",
  "--uts": "every container has a UTS namespace of its own; leave --uts out",
  "--userns": "the daemon selects the user namespace; leave --userns out",
};

/** By the verb and the flag. */
export const DOCKER_FLAGS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  run: RUN_FLAGS,
  exec: { "--privileged": "no container is privileged; for GPUs: hearth run --gpus" },
  ps: {
    "--format": "to select fields: --json, as in hearth ps --json | jq -r '.containers[].name'",
    "--no-trunc": "--json prints all fields",
    "-n": "to limit the list: --limit <n>",
    "--last": "to limit the list: --limit <n>",
    "-l": "for the newest container: -a --limit 1",
    "--latest": "for the newest container: -a --limit 1",
  },
  images: {
    "--format": "to select fields: --json, as in hearth images --json | jq -r '.images[].reference'",
    "--no-trunc": "--json prints all fields",
    "--filter": "a part of the reference selects images: hearth images <part>",
    "-f": "a part of the reference selects images: hearth images <part>",
  },
  inspect: {
    "--format": "to select fields: --json, as in hearth inspect box --json | jq -r .ip_address",
    "-f": "to select fields: --json, as in hearth inspect box --json | jq -r .ip_address",
  },
  rmi: {
    "-f": "images that a container uses stay: remove the container first, with hearth rm",
    "--force": "images that a container uses stay: remove the container first, with hearth rm",
  },
  delete: { "-v": "volumes outlive containers: hearth volumes delete <name>" },
  build: {
    "--platform": "builds are for the platform of the node; leave --platform out",
    "--push": "push it after the build: hearth push <reference>",
    "--load": "a built image is on the daemon; leave --load out",
    "--pull": "a base that is there is used; to update it first: hearth pull --force <reference>",
    "--progress": "the log of the build goes to standard error; leave --progress out",
    "--network": "to stop outbound traffic of commands: --egress off",
  },
};
// The same flags, under the verb's other name.
const ALSO: Readonly<Record<string, string>> = { rm: "delete", "image rm": "rmi", "image list": "images" };

/** The hint at what stands in place of a flag; null: it is none of docker's, or has no place here. `path`: as typed, without hearth. */
export function flagHint(path: string, flag: string): string | null {
  const verb = path.replace(/^containers |^image (?=build)/, "");
  const own = ALSO[verb] ?? verb;
  if (!Object.hasOwn(DOCKER_FLAGS, own)) return null;
  const table = DOCKER_FLAGS[own] ?? {};
  return Object.hasOwn(table, flag) ? (table[flag] ?? null) : null;
}

/** By the command as typed, without hearth: the words of its group, and its own. Groups are under their first name. */
export const DOCKER_COMMANDS: Readonly<Record<string, string>> = {
  search: "to pull an image by its reference: hearth pull <reference>",
  history: "to show the build steps of an image: hearth image history",
  unpause: "containers are not paused; to start one that was stopped: hearth start",
  export: "to make an image of a snapshot: hearth snapshot export; to copy files: hearth cp",
  import: "to load an archive of an image: hearth load; to copy files: hearth cp",
  compose: "one hearth run -d --network <name> for each service; they find each other by name",
  system: "for the daemon: hearth info; to delete unused images: hearth prune",
  builder: "to delete the build cache: hearth prune --build-cache",
  buildx: "to build an image: hearth build",
  context: "to select a daemon: hearth profile",
  config: "for private values: hearth secrets",
  secret: "for private values: hearth secrets",
  swarm: "one daemon runs on one machine; for its state: hearth info",
  node: "one daemon runs on one machine; for its state: hearth info",
  stack: "one hearth run -d --network <name> for each service; they find each other by name",
  service: "to publish a port of a container at a URL: hearth publish",
  plugin: "the daemon has no plugins; for its state: hearth info",
  "containers create": "to create and start a container: hearth run -d",
  "containers prune": "to remove those that exited: hearth rm $(hearth ps -q --filter status=exited)",
  "containers diff": "to list changed paths: hearth changes",
  "containers update": "limits are set when a container is created: hearth run",
  "containers pause": "containers are not paused: hearth stop",
  "containers unpause": "containers are not paused: hearth start",
  "containers export": "to copy files: hearth cp; to make an image: hearth commit",
  "image import": "to load an archive of an image: hearth load",
  "volumes prune": "to list volumes: hearth volumes list; to delete one: hearth volumes delete",
  "networks create": "a network exists while a container names it: hearth run --network <name>",
  "networks rm": "a network ends with its last container: hearth rm",
  "networks prune": "a network ends with its last container: hearth rm",
  "networks inspect": "to list networks with their containers: hearth networks list",
  "networks connect": "a container has one network from its start: hearth run --network <name>",
  "networks disconnect": "a container has one network from its start: hearth run --network <name>",
};

/** The hint at what stands in place of a command; null: it is none of docker's. */
export function commandHint(path: string): string | null {
  return Object.hasOwn(DOCKER_COMMANDS, path) ? (DOCKER_COMMANDS[path] ?? null) : null;
}
