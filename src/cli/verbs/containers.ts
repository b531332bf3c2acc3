/** The verbs of containers, as they are described; what they do is loaded when one is called. */

import { InvalidArgumentError } from "commander";
import { STATES } from "../containers/filters.ts";
import { gpus } from "../containers/gpus.ts";
import {
  collect,
  type Flag,
  type Group,
  LIMIT,
  megabytes,
  moment,
  number,
  type PublishedPort,
  seconds,
  type Verb,
  wholeNumber,
} from "../session/verb.ts";
import { PULL } from "./pull-flag.ts";
import { COPY_VERBS } from "./snapshots.ts";

/** Of docker, as hearth names it. */
const RESTART_POLICIES: Readonly<Record<string, string>> = {
  ...{ no: "no", "on-failure": "on-failure", always: "always" },
  // A container that somebody has stopped stays stopped, also after a restart of the daemon.
  "unless-stopped": "always",
};

export function restartPolicy(text: string): string {
  if (Object.hasOwn(RESTART_POLICIES, text)) return RESTART_POLICIES[text] ?? text;
  const why = text.startsWith("on-failure:") ? "restarts are not counted; " : "";
  throw new InvalidArgumentError(`${why}expected no, on-failure or always`);
}

/** Names of networks that docker gives a meaning, which a private network of that name would not have. */
export function networkName(text: string): string {
  if (text === "none") throw new InvalidArgumentError("for no traffic to other hosts: --egress off");
  if (text === "host") throw new InvalidArgumentError("to reach a port from outside: -p <port>");
  return text;
}

/** Percent of one core. */
export function cpus(text: string): number {
  const count = number(text);
  if (count <= 0) throw new InvalidArgumentError("expected a number of cores above 0, for example 0.5");
  return Math.round(count * 100);
}

/** `[[<address>:]<host port>:]<container port>[/udp]`; which addresses there may be is the API's to say. */
export function publishedPort(text: string): PublishedPort {
  const match = /^(?:(?:(\d{1,3}(?:\.\d{1,3}){3}):)?(\d{1,5})?:)?(\d{1,5})(?:\/(tcp|udp))?$/.exec(text);
  if (match === null) throw new InvalidArgumentError("expected [[address:]port:]port[/udp], for example 20080:80");
  const [, host_address, host_port, container_port, protocol] = match;
  return {
    container_port: Number(container_port),
    ...(host_port === undefined ? {} : { host_port: Number(host_port) }),
    ...(host_address === undefined ? {} : { host_address: host_address as "127.0.0.1" }),
    ...(protocol === undefined ? {} : { protocol: protocol as "tcp" }),
  };
}

const ENVIRONMENT: readonly Flag[] = [
  {
    flags: "-e, --env <NAME=VALUE>",
    about: "set an environment variable; the name alone takes the caller's value; repeatable",
    parse: collect,
  },
  { flags: "--env-file <file>", about: "read variables from a file of NAME=VALUE lines; repeatable", parse: collect },
];
const WORKDIR: Flag = { flags: "-w, --workdir <path>", about: "working directory of the command" };
const TIME: Flag = {
  flags: "-t, --time <s>",
  about: "seconds between the stop signal and SIGKILL (10)",
  parse: seconds,
};

