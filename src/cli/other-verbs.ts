/** The verbs beside those of functions, as they are described; what they do is loaded when one is called. */
import { LIMIT_FLAGS, NO_LIMIT_FLAGS } from "./tenant-fields.ts";
import { collect, eventNumber, type Flag, type Group, LIMIT, moment, seconds, type Verb } from "./verb.ts";

const SCOPES: Flag = {
  flags: "--scopes <list>",
  about: "read, invoke, write, admin, with commas; all that the key in use has",
  parse: collect,
};
const KEY_FLAGS: readonly Flag[] = [
  SCOPES,
  { flags: "--expires <when>", about: "a time from now (30d) or a date; never unless given" },
];

const KEYS: Group = {
  name: "keys",
  summary: "your tenant's API keys",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list keys, without their texts",
      examples: ["hearth keys list"],
      load: async () => (await import("./keys.ts")).listKeys,
    },
    {
      name: "create",
      words: ["<name>"],
      summary: "make a key; its text is shown this once",
      flags: KEY_FLAGS,
      examples: ["hearth keys create ci --scopes read,invoke --expires 90d"],
      load: async () => (await import("./keys.ts")).createKey,
    },
    {
      name: "revoke",
      words: ["<key>"],
      summary: "end a key and its tokens, at once",
      examples: ["hearth keys revoke key_7c1f0e2m9qkx4d3b"],
      load: async () => (await import("./keys.ts")).revokeKey,
    },
    {
      name: "rotate-operator",
      summary: "replace the operator's key and its file (the operator's)",
      flags: [
        { flags: "--overlap <span>", about: "how long the previous key is good (0; at most 7d)", parse: seconds },
      ],
      examples: ["hearth keys rotate-operator --overlap 10m"],
      load: async () => (await import("./keys.ts")).rotateOperatorKey,
    },
  ],
};

const TOKENS: Group = {
  name: "tokens",
  summary: "short-lived access tokens",
  verbs: [
    {
      name: "create",
      summary: "make a bearer token from the key in use",
      flags: [SCOPES, { flags: "--expires-in <span>", about: "seconds, or like 15m (15m; at most 1h)" }],
      examples: ["hearth tokens create --scopes invoke --expires-in 5m"],
      load: async () => (await import("./keys.ts")).createToken,
    },
    {
      name: "rotate-key",
      summary: "replace the key that tokens are signed with (the operator's)",
      flags: [
        { flags: "--overlap <span>", about: "how long earlier tokens are good at most (1h); 0: not", parse: seconds },
      ],
      examples: ["hearth tokens rotate-key --overlap 0"],
      load: async () => (await import("./keys.ts")).rotateTokenKey,
    },
  ],
};

const TENANT_KEYS: Group = {
  name: "keys",
  summary: "a tenant's API keys",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      words: ["<tenant>"],
      summary: "list its keys, without their texts",
      examples: ["hearth tenants keys list acme"],
      load: async () => (await import("./keys.ts")).listTenantKeys,
    },
    {
      name: "create",
      words: ["<tenant>", "<name>"],
      summary: "make a key for it; its text is shown this once",
      flags: KEY_FLAGS,
      examples: ["hearth tenants keys create acme first"],
      load: async () => (await import("./keys.ts")).createTenantKey,
    },
    {
      name: "revoke",
      words: ["<tenant>", "<key>"],
      summary: "end one of its keys, at once",
      examples: ["hearth tenants keys revoke acme key_7c1f0e2m9qkx4d3b"],
      load: async () => (await import("./keys.ts")).revokeTenantKey,
    },
  ],
};

