/** Schemas of the published ports (`ports`) of a container. */
import { z } from "zod";
import { PORT_MAX } from "../../base/egress.ts";
import { LIMITS } from "../../base/limits.ts";
import { whole } from "../../base/schema.ts";

const container_port = whole(1, PORT_MAX).describe("Port on which the process in the container listens.");
const host_address = z
  .enum(["127.0.0.1", "0.0.0.0"])
  .describe("127.0.0.1 for clients on this machine; 0.0.0.0 for all addresses of this machine.");
const protocol = z.enum(["tcp", "udp"]).describe("Protocol of both ports.");

/** A port in a request. */
const wantedPort = z.strictObject({
  container_port,
  host_port: whole(LIMITS.host_port_min, PORT_MAX)
    .nullish()
    .describe(
      `Host port, from ${LIMITS.host_port_first} to ${LIMITS.host_port_last} or the range of the node (default: a free one). The operator's tenant may use any port from ${LIMITS.host_port_min}.`,
    ),
  host_address: host_address.default("127.0.0.1"),
  protocol: protocol.default("tcp"),
});

export type WantedPort = Readonly<z.output<typeof wantedPort>>;

export const wantedPorts = z
  .array(wantedPort)
  .max(LIMITS.container_ports_max)
  .refine(
    (ports) => {
      const given = ports.filter(({ host_port }) => typeof host_port === "number");
      return new Set(given.map((one) => `${one.protocol} ${one.host_port}`)).size === given.length;
    },
    { error: "must not contain a host_port twice" },
  );

/** A port of a container. */
export const publishedPort = z
  .object({
    container_port,
    host_port: z.int().describe("Host port."),
    host_address,
    protocol,
  })
  .meta({ id: "PublishedPort" });
