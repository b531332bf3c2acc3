/** Schemas of the published ports (`ports`) of a container. */
import { z } from "zod";
import { PORT_MAX } from "../../base/egress.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { text, whole } from "../../base/schema.ts";

const container_port = whole(1, PORT_MAX).describe("Port on which the process in the container listens.");
const host_address = z
  .enum(["127.0.0.1", "0.0.0.0"])
  .describe("127.0.0.1 for clients on this machine; 0.0.0.0 for all addresses of this machine.");
const protocol = z.enum(["tcp", "udp"]).describe("Protocol of both ports.");

/** A label of a DNS name (RFC 1035), in lower case: no two names are then spelled alike. */
const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;
/** The same with underscores, which resolvers accept and names of containers often have. */
const DNS_NAME = /^[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?$/;

export const networkName = text(LIMITS.dns_label_length_max).regex(
  DNS_LABEL,
  "expected a-z, 0-9 and dashes, not at the start or end",
);

interface Named {
  readonly name: string;
  readonly network?: string | null | undefined;
  readonly dns: boolean;
}

/** A container that others resolve needs a name that DNS allows. Null: it has one, or needs none. */
export function complaintAboutName({ name, network, dns }: Named): { field: string; message: string } | null {
  if (network == null && !dns) return null;
  if (DNS_NAME.test(name) && name.length <= LIMITS.dns_label_length_max) return null;
  const what = `of a container with network or dns must be a DNS name: '${name}'`;
  const expected = `expected a-z, 0-9, '-' and '_', at most ${LIMITS.dns_label_length_max} characters`;
  return { field: "name", message: `${what} (${expected})` };
}

/** Throws INVALID_ARGUMENT as `complaintAboutName`. */
export function checkName(named: Named): void {
  const complaint = complaintAboutName(named);
  if (complaint === null) return;
  throw new AppError("INVALID_ARGUMENT", `${complaint.field} ${complaint.message}`, {
    details: { expected: [DNS_NAME.source], received: named.name },
    hint: "choose a name in lower case without spaces and dots",
  });
}

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
