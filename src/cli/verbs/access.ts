/** The verbs of keys, tokens, tenants and profiles, as they are described; what they do is loaded when one is called. */
import { LIMIT_FLAGS, NO_LIMIT_FLAGS } from "../access/tenant-fields.ts";
import { collect, type Flag, type Group, LIMIT, seconds, type Verb } from "../session/verb.ts";

const SCOPES: Flag = {
  flags: "--scopes <list>",
  about: "comma-separated: read, invoke, write, admin (default: all scopes of the current key)",
  parse: collect,
};
const KEY_FLAGS: readonly Flag[] = [
  SCOPES,
  { flags: "--expires <when>", about: "a time from now (30d) or a date (default: never)" },
];

const KEYS: Group = {
  name: "keys",
  summary: "manage the API keys of your tenant",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list keys without their secrets",
      examples: ["hearth keys list"],
      load: async () => (await import("../access/keys.ts")).listKeys,
    },
    {
      name: "create",
      words: ["<name>"],
      summary: "create a key and print it; it cannot be shown again",
      flags: [
        ...KEY_FLAGS,
        {
          flags: "--container <container>",
          about: "reach only this container, by name or id; repeatable (default: the whole tenant)",
          parse: collect,
        },
      ],
      examples: [
        "hearth keys create ci --scopes read,invoke --expires 90d",
        "hearth keys create agent --container web --scopes read,invoke",
      ],
      load: async () => (await import("../access/keys.ts")).createKey,
    },
    {
      name: "revoke",
      words: ["<key>"],
      summary: "revoke a key and its tokens immediately",
      examples: ["hearth keys revoke key_7c1f0e2m9qkx4d3b"],
      load: async () => (await import("../access/keys.ts")).revokeKey,
    },
    {
      name: "rotate-operator",
      summary: "replace the operator's key and its file (operator only)",
      flags: [
        { flags: "--overlap <span>", about: "how long the previous key stays valid (0; at most 7d)", parse: seconds },
      ],
      examples: ["hearth keys rotate-operator --overlap 10m"],
      load: async () => (await import("../access/keys.ts")).rotateOperatorKey,
    },
  ],
};

const TOKENS: Group = {
  name: "tokens",
  summary: "manage short-lived access tokens",
  verbs: [
    {
      name: "create",
      summary: "create a bearer token from the current key",
      flags: [SCOPES, { flags: "--expires-in <span>", about: "lifetime: seconds, or 15m (15m; at most 1h)" }],
      examples: ["hearth tokens create --scopes invoke --expires-in 5m"],
      load: async () => (await import("../access/keys.ts")).createToken,
    },
    {
      name: "rotate-key",
      summary: "replace the key that signs tokens (operator only)",
      flags: [
        {
          flags: "--overlap <span>",
          about: "how long earlier tokens stay valid (1h); 0 ends them now",
          parse: seconds,
        },
      ],
      examples: ["hearth tokens rotate-key --overlap 0"],
      load: async () => (await import("../access/keys.ts")).rotateTokenKey,
    },
  ],
};

const TENANT_KEYS: Group = {
  name: "keys",
  summary: "manage the API keys of a tenant",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      words: ["<tenant>"],
      summary: "list the tenant's keys without their secrets",
      examples: ["hearth tenants keys list acme"],
      load: async () => (await import("../access/keys.ts")).listTenantKeys,
    },
    {
      name: "create",
      words: ["<tenant>", "<name>"],
      summary: "create a key for the tenant and print it; it cannot be shown again",
      flags: KEY_FLAGS,
      examples: ["hearth tenants keys create acme first"],
      load: async () => (await import("../access/keys.ts")).createTenantKey,
    },
    {
      name: "revoke",
      words: ["<tenant>", "<key>"],
      summary: "revoke a key of the tenant immediately",
      examples: ["hearth tenants keys revoke acme key_7c1f0e2m9qkx4d3b"],
      load: async () => (await import("../access/keys.ts")).revokeTenantKey,
    },
  ],
};

const TENANTS: Group = {
  name: "tenants",
  summary: "manage tenants and their limits (operator only)",
  verbs: [
    {
      name: "create",
      words: ["<name>"],
      summary: "create a tenant",
      flags: LIMIT_FLAGS,
      examples: ["hearth tenants create acme --requests-per-second 100 --functions-max 50"],
      load: async () => (await import("../access/tenants.ts")).createTenant,
    },
    {
      name: "list",
      aliases: ["ls"],
      summary: "list tenants",
      flags: [LIMIT],
      examples: ["hearth tenants list"],
      load: async () => (await import("../access/tenants.ts")).listTenants,
    },
    {
      name: "get",
      words: ["<tenant>"],
      summary: "show a tenant with its limits and usage",
      examples: ["hearth tenants get acme"],
      load: async () => (await import("../access/tenants.ts")).getTenant,
    },
    {
      name: "update",
      words: ["<tenant>"],
      summary: "rename a tenant or change its limits (<n>: a number or default)",
      flags: [
        { flags: "--name <name>", about: "new name of the tenant" },
        {
          flags: "--service-hostname <name>",
          about: "grant a host name to its services, or *. and one; repeatable, replaces the earlier ones",
          parse: collect,
        },
        ...LIMIT_FLAGS,
        ...NO_LIMIT_FLAGS,
      ],
      examples: ["hearth tenants update acme --instances-max 20 --functions-max default --no-requests-per-second"],
      load: async () => (await import("../access/tenants.ts")).updateTenant,
    },
    {
      name: "delete",
      aliases: ["rm"],
      words: ["<tenant>"],
      summary: "delete a tenant and its keys",
      flags: [{ flags: "--force", about: "delete all its resources too" }],
      examples: ["hearth tenants delete acme --force"],
      load: async () => (await import("../access/tenants.ts")).deleteTenant,
    },
    TENANT_KEYS,
  ],
};