const TENANTS: Group = {
  name: "tenants",
  summary: "tenants and their limits (the operator's)",
  verbs: [
    {
      name: "create",
      words: ["<name>"],
      summary: "make a tenant",
      flags: LIMIT_FLAGS,
      examples: ["hearth tenants create acme --requests-per-second 100 --functions-max 50"],
      load: async () => (await import("./tenants.ts")).createTenant,
    },
    {
      name: "list",
      aliases: ["ls"],
      summary: "list tenants",
      flags: [LIMIT],
      examples: ["hearth tenants list"],
      load: async () => (await import("./tenants.ts")).listTenants,
    },
    {
      name: "get",
      words: ["<tenant>"],
      summary: "show a tenant with its limits and what it owns",
      examples: ["hearth tenants get acme"],
      load: async () => (await import("./tenants.ts")).getTenant,
    },
    {
      name: "update",
      words: ["<tenant>"],
      summary: "rename a tenant or change its limits (<n>: a number, or default)",
      flags: [{ flags: "--name <name>", about: "its new name" }, ...LIMIT_FLAGS, ...NO_LIMIT_FLAGS],
      examples: ["hearth tenants update acme --instances-max 20 --functions-max default --no-requests-per-second"],
      load: async () => (await import("./tenants.ts")).updateTenant,
    },
    {
      name: "delete",
      aliases: ["rm"],
      words: ["<tenant>"],
      summary: "delete a tenant and its keys",
      flags: [{ flags: "--force", about: "with all that it owns" }],
      examples: ["hearth tenants delete acme --force"],
      load: async () => (await import("./tenants.ts")).deleteTenant,
    },
    TENANT_KEYS,
  ],
};

const ASKED =
  "Without --key-file it is asked for, and not shown while it is typed; standard input is read where it is no terminal.";

const PROFILES: Group = {
  name: "profile",
  aliases: ["profiles"],
  summary: "daemons and keys kept under names",
  verbs: [
    {
      name: "add",
      words: ["<new-profile>"],
      summary: "keep a URL and a key under a name",
      more: ASKED,
      flags: [{ flags: "--use", about: "and make it the one in use" }],
      examples: ["hearth profile add work --url http://10.0.0.5:8700 --key-file work.key"],
      load: async () => (await import("./login.ts")).addProfile,
    },
    {
      name: "list",
      aliases: ["ls"],
      summary: "list profiles, without their keys",
      examples: ["hearth profile list"],
      load: async () => (await import("./login.ts")).listProfiles,
    },
    {
      name: "use",
      words: ["[profile]"],
      summary: "choose the profile that is in use",
      flags: [{ flags: "--none", about: "none: this machine's daemon" }],
      examples: ["hearth profile use work", "hearth profile use --none"],
      load: async () => (await import("./login.ts")).useProfile,
    },
    {
      name: "remove",
      aliases: ["rm"],
      words: ["<profile>"],
      summary: "forget a profile and its key",
      examples: ["hearth profile remove work"],
      load: async () => (await import("./login.ts")).removeProfile,
    },
  ],
};

const LOGIN: Verb = {
  name: "login",
  words: ["[new-profile]"],
  summary: "keep a URL and a key, and use them",
  more: `They are kept as a profile (default) once the daemon has taken the key. Without --url it is that of HEARTH_URL, or this machine's. ${ASKED}`,
  examples: ["hearth login --url http://10.0.0.5:8700", "hearth login work --url http://10.0.0.5:8700 < work.key"],
  load: async () => (await import("./login.ts")).login,
};

const OPERATIONS: Group = {
  name: "ops",
  aliases: ["operations"],
  summary: "work that was accepted and is done in its own time",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list operations, the newest first",
      flags: [
        LIMIT,
        { flags: "--status <status>", about: "only those in it: running, failed, …" },
        { flags: "--type <type>", about: "only those of it: container.start, …" },
        { flags: "--target <id>", about: "only those on this thing" },
      ],
      examples: ["hearth ops list --status running"],
      load: async () => (await import("./operations.ts")).listOperations,
    },
    {
      name: "get",
      words: ["<operation>"],
      summary: "show an operation: how far it is, or how it ended",
      examples: ["hearth ops get op_4m0v9c2x7k1t8r6d"],
      load: async () => (await import("./operations.ts")).getOperation,
    },
    {
      name: "wait",
      words: ["<operation>"],
      summary: "wait for the end of an operation",
      more: "Exits with 0 when it has succeeded.",
      examples: ["hearth ops wait op_4m0v9c2x7k1t8r6d"],
      load: async () => (await import("./operations.ts")).waitForOperation,
    },
    {
      name: "cancel",
      words: ["<operation>"],
      summary: "cancel an operation that waits, or that can be stopped",
      examples: ["hearth ops cancel op_4m0v9c2x7k1t8r6d"],
      load: async () => (await import("./operations.ts")).cancelOperation,
    },
  ],
};

