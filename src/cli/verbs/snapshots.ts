/** The verbs of snapshots, clones and forks, as they are described; what they do is loaded when one is called. */
import { collect, type Flag, type Group, LIMIT, seconds, type Verb, wholeNumber } from "../session/verb.ts";

const LABEL: Flag = { flags: "-l, --label <NAME=VALUE>", about: "set a label; repeatable", parse: collect };

/** Flags of what takes a moment of a container. */
const MODES: readonly Flag[] = [
  { flags: "--app-consistent", about: "run the container's snapshot hooks before and after" },
  {
    flags: "--network <mode>",
    about: "network of copies: reset (default) publishes no ports",
    choices: ["reset", "preserve_ns", "preserve_conn_best_effort"],
  },
  { flags: "--volume <name>", about: "include this volume; repeatable", parse: collect },
  { flags: "--all-volumes", about: "include all volumes" },
];

const PATHS: Flag = { flags: "--limit <n>", about: "maximum number of paths", parse: wholeNumber };

/** Flags of a schedule of snapshots. */
export const SCHEDULE: readonly Flag[] = [
  { flags: "--every <s>", about: "time between snapshots: seconds, or 1h", parse: seconds },
  { flags: "--keep <n>", about: "number of snapshots to keep", parse: wholeNumber },
  { flags: "--off", about: "end the schedule; its snapshots stay" },
  LABEL,
];

const COPY_FLAGS: readonly Flag[] = [
  { flags: "--name <pattern>", about: "name of the copies; {n} is replaced by the number of the copy" },
  { flags: "-n, --count <n>", about: "number of copies, all of the same moment (1)", parse: wholeNumber },
  { flags: "--start", about: "start the new containers" },
  LABEL,
  { flags: "--ttl <s>", about: "delete the new containers after this time: seconds, or 12h", parse: seconds },
];

const TAKEN: readonly Verb[] = [
  {
    name: "create",
    words: ["<container>"],
    summary: "take a snapshot of a container's files and settings",
    more: "A running container pauses for milliseconds. The snapshot has no volumes unless --volume or --all-volumes includes them.",
    flags: [
      { flags: "--name <name>", about: "name of the snapshot" },
      ...MODES,
      { flags: "--ttl <s>", about: "delete the snapshot after this time: seconds, or 12h", parse: seconds },
      LABEL,
    ],
    examples: ["hearth snapshot create box --name first", "hearth snapshot create db --app-consistent --all-volumes"],
    load: async () => (await import("../snapshots/snapshots.ts")).createSnapshot,
  },
  {
    name: "list",
    aliases: ["ls"],
    summary: "list snapshots, newest first",
    flags: [
      { flags: "--container <container>", about: "only snapshots of this container" },
      { flags: "-l, --label <NAME=VALUE>", about: "only snapshots with this label; repeatable", parse: collect },
      { flags: "-q, --quiet", about: "print only the ids" },
      LIMIT,
    ],
    examples: ["hearth snapshot list", "hearth snapshot ls --container box --label stage=test"],
    load: async () => (await import("../snapshots/snapshots.ts")).listSnapshots,
  },
  {
    name: "inspect",
    words: ["<snapshot>"],
    summary: "show all fields of a snapshot and the space that it takes",
    examples: ["hearth snapshot inspect first"],
    load: async () => (await import("../snapshots/snapshots.ts")).inspectSnapshot,
  },
  {
    name: "lineage",
    words: ["<snapshot>"],
    summary: "draw the tree of related snapshots and their containers",
    examples: ["hearth snapshot lineage first"],
    load: async () => (await import("../snapshots/snapshots.ts")).showLineage,
  },
  {
    name: "diff",
    words: ["<snapshot>", "<other-snapshot>"],
    summary: "list the paths that differ from one snapshot to another",
    more: "A marks added paths, C changed and D deleted ones.",
    flags: [PATHS],
    examples: ["hearth snapshot diff first second"],
    load: async () => (await import("../snapshots/file-changes.ts")).diffSnapshots,
  },
  {
    name: "export",
    words: ["<snapshot>", "[reference]"],
    summary: "make an image from a snapshot, or write its files as tar",
    more: "With a reference, the tenant gets an image with the files of the snapshot; environment and volumes are left out. Without one, hearth writes a tar archive of all files.",
    flags: [{ flags: "-o, --output <file>", about: "write the tar archive to a file (default: standard output)" }],
    examples: ["hearth snapshot export first tools:1", "hearth snapshot export first -o files.tar"],
    load: async () => (await import("../snapshots/exports.ts")).exportSnapshot,
  },
  {
    name: "schedule",
    words: ["<container>"],
    summary: "take snapshots of a container by itself, and keep the newest",
    more: "Without flags, hearth shows the schedule.",
    flags: [
      ...SCHEDULE,
      { flags: "--app-consistent", about: "run the container's snapshot hooks before and after" },
      { flags: "--all-volumes", about: "include all volumes" },
    ],
    examples: ["hearth snapshot schedule box --every 1h --keep 24", "hearth snapshot schedule box --off"],
    load: async () => (await import("../snapshots/schedules.ts")).scheduleContainer,
  },
  {
    name: "pin",
    words: ["<snapshot...>"],
    summary: "protect snapshots from deletion and expiry",
    examples: ["hearth snapshot pin first"],
    load: async () => (await import("../snapshots/snapshots.ts")).pinSnapshots,
  },
  {
    name: "unpin",
    words: ["<snapshot...>"],
    summary: "end the protection of pinned snapshots",
    examples: ["hearth snapshot unpin first"],
    load: async () => (await import("../snapshots/snapshots.ts")).unpinSnapshots,
  },
  {
    name: "rm",
    words: ["<snapshot...>"],
    summary: "delete snapshots; their clones stay whole",
    examples: ["hearth snapshot rm first"],
    load: async () => (await import("../snapshots/snapshots.ts")).deleteSnapshots,
  },
];

