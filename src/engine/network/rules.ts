/**
 * Writes nft transactions that decide what instances and containers may reach and be reached by. Rules hold for all;
 * elements of maps hold for one container, so a packet costs the same however many containers there are. firewall.ts
 * applies the transactions, one at a time.
 *
 * P1 Closed whatever a policy says: this machine but for opened ports of the gateway, its published ports too,
 *    neighbours, 169.254.0.0/16, IPv6, and what clouds offer a machine at other addresses. Of these only name servers are open.
 * P2 With `egress` off or a list, what leaves otherwise is answers to what came in, and errors about that. It is
 *    refused audibly: whoever tries is told at once instead of waiting.
 * P3 What comes in is answers to what went out, and what was sent to a published port. Both maps are asked for every
 *    packet: a connection ends with the publication, and does not reach whoever has the address next.
 * P4 Published on 127.0.0.1 needs `route_localnet` on the container's link. That must not open this machine's loopback to
 *    containers (CVE-2020-8558): nothing from a link to 127.0.0.0/8 gets as far as routing. No port is published on other
 *    addresses of the loopback: published services have some, and cookies of an address reach all its ports.
 * P5 Each container sends from its own address alone: the route to the source of a packet leads back to its link.
 * P6 Nothing passes a link that was cut, in either direction, whatever socket is behind it, and nothing new is tracked.
 *    Outwards that is looked at last, when every translation and the route that follows from it are made.
 * P7 No container has more than `flows_max` tracked connections: the table is one for the whole machine. The kernel does
 *    not count TCP connections that are over, so their entries end soon, and only so many begin in a second: together
 *    they are at most twice `flows_max` more.
 * P8 A tenant with many addresses has buckets, each bounded as one address is (connection-buckets.ts). The kernel counts only
 *    connections that begin after the address entered its bucket, a moment after its start. Therefore an address has few
 *    connections until `EARLY_SECONDS` after its first one.
 *
 * P9 Links reach each other only if both their addresses are members of the same private network. Both directions of a
 *    connection are asked about for every packet: it ends when either side leaves.
 * P10 Only containers that have a name server reach it: at port 53 of the gateway, which this table maps to the ports that
 *    the daemon listens on. Such packets are not tracked, and each container, each tenant and all together send a bounded
 *    number of them, and of their bytes, in a second: the kernel takes up to 64 KiB from a container as one packet.
 * P11 Of the users of this machine only root, as whom the daemon runs, connects to links. Others reach published ports.
 *
 * Links are told apart by their group (`ip link show group`): one number to compare, known before the first packet.
 */
import { createHash } from "node:crypto";
import { type AllowRule, allowRules } from "../../base/egress.ts";
import { LIMITS } from "../../base/limits.ts";
import { CLOUD_SERVICES } from "../../base/special-addresses.ts";
import type { ContainerSpec, PublishedPort } from "../ports/containers.ts";
import type { Marks, Member } from "./members.ts";

/** Destinations of a container and the ports that lead to it, as the packet filter has them. */
export interface NetworkPolicy {
  readonly egress: "on" | "off" | readonly AllowRule[];
  readonly ports: readonly PublishedPort[];
  /** A container with a private network or with names; absent for all others. */
  readonly member?: Member;
}

export function policyOf({ egress, ports }: Pick<ContainerSpec, "egress" | "ports">): NetworkPolicy {
  return { egress: typeof egress === "string" ? egress : allowRules(egress), ports };
}

/** The policy of an API container, which may be in a private network. */
export function containerPolicyOf(spec: ContainerSpec): NetworkPolicy {
  const { id, tenant_id, name, network, dns } = spec;
  if (network === null && !dns) return policyOf(spec);
  return { ...policyOf(spec), member: { id, tenant_id, name, network, dns } };
}

/** Policy of a container that has no other; it costs no rule. */
export const OPEN_POLICY: NetworkPolicy = { egress: "on", ports: [] };

/** A policy and whose it is. */
export interface PolicyOf {
  readonly address: string;
  readonly host_interface: string;
  readonly policy: NetworkPolicy;
  /** The class of the uplink that its packets leave in; null: that of the machine. */
  readonly uplink_class: string | null;
  /** The bucket in which its tracked connections count; null: the bound of the address is enough. */
  readonly bucket: string | null;
  /** The numbers of its private network and of its tenant; null: it is in no network and has no name server. */
  readonly marks: Marks | null;
}

