/**
 * What instances and containers may reach and be reached by, as nft transactions. What holds for all stands in rules;
 * what holds for one container is an element of a map, so a packet costs the same however many containers there are.
 * Applying the transactions, one at a time, is network.ts's.
 *
 * P1 Closed whatever a policy says: this machine but for opened ports of the gateway, its published ports too,
 *    neighbours, 169.254.0.0/16, and IPv6.
 * P2 With `egress` off or a list, what leaves otherwise is answers to what came in, and errors about that. It is
 *    refused audibly: whoever tries is told at once instead of waiting.
 * P3 What comes in is answers to what went out, and what was sent to a published port. Both maps are asked for every
 *    packet: a connection ends with the publication, and does not reach whoever has the address next.
 * P4 Published on 127.0.0.1 needs `route_localnet` on the bridge. That must not open this machine's loopback to
 *    containers (CVE-2020-8558): nothing from the bridge to 127.0.0.0/8 gets as far as routing.
 * P5 A container whose egress is restricted sends from its own address alone; checked where its link is still known.
 */
import { createHash } from "node:crypto";

export type Protocol = "tcp" | "udp";

/** Where a container may send to. */
export interface AllowRule {
  /** The base address of a network. */
  readonly address: string;
  readonly prefix_length: number;
  readonly port_min: number;
  readonly port_max: number;
  /** Null: both. */
  readonly protocol: Protocol | null;
}

export interface PublishedPort {
  readonly container_port: number;
  readonly host_port: number;
  /** 127.0.0.1: for this machine alone; 0.0.0.0: on all addresses that it has. */
  readonly host_address: "127.0.0.1" | "0.0.0.0";
  readonly protocol: Protocol;
}

export interface NetworkPolicy {
  readonly egress: "on" | "off" | readonly AllowRule[];
  readonly ports: readonly PublishedPort[];
}

/** What holds where nothing else is said, and costs no rule. */
export const OPEN_POLICY: NetworkPolicy = { egress: "on", ports: [] };

/** A policy and whose it is. */
export interface PolicyOf {
  readonly address: string;
  readonly host_interface: string;
  readonly policy: NetworkPolicy;
}

export interface RuleNames {
  readonly table: string;
  readonly bridge: string;
  readonly subnet: string;
  readonly gateway: string;
  /** TCP ports of the gateway that all may reach. */
  readonly opened: readonly number[];
}

/** The sets and maps that policies fill, with their types; `bridge` is where links are known by name. */
const NAMED = [
  { family: "inet", kind: "map", name: "egress", type: "ipv4_addr : verdict" },
  { family: "inet", kind: "set", name: "published", type: "ipv4_addr . inet_proto . inet_service" },
  { family: "inet", kind: "set", name: "host_ports", type: "inet_service" },
  { family: "inet", kind: "map", name: "on_loopback", type: "inet_proto . inet_service : ipv4_addr . inet_service" },
  { family: "inet", kind: "map", name: "on_all", type: "inet_proto . inet_service : ipv4_addr . inet_service" },
  { family: "bridge", kind: "set", name: "restricted", type: "ifname" },
  { family: "bridge", kind: "set", name: "sources", type: "ifname . ipv4_addr" },
] as const;

type Elements = Readonly<Record<(typeof NAMED)[number]["name"], ReadonlyMap<string, string>>>;

/** Both tables with everything in them, in place of any earlier version. */
export function tableRules(names: RuleNames, policies: readonly PolicyOf[]): string {
  const { table } = names;
  const declared = (family: string) =>
    NAMED.filter((one) => one.family === family).map(({ kind, name, type }) => `  ${kind} ${name} { type ${type}; }`);
  return [
    ...["inet", "bridge"].flatMap((family) => [`table ${family} ${table}`, `delete table ${family} ${table}`]),
    `table inet ${table} {`,
    ...declared("inet"),
    inetChains(names),
    "}",
    `table bridge ${table} {`,
    ...declared("bridge"),
    // Before the bridge knows a packet from routed ones (P5).
    "  chain prerouting {",
    "    type filter hook prerouting priority -300; policy accept;",
    "    iifname @restricted iifname . ip saddr != @sources drop",
    "  }",
    "}",
    fillRules(table, [], policies),
  ].join("\n");
}

/**
 * Changes tables that have the policies `before` to have these. Only what differs: taking anything away makes the kernel
 * wait for its readers, some ten milliseconds that a start would pay too.
 */
export function policyRules(table: string, before: readonly PolicyOf[], policies: readonly PolicyOf[]): string {
  const [was, wanted] = [elementsOf(before), elementsOf(policies)];
  const [chains, wantedChains] = [listChains(before), listChains(policies)];
  return [
    ...elementRules("delete", table, was, wanted),
    fillRules(table, before, policies),
    ...[...chains.keys()].filter((name) => !wantedChains.has(name)).map((name) => `delete chain inet ${table} ${name}`),
    "",
  ].join("\n");
}

/** Removes both tables, also where there are none. */
export function noRules(table: string): string {
  return ["inet", "bridge"].map((family) => `table ${family} ${table}\ndelete table ${family} ${table}\n`).join("");
}

