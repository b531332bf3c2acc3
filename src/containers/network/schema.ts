/** What a container may reach and how it is reached, as zod schemas: `egress` and `ports` of a container. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { text, whole } from "../../base/schema.ts";
import type { AllowRule, NetworkPolicy } from "../../engine/ports.ts";

const PORT_MAX = 65_535;
const OCTET = "(?:0|[1-9]\\d{0,2})";
const RULE = new RegExp(
  `^(${OCTET}(?:\\.${OCTET}){3})(?:/(\\d{1,2}))?(?::(\\d{1,5})(?:-(\\d{1,5}))?)?(?:/(tcp|udp))?$`,
);

/** `<address>[/<bits>][:<port>[-<port>]][/tcp|/udp]`, or what is wrong with it. */
function parseAllowRule(rule: string): AllowRule | string {
  const parts = RULE.exec(rule);
  if (parts === null) {
    return "must be an IPv4 address or network, with ports and protocol if need be: 203.0.113.0/24:8000-8100/tcp";
  }
  const [, address = "", bits = "32", first, last = first, protocol = null] = parts;
  const octets = address.split(".").map(Number);
  const prefix_length = Number(bits);
  if (octets.some((octet) => octet > 255)) return `${address} is no IPv4 address`;
  if (prefix_length > 32) return "a network has at most 32 bits";
  const number = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  if (number % 2 ** (32 - prefix_length) !== 0) return `${address} is not the first address of its /${bits}`;
  const port_min = Number(first ?? 1);
  const port_max = Number(last ?? PORT_MAX);
  if (port_min < 1 || port_max > PORT_MAX || port_min > port_max)
    return `ports must be in order, from 1 to ${PORT_MAX}`;
  return { address, prefix_length, port_min, port_max, protocol: protocol as AllowRule["protocol"] };
}

/** For the engine. `egress` was checked when it came. */
export function egressOf(egress: "on" | "off" | readonly string[]): NetworkPolicy["egress"] {
  if (typeof egress === "string") return egress;
  return egress.map(parseAllowRule).filter((rule) => typeof rule !== "string");
}

const allowRule = text(LIMITS.egress_rule_length_max).superRefine((value, context) => {
  const rule = parseAllowRule(value);
  if (typeof rule === "string") context.addIssue({ code: "custom", message: rule });
});

export const egress = z.union([z.enum(["on", "off"]), z.array(allowRule).max(LIMITS.egress_rules_max)]);

const container_port = whole(1, PORT_MAX).describe("Port that the process in the container listens on.");
const host_address = z
  .enum(["127.0.0.1", "0.0.0.0"])
  .describe("127.0.0.1: for clients on this machine; 0.0.0.0: on all of its addresses.");
const protocol = z.enum(["tcp", "udp"]).describe("Of the port, on both sides.");

/** As it is asked for. */
const wantedPort = z.strictObject({
  container_port,
  host_port: whole(LIMITS.host_port_min, PORT_MAX)
    .nullish()
    .describe(
      `Port of this machine that leads to it; a free one unless given. From ${LIMITS.host_port_first} to ${LIMITS.host_port_last} unless the node is set otherwise; the operator's tenant may have any from ${LIMITS.host_port_min}.`,
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
    { error: "must not name a host_port twice" },
  );

/** As it is. */
export const publishedPort = z
  .object({
    container_port,
    host_port: z.int().describe("Port of this machine that leads to it."),
    host_address,
    protocol,
  })
  .meta({ id: "PublishedPort" });