/** Groups of links of one daemon. */
export interface LinkGroups {
  /** In use or ready. The gateway's device is in it too: what is routed there is for an address that nobody has. */
  readonly live: number;
  /** Cut off, to be removed. */
  readonly dead: number;
  /** Being removed, all that are in it together. */
  readonly doomed: number;
}

export interface RuleNames {
  readonly table: string;
  readonly groups: LinkGroups;
  readonly subnet: string;
  readonly gateway: string;
  /** TCP ports of the gateway that all may reach. */
  readonly opened: readonly number[];
  /** Tracked connections of one address. */
  readonly flows_max: number;
  /** Addresses that can have some. */
  readonly sources_max: number;
  /** True if packets leave in classes. */
  readonly isUplinkShared: boolean;
  /** Ports of the gateway on which the daemon answers name queries; null: it does not. */
  readonly dns: DnsPorts | null;
}

export interface DnsPorts {
  readonly udp: number;
  readonly tcp: number;
}

/** Names and bounds that a change of policies is written with. */
export type PolicyTarget = Pick<RuleNames, "table" | "flows_max">;

/** The kernel's own are 120 and 10. */
const CLOSED_SECONDS = 4;

/** Longer than an address takes to enter its bucket. A client sends its first packet again after 1 and 3 seconds. */
const EARLY_SECONDS = 2;
const EARLY_RATIO = 1 / 16;
const EARLY_MIN = 32;

/** Counts the packets that P7 and P8 dropped. */
export const FLOWS_COUNTER = "flows_refused";

/** The sets and maps that policies fill, with their types. */
const NAMED = [
  { kind: "map", name: "egress", type: "ipv4_addr : verdict" },
  { kind: "set", name: "published", type: "ipv4_addr . inet_proto . inet_service" },
  { kind: "set", name: "host_ports", type: "inet_service" },
  { kind: "map", name: "on_loopback", type: "inet_proto . inet_service : ipv4_addr . inet_service" },
  { kind: "map", name: "on_all", type: "inet_proto . inet_service : ipv4_addr . inet_service" },
  { kind: "map", name: "uplink_classes", type: "ipv4_addr : classid" },
  { kind: "map", name: "buckets", type: "ipv4_addr : verdict" },
  { kind: "map", name: "networks", type: "ipv4_addr : mark" },
  { kind: "set", name: "members", type: "mark . ipv4_addr" },
  { kind: "map", name: "named", type: "ipv4_addr : mark" },
] as const;

type Elements = Readonly<Record<(typeof NAMED)[number]["name"], ReadonlyMap<string, string>>>;

/** The table with everything in it, in place of any earlier version. */
export function tableRules(names: RuleNames, policies: readonly PolicyOf[]): string {
  const { table, sources_max } = names;
  return [
    noRules(table),
    `table inet ${table} {`,
    ...NAMED.map(({ kind, name, type }) => `  ${kind} ${name} { type ${type}; }`),
    `  set flows { type ipv4_addr; size ${sources_max}; flags dynamic; }`,
    `  set begun { type ipv4_addr; size ${sources_max}; flags dynamic, timeout; timeout 1m; }`,
    `  set early { type ipv4_addr; size ${sources_max}; flags dynamic, timeout; timeout ${EARLY_SECONDS}s; }`,
    `  set early_flows { type ipv4_addr; size ${sources_max}; flags dynamic; }`,
    `  counter ${FLOWS_COUNTER} { }`,
    `  ct timeout closed { protocol tcp; l3proto ip; policy = { time_wait: ${CLOSED_SECONDS}, close: ${CLOSED_SECONDS} }; }`,
    inetChains(names),
    ...(names.dns === null ? [] : [dnsChains(names, names.dns)]),
    ...(names.isUplinkShared ? [uplinkChain(names)] : []),
    "}",
    fillRules(names, [], policies),
  ].join("\n");
}

/**
 * Changes tables that have the policies `before` to have these. Only what differs: taking anything away makes the kernel
 * wait for its readers, some ten milliseconds that a start would pay too.
 */