const ASKED =
  "Without --key-file, hearth asks for the key and does not echo it. If standard input is not a terminal, hearth reads the key from there.";

const PROFILES: Group = {
  name: "profile",
  summary: "manage saved URLs and keys",
  verbs: [
    {
      name: "add",
      words: ["<new-profile>"],
      summary: "save a URL and a key as a profile",
      more: ASKED,
      flags: [{ flags: "--use", about: "use this profile from now on" }],
      examples: ["hearth profile add work --url http://10.0.0.5:8700 --key-file work.key"],
      load: async () => (await import("../access/login.ts")).addProfile,
    },
    {
      name: "list",
      aliases: ["ls"],
      summary: "list profiles without their keys",
      examples: ["hearth profile list"],
      load: async () => (await import("../access/login.ts")).listProfiles,
    },
    {
      name: "use",
      words: ["[profile]"],
      summary: "select the profile to use",
      flags: [{ flags: "--none", about: "use no profile, but the daemon of this machine" }],
      examples: ["hearth profile use work", "hearth profile use --none"],
      load: async () => (await import("../access/login.ts")).useProfile,
    },
    {
      name: "remove",
      aliases: ["rm"],
      words: ["<profile>"],
      summary: "delete a profile and its key",
      examples: ["hearth profile remove work"],
      load: async () => (await import("../access/login.ts")).removeProfile,
    },
  ],
};

const LOGIN_REGISTRY: Verb = {
  name: "registry",
  words: ["<registry>"],
  summary: "store credentials for a registry of images",
  more: "Pulls and pushes of your tenant use them unless they get others. hearth asks for the password, or reads it from standard input with --password-stdin; no flag takes it: every user of a machine can read the arguments of a process. The daemon encrypts the password and never shows it. It does not try the credentials.",
  flags: [
    { flags: "-u, --username <name>", about: "user name for the registry (required)" },
    { flags: "--password-stdin", about: "read the password from standard input" },
  ],
  examples: [
    "hearth login registry registry.example.com -u ada",
    "pass show registry | hearth login registry docker.io -u ada --password-stdin",
  ],
  load: async () => (await import("../images/registries.ts")).loginRegistry,
};

const LOGOUT_REGISTRY: Verb = {
  name: "registry",
  words: ["<registry>"],
  summary: "delete the stored credentials for a registry",
  examples: ["hearth logout registry registry.example.com"],
  load: async () => (await import("../images/registries.ts")).logoutRegistry,
};

const LOGOUT: Verb = {
  name: "logout",
  words: ["[profile]"],
  summary: "delete a profile, and revoke its key if a password made it",
  more: "Without a profile, hearth deletes the one in use.",
  examples: ["hearth logout", "hearth logout work"],
  load: async () => (await import("../access/users.ts")).logout,
  more_verbs: [LOGOUT_REGISTRY],
};

const REGISTER: Verb = {
  name: "register",
  words: ["<email>", "[new-profile]"],
  summary: "create a user with a tenant of its own, and sign in",
  more: "hearth asks for the password twice and does not echo it. If standard input is not a terminal, hearth reads the password from there. The node must let people register (setting HEARTH_USERS). The profile (default) keeps an API key for 90 days.",
  flags: [{ flags: "--name <name>", about: "your name (default: the address before @)" }],
  examples: ["hearth register ada@example.com --url https://hearth.example.com --name Ada"],
  load: async () => (await import("../access/users.ts")).register,
};

const WHOAMI: Verb = {
  name: "whoami",
  summary: "show tenant, scopes and user of the current key",
  examples: ["hearth whoami"],
  load: async () => (await import("../access/users.ts")).whoami,
};

const LOGIN: Verb = {
  name: "login",
  words: ["[new-profile]"],
  summary: "save a URL and a key, or sign in with a password",
  more: `hearth saves them as a profile (default) after the daemon accepts the key. Without --url, hearth uses HEARTH_URL, or the daemon of this machine. ${ASKED} With --email hearth asks for the password of that user instead, and saves an API key that it makes for 90 days.`,
  flags: [{ flags: "--email <email>", about: "sign in as this user, with a password" }],
  examples: [
    "hearth login --url http://10.0.0.5:8700",
    "hearth login work --url http://10.0.0.5:8700 < work.key",
    "hearth login --url https://hearth.example.com --email ada@example.com",
  ],
  load: async () => (await import("../access/login.ts")).login,
  more_verbs: [LOGIN_REGISTRY],
};

const LIMITS_OF_TENANT: Verb = {
  name: "limits",
  summary: "show the limits and the usage of your tenant",
  examples: ["hearth limits", "hearth limits --json"],
  load: async () => (await import("../access/tenants.ts")).showLimits,
};

export const ACCESS_VERBS: readonly (Verb | Group)[] = [
  KEYS,
  TOKENS,
  TENANTS,
  LIMITS_OF_TENANT,
  REGISTER,
  LOGIN,
  LOGOUT,
  WHOAMI,
  PROFILES,
];
