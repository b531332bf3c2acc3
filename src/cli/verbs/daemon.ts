/** The verbs of the daemon and of this program itself, as they are described; what they do is loaded when one is called. */
import { eventNumber, type Group, LIMIT, moment, type Verb } from "../session/verb.ts";

const OPERATIONS: Group = {
  name: "ops",
  aliases: ["operations"],
  summary: "manage operations: accepted work that runs in the background",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list operations, newest first",
      flags: [
        LIMIT,
        { flags: "--status <status>", about: "only operations in this status: running, failed, …" },
        { flags: "--type <type>", about: "only operations of this type: container.start, …" },
        { flags: "--target <id>", about: "only operations on this resource" },
      ],
      examples: ["hearth ops list --status running"],
      load: async () => (await import("../daemon/operations.ts")).listOperations,
    },
    {
      name: "get",
      words: ["<operation>"],
      summary: "show the progress or the result of an operation",
      examples: ["hearth ops get op_4m0v9c2x7k1t8r6d"],
      load: async () => (await import("../daemon/operations.ts")).getOperation,
    },
    {
      name: "wait",
      words: ["<operation>"],
      summary: "wait until an operation ends",
      more: "Exits with 0 if the operation succeeded.",
      examples: ["hearth ops wait op_4m0v9c2x7k1t8r6d"],
      load: async () => (await import("../daemon/operations.ts")).waitForOperation,
    },
    {
      name: "cancel",
      words: ["<operation>"],
      summary: "cancel an operation that is queued or can be stopped",
      examples: ["hearth ops cancel op_4m0v9c2x7k1t8r6d"],
      load: async () => (await import("../daemon/operations.ts")).cancelOperation,
    },
  ],
};

const EVENTS: Verb = {
  name: "events",
  summary: "list events, or follow new ones",
  flags: [
    { flags: "-f, --follow", about: "follow new events until Ctrl-C" },
    { flags: "--after <id>", about: "start after this event", parse: eventNumber },
    { flags: "--name <name>", about: "only events with this name: function_update, container_update, …" },
    { flags: "--type <type>", about: "only events of this type: created, started, failed, …" },
    { flags: "--container <id>", about: "only events of this container" },
    { flags: "--operation <id>", about: "only events of this operation" },
  ],
  examples: ["hearth events --name function_update", "hearth events --follow"],
  load: async () => (await import("../daemon/events.ts")).events,
};

const AUDIT: Verb = {
  name: "audit",
  summary: "show the audit log: changes and refused requests",
  flags: [
    LIMIT,
    { flags: "--since <when>", about: "entries since then: a time ago (2h) or a date", parse: moment },
    { flags: "--until <when>", about: "entries until then: a time ago (1h) or a date", parse: moment },
    { flags: "--key-id <id>", about: "only entries of this key" },
    { flags: "--route <pattern>", about: "only entries of this route, such as /api/functions/:function_id" },
    { flags: "--target <id>", about: "only entries with this target" },
    { flags: "--result <result>", about: "only entries with this result", choices: ["success", "refused", "failed"] },
    { flags: "--tenant <tenant>", about: "only entries of this tenant (operator only; default: all tenants)" },
    { flags: "--ndjson", about: "print all entries, one JSON object per line" },
  ],
  examples: ["hearth audit --since 1d --result refused", "hearth audit --ndjson > audit.ndjson"],
  load: async () => (await import("../access/audit.ts")).listAudit,
};

const STATUS: Verb = {
  name: "status",
  aliases: ["info"],
  summary: "show the state of the daemon",
  examples: ["hearth status"],
  load: async () => (await import("../daemon/status.ts")).status,
};

const VERSION: Verb = {
  name: "version",
  summary: "print the versions of this command and of the daemon",
  examples: ["hearth version", "hearth --version"],
  load: async () => (await import("../daemon/version.ts")).version,
};

export const BENCH: Verb = {
  name: "bench",
  words: ["[args...]"],
  summary: "run the benchmarks on this machine",
  more: "The same as 'npm run bench -- …' in the checkout.",
  isPassThrough: true,
  examples: ["hearth bench --quick", "hearth bench --only cold,rollback"],
  load: async () => (await import("../daemon/bench.ts")).bench,
};

export const COMPLETION: Verb = {
  name: "completion",
  words: ["<shell>"],
  summary: "print a completion script for a shell",
  examples: [
    'eval "$(hearth completion bash)"    # in ~/.bashrc',
    'eval "$(hearth completion zsh)"     # in ~/.zshrc, after compinit',
    "hearth completion fish | source     # in ~/.config/fish/config.fish",
  ],
  load: async () => (await import("../completion.ts")).completion,
};

export const DAEMON_VERBS: readonly (Verb | Group)[] = [STATUS, VERSION, OPERATIONS, EVENTS, AUDIT];