export function policyRules(target: PolicyTarget, all: readonly PolicyOf[], all_wanted: readonly PolicyOf[]): string {
  const { table } = target;
  const { before, policies } = compared(all, all_wanted);
  const [was, wanted] = [elementsOf(before), elementsOf(policies)];
  const [chains, wantedChains] = [chainsOf(target, before), chainsOf(target, policies)];
  return [
    ...elementRules("delete", table, was, wanted),
    fillRules(target, before, policies),
    ...[...chains.keys()].filter((name) => !wantedChains.has(name)).map((name) => `delete chain inet ${table} ${name}`),
    "",
  ].join("\n");
}

/**
 * Returns the policies that a change has to compare. Elements and chains of a policy with ports, a list or a bucket may be
 * shared with others; all other elements are of one address alone, so then those that differ are enough.
 */
function compared(before: readonly PolicyOf[], policies: readonly PolicyOf[]) {
  const [stood, stand] = [new Set(before), new Set(policies)];
  const [left, came] = [before.filter((one) => !stand.has(one)), policies.filter((one) => !stood.has(one))];
  const isShared = ({ policy, bucket }: PolicyOf) =>
    policy.ports.length > 0 || typeof policy.egress !== "string" || bucket !== null;
  return [...left, ...came].some(isShared) ? { before, policies } : { before: left, policies: came };
}

/** Removes the table, also where there is none. */
export function noRules(table: string): string {
  return `table inet ${table}\ndelete table inet ${table}\n`;
}

/** The chains that these policies need, with their rules: one for each different list of where to, and each bucket. */
function chainsOf({ flows_max }: PolicyTarget, policies: readonly PolicyOf[]): ReadonlyMap<string, readonly string[]> {
  const chains = new Map<string, readonly string[]>();
  for (const { policy, bucket } of policies) {
    if (typeof policy.egress !== "string") {
      chains.set(chainOf(policy.egress), [...policy.egress.map((rule) => `${matchOf(rule)} accept`), "goto refuse"]);
    }
    if (bucket !== null) {
      chains.set(bucket, [
        `ct count over ${flows_max} counter name ${FLOWS_COUNTER} drop`,
        `meta l4proto tcp ${begunLimit(flows_max)} counter name ${FLOWS_COUNTER} drop`,
      ]);
    }
  }
  return chains;
}

/** Bound on new TCP connections, because connections that are over are not counted (P7). */
function begunLimit(flows_max: number): string {
  return `limit rate over ${Math.max(1, Math.floor(flows_max / CLOSED_SECONDS))}/second burst ${flows_max} packets`;
}