const EVENTS: Verb = {
  name: "events",
  summary: "what has happened, and with --follow what happens",
  flags: [
    { flags: "-f, --follow", about: "what happens from now on, until Ctrl-C" },
    { flags: "--after <id>", about: "begin behind this event", parse: eventNumber },
    { flags: "--name <name>", about: "only these: function_update, container_update, …" },
    { flags: "--type <type>", about: "only these: created, started, failed, …" },
    { flags: "--container <id>", about: "only those of a container" },
    { flags: "--operation <id>", about: "only those of an operation" },
  ],
  examples: ["hearth events --name function_update", "hearth events --follow"],
  load: async () => (await import("./events.ts")).events,
};

const AUDIT: Verb = {
  name: "audit",
  summary: "who changed what, and what was refused",
  flags: [
    LIMIT,
    { flags: "--since <when>", about: "a time ago (2h) or a date", parse: moment },
    { flags: "--until <when>", about: "a time ago (1h) or a date", parse: moment },
    { flags: "--key-id <id>", about: "only those of a key" },
    { flags: "--route <pattern>", about: "only those of a route, such as /api/functions/:function_id" },
    { flags: "--target <id>", about: "only those with this target" },
    { flags: "--result <result>", about: "only those with this result", choices: ["success", "refused", "failed"] },
    { flags: "--tenant <tenant>", about: "only those of a tenant, of all unless given (the operator's)" },
    { flags: "--ndjson", about: "all of them, one JSON object a line" },
  ],
  examples: ["hearth audit --since 1d --result refused", "hearth audit --ndjson > audit.ndjson"],
  load: async () => (await import("./audit.ts")).listAudit,
};

const STATUS: Verb = {
  name: "status",
  summary: "the daemon on one screen",
  examples: ["hearth status"],
  load: async () => (await import("./status.ts")).status,
};

const LIMITS_OF_TENANT: Verb = {
  name: "limits",
  summary: "the limits of the tenant whose key is in use, and what it uses",
  examples: ["hearth limits", "hearth limits --json"],
  load: async () => (await import("./tenants.ts")).showLimits,
};

const BENCH: Verb = {
  name: "bench",
  words: ["[args...]"],
  summary: "measure hearth on this machine",
  more: "As 'npm run bench -- …' does in its checkout.",
  isPassThrough: true,
  examples: ["hearth bench --quick", "hearth bench --only cold,rollback"],
  load: async () => (await import("./bench.ts")).bench,
};

const COMPLETION: Verb = {
  name: "completion",
  words: ["<shell>"],
  summary: "print what completes commands",
  examples: [
    'eval "$(hearth completion bash)"    # in ~/.bashrc',
    'eval "$(hearth completion zsh)"     # in ~/.zshrc, after compinit',
    "hearth completion fish | source     # in ~/.config/fish/config.fish",
  ],
  load: async () => (await import("./completion.ts")).completion,
};

export const OTHER_VERBS: readonly (Verb | Group)[] = [
  STATUS,
  OPERATIONS,
  EVENTS,
  AUDIT,
  KEYS,
  TOKENS,
  TENANTS,
  LIMITS_OF_TENANT,
  LOGIN,
  PROFILES,
  COMPLETION,
  BENCH,
];
