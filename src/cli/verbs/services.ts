/** The verbs of published services, as they are described; what they do is loaded when one is called. */
import { type Group, LIMIT, seconds, type Verb } from "../session/verb.ts";

export const PUBLISH: Verb = {
  name: "publish",
  words: ["<container>", "<port>"],
  summary: "publish an HTTP port of a container behind a URL",
  more: "hearth prints the URL. Its token admits every client that has the URL. Append to its path and keep its query.",
  flags: [
    { flags: "-n, --name <name>", about: "name of the service (port-<port>)" },
    { flags: "--ttl <s>", about: "let the service expire after this time: seconds, or 12h", parse: seconds },
    { flags: "--websockets", about: "pass WebSockets on" },
    { flags: "--public", about: "serve requests without a token" },
    { flags: "--hostname <name>", about: "host name of its own, which the operator has granted" },
    { flags: "--wait", about: "return when the port accepts connections" },
  ],
  examples: ["hearth publish web 8080 --wait", "hearth publish web 3000 --name dev --websockets --ttl 12h"],
  load: async () => (await import("../services/services.ts")).publish,
};

export const SERVICES: Group = {
  name: "services",
  aliases: ["svc"],
  summary: "manage published services: ports of containers behind URLs",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list services without their tokens",
      flags: [LIMIT],
      examples: ["hearth services list"],
      load: async () => (await import("../services/services.ts")).listServices,
    },
    {
      name: "url",
      words: ["<service>"],
      summary: "print the URL of a service with its token",
      examples: ["hearth services url web"],
      load: async () => (await import("../services/services.ts")).showUrl,
    },
    {
      name: "rotate",
      words: ["<service>"],
      summary: "give a service another token and print its URL; the earlier URL ends at once",
      examples: ["hearth services rotate web"],
      load: async () => (await import("../services/services.ts")).rotateService,
    },
    {
      name: "rm",
      aliases: ["delete"],
      words: ["<service>"],
      summary: "delete a service and end its requests",
      examples: ["hearth services rm web"],
      load: async () => (await import("../services/services.ts")).deleteService,
    },
  ],
};