function inetChains({ groups, subnet, gateway, opened, flows_max, dns }: RuleNames): string {
  const { live } = groups;
  const asking =
    dns === null
      ? ""
      : `
    ip daddr ${gateway} udp dport { 53, ${dns.udp} } jump asking
    ip daddr ${gateway} tcp dport { 53, ${dns.tcp} } jump asking`;
  const names =
    dns === null
      ? ""
      : `
    iifgroup ${live} ip saddr @named ip daddr ${gateway} udp dport ${dns.udp} accept
    iifgroup ${live} ip saddr @named ip daddr ${gateway} tcp dport ${dns.tcp} accept`;
  const early_max = Math.max(EARLY_MIN, Math.floor(flows_max * EARLY_RATIO));
  const cut = `{ ${groups.dead}, ${groups.doomed} }`;
  const ports = opened.map((port) => `\n    iifgroup ${live} ip daddr ${gateway} tcp dport ${port} accept`).join("");
  return `  chain guard {
    type filter hook prerouting priority raw; policy accept;
    iifgroup ${cut} drop
    iifgroup != ${live} accept
    meta nfproto ipv6 drop
    ip daddr 127.0.0.0/8 drop
    fib saddr . iif oif missing drop${asking}
  }
  chain sent {
    type filter hook postrouting priority raw; policy accept;
    oifgroup ${cut} drop
  }
  chain tracked {
    type filter hook prerouting priority mangle; policy accept;
    iifgroup != ${live} accept
    ct state != new accept
    ip saddr != @flows add @early { ip saddr }
    ip saddr @early add @early_flows { ip saddr ct count over ${early_max} } counter name ${FLOWS_COUNTER} drop
    add @flows { ip saddr ct count over ${flows_max} } counter name ${FLOWS_COUNTER} drop
    ip saddr vmap @buckets
    meta l4proto != tcp accept
    update @begun { ip saddr ${begunLimit(flows_max)} } counter name ${FLOWS_COUNTER} drop
    ct timeout set "closed"
  }
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    iifgroup != ${live} fib daddr type local meta l4proto { tcp, udp } dnat ip to meta l4proto . th dport map @on_all
  }
  chain output {
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.1 meta l4proto { tcp, udp } dnat ip to meta l4proto . th dport map @on_loopback
    ip daddr 127.0.0.0/8 ip daddr != 127.0.0.1 accept
    fib daddr type local meta l4proto { tcp, udp } dnat ip to meta l4proto . th dport map @on_all
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    iifgroup ${live} oifgroup ${live} goto between
    oifgroup ${live} goto inward
    iifgroup ${live} goto outward
  }
  chain between {
    meta mark set 0
    meta mark set ip saddr map @networks
    meta mark . ip daddr @members meta mark set 0 accept
    drop
  }
  chain inward {
    ct state established ct direction reply accept
    ct state related accept
    ct status dnat meta l4proto { tcp, udp } ct original proto-dst @host_ports ip daddr . meta l4proto . th dport @published accept
    drop
  }
  chain outward {
    ip daddr 169.254.0.0/16 drop
    ip daddr { ${CLOUD_SERVICES.join(", ")} } meta l4proto != { tcp, udp } drop
    ip daddr { ${CLOUD_SERVICES.join(", ")} } th dport != 53 drop
    ct state established ct direction reply accept
    ct state related accept
    ip saddr vmap @egress
  }
  chain refuse {
    reject with icmpx admin-prohibited
  }
  chain input {
    type filter hook input priority filter; policy accept;
    iifgroup ${live} ct state established,related accept
    iifgroup ${live} icmp type echo-request accept${ports}${names}
    iifgroup ${live} drop
    iifname != "lo" ip daddr ${gateway} drop
  }
  chain local {
    type filter hook output priority filter; policy accept;
    oifgroup != ${live} accept
    ct status dnat accept
    meta skuid != 0 goto refuse
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${subnet} oifgroup != ${live} masquerade
    ip saddr 127.0.0.0/8 oifgroup ${live} snat ip to ${gateway}
  }`;
}

/**
 * Queries to the gateway's port 53 and their answers (P10). Ports are translated packet by packet: tracking would take an
 * entry for each query, of which an address has `flows_max`. A mark is none of the daemon's once a packet has passed.
 */
function dnsChains({ groups, gateway, sources_max }: RuleNames, { udp, tcp }: DnsPorts): string {
  const {
    dns_container_packets_per_second: container,
    dns_tenant_packets_per_second: tenant,
    dns_packets_per_second: all,
  } = LIMITS;
  const over = (rate: number) => `limit rate over ${rate}/second burst ${rate} packets`;
  const bytesOver = (rate: number) => {
    const bytes = rate * LIMITS.dns_packet_bytes;
    return `limit rate over ${bytes} bytes/second burst ${bytes} bytes`;
  };
  const set = (name: string, type: string) =>
    `  set ${name} { type ${type}; size ${sources_max}; flags dynamic, timeout; timeout 1m; }`;
  return `${set("asked", "ipv4_addr")}
${set("asked_bytes", "ipv4_addr")}
${set("asked_by_tenant", "mark")}
${set("asked_bytes_by_tenant", "mark")}
  chain asking {
    meta mark set 0
    meta mark set ip saddr map @named
    meta mark 0 drop
    update @asked { ip saddr ${over(container)} } drop
    update @asked_bytes { ip saddr ${bytesOver(container)} } drop
    update @asked_by_tenant { meta mark ${over(tenant)} } drop
    update @asked_bytes_by_tenant { meta mark ${bytesOver(tenant)} } drop
    ${over(all)} drop
    ${bytesOver(all)} drop
    meta mark set 0
    notrack
    udp dport set ${udp}
    tcp dport set ${tcp}
  }
  chain answering {
    type filter hook output priority raw; policy accept;
    oifgroup ${groups.live} ip saddr ${gateway} udp sport ${udp} notrack udp sport set 53
    oifgroup ${groups.live} ip saddr ${gateway} tcp sport ${tcp} notrack tcp sport set 53
  }`;
}

