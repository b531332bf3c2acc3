/** The verbs of secrets, as they are described; what they do is loaded when one is called. */
import { type Group, LIMIT } from "../session/verb.ts";

export const SECRETS: Group = {
  name: "secrets",
  summary: "manage secrets: encrypted values for functions, which hearth never shows",
  verbs: [
    {
      name: "set",
      words: ["<secret>"],
      summary: "create a secret or replace its value",
      more: "hearth asks for the value and does not echo it. If standard input is not a terminal, hearth reads the value from there, without its last line break; --file keeps every byte. There is no flag for the value: every user of a machine can read the arguments of a process.",
      flags: [{ flags: "--file <file>", about: "read the value from a file, - for standard input, byte for byte" }],
      examples: [
        "hearth secrets set API_TOKEN",
        "hearth secrets set tls.pem --file key.pem",
        "pass show api | hearth secrets set API_TOKEN",
      ],
      load: async () => (await import("../secrets/secrets.ts")).setSecret,
    },
    {
      name: "list",
      aliases: ["ls"],
      summary: "list secrets without their values",
      flags: [LIMIT],
      examples: ["hearth secrets list"],
      load: async () => (await import("../secrets/secrets.ts")).listSecrets,
    },
    {
      name: "rm",
      aliases: ["delete"],
      words: ["<secret>"],
      summary: "delete a secret; new instances of functions that need it fail to start",
      examples: ["hearth secrets rm API_TOKEN"],
      load: async () => (await import("../secrets/secrets.ts")).deleteSecret,
    },
    {
      name: "rotate-key",
      summary: "replace the key that encrypts secrets (operator only)",
      more: "The daemon encrypts existing secrets again in the background, and then removes the earlier key.",
      examples: ["hearth secrets rotate-key"],
      load: async () => (await import("../secrets/secrets.ts")).rotateSecretsKey,
    },
  ],
};
