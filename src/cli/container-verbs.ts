/** The verbs of containers, as they are described; what they do is loaded when one is called. */
import { InvalidArgumentError } from "commander";
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
} from "./verb.ts";

const STATES = ["created", "starting", "running", "exited", "error"];

/** `[[<address>:]<host port>:]<container port>[/udp]`; which addresses there may be is the API's to say. */
export function publishedPort(text: string): PublishedPort {
  const match = /^(?:(?:(\d{1,3}(?:\.\d{1,3}){3}):)?(\d{1,5})?:)?(\d{1,5})(?:\/(tcp|udp))?$/.exec(text);
  if (match === null) throw new InvalidArgumentError("expected [[address:]port:]port[/udp], as 20080:80");
  const [, host_address, host_port, container_port, protocol] = match;
  return {
    container_port: Number(container_port),
    ...(host_port === undefined ? {} : { host_port: Number(host_port) }),
    ...(host_address === undefined ? {} : { host_address: host_address as "127.0.0.1" }),
    ...(protocol === undefined ? {} : { protocol: protocol as "tcp" }),
  };
}

const ENVIRONMENT: readonly Flag[] = [
  { flags: "-e, --env <NAME=VALUE>", about: "a variable; repeatable", parse: collect },
  { flags: "--env-file <file>", about: "variables from a file of NAME=VALUE lines; repeatable", parse: collect },
];
const WORKDIR: Flag = { flags: "-w, --workdir <path>", about: "where commands begin" };
const TIME: Flag = { flags: "-t, --time <s>", about: "until what is left is killed (10)", parse: seconds };

const RUN_FLAGS: readonly Flag[] = [
  { flags: "-n, --name <name>", about: "its name; one is made up unless given" },
  { flags: "-d, --detach", about: "answer when it runs" },
  { flags: "-i, --interactive", about: "with -t: keys go to it" },
  { flags: "-t, --tty", about: "run the command, or a shell, on a terminal" },
  { flags: "--rm", about: "remove it when it has ended" },
  { flags: "--image <name>", about: "a profile (prod)" },
  { flags: "--oci", about: "the image is an OCI reference" },
  ...ENVIRONMENT,
  { flags: "-l, --label <NAME=VALUE>", about: "a label; repeatable", parse: collect },
  { flags: "-v, --volume <name:/path>", about: "a volume and where it is mounted; repeatable", parse: collect },
  {
    flags: "-p, --publish <port:port>",
    about: "a port of this machine and one of the container's; repeatable",
    parse: (text, before) => [...((before as object[] | undefined) ?? []), publishedPort(text)],
  },
  { flags: "--egress <rules>", about: "what it may reach: on, off, or addresses with commas", parse: collect },
  { flags: "-m, --memory <mb>", about: "memory: MiB, or like 2g", parse: megabytes },
  { flags: "--cpu <percent>", about: "of one core", parse: number },
  { flags: "--disk <mb>", about: "what it may write: MiB, or like 10g", parse: megabytes },
  { flags: "--gpus <n>", about: "GPUs", parse: number },
  WORKDIR,
  { flags: "--strict", about: "no capabilities, and a narrower system-call filter" },
  { flags: "--read-only", about: "mount the root file system read-only" },
  {
    flags: "--restart <policy>",
    about: "when its command ends: no, on-failure, always",
    choices: ["no", "on-failure", "always"],
  },
  { flags: "--ttl <s>", about: "delete it after so long: seconds, or like 12h", parse: seconds },
  { flags: "--idle <s>", about: "stop it after so long without exec", parse: seconds },
];

const RUN: Verb = {
  name: "run",
  words: ["[command...]"],
  summary: "make a container, and run a command in it",
  more: "With a command it prints what that writes until it ends, and exits with its code; Ctrl-C stops it. Without one, or with --detach, it answers when the container runs; one without a command waits for exec.",
  flags: RUN_FLAGS,
  isCommand: true,
  examples: [
    "hearth run --rm -- sh -c 'echo hello'",
    "hearth run -d --name web -p 20080:80 -v site:/srv -- python3 -m http.server -d /srv 80",
    "hearth run -it --rm",
  ],
  load: async () => (await import("./run.ts")).run,
};

const EXEC: Verb = {
  name: "exec",
  words: ["<container>", "[command...]"],
  summary: "run a command in a container",
  more: "Its output comes as it is written, its exit code is this command's. With -it it runs on a terminal, or a shell does; Ctrl-P Ctrl-Q leaves that there. --json prints the API's answer when it has ended, -d the id of its job when it has begun.",
  flags: [
    { flags: "-i, --interactive", about: "pass standard input, whole" },
    { flags: "-t, --tty", about: "on a terminal" },
    { flags: "-d, --detach", about: "answer when it has begun, with its job" },
    ...ENVIRONMENT,
    WORKDIR,
    { flags: "--timeout <s>", about: "end it after so long (1h; with -d never)", parse: seconds },
  ],
  isCommand: true,
  examples: ["hearth exec box -- ls -l /", "hearth exec -i box -- wc -l < letter.txt", "hearth exec -it box"],
  load: async () => (await import("./exec.ts")).exec,
};