const RUN_FLAGS: readonly Flag[] = [
  { flags: "-n, --name <name>", about: "name of the container (default: generated)" },
  { flags: "-d, --detach", about: "return when the container runs" },
  { flags: "-i, --interactive", about: "pass standard input, and its end" },
  { flags: "-t, --tty", about: "run the command, or a shell, on a terminal" },
  { flags: "--rm", about: "remove the container when it exits" },
  { flags: "--image <name>", about: "image: a profile (prod), or with --oci an OCI reference" },
  { flags: "--oci", about: "treat --image as an OCI reference" },
  PULL,
  ...ENVIRONMENT,
  { flags: "-l, --label <NAME=VALUE>", about: "set a label; repeatable", parse: collect },
  { flags: "-v, --volume <name:/path>", about: "mount a volume at a path; repeatable", parse: collect },
  {
    flags: "-p, --publish <port>",
    about: "publish a container port: [[address:]host port:]port[/udp]; repeatable",
    parse: (text, before) => [...((before as object[] | undefined) ?? []), publishedPort(text)],
  },
  {
    flags: "--egress <rules>",
    about: "outbound traffic: on, off, or allowed addresses, comma-separated",
    parse: collect,
  },
  {
    flags: "--network <name>",
    about: "private network, whose containers reach each other by name",
    parse: networkName,
  },
  { flags: "--dns", about: "share names with all containers of the tenant that do" },
  { flags: "-m, --memory <mb>", about: "memory limit in MiB, or with a unit: 2g", parse: megabytes },
  { flags: "--cpu <percent>", about: "CPU limit in percent of one core", parse: number },
  { flags: "--cpus <n>", about: "CPU limit in cores, in place of --cpu: 0.5", parse: cpus },
  { flags: "--disk <mb>", about: "disk limit in MiB, or with a unit: 10g", parse: megabytes },
  {
    flags: "--gpus <n|ids>",
    about: "any n GPUs, or those of these ids, comma-separated: nvidia0,nvidia1",
    parse: gpus,
  },
  WORKDIR,
  {
    flags: "-u, --user <user[:group]>",
    about: "user of all commands, by name or number (default: the image's, or root)",
  },
  { flags: "--entrypoint <program>", about: "replace the image's entrypoint; an empty text removes it" },
  { flags: "--stop-signal <signal>", about: "signal that asks the command to end (default: the image's, or SIGTERM)" },
  { flags: "--health-cmd <command>", about: "check the container's health with this shell command" },
  { flags: "--health-interval <s>", about: "time between health checks (30): seconds, or 5m", parse: seconds },
  { flags: "--health-timeout <s>", about: "time after which a health check fails (30)", parse: seconds },
  { flags: "--health-start-period <s>", about: "time after the start in which failures do not count", parse: seconds },
  { flags: "--health-retries <n>", about: "failed checks in a row that make it unhealthy (3)", parse: number },
  { flags: "--health-restart", about: "restart an unhealthy container; needs --restart" },
  { flags: "--no-healthcheck", about: "ignore the image's health check" },
  { flags: "--strict", about: "drop all capabilities and use a narrower seccomp filter" },
  { flags: "--read-only", about: "mount the root file system read-only" },
  {
    flags: "--restart <policy>",
    about: "restart the container when its command exits",
    choices: ["no", "on-failure", "always"],
    parse: restartPolicy,
  },
  { flags: "--ttl <s>", about: "delete the container after this time: seconds, or 12h", parse: seconds },
  { flags: "--idle <s>", about: "stop the container after this time without an exec", parse: seconds },
];

const RUN: Verb = {
  name: "run",
  words: ["[command...]"],
  summary: "create a container and run a command in it",
  more: "With a command, hearth passes its output on byte for byte and exits with its code; Ctrl-C stops the container. With -i the command reads the standard input of hearth. Without a command, or with --detach, hearth returns when the container runs. A container without a command runs the one of its --oci image, unless that is only a shell, or waits for exec. hearth pulls an OCI image that the tenant does not have; --pull makes --image an OCI reference, unless it is a profile.",
  flags: RUN_FLAGS,
  isCommand: true,
  examples: [
    "hearth run --rm -- sh -c 'echo hello'",
    "hearth run -d --name web -p 20080:80 -v site:/srv -- python3 -m http.server -d /srv 80",
    "hearth run -it --rm",
    "hearth run --rm --image alpine:3.20 --pull always -- cat /etc/os-release",
  ],
  load: async () => (await import("../containers/run.ts")).run,
};

const EXEC: Verb = {
  name: "exec",
  words: ["<container>", "[command...]"],
  summary: "run a command in a container",
  more: "hearth prints the command's output and exits with its code. With -it the command, or a shell, runs on a terminal; Ctrl-P Ctrl-Q detaches from it. --json prints the API's response when the command exits; -d prints the id of a background job.",
  flags: [
    { flags: "-i, --interactive", about: "pass standard input, and its end" },
    { flags: "-t, --tty", about: "run on a terminal" },
    { flags: "-d, --detach", about: "start a background job and print its id" },
    ...ENVIRONMENT,
    WORKDIR,
    {
      flags: "-u, --user <user[:group]>",
      about: "user of the command, by name or number (default: the container's)",
    },
    { flags: "--timeout <s>", about: "timeout of the command (1h; with -d none)", parse: seconds },
  ],
  isCommand: true,
  examples: ["hearth exec box -- ls -l /", "hearth exec -i box -- wc -l < letter.txt", "hearth exec -it box"],
  load: async () => (await import("../containers/exec.ts")).exec,
};

