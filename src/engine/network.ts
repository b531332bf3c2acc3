/**
 * The network of instances: one bridge, addresses from the subnet, NAT to the outside, and no way to a neighbour.
 * Neighbours are cut off twice: bridge ports are isolated (layer 2), and the forward chain drops what would be routed
 * back (layer 3); what comes from an instance to this machine itself is dropped but for answers and pings.
 *
 * Namespaces are slots, made before they are needed (`slots.ts`) and used again: an instance has no capability to
 * change its network, and its sockets end with its processes.
 */
import { readFileSync, writeFileSync } from "node:fs";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { LauncherClient } from "./launcher.ts";
import { Slots } from "./slots.ts";

const COMMAND_TIMEOUT_MS = 5_000;

/** A ready network namespace with its address, and the uid that goes with it. */
export interface NetworkSlot {
  readonly index: number;
  readonly fd: number;
  /** Path that an OCI runtime can open. */
  readonly netns: string;
  readonly address: string;
  readonly uid: number;
  readonly host_interface: string;
  /** The launcher that holds it: a slot of a launcher that ended cannot be used for a start. */
  readonly launcher_pid: number;
}

export interface LauncherHandle {
  readonly client: LauncherClient;
  readonly pid: number;
}

export interface Subnet {
  readonly base: number;
  readonly prefix_length: number;
  /** Addresses for instances: all but network, gateway and broadcast. */
  readonly size: number;
}

export function parseSubnet(text: string): Subnet {
  const [address = "", prefix = ""] = text.split("/");
  const octets = address.split(".").map(Number);
  const prefix_length = Number(prefix);
  const number = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  const block = 2 ** (32 - prefix_length);
  if (octets.some((octet) => octet > 255) || number % block !== 0) {
    throw new AppError("INVALID_ARGUMENT", `HEARTH_SUBNET is '${text}', expected a network's base address`);
  }
  return { base: number, prefix_length, size: block - 3 };
}

export function formatAddress(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 255).join(".");
}

/** The rules, as one nft transaction that replaces any earlier version of the table. */
export function nftRules(table: string, bridge: string, subnet: string): string {
  return `table inet ${table}
delete table inet ${table}
table inet ${table} {
  chain forward {
    type filter hook forward priority filter; policy accept;
    iifname "${bridge}" oifname "${bridge}" drop
    oifname "${bridge}" ct state established,related accept
    oifname "${bridge}" drop
    iifname "${bridge}" meta nfproto ipv6 drop
    iifname "${bridge}" ip daddr 169.254.0.0/16 drop
    iifname "${bridge}" ip saddr != ${subnet} drop
  }
  chain input {
    type filter hook input priority filter; policy accept;
    iifname "${bridge}" ct state established,related accept
    iifname "${bridge}" icmp type echo-request accept
    iifname "${bridge}" drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${subnet} oifname != "${bridge}" masquerade
  }
}
`;
}

/** `resolv.conf` for instances: the machine's, without name servers that only the machine itself reaches. */
export function instanceResolvConf(text: string): string {
  return text
    .split("\n")
    .filter((line) => !/^\s*nameserver\s+(127\.|::1|0\.0\.0\.0)/.test(line))
    .join("\n");
}

export class Network {
  readonly subnet: Subnet;
  readonly #text: { bridge: string; subnet: string; table: string; tag: string; owner: string };
  readonly #launcher: () => LauncherHandle;
  readonly #slots: Slots<NetworkSlot>;
  readonly #isCurrent: (launcher_pid: number) => boolean;
  /** Whether bridge and rules are this object's: nothing of another daemon's is ever taken down. */
  #isOwner = false;

