/** The verbs of private networks and names, as they are described. */
import type { Group } from "../session/verb.ts";

export const NETWORKS: Group = {
  name: "networks",
  aliases: ["network"],
  summary: "show private networks of containers",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list private networks with their containers",
      more: "A private network exists while a container names it: hearth run --network <name>.",
      examples: ["hearth networks list", "hearth networks list --json | jq -r '.networks[].name'"],
      load: async () => (await import("../networks/networks.ts")).listNetworks,
    },
  ],
};

export const NAMES: Group = {
  name: "dns",
  summary: "show names of containers",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list the names that containers resolve",
      examples: ["hearth dns list"],
      load: async () => (await import("../networks/networks.ts")).listNames,
    },
  ],
};
