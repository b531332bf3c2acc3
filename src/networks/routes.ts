/** Private networks and names of containers over HTTP. */
import { z } from "zod";
import { route } from "../http/route.ts";
import { dnsEntries, networkList, renamedEntry, renameEntry } from "./schema.ts";
import type { Networks } from "./service.ts";

const CONTAINER = { container_id: "ctr_c1v8hx2m9qk4te7b", ip_address: "10.42.0.7" };

export interface NetworkRoutesOptions {
  readonly networks: Networks;
}

export function networkRoutes({ networks }: NetworkRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/networks",
      auth: "tenant",
      scope: "read",
      operation: "listNetworks",
      summary: "Lists the tenant's private networks with their members. A network exists while a container names it.",
      response: networkList,
      example: {
        response: { networks: [{ name: "shop", members: [{ ...CONTAINER, name: "redis", state: "running" }] }] },
      },
      handler: async ({ caller }) => ({ networks: [...(await networks.list(caller.tenant_id))] }),
    }),
    route({
      method: "GET",
      path: "/api/dns/entries",
      auth: "tenant",
      scope: "read",
      operation: "listDnsEntries",
      summary: "Lists the names that the tenant's containers resolve inside.",
      response: dnsEntries,
      example: {
        response: {
          entries: [
            {
              ...CONTAINER,
              ...{ container_name: "redis", network: "shop", ttl: 0 },
              names: ["redis.shop.hearth.internal", "redis.hearth.internal"],
            },
          ],
        },
      },
      handler: async ({ caller }) => ({ entries: networks.entries(caller.tenant_id) }),
    }),
    route({
      method: "POST",
      path: "/api/dns/entries/:name/rename",
      auth: "tenant",
      scope: "write",
      operation: "renameDnsEntry",
      summary: "Renames a container that has an entry, and so its entry.",
      params: z.object({ name: z.string().meta({ description: "Name of the container.", examples: ["redis"] }) }),
      body: renameEntry,
      response: renamedEntry,
      errors: ["NOT_FOUND", "NAME_TAKEN"],
      example: {
        params: { name: "redis" },
        body: { new_name: "cache" },
        response: {
          ...{ success: true as const, message: "renamed", container_id: CONTAINER.container_id },
          ...{ old_name: "redis", new_name: "cache", dns_updated: true },
        },
      },
      handler: async ({ caller, params, body }) => ({
        ...(await networks.rename(caller.tenant_id, params.name, body.new_name)),
        success: true as const,
        message: "renamed",
      }),
    }),
  ];
}