const LOOKS: readonly Verb[] = [
  {
    name: "ps",
    summary: "list containers that run, or all",
    flags: [
      { flags: "-a, --all", about: "those that do not run too" },
      { flags: "--state <state>", about: "only those in it", choices: STATES },
      { flags: "-q, --quiet", about: "ids alone" },
      LIMIT,
    ],
    examples: ["hearth ps -a", "hearth rm -f $(hearth ps -aq)"],
    load: async () => (await import("./containers.ts")).ps,
  },
  {
    name: "inspect",
    words: ["<container>"],
    summary: "show a container with all its fields",
    examples: ["hearth inspect box", "hearth inspect box --json | jq -r .ip_address"],
    load: async () => (await import("./containers.ts")).inspect,
  },
  {
    name: "stats",
    words: ["[container...]"],
    summary: "what containers use, live",
    flags: [{ flags: "--no-stream", about: "once" }],
    examples: ["hearth stats", "hearth stats box --no-stream --json"],
    load: async () => (await import("./stats.ts")).stats,
  },
  {
    name: "top",
    words: ["<container>"],
    summary: "the processes in a container",
    examples: ["hearth top box"],
    load: async () => (await import("./containers.ts")).top,
  },
];

const ATTACH: Verb = {
  name: "attach",
  words: ["<session>"],
  summary: "attach to a terminal that has no client, such as one left by Ctrl-P Ctrl-Q",
  examples: ["hearth attach sess_3fa85f64c1d2"],
  load: async () => (await import("./attach.ts")).reattach,
};

export const TERMINALS: Group = {
  name: "terminals",
  aliases: ["term"],
  summary: "terminal sessions in containers",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      words: ["[container]"],
      summary: "list terminal sessions, the newest first",
      examples: ["hearth terminals list", "hearth terminals list box"],
      load: async () => (await import("./terminals.ts")).listTerminals,
    },
    ATTACH,
    {
      name: "close",
      aliases: ["rm"],
      words: ["<session...>"],
      summary: "end terminal sessions and what runs in them",
      examples: ["hearth terminals close sess_3fa85f64c1d2"],
      load: async () => (await import("./terminals.ts")).closeTerminals,
    },
  ],
};

const CHANGES: readonly Verb[] = [
  {
    name: "start",
    words: ["<container...>"],
    summary: "start containers that have ended",
    examples: ["hearth start box"],
    load: async () => (await import("./containers.ts")).start,
  },
  {
    name: "stop",
    words: ["<container...>"],
    summary: "end containers, by SIGTERM first",
    flags: [TIME],
    examples: ["hearth stop box", "hearth stop -t 1 box web"],
    load: async () => (await import("./containers.ts")).stop,
  },
  {
    name: "kill",
    words: ["<container...>"],
    summary: "end containers at once",
    examples: ["hearth kill box"],
    load: async () => (await import("./containers.ts")).kill,
  },
  {
    name: "rename",
    words: ["<container>", "<new-name>"],
    summary: "give a container another name",
    examples: ["hearth rename box crate"],
    load: async () => (await import("./containers.ts")).rename,
  },
  ATTACH,
  {
    name: "cp",
    words: ["<source>", "<target>"],
    summary: "copy files between a container and this machine",
    more: "One side is <container>:<path>, the other a path, or - for a tar archive. Into a directory that is there, else under the new name; <directory>/. is what is in it.",
    examples: ["hearth cp site/. web:/srv", "hearth cp box:/var/log ./logs", "hearth cp box:/etc - | tar -t"],
    load: async () => (await import("./copy.ts")).copy,
  },
];

/** Those whose names are not verbs of functions too. */
export const CONTAINER_VERBS: readonly Verb[] = [RUN, EXEC, ...LOOKS, ...CHANGES];

const LOG_FLAGS: readonly Flag[] = [
  { flags: "-f, --follow", about: "go on with what comes, until Ctrl-C or the container's end" },
  { flags: "--since <when>", about: "none before it: 10m ago, or a date", parse: moment },
  { flags: "-t, --timestamps", about: "with the time of each line" },
  { ...LIMIT, about: "so many lines, the newest (100)" },
];

const NAMESAKES: readonly Verb[] = [
  {
    name: "logs",
    words: ["<container>"],
    summary: "what a container's command has written",
    flags: LOG_FLAGS,
    examples: ["hearth containers logs web --since 10m", "hearth containers logs web -f"],
    load: async () => (await import("./container-log.ts")).containerLogs,
  },
  {
    name: "rm",
    words: ["<container...>"],
    summary: "remove containers with their files and logs",
    flags: [{ flags: "-f, --force", about: "those that run too" }],
    examples: ["hearth containers rm box"],
    load: async () => (await import("./containers.ts")).remove,
  },
];

export const CONTAINERS: Group = {
  name: "containers",
  aliases: ["ctr"],
  summary: "containers: the verbs above",
  verbs: [...CONTAINER_VERBS, ...NAMESAKES],
};

/** By the name of the function's verb: what stands in its place where functions and containers are both meant. */
export const SHARED_VERBS: Readonly<Record<string, Verb>> = {
  logs: {
    name: "logs",
    words: ["<thing>"],
    summary: "what a container, or the calls of a function, have written",
    more: "Of a function the calls come in order of time: each is a line with its time, id, status and length; below it '|' stands before its output, '!' before its error output. --since and --timestamps are for containers.",
    flags: LOG_FLAGS.map((flag) =>
      flag.flags.startsWith("--limit") ? { ...flag, about: "so many, the newest: lines (100), calls (20)" } : flag,
    ),
    examples: ["hearth logs hello", "hearth logs web -f --since 10m"],
    load: async () => (await import("./either.ts")).logs,
  },
  delete: {
    name: "delete",
    aliases: ["rm"],
    words: ["<thing...>"],
    summary: "remove functions with their records, containers with their files",
    flags: [{ flags: "-f, --force", about: "containers that run too" }],
    examples: ["hearth delete hello", "hearth rm -f box"],
    load: async () => (await import("./either.ts")).remove,
  },
};
