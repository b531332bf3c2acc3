/** Shapes of the networks of containers: published ports, addresses, checks, egress. */
import { z } from "zod";
import { PORT_MAX } from "../../base/egress.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { acknowledgement, allowRule, epochSeconds, newName, nextCursor, text, whole } from "../../base/schema.ts";
import type { NetworkCheckName } from "../../engine/ports.ts";
import { CONTAINER_STATES } from "../states.ts";

const container_port = whole(1, PORT_MAX).describe("Port on which the process in the container listens.");
const host_address = z
  .enum(["127.0.0.1", "0.0.0.0"])
  .describe("127.0.0.1 for clients on this machine; 0.0.0.0 for all addresses of this machine.");
const protocol = z.enum(["tcp", "udp"]).describe("Protocol of both ports.");

/** A label of a DNS name (RFC 1035), in lower case: no two names are then spelled alike. */
const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;
/** The same with underscores, which resolvers accept and names of containers often have. */
const DNS_NAME = /^[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?$/;

/** Modes of docker and podman that share or take away a network, and no names: a container must not get another one unasked. */
const NETWORK_MODES: ReadonlyMap<unknown, string> = new Map([
  ["none", "send egress 'off' for a container that opens no connections"],
  ["host", "publish ports with 'ports': no container has the network of the machine"],
]);

export const networkName = text(LIMITS.dns_label_length_max)
  .regex(DNS_LABEL, "expected a-z, 0-9 and dashes, not at the start or end")
  .superRefine((value, context) => {
    const hint = NETWORK_MODES.get(value);
    if (hint !== undefined) context.addIssue({ code: "custom", message: "is no private network", params: { hint } });
  });

/** Beginnings of addresses of messages that are no container (src/icc/addresses.ts). */
const ADDRESS_PREFIX = /^(?:queue|topic|binding|state):/;

/** Returns a name without the beginning of another address, which containers of earlier versions may have. */
export const withoutAddressPrefix = (name: string): string => name.replace(ADDRESS_PREFIX, "");

/** The name of a new container. */
export const containerName = newName.refine((value) => !ADDRESS_PREFIX.test(value), {
  error: "must not begin with queue:, topic:, binding: or state:",
});

/** Throws INVALID_ARGUMENT for what no new container may be called, such as the name that a pattern makes. */
export function checkNewName(name: string): void {
  const issue = containerName.safeParse(name).error?.issues[0];
  if (issue !== undefined) throw new AppError("INVALID_ARGUMENT", `name: ${issue.message}: '${name}'`);
}

interface Named {
  readonly name: string;
  readonly network?: string | null | undefined;
  readonly dns: boolean;
}

/** A container that others resolve needs a name that DNS allows. Null: it has one, or needs none. */
export function complaintAboutName({ name, network, dns }: Named): { field: string; message: string } | null {
  if (network == null && !dns) return null;
  if (name === "localhost") {
    return { field: "name", message: "of a container with network or dns is reserved: 'localhost' (RFC 6761)" };
  }
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

const ALLOCATION_STATUSES = ["allocated", "active", "cleanup_pending", "cleaned"] as const;

/** An address of a container, as the list of the tenant's addresses has it. */
export const networkAllocation = z
  .object({
    container_id: z.string().describe("Id of the container."),
    container_name: z.string().describe("Name of the container."),
    ip_address: z.string().describe("IPv4 address."),
    bridge_interface: z.string().describe("Device of the host that has the gateway's address."),
    veth_host: z.string().nullable().describe("Name of the link on the host; null unless the container runs."),
    veth_container: z.string().nullable().describe("Name of the link in the container; null unless it runs."),
    setup_completed: z.boolean().describe("True if the link is up and connected."),
    allocation_time: epochSeconds
      .nullable()
      .describe("Time of the start or of the reservation, in seconds since the Unix epoch."),
    status: z
      .enum(ALLOCATION_STATUSES)
      .describe(
        "allocated: reserved, or its container starts. active: its container runs. cleanup_pending: its container is being removed. cleaned: never listed.",
      ),
  })
  .meta({ id: "NetworkAllocation" });
export type NetworkAllocation = Readonly<z.output<typeof networkAllocation>>;

export const allocationList = z
  .object({
    allocations: z.array(networkAllocation).describe("Newest container first."),
    next_cursor: nextCursor,
  })
  .meta({ id: "NetworkAllocationList" });

const counters = z
  .object({
    rx_bytes: z.int().describe("Bytes received by the container."),
    tx_bytes: z.int().describe("Bytes sent by the container."),
    rx_packets: z.int().describe("Packets received."),
    tx_packets: z.int().describe("Packets sent."),
    rx_errors: z.int().describe("Packets not received because of errors."),
    tx_errors: z.int().describe("Packets not sent because of errors."),
  })
  .meta({ id: "NetworkCounters" });

const policy = z
  .union([z.enum(["on", "off"]), z.array(z.string())])
  .describe("Allowed outbound traffic: everything outside, none, or a list of destinations.");

export const containerNetwork = z
  .object({
    container_id: z.string().describe("Id of the container."),
    container_name: z.string().describe("Name of the container."),
    state: z.enum(CONTAINER_STATES).describe("State of the container."),
    ip_address: z.string().nullable().describe("Present IPv4 address; null unless the container runs."),
    reserved_address: z.string().nullable().describe("Address that it has at every start; null if none is reserved."),
    addresses: z.array(z.string()).describe("Addresses of the link in the container, with prefix length."),
    subnet: z.string().describe("Network of all containers of this node."),
    prefix_length: z.int().describe("Prefix length of the subnet."),
    gateway: z.string().describe("Address of this machine, and of the default route."),
    bridge_interface: networkAllocation.shape.bridge_interface,
    veth_host: networkAllocation.shape.veth_host,
    veth_container: networkAllocation.shape.veth_container,
    mac_address: z.string().nullable().describe("Hardware address of the link in the container; null unless it runs."),
    mtu: z.int().nullable().describe("Largest packet in bytes; null unless it runs."),
    setup_completed: networkAllocation.shape.setup_completed,
    allocation_time: networkAllocation.shape.allocation_time,
    status: networkAllocation.shape.status.nullable().describe("Status of the address; null without an address."),
    name_servers: z
      .array(z.string())
      .describe("Name servers in the container's /etc/resolv.conf; empty unless it runs."),
    ports: z.array(publishedPort).describe("Published ports."),
    egress: policy,
    counters: counters.nullable().describe("Traffic since the start; null unless it runs."),
  })
  .meta({ id: "ContainerNetwork" });
export type ContainerNetwork = Readonly<z.output<typeof containerNetwork>>;

export const changeNetwork = z
  .object({
    ip_address: text(LIMITS.address_length_max)
      .nullable()
      .describe("Address of the subnet that the container has from its next start on; null ends the reservation."),
  })
  .meta({ id: "ChangeContainerNetwork" });

export const changedNetwork = containerNetwork.extend(acknowledgement.shape).meta({ id: "ChangedContainerNetwork" });

const CHECK_NAMES = [
  "running",
  "link",
  "address",
  "route",
  "neighbour",
  "gateway",
  "forwarding",
  "rules",
  "egress",
  "dns",
] as const satisfies readonly NetworkCheckName[];

const networkCheck = z
  .object({
    name: z.enum(CHECK_NAMES).describe("Part of the network that was checked."),
    ok: z.boolean().describe("True if it is as it has to be."),
    message: z.string().describe("What was found."),
  })
  .meta({ id: "NetworkCheck" });

export const networkDiagnostics = z
  .object({
    container_id: z.string().describe("Id of the container."),
    state: z.enum(CONTAINER_STATES).describe("State of the container."),
    ok: z.boolean().describe("True if every check is ok."),
    checked_at: epochSeconds,
    checks: z
      .array(networkCheck)
      .describe("Checks, made now in this order; only `running` of a container that does not run."),
  })
  .meta({ id: "NetworkDiagnostics" });
export type NetworkDiagnostics = Readonly<z.output<typeof networkDiagnostics>>;

export const networkSetup = z
  .object({
    success: z.boolean().describe("True if every check is ok now."),
    message: z.string().describe("Result as text."),
    container_id: z.string().describe("Id of the container."),
    found: z.array(z.enum(CHECK_NAMES)).describe("Checks that failed at first."),
    mended: z.array(z.enum(CHECK_NAMES)).describe("Those of them that are ok now."),
    checks: z.array(networkCheck).describe("Checks after the setup."),
  })
  .meta({ id: "NetworkSetup" });

export const containerEgress = z
  .object({
    container_id: z.string().describe("Id of the container."),
    state: z.enum(CONTAINER_STATES).describe("State of the container."),
    egress: policy,
    mode: z.enum(["on", "off", "list"]).describe("Kind of the policy; only a list has routes to add and remove."),
    destinations: z.array(z.string()).describe("Allowed destinations of a list."),
    always_refused: z.array(z.string()).describe("Networks that no policy opens."),
    in_force: z
      .boolean()
      .nullable()
      .describe("True if the packet filter has the policy; null unless the container runs."),
    counters: counters.nullable().describe("Traffic since the start; null unless it runs."),
  })
  .meta({ id: "ContainerEgress" });

export const containerRoute = z
  .object({
    destination: allowRule.describe(
      "Destination <address>[/<bits>][:<port>[-<port>]][/tcp|/udp], as in `egress` of a container.",
    ),
  })
  .meta({ id: "ContainerRoute" });
