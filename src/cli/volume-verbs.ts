/** The verbs of volumes, as they are described; what they do is loaded when one is called. */
import { collect, type Group, LIMIT, megabytes, number, type Verb } from "./verb.ts";

const LIFE: readonly Verb[] = [
  {
    name: "create",
    words: ["<name>"],
    summary: "make an empty volume",
    flags: [
      { flags: "--quota <mb>", about: "what it may hold: MiB, or like 10g", parse: megabytes },
      { flags: "-l, --label <NAME=VALUE>", about: "a label; repeatable", parse: collect },
    ],
    examples: ["hearth volumes create data --quota 10g"],
    load: async () => (await import("./volumes.ts")).createVolume,
  },
  {
    name: "list",
    summary: "list volumes",
    flags: [LIMIT],
    examples: ["hearth volumes list"],
    load: async () => (await import("./volumes.ts")).listVolumes,
  },
  {
    name: "inspect",
    words: ["<volume>"],
    summary: "show a volume, what it holds and which containers have it",
    examples: ["hearth volumes inspect data"],
    load: async () => (await import("./volumes.ts")).inspectVolume,
  },
  {
    name: "rename",
    words: ["<volume>", "<new-name>"],
    summary: "give a volume another name",
    examples: ["hearth volumes rename data archive"],
    load: async () => (await import("./volumes.ts")).renameVolume,
  },
  {
    name: "delete",
    words: ["<volume>"],
    summary: "delete a volume with all its files",
    examples: ["hearth volumes delete data"],
    load: async () => (await import("./volumes.ts")).deleteVolume,
  },
];

const FILES: readonly Verb[] = [
  {
    name: "ls",
    words: ["<volume:path>"],
    summary: "list a directory of a volume",
    examples: ["hearth volumes ls data", "hearth volumes ls data:/notes"],
    load: async () => (await import("./volumes.ts")).listFiles,
  },
  {
    name: "cat",
    words: ["<volume:path>"],
    summary: "print a file of a volume, byte for byte",
    examples: ["hearth volumes cat data:/notes/a.txt"],
    load: async () => (await import("./volumes.ts")).readFile,
  },
  {
    name: "put",
    words: ["<volume:path>", "[file]"],
    summary: "write a file of a volume, from a file or standard input",
    more: "It is replaced at once, and the directories above it are made. What is larger than 5 MiB goes by cp.",
    flags: [{ flags: "--mode <octal>", about: "its permission bits (644)", parse: number }],
    examples: ["date | hearth volumes put data:/notes/now.txt", "hearth volumes put data:/run.sh run.sh --mode 755"],
    load: async () => (await import("./volumes.ts")).putFile,
  },
  {
    name: "rm",
    words: ["<volume:path>"],
    summary: "remove a file or a directory of a volume",
    flags: [
      { flags: "-r, --recursive", about: "a directory with all in it" },
      { flags: "-f, --force", about: "say nothing of what is not there" },
    ],
    examples: ["hearth volumes rm data:/notes/a.txt", "hearth volumes rm -r data:/notes"],
    load: async () => (await import("./volumes.ts")).removeFile,
  },
  {
    name: "cp",
    words: ["<source>", "<target>"],
    summary: "copy files between a volume and this machine",
    more: "As 'hearth cp' does with a container.",
    examples: ["hearth volumes cp ./site data:/site", "hearth volumes cp data:/ - > data.tar"],
    load: async () => (await import("./volumes.ts")).copyVolume,
  },
];

export const VOLUMES: Group = {
  name: "volumes",
  aliases: ["vol"],
  summary: "files that containers mount and that outlive them",
  verbs: [...LIFE, ...FILES],
};
