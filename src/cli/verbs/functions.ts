/** The verbs of functions, as they are described; what they do is loaded when one is called. */
import { CREATE_FLAGS, UPDATE_FLAGS } from "../functions/function-fields.ts";
import { collect, type Flag, LIMIT, number, type Verb } from "../session/verb.ts";
import { PROJECT_VERBS } from "./project.ts";
import { PULL } from "./pull-flag.ts";

const LIFE: readonly Verb[] = [
  {
    name: "create",
    words: ["<name>"],
    summary: "create a function",
    flags: [...CREATE_FLAGS, PULL, { flags: "--deploy", about: "and deploy it" }],
    examples: [
      "hearth create hello --handler 'echo hello, $(cat)' --deploy",
      "hearth create report --handler-file report.sh --env-file .env --timeout-seconds 300",
      "hearth create upper --image alpine:3.20 --oci --handler 'tr a-z A-Z' --deploy",
    ],
    load: async () => (await import("../functions/functions.ts")).create,
  },
  {
    name: "update",
    words: ["<function>"],
    summary: "create the next version with changed fields",
    more: "The function switches to the new version when that version is warm. --env and --env-file add to the current variables or replace them by name. Flags with --no- clear a field.",
    flags: [...UPDATE_FLAGS, PULL],
    examples: [
      "hearth update hello --handler 'echo good day, $(cat)'",
      "hearth update hello --env GREETING=hi --unset-env DEBUG --no-cpu-limit-percent",
    ],
    load: async () => (await import("../functions/functions.ts")).update,
  },
  {
    name: "list",
    aliases: ["ls"],
    summary: "list functions",
    flags: [LIMIT],
    examples: ["hearth ls", "hearth ls --json | jq -r '.functions[].name'"],
    load: async () => (await import("../functions/functions.ts")).list,
  },
  {
    name: "get",
    words: ["<function>"],
    summary: "show all fields of a function",
    examples: ["hearth get hello", "hearth get hello --json | jq .environment"],
    load: async () => (await import("../functions/functions.ts")).get,
  },
  {
    name: "pause",
    words: ["<function>"],
    summary: "scale a function to zero and refuse its calls",
    examples: ["hearth pause hello"],
    load: async () => (await import("../functions/functions.ts")).pause,
  },
  {
    name: "resume",
    words: ["<function>"],
    summary: "resume a paused function",
    examples: ["hearth resume hello"],
    load: async () => (await import("../functions/functions.ts")).resume,
  },
  {
    name: "delete",
    aliases: ["rm"],
    words: ["<function>"],
    summary: "remove a function with its records",
    examples: ["hearth delete hello"],
    load: async () => (await import("../functions/functions.ts")).remove,
  },
];

const CALL_FLAGS: readonly Flag[] = [
  { flags: "-f, --file <file>", about: "read the payload from a file; - for standard input" },
  { flags: "-e, --env <NAME=VALUE>", about: "set a variable for this call; repeatable", parse: collect },
  { flags: "--env-file <file>", about: "read variables from a file of NAME=VALUE lines; repeatable", parse: collect },
  { flags: "--timeout-seconds <s>", about: "timeout of this call in seconds", parse: number },
  { flags: "--path <path>", about: "path and query of the request to a server of the runtime custom (/)" },
  { flags: "--method <method>", about: "method of that request (POST)" },
  { flags: "--header <NAME: VALUE>", about: "header of that request; repeatable", parse: collect },
  { flags: "-v, --verbose", about: "print on standard error: cold or warm start, time per phase" },
  { flags: "--exit-code", about: "exit with the exit code of a failed handler" },
];

const CALLS: readonly Verb[] = [
  {
    name: "invoke",
    words: ["<function>", "[payload]"],
    summary: "call a function",
    more: "The payload is the argument, the file, or standard input unless that is a terminal. hearth passes the handler's standard output and standard error through. If the handler returned a value, hearth prints the value as JSON, and the handler's standard output on standard error. --json prints the invocation record instead.",
    flags: CALL_FLAGS,
    examples: ["hearth invoke hello world", "hearth invoke hello -v < letter.txt", "date | hearth invoke hello"],
    load: async () => (await import("../functions/invoke.ts")).invoke,
  },
  {
    name: "logs",
    words: ["<function>"],
    summary: "show the output of the latest calls",
    more: "hearth lists the calls in order of time. Each call has a line with its time, id, status and duration. Below it '|' marks standard output and '!' standard error.",
    flags: [
      { flags: "-f, --follow", about: "follow new calls until Ctrl-C" },
      { ...LIMIT, about: "number of calls, the newest (20)" },
    ],
    examples: ["hearth logs hello", "hearth logs hello --follow --limit 5"],
    load: async () => (await import("../functions/records.ts")).logs,
  },
  {
    name: "invocations",
    words: ["<function>", "[invocation]"],
    summary: "list invocation records, or show one",
    flags: [{ ...LIMIT, about: "number of records, the newest (20)" }],
    examples: ["hearth invocations hello --limit 50", "hearth invocations hello inv_1s2k9f0w3q_yynyb436"],
    load: async () => (await import("../functions/records.ts")).invocations,
  },
  {
    name: "pool",
    words: ["[function]"],
    summary: "show the number of instances per state",
    more: "For one function, or the sum of all functions. A cell is a started container that belongs to no function yet.",
    flags: [{ flags: "-w, --watch", about: "refresh until Ctrl-C" }],
    examples: ["hearth pool", "hearth pool hello --watch"],
    load: async () => (await import("../functions/pool.ts")).pool,
  },
];

const VERSIONS: readonly Verb[] = [
  {
    name: "versions",
    words: ["<function>", "[version]", "[other-version]"],
    summary: "list the versions of a function, show one, or compare two",
    more: "With two versions, hearth prints the settings and files that differ.",
    flags: [LIMIT],
    examples: ["hearth versions hello", "hearth versions hello 3", "hearth versions hello 2 3"],
    load: async () => (await import("../functions/versions.ts")).versions,
  },
  {
    name: "rollback",
    words: ["<function>", "<version>"],
    summary: "roll a function back to an earlier version",
    examples: ["hearth rollback hello 1"],
    load: async () => (await import("../functions/versions.ts")).rollback,
  },
  {
    name: "code",
    words: ["<function>", "[version]"],
    summary: "write the code of a version as tar.gz",
    more: "Without a version, the active one. hearth writes to standard output unless --output names a new file.",
    flags: [{ flags: "-o, --output <file>", about: "write to this file" }],
    examples: ["hearth code hello | tar -tz", "hearth code hello 2 --output hello-2.tar.gz"],
    load: async () => (await import("../functions/versions.ts")).code,
  },
];

export const FUNCTION_VERBS: readonly Verb[] = [...PROJECT_VERBS, ...LIFE, ...CALLS, ...VERSIONS];
