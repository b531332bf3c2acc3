/** Shapes of private networks and of name entries. */
import { z } from "zod";
import { acknowledgement, renameBody } from "../base/schema.ts";
import { containerName, containerRecord } from "../containers/schema.ts";

const networkMember = z
  .object({
    container_id: z.string().describe("Id of the container."),
    name: z.string().describe("Name of the container."),
    state: containerRecord.shape.state,
    ip_address: z.string().nullable().describe("IP address, by which the other members reach it; null unless it runs."),
  })
  .meta({ id: "NetworkMember" });

const privateNetwork = z
  .object({
    name: z.string().describe("Name of the network."),
    members: z.array(networkMember).describe("Containers that name the network, oldest first; stopped ones too."),
  })
  .meta({ id: "PrivateNetwork" });
export type PrivateNetwork = Readonly<z.output<typeof privateNetwork>>;

export const networkList = z
  .object({ networks: z.array(privateNetwork).describe("In the order of their names.") })
  .meta({ id: "NetworkList" });

const dnsEntry = z
  .object({
    container_id: z.string().describe("Id of the container."),
    container_name: z.string().describe("Name of the container, which other containers resolve."),
    ip_address: z.string().describe("IP address that the name resolves to."),
    network: z.string().nullable().describe("Private network of the container; null if it is in none."),
    names: z
      .array(z.string())
      .describe("Full names. The one without the network resolves without .hearth.internal, too."),
    ttl: z.int().describe("Seconds for which a client may keep the address."),
  })
  .meta({ id: "DnsEntry" });

export const dnsEntries = z
  .object({
    entries: z.array(dnsEntry).describe("Running containers with network or dns, in the order of their start."),
  })
  .meta({ id: "DnsEntries" });

export const renameEntry = renameBody("container", containerName).meta({ id: "RenameDnsEntry" });

export const renamedEntry = acknowledgement
  .extend({
    container_id: z.string().describe("Id of the container."),
    old_name: z.string().describe("Previous name."),
    new_name: z.string().describe("New name of the container and of its entry."),
    dns_updated: z.boolean().describe("True if the container runs: other containers resolve the new name at once."),
  })
  .meta({ id: "RenamedDnsEntry" });
