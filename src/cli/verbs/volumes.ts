/** The verbs of volumes, as they are described; what they do is loaded when one is called. */
import { collect, type Group, LIMIT, megabytes, number, seconds, type Verb } from "../session/verb.ts";
import { SCHEDULE } from "./snapshots.ts";

const LIFE: readonly Verb[] = [
  {
    name: "create",
    words: ["<name>"],
    summary: "create an empty volume",
    flags: [
      { flags: "--quota <mb>", about: "quota in MiB, or with a unit: 10g", parse: megabytes },
      { flags: "-l, --label <NAME=VALUE>", about: "set a label; repeatable", parse: collect },
    ],
    examples: ["hearth volumes create data --quota 10g"],
    load: async () => (await import("../volumes/volumes.ts")).createVolume,
  },
  {
    name: "list",
    summary: "list volumes",
    flags: [LIMIT],
    examples: ["hearth volumes list"],
    load: async () => (await import("../volumes/volumes.ts")).listVolumes,
  },
  {
    name: "inspect",
    words: ["<volume>"],
    summary: "show a volume, its usage and the containers that mount it",
    examples: ["hearth volumes inspect data"],
    load: async () => (await import("../volumes/volumes.ts")).inspectVolume,
  },
  {
    name: "rename",
    words: ["<volume>", "<new-name>"],
    summary: "rename a volume",
    examples: ["hearth volumes rename data archive"],
    load: async () => (await import("../volumes/volumes.ts")).renameVolume,
  },
  {
    name: "snapshot",
    words: ["<volume>"],
    summary: "take a snapshot of a volume alone; 'hearth clone' makes a volume of it",
    flags: [
      { flags: "--name <name>", about: "name of the snapshot" },
      { flags: "--ttl <s>", about: "delete the snapshot after this time: seconds, or 12h", parse: seconds },
      { flags: "-l, --label <NAME=VALUE>", about: "set a label; repeatable", parse: collect },
    ],
    examples: ["hearth volumes snapshot data --name before"],
    load: async () => (await import("../snapshots/schedules.ts")).snapshotVolume,
  },
  {
    name: "schedule",
    words: ["<volume>"],
    summary: "take snapshots of a volume by itself, and keep the newest",
    more: "Without flags, hearth shows the schedule.",
    flags: SCHEDULE,
    examples: ["hearth volumes schedule data --every 1d --keep 7", "hearth volumes schedule data --off"],
    load: async () => (await import("../snapshots/schedules.ts")).scheduleVolume,
  },
  {
    name: "delete",
    words: ["<volume>"],
    summary: "delete a volume with all its files",
    examples: ["hearth volumes delete data"],
    load: async () => (await import("../volumes/volumes.ts")).deleteVolume,
  },
];

const FILES: readonly Verb[] = [
  {
    name: "ls",
    words: ["[volume:path]"],
    summary: "list a directory of a volume; without one, the volumes",
    examples: ["hearth volumes ls data", "hearth volumes ls data:/notes"],
    load: async () => (await import("../volumes/volumes.ts")).listFiles,
  },
  {
    name: "cat",
    words: ["<volume:path>"],
    summary: "print a file of a volume",
    examples: ["hearth volumes cat data:/notes/a.txt"],
    load: async () => (await import("../volumes/volumes.ts")).readFile,
  },
  {
    name: "put",
    words: ["<volume:path>", "[file]"],
    summary: "write a file of a volume, from a file or standard input",
    more: "The daemon replaces the file atomically and creates its parent directories. Use cp for files above 5 MiB.",
    flags: [{ flags: "--mode <octal>", about: "permission bits (644)", parse: number }],
    examples: ["date | hearth volumes put data:/notes/now.txt", "hearth volumes put data:/run.sh run.sh --mode 755"],
    load: async () => (await import("../volumes/volumes.ts")).putFile,
  },
  {
    name: "rm",
    words: ["<volume:path>"],
    summary: "remove a file or a directory of a volume",
    flags: [
      { flags: "-r, --recursive", about: "remove a directory with its contents" },
      { flags: "-f, --force", about: "ignore missing files" },
    ],
    examples: ["hearth volumes rm data:/notes/a.txt", "hearth volumes rm -r data:/notes"],
    load: async () => (await import("../volumes/volumes.ts")).removeFile,
  },
  {
    name: "cp",
    words: ["<source>", "<target>"],
    summary: "copy files between a volume and this machine",
    more: "Works like 'hearth cp' with a container.",
    examples: ["hearth volumes cp ./site data:/site", "hearth volumes cp data:/ - > data.tar"],
    load: async () => (await import("../volumes/volumes.ts")).copyVolume,
  },
];

export const VOLUMES: Group = {
  name: "volumes",
  aliases: ["vol", "volume"],
  summary: "manage volumes: files that containers mount and that outlive them",
  verbs: [...LIFE, ...FILES],
};