const LOOKS: readonly Verb[] = [
  {
    name: "ps",
    summary: "list running containers, or all",
    flags: [
      { flags: "-a, --all", about: "include containers that do not run" },
      { flags: "--state <state>", about: "only containers in this state", choices: STATES },
      {
        flags: "-f, --filter <name=value>",
        about: "only containers with this name, id, status or label; repeatable",
        parse: collect,
      },
      { flags: "-q, --quiet", about: "print only the ids" },
      LIMIT,
    ],
    examples: ["hearth ps -a", "hearth rm -f $(hearth ps -aq)"],
    load: async () => (await import("../containers/containers.ts")).ps,
  },
  {
    name: "inspect",
    words: ["<container>"],
    summary: "show all fields of a container",
    examples: ["hearth inspect box", "hearth inspect box --json | jq -r .ip_address"],
    load: async () => (await import("../containers/containers.ts")).inspect,
  },
  {
    name: "diagnose",
    words: ["<container>"],
    summary: "check the network of a container, and mend it",
    more: "hearth shows address, link, egress and traffic of the container, and exits with 1 if a check fails.",
    flags: [{ flags: "--mend", about: "make what failed as it was at the start" }],
    examples: ["hearth diagnose web", "hearth diagnose web --mend"],
    load: async () => (await import("../containers/diagnose.ts")).diagnose,
  },
  {
    name: "stats",
    words: ["[container...]"],
    summary: "show live resource usage of containers",
    flags: [{ flags: "--no-stream", about: "once" }],
    examples: ["hearth stats", "hearth stats box --no-stream --json"],
    load: async () => (await import("../containers/stats.ts")).stats,
  },
  {
    name: "port",
    words: ["<container>"],
    summary: "list the published ports of a container",
    examples: ["hearth port web"],
    load: async () => (await import("../containers/containers.ts")).ports,
  },
  {
    name: "top",
    words: ["<container>"],
    summary: "list the processes in a container",
    examples: ["hearth top box"],
    load: async () => (await import("../containers/containers.ts")).top,
  },
];

const ATTACH: Verb = {
  name: "attach",
  words: ["<session>"],
  summary: "attach to a detached terminal session",
  examples: ["hearth attach sess_3fa85f64c1d2"],
  load: async () => (await import("../containers/attach.ts")).reattach,
};

export const TERMINALS: Group = {
  name: "terminals",
  aliases: ["term"],
  summary: "manage terminal sessions in containers",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      words: ["[container]"],
      summary: "list terminal sessions, newest first",
      examples: ["hearth terminals list", "hearth terminals list box"],
      load: async () => (await import("../containers/terminals.ts")).listTerminals,
    },
    ATTACH,
    {
      name: "close",
      aliases: ["rm"],
      words: ["<session...>"],
      summary: "close terminal sessions and end their processes",
      examples: ["hearth terminals close sess_3fa85f64c1d2"],
      load: async () => (await import("../containers/terminals.ts")).closeTerminals,
    },
  ],
};

const CHANGES: readonly Verb[] = [
  {
    name: "start",
    words: ["<container...>"],
    summary: "start exited containers",
    examples: ["hearth start box"],
    load: async () => (await import("../containers/containers.ts")).start,
  },
  {
    name: "stop",
    words: ["<container...>"],
    summary: "stop containers: the stop signal first, then SIGKILL",
    flags: [TIME],
    examples: ["hearth stop box", "hearth stop -t 1 box web"],
    load: async () => (await import("../containers/containers.ts")).stop,
  },
  {
    name: "restart",
    words: ["<container...>"],
    summary: "stop containers and start them again",
    flags: [TIME],
    examples: ["hearth restart box", "hearth restart -t 1 box web"],
    load: async () => (await import("../containers/containers.ts")).restart,
  },
  {
    name: "wait",
    words: ["<container...>"],
    summary: "wait until containers exit, and print their exit codes",
    more: "A container that its restart policy starts again has exited, too.",
    examples: ["hearth wait box"],
    load: async () => (await import("../containers/containers.ts")).wait,
  },
  {
    name: "kill",
    words: ["<container...>"],
    summary: "kill containers with SIGKILL",
    flags: [{ flags: "-s, --signal <signal>", about: "KILL, the only signal" }],
    examples: ["hearth kill box"],
    load: async () => (await import("../containers/containers.ts")).kill,
  },
  {
    name: "rename",
    words: ["<container>", "<new-name>"],
    summary: "rename a container",
    examples: ["hearth rename box crate"],
    load: async () => (await import("../containers/containers.ts")).rename,
  },
  ATTACH,
  {
    name: "cp",
    words: ["<source>", "<target>"],
    summary: "copy files between a container and this machine",
    more: "One side is <container>:<path>, the other a local path, or - for a tar archive. If the target is a directory, the copy goes into it; otherwise the target is the new name. <directory>/. copies the contents of the directory.",
    examples: ["hearth cp site/. web:/srv", "hearth cp box:/var/log ./logs", "hearth cp box:/etc - | tar -t"],
    load: async () => (await import("../volumes/copy.ts")).copy,
  },
];