/** Before translation, when a packet still has the address of its container; routing has set the priority by then. */
function uplinkChain({ groups }: RuleNames): string {
  return `  chain uplink {
    type filter hook forward priority mangle; policy accept;
    iifgroup ${groups.live} meta priority set ip saddr map @uplink_classes
  }`;
}

/** Adds what these policies need beyond what those `before` needed. */
function fillRules(target: PolicyTarget, before: readonly PolicyOf[], policies: readonly PolicyOf[]): string {
  const { table } = target;
  const standing = chainsOf(target, before);
  const chains = [...chainsOf(target, policies)].filter(([name]) => !standing.has(name));
  return [
    ...chains.flatMap(([name, rules]) => [
      `add chain inet ${table} ${name}`,
      ...rules.map((rule) => `add rule inet ${table} ${name} ${rule}`),
    ]),
    ...elementRules("add", table, elementsOf(policies), elementsOf(before)),
    "",
  ].join("\n");
}

/** Adds or deletes the elements that are not in `others`, as they are there. */
function elementRules(verb: "add" | "delete", table: string, elements: Elements, others: Elements): string[] {
  return NAMED.flatMap(({ name }) => {
    const own = [...elements[name]].filter(([key, element]) => others[name].get(key) !== element);
    if (own.length === 0) return [];
    return [`${verb} element inet ${table} ${name} { ${own.map(([, element]) => element).join(", ")} }`];
  });
}

/** Returns the elements by name and key. Of two with one key the later wins: the kernel would refuse all. */
function elementsOf(policies: readonly PolicyOf[]): Elements {
  const egress = new Map<string, string>();
  const published = new Map<string, string>();
  const host_ports = new Map<string, string>();
  const on_loopback = new Map<string, string>();
  const on_all = new Map<string, string>();
  const uplink_classes = new Map<string, string>();
  const buckets = new Map<string, string>();
  const networks = new Map<string, string>();
  const members = new Map<string, string>();
  const named = new Map<string, string>();
  const add = (set: Map<string, string>, key: string) => set.set(key, key);
  for (const { address, policy, uplink_class, bucket, marks } of policies) {
    if (marks !== null) {
      named.set(address, `${address} : ${marks.tenant}`);
      if (marks.network !== null) {
        networks.set(address, `${address} : ${marks.network}`);
        add(members, `${marks.network} . ${address}`);
      }
    }
    if (bucket !== null) buckets.set(address, `${address} : jump ${bucket}`);
    if (uplink_class !== null) uplink_classes.set(address, `${address} : ${uplink_class}`);
    if (policy.egress !== "on") {
      const chain = policy.egress === "off" ? "refuse" : chainOf(policy.egress);
      egress.set(address, `${address} : goto ${chain}`);
    }
    for (const { container_port, host_port, host_address, protocol } of policy.ports) {
      const key = `${protocol} . ${host_port}`;
      (host_address === "0.0.0.0" ? on_all : on_loopback).set(key, `${key} : ${address} . ${container_port}`);
      add(published, `${address} . ${protocol} . ${container_port}`);
      add(host_ports, String(host_port));
    }
  }
  return { egress, published, host_ports, on_loopback, on_all, uplink_classes, buckets, networks, members, named };
}

/** A set or map with the elements that some policies need. */
export interface NamedElements {
  readonly kind: "set" | "map";
  readonly name: string;
  readonly elements: readonly string[];
}

/** Returns the sets and maps that these policies need, without those that need no element. */
export function elementsIn(policies: readonly PolicyOf[]): readonly NamedElements[] {
  const elements = elementsOf(policies);
  return NAMED.map(({ kind, name }) => ({ kind, name, elements: [...elements[name].values()] })).filter(
    (one) => one.elements.length > 0,
  );
}

/** By content, so that lists that are alike share a chain, and none ever changes. */
function chainOf(rules: readonly AllowRule[]): string {
  return `to_${createHash("sha256").update(rules.map(matchOf).join("\n")).digest("hex").slice(0, 16)}`;
}

function matchOf({ address, prefix_length, port_min, port_max, protocol }: AllowRule): string {
  return `ip daddr ${address}/${prefix_length} meta l4proto { ${protocol ?? "tcp, udp"} } th dport ${port_min}-${port_max}`;
}