export const SNAPSHOTS: Group = {
  name: "snapshot",
  aliases: ["snapshots", "snap"],
  summary: "manage snapshots: read-only copies of containers at one moment",
  verbs: TAKEN,
};

const FORK: Verb = {
  name: "fork",
  words: ["<container>", "[command...]"],
  summary: "copy a container as it is now, and run a command in the copies",
  more: "With a command, hearth takes a snapshot, starts the copies, runs the command in all of them and prints per copy its exit code, the beginning of its output and the paths that it changed. '|' marks standard output, '!' standard error, A added paths, C changed and D deleted ones. Then hearth deletes the copies and the snapshot unless --keep is given, also on Ctrl-C. The exit code is 0 if the command exited with 0 in every copy, otherwise 1.",
  flags: [
    ...COPY_FLAGS,
    { flags: "--keep", about: "with a command: keep the copies and the snapshot" },
    { flags: "--timeout <s>", about: "with a command: its timeout in each copy (1h)", parse: seconds },
    ...MODES,
  ],
  examples: [
    "hearth fork box --name 'try-{n}' -n 3 --start",
    "hearth fork box -n 4 -- sh -c 'cd /srv && make test'",
    "hearth fork box --keep --json -- ./migrate.sh",
  ],
  load: async () => (await import("../snapshots/copies.ts")).fork,
};

/** Verbs that stand among those of containers. */
export const COPY_VERBS: readonly Verb[] = [
  {
    name: "clone",
    words: ["<snapshot>"],
    summary: "make containers from a snapshot, or a volume from one of a volume",
    flags: COPY_FLAGS,
    examples: ["hearth clone first --name again --start", "hearth clone first --name 'try-{n}' -n 3"],
    load: async () => (await import("../snapshots/copies.ts")).clone,
  },
  FORK,
  {
    name: "restore",
    words: ["<container>", "<snapshot>"],
    summary: "replace the files of a container by those of a snapshot",
    more: "The container keeps its settings, its name and its volumes. A running container is stopped before and started again.",
    examples: ["hearth restore box first"],
    load: async () => (await import("../snapshots/copies.ts")).restore,
  },
  {
    name: "changes",
    words: ["<container>"],
    summary: "list the paths that a container added, changed or deleted",
    more: "hearth compares with the container's image, or with a snapshot. A marks added paths, C changed and D deleted ones.",
    flags: [{ flags: "--since <snapshot>", about: "compare with this snapshot" }, PATHS],
    examples: ["hearth changes box", "hearth changes box --since first"],
    load: async () => (await import("../snapshots/file-changes.ts")).listChanges,
  },
  {
    name: "commit",
    words: ["<container>", "<reference>"],
    summary: "make an image from a container as it is now",
    more: "The environment of the container, which may hold secrets, and its volumes are left out.",
    examples: ["hearth commit box tools:1"],
    load: async () => (await import("../snapshots/exports.ts")).commit,
  },
];