const DESKTOP: readonly Verb[] = [
  {
    name: "gui",
    words: ["<container>"],
    summary: "print the URL of a container's desktop, valid for minutes",
    flags: [{ flags: "--open", about: "open the URL in the browser of this machine" }],
    examples: ["hearth gui desk", "hearth gui desk --open"],
    load: async () => (await import("../containers/desktop.ts")).gui,
  },
  {
    name: "screenshot",
    words: ["<container>"],
    summary: "save the desktop of a container as a PNG",
    flags: [{ flags: "-o, --output <file>", about: "file to write (default: standard output)" }],
    examples: ["hearth screenshot desk -o desk.png", "hearth screenshot desk > desk.png"],
    load: async () => (await import("../containers/desktop.ts")).screenshot,
  },
];

/** Verbs of containers whose names no verb of functions has. */
export const CONTAINER_VERBS: readonly Verb[] = [RUN, EXEC, ...LOOKS, ...CHANGES, ...DESKTOP, ...COPY_VERBS];

const LOG_FLAGS: readonly Flag[] = [
  { flags: "-f, --follow", about: "follow new lines until Ctrl-C or until the container exits" },
  { flags: "--since <when>", about: "only lines since then: a time ago (10m) or a date", parse: moment },
  { flags: "-t, --timestamps", about: "print the time of each line" },
  { ...LIMIT, about: "number of lines, the newest (100)" },
  { flags: "-n, --tail <n>", about: "the same as --limit", parse: wholeNumber },
];

const NAMESAKES: readonly Verb[] = [
  {
    name: "logs",
    words: ["<container>"],
    summary: "show the output of a container's command",
    flags: LOG_FLAGS,
    examples: ["hearth containers logs web --since 10m", "hearth containers logs web -f"],
    load: async () => (await import("../containers/container-log.ts")).containerLogs,
  },
  {
    name: "rm",
    words: ["<container...>"],
    summary: "remove containers with their files and logs",
    flags: [{ flags: "-f, --force", about: "remove running containers too" }],
    examples: ["hearth containers rm box"],
    load: async () => (await import("../containers/containers.ts")).remove,
  },
];

export const CONTAINERS: Group = {
  name: "containers",
  aliases: ["ctr", "container"],
  summary: "container commands, the same as above",
  // Alone, `ls` lists functions.
  verbs: [...CONTAINER_VERBS, ...NAMESAKES].map((verb) =>
    verb.name === "ps" ? { ...verb, aliases: ["ls", "list"] } : verb,
  ),
};

/** By the name of the function's verb: what stands in its place where functions and containers are both meant. */
export const SHARED_VERBS: Readonly<Record<string, Verb>> = {
  logs: {
    name: "logs",
    words: ["<thing>"],
    summary: "show the output of a container or of a function's calls",
    more: "For a function, hearth lists the calls in order of time. Each call has a line with its time, id, status and duration. Below it '|' marks standard output and '!' standard error. --since and --timestamps are for containers.",
    flags: LOG_FLAGS.map((flag) =>
      flag.flags.startsWith("--limit") ? { ...flag, about: "number of lines (100) or calls (20), the newest" } : flag,
    ),
    examples: ["hearth logs hello", "hearth logs web -f --since 10m"],
    load: async () => (await import("./resolve-name.ts")).logs,
  },
  delete: {
    name: "delete",
    aliases: ["rm"],
    words: ["<thing...>"],
    summary: "remove functions with their records, or containers with their files",
    flags: [{ flags: "-f, --force", about: "remove running containers too" }],
    examples: ["hearth delete hello", "hearth rm -f box"],
    load: async () => (await import("./resolve-name.ts")).remove,
  },
};
