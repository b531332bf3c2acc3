/** Egress rules of containers: their text in requests and in the store, and the form that the packet filter needs. */

export const PORT_MAX = 65_535;
const OCTET = "(?:0|[1-9]\\d{0,2})";
const RULE = new RegExp(
  `^(${OCTET}(?:\\.${OCTET}){3})(?:/(\\d{1,2}))?(?::(\\d{1,5})(?:-(\\d{1,5}))?)?(?:/(tcp|udp))?$`,
);

/** Destinations that a container may send to: all outside this machine, none, or those of a list of rules. */
export type Egress = "on" | "off" | readonly string[];

/** One destination that a container may send to. */
export interface AllowRule {
  /** The base address of a network. */
  readonly address: string;
  readonly prefix_length: number;
  readonly port_min: number;
  readonly port_max: number;
  /** Null: both. */
  readonly protocol: "tcp" | "udp" | null;
}

/** Parses `<address>[/<bits>][:<port>[-<port>]][/tcp|/udp]`. Returns the complaint for text that is no rule. */
export function parseAllowRule(rule: string): AllowRule | string {
  const parts = RULE.exec(rule);
  if (parts === null) {
    return "must be an IPv4 address or network, optionally with ports and protocol: 203.0.113.0/24:8000-8100/tcp";
  }
  const [, address = "", bits = "32", first, last = first, protocol = null] = parts;
  const octets = address.split(".").map(Number);
  const prefix_length = Number(bits);
  if (octets.some((octet) => octet > 255)) return `invalid IPv4 address: ${address}`;
  if (prefix_length > 32) return "invalid prefix length (limit 32)";
  const number = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  if (number % 2 ** (32 - prefix_length) !== 0) return `${address} is not the network address of its /${bits}`;
  const port_min = Number(first ?? 1);
  const port_max = Number(last ?? PORT_MAX);
  if (port_min < 1 || port_max > PORT_MAX || port_min > port_max)
    return `ports must be in ascending order, from 1 to ${PORT_MAX}`;
  return { address, prefix_length, port_min, port_max, protocol: protocol as AllowRule["protocol"] };
}

/** Returns the rules of an egress whose text was checked when it came. */
export function allowRules(rules: readonly string[]): readonly AllowRule[] {
  return rules.map(parseAllowRule).filter((rule) => typeof rule !== "string");
}