/** The chains that these policies need: one for each different list of where to, by what is in it. */
function listChains(policies: readonly PolicyOf[]): ReadonlyMap<string, readonly AllowRule[]> {
  const chains = new Map<string, readonly AllowRule[]>();
  for (const { policy } of policies) {
    if (typeof policy.egress !== "string") chains.set(chainOf(policy.egress), policy.egress);
  }
  return chains;
}

function inetChains({ bridge, subnet, gateway, opened }: RuleNames): string {
  const ports = opened.map((port) => `\n    iifname "${bridge}" ip daddr ${gateway} tcp dport ${port} accept`).join("");
  return `  chain guard {
    type filter hook prerouting priority raw; policy accept;
    iifname "${bridge}" ip daddr 127.0.0.0/8 drop
  }
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    iifname != "${bridge}" fib daddr type local meta l4proto { tcp, udp } dnat ip to meta l4proto . th dport map @on_all
  }
  chain output {
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.1 meta l4proto { tcp, udp } dnat ip to meta l4proto . th dport map @on_loopback
    fib daddr type local meta l4proto { tcp, udp } dnat ip to meta l4proto . th dport map @on_all
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    iifname "${bridge}" oifname "${bridge}" drop
    oifname "${bridge}" goto inward
    iifname "${bridge}" goto outward
  }
  chain inward {
    ct state established ct direction reply accept
    ct state related accept
    ct status dnat meta l4proto { tcp, udp } ct original proto-dst @host_ports ip daddr . meta l4proto . th dport @published accept
    drop
  }
  chain outward {
    meta nfproto ipv6 drop
    ip daddr 169.254.0.0/16 drop
    ip saddr != ${subnet} drop
    ct state established ct direction reply accept
    ct state related accept
    ip saddr vmap @egress
  }
  chain refuse {
    reject with icmpx admin-prohibited
  }
  chain input {
    type filter hook input priority filter; policy accept;
    iifname "${bridge}" ct state established,related accept
    iifname "${bridge}" icmp type echo-request accept${ports}
    iifname "${bridge}" drop
    iifname != "lo" ip daddr ${gateway} drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${subnet} oifname != "${bridge}" masquerade
    ip saddr 127.0.0.0/8 oifname "${bridge}" masquerade
  }`;
}

/** Adds what these policies need beyond what those `before` needed. */
function fillRules(table: string, before: readonly PolicyOf[], policies: readonly PolicyOf[]): string {
  const standing = listChains(before);
  const chains = [...listChains(policies)].filter(([name]) => !standing.has(name));
  return [
    ...chains.flatMap(([name, rules]) => [
      `add chain inet ${table} ${name}`,
      ...rules.map((rule) => `add rule inet ${table} ${name} ${matchOf(rule)} accept`),
      `add rule inet ${table} ${name} goto refuse`,
    ]),
    ...elementRules("add", table, elementsOf(policies), elementsOf(before)),
    "",
  ].join("\n");
}

/** Adds or deletes the elements that are not in `others`, as they are there. */
function elementRules(verb: "add" | "delete", table: string, elements: Elements, others: Elements): string[] {
  return NAMED.flatMap(({ family, name }) => {
    const own = [...elements[name]].filter(([key, element]) => others[name].get(key) !== element);
    if (own.length === 0) return [];
    return [`${verb} element ${family} ${table} ${name} { ${own.map(([, element]) => element).join(", ")} }`];
  });
}

/** By name and key. Where two of a kind have one key the later one has it: the kernel would refuse all of both. */
function elementsOf(policies: readonly PolicyOf[]): Elements {
  const egress = new Map<string, string>();
  const published = new Map<string, string>();
  const host_ports = new Map<string, string>();
  const on_loopback = new Map<string, string>();
  const on_all = new Map<string, string>();
  const restricted = new Map<string, string>();
  const sources = new Map<string, string>();
  const add = (set: Map<string, string>, key: string) => set.set(key, key);
  for (const { address, host_interface, policy } of policies) {
    if (policy.egress !== "on") {
      const chain = policy.egress === "off" ? "refuse" : chainOf(policy.egress);
      egress.set(address, `${address} : goto ${chain}`);
      add(restricted, `"${host_interface}"`);
      add(sources, `"${host_interface}" . ${address}`);
    }
    for (const { container_port, host_port, host_address, protocol } of policy.ports) {
      const key = `${protocol} . ${host_port}`;
      (host_address === "0.0.0.0" ? on_all : on_loopback).set(key, `${key} : ${address} . ${container_port}`);
      add(published, `${address} . ${protocol} . ${container_port}`);
      add(host_ports, String(host_port));
    }
  }
  return { egress, published, host_ports, on_loopback, on_all, restricted, sources };
}

/** By content, so that lists that are alike share a chain, and none ever changes. */
function chainOf(rules: readonly AllowRule[]): string {
  return `to_${createHash("sha256").update(rules.map(matchOf).join("\n")).digest("hex").slice(0, 16)}`;
}

function matchOf({ address, prefix_length, port_min, port_max, protocol }: AllowRule): string {
  return `ip daddr ${address}/${prefix_length} meta l4proto { ${protocol ?? "tcp, udp"} } th dport ${port_min}-${port_max}`;
}