  constructor(
    launcher: () => LauncherHandle,
    isCurrent: (launcher_pid: number) => boolean,
    clock: Clock,
    names: { bridge: string; subnet: string; host_tag: string; data_dir: string; slots_max: number },
  ) {
    this.#launcher = launcher;
    this.#isCurrent = isCurrent;
    this.subnet = parseSubnet(names.subnet);
    this.#text = {
      bridge: names.bridge,
      subnet: names.subnet,
      table: `hearth_${names.host_tag}`,
      tag: names.host_tag.slice(0, 6),
      owner: `hearth ${names.data_dir}`.slice(0, 255),
    };
    this.#slots = new Slots({
      clock,
      ready_count: Math.min(LIMITS.network_slots_ready, names.slots_max),
      slots_max: Math.min(names.slots_max, this.subnet.size),
      make: (index) => this.#make(index),
      unmake: (slot) => this.#unmake(slot),
      // A slot of a launcher that ended is gone with it.
      isUsable: (slot) => isCurrent(slot.launcher_pid),
    });
  }

  /** Makes the bridge and the rules, and starts filling the pool. Rejects when another daemon owns the bridge. */
  async boot(): Promise<void> {
    const { bridge, owner } = this.#text;
    const { client } = this.#launcher();
    const ip = (...args: string[]) => client.run(["ip", ...args], COMMAND_TIMEOUT_MS);
    const found = await client.spawn({ argv: ["ip", "-j", "link", "show", bridge], timeout_ms: COMMAND_TIMEOUT_MS });
    if (found.exit_code === 0) {
      const alias = (JSON.parse(found.stdout) as { ifalias?: string }[])[0]?.ifalias;
      if (alias !== owner) {
        const whose = alias === undefined ? "something else" : `'${alias}'`;
        throw new AppError(
          "WRONG_STATE",
          `the bridge ${bridge} belongs to ${whose}: set HEARTH_BRIDGE and HEARTH_SUBNET`,
        );
      }
      await ip("link", "delete", bridge);
    }
    this.#isOwner = true;
    await this.#sweepLinks();
    const prefix = this.subnet.prefix_length;
    await ip("link", "add", bridge, "type", "bridge");
    await ip("link", "set", bridge, "alias", owner, "up");
    await ip("address", "add", `${formatAddress(this.subnet.base + 1)}/${prefix}`, "dev", bridge);
    writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
    await this.#nft(nftRules(this.#text.table, bridge, this.#text.subnet));
    await this.#slots.fill();
  }

  /** Takes a slot, a ready one where there is one. Rejects with CAPACITY_FULL when all are in use. */
  acquire(): Promise<NetworkSlot> {
    return this.#slots.acquire();
  }

  /** Gives a slot back after its container is gone. */
  release(slot: NetworkSlot): Promise<void> {
    return this.#slots.release(slot);
  }

  /** Removes all slots, the bridge and the rules. Every slot must have been given back. */
  async shutdown(): Promise<void> {
    if (!this.#isOwner) return;
    await this.#slots.close();
    const { client } = this.#launcher();
    await client.spawn({ argv: ["ip", "link", "delete", this.#text.bridge], timeout_ms: COMMAND_TIMEOUT_MS });
    await this.#nft(`table inet ${this.#text.table}\ndelete table inet ${this.#text.table}\n`);
  }

  async #nft(rules: string): Promise<void> {
    await this.#launcher().client.run(["nft", rules], COMMAND_TIMEOUT_MS);
  }

  /** Deletes host ends that an earlier process left: their namespaces live on only in containers already removed. */
  async #sweepLinks(): Promise<void> {
    const { client } = this.#launcher();
    const links = JSON.parse(await client.run(["ip", "-j", "link", "show", "type", "veth"], COMMAND_TIMEOUT_MS));
    for (const { ifname } of links as { ifname: string }[]) {
      if (!ifname.startsWith(`h${this.#text.tag}`)) continue;
      await client.spawn({ argv: ["ip", "link", "delete", ifname], timeout_ms: COMMAND_TIMEOUT_MS });
    }
  }

  async #make(index: number): Promise<NetworkSlot> {
    const launcher = this.#launcher();
    const host_interface = `h${this.#text.tag}${index}`;
    const address = this.subnet.base + 2 + index;
    const fd = await launcher.client.addNetns({
      address,
      gateway: this.subnet.base + 1,
      prefix_length: this.subnet.prefix_length,
      host_interface,
      bridge: this.#text.bridge,
    });
    return {
      index,
      fd,
      netns: `/proc/${launcher.pid}/fd/${fd}`,
      address: formatAddress(address),
      uid: LIMITS.instance_uid_base + index,
      host_interface,
      launcher_pid: launcher.pid,
    };
  }

  async #unmake(slot: NetworkSlot): Promise<void> {
    // The descriptor number of a launcher that ended may name another namespace by now; the kernel took the old one.
    if (!this.#isCurrent(slot.launcher_pid)) return;
    await this.#launcher().client.deleteNetns(slot.fd, slot.host_interface);
  }
}

/** The machine's resolv.conf, as instances get it; empty where there is none. */
export function readInstanceResolvConf(path = "/etc/resolv.conf"): string {
  try {
    return instanceResolvConf(readFileSync(path, "utf8"));
  } catch {
    return "";
  }
}
