/** The verbs of functions, as they are described; what they do is loaded when one is called. */
import { CREATE_FLAGS, UPDATE_FLAGS } from "./function-fields.ts";
import { collect, type Flag, LIMIT, number, type Verb } from "./verb.ts";

const LIFE: readonly Verb[] = [
  {
    name: "create",
    words: ["<name>"],
    summary: "make a function",
    flags: [...CREATE_FLAGS, { flags: "--deploy", about: "and deploy it" }],
    examples: [
      "hearth create hello --handler 'echo hello, $(cat)' --deploy",
      "hearth create report --handler-file report.sh --env-file .env --timeout-seconds 300",
    ],
    load: async () => (await import("./functions.ts")).create,
  },
  {
    name: "deploy",
    words: ["<function>"],
    summary: "make a function callable",
    more: "It answers when as many instances are warm as --min-instances says.",
    examples: ["hearth deploy hello"],
    load: async () => (await import("./functions.ts")).deploy,
  },
  {
    name: "update",
    words: ["<function>"],
    summary: "make the next version from what changes",
    more: "The function points to the new version when it is warm. Variables given with --env and --env-file are set on top of those there are. Flags with --no- clear a field.",
    flags: UPDATE_FLAGS,
    examples: [
      "hearth update hello --handler 'echo good day, $(cat)'",
      "hearth update hello --env GREETING=hi --unset-env DEBUG --no-cpu-limit-percent",
    ],
    load: async () => (await import("./functions.ts")).update,
  },
  {
    name: "list",
    aliases: ["ls"],
    summary: "list functions",
    flags: [LIMIT],
    examples: ["hearth ls", "hearth ls --json | jq -r '.functions[].name'"],
    load: async () => (await import("./functions.ts")).list,
  },
  {
    name: "get",
    words: ["<function>"],
    summary: "show a function with all its fields",
    examples: ["hearth get hello", "hearth get hello --json | jq .environment"],
    load: async () => (await import("./functions.ts")).get,
  },
  {
    name: "pause",
    words: ["<function>"],
    summary: "scale a function to zero, refuse calls",
    examples: ["hearth pause hello"],
    load: async () => (await import("./functions.ts")).pause,
  },
  {
    name: "resume",
    words: ["<function>"],
    summary: "make a paused function callable again",
    examples: ["hearth resume hello"],
    load: async () => (await import("./functions.ts")).resume,
  },
  {
    name: "delete",
    aliases: ["rm"],
    words: ["<function>"],
    summary: "remove a function with its records",
    examples: ["hearth delete hello"],
    load: async () => (await import("./functions.ts")).remove,
  },
];

const CALL_FLAGS: readonly Flag[] = [
  { flags: "-f, --file <file>", about: "the payload from a file; - for standard input" },
  { flags: "-e, --env <NAME=VALUE>", about: "a variable for this call; repeatable", parse: collect },
  { flags: "--env-file <file>", about: "variables from a file of NAME=VALUE lines; repeatable", parse: collect },
  { flags: "--timeout-seconds <s>", about: "end the call after so long", parse: number },
  { flags: "-v, --verbose", about: "cold or warm, and where the time went, on standard error" },
  { flags: "--exit-code", about: "exit with the code of a handler that failed" },
];

const CALLS: readonly Verb[] = [
  {
    name: "invoke",
    words: ["<function>", "[payload]"],
    summary: "call a function",
    more: "The payload is the argument, the file, or standard input where that is no terminal. The handler's output and error output come as they are; --json prints the record instead.",
    flags: CALL_FLAGS,
    examples: ["hearth invoke hello world", "hearth invoke hello -v < letter.txt", "date | hearth invoke hello"],
    load: async () => (await import("./invoke.ts")).invoke,
  },
  {
    name: "logs",
    words: ["<function>"],
    summary: "what the last calls have written",
    more: "They come in order of time. Each call is a line with its time, id, status and length. Below it '|' stands before its output, '!' before its error output.",
    flags: [
      { flags: "-f, --follow", about: "go on with new calls, until Ctrl-C" },
      { ...LIMIT, about: "so many calls (20)" },
    ],
    examples: ["hearth logs hello", "hearth logs hello --follow --limit 5"],
    load: async () => (await import("./records.ts")).logs,
  },
  {
    name: "invocations",
    words: ["<function>", "[invocation]"],
    summary: "list records of calls, or show one",
    flags: [{ ...LIMIT, about: "at most so many, the newest (20)" }],
    examples: ["hearth invocations hello --limit 50", "hearth invocations hello inv_1s2k9f0w3q_yynyb436"],
    load: async () => (await import("./records.ts")).invocations,
  },
  {
    name: "pool",
    words: ["[function]"],
    summary: "instances by state, once or live",
    more: "Of one function, or of all together.",
    flags: [{ flags: "-w, --watch", about: "live, until Ctrl-C" }],
    examples: ["hearth pool", "hearth pool hello --watch"],
    load: async () => (await import("./pool.ts")).pool,
  },
];

const VERSIONS: readonly Verb[] = [
  {
    name: "versions",
    words: ["<function>"],
    summary: "list the versions of a function",
    flags: [LIMIT],
    examples: ["hearth versions hello"],
    load: async () => (await import("./functions.ts")).versions,
  },
  {
    name: "rollback",
    words: ["<function>", "<version>"],
    summary: "point a function to an earlier version",
    examples: ["hearth rollback hello 1"],
    load: async () => (await import("./functions.ts")).rollback,
  },
];

export const FUNCTION_VERBS: readonly Verb[] = [...LIFE, ...CALLS, ...VERSIONS];
