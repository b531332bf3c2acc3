/**
 * The network of instances: one bridge, addresses from the subnet, NAT to the outside, and no way to a neighbour.
 * Neighbours are cut off twice: bridge ports are isolated (layer 2), and the forward chain drops what would be routed
 * back (layer 3); what comes from an instance to this machine itself is dropped but for answers and pings. The rules
 * themselves are rules.ts's; here they are put in force, with the policies of containers that have one.
 *
 * Namespaces are slots, made before they are needed (`slots.ts`) and used again: an instance has no capability to
 * change its network, and its sockets end with its processes. The slot of an instance that an earlier process started
 * is counted as in use (its index, and so its address and uid, is nobody else's) and is not used again: its namespace
 * is held by that instance alone.
 *
 * W1 A policy stands before the first process in its slot starts, and until nothing is left of the last one. It is the
 *    kernel's: with the daemon gone it holds on, and the next daemon's first transaction has it again.
 */
import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { type Clock, sleep } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { each } from "./concurrency.ts";
import { type LauncherClient, type Netns, NO_NETNS, type UserNamespace } from "./launcher.ts";
import { type NetworkPolicy, noRules, type PolicyOf, policyRules, tableRules } from "./rules.ts";
import { Slots } from "./slots.ts";
import { UserNamespaces } from "./user-namespaces.ts";

const COMMAND_TIMEOUT_MS = 5_000;
const NO_LAUNCHER = 0;
const LINK_LOOK_INTERVAL_MS = 20;

/** A ready network namespace with its address, and the uid that goes with it. */
export interface NetworkSlot extends Netns {
  readonly index: number;
  /** Paths that an OCI runtime can open. */
  readonly netns: string;
  /** That owns the network; of a container that joins it. */
  readonly user: (UserNamespace & { readonly path: string }) | null;
  readonly address: string;
  readonly uid: number;
  readonly host_interface: string;
  /** The launcher that holds it, 0 for none: a slot of a launcher that ended cannot be used for a start. */
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

/** `resolv.conf` for instances: the machine's, without name servers that only the machine itself reaches. */
export function instanceResolvConf(text: string): string {
  return text
    .split("\n")
    .filter((line) => !/^\s*nameserver\s+(127\.|::1|0\.0\.0\.0)/.test(line))
    .join("\n");
}

export class Network {
  readonly subnet: Subnet;
  readonly #text: {
    bridge: string;
    mac: string;
    subnet: string;
    table: string;
    tag: string;
    owner: string;
    rules_file: string;
  };
  readonly #launcher: () => LauncherHandle;
  readonly #slots: Slots<NetworkSlot>;
  readonly #users: UserNamespaces;
  readonly #slots_max: number;
  readonly #clock: Clock;
  readonly #isCurrent: (launcher_pid: number) => boolean;
  /** Whether bridge and rules are this object's: nothing of another daemon's is ever taken down. */
  #isOwner = false;
  /** Whether the bridge of an earlier process is there and as it has to be. */
  #isKept = false;
  readonly #ports = new Set<number>();
  /** Of slots in use that have one, by address. */
  readonly #policies = new Map<string, PolicyOf>();
  /** The policies in force; null where that is not known, and the tables are made anew. */
  #standing: readonly PolicyOf[] | null = null;
  /** The last change of the rules: one at a time, or an older set could come last. */
  #ruling: Promise<void> = Promise.resolve();
  /** A change that has not begun: it takes up all that is wanted until it does. */
  #waiting: Promise<void> | null = null;

  constructor(
    launcher: () => LauncherHandle,
    isCurrent: (launcher_pid: number) => boolean,
    clock: Clock,
    users: UserNamespaces,
    names: { bridge: string; subnet: string; host_tag: string; data_dir: string; run_dir: string; slots_max: number },
  ) {
    this.#launcher = launcher;
    this.#clock = clock;
    this.#isCurrent = isCurrent;
    this.#users = users;
    this.subnet = parseSubnet(names.subnet);
    this.#text = {
      bridge: names.bridge,
      // One of our own (02 marks it as such), and the same at every start.
      mac: ["02", "00", ...(names.host_tag.slice(0, 8).match(/../g) ?? [])].join(":"),
      subnet: names.subnet,
      table: `hearth_${names.host_tag}`,
      tag: names.host_tag.slice(0, 6),
      owner: `hearth ${names.data_dir}`.slice(0, 255),
      rules_file: `${names.run_dir}/rules.nft`,
    };
    this.#slots_max = Math.min(names.slots_max, this.subnet.size);
    this.#slots = new Slots({
      clock,
      ready_count: Math.min(LIMITS.network_slots_ready, names.slots_max),
      slots_max: this.#slots_max,
      make: (index) => this.#make(index),
      unmake: (slot) => this.#unmake(slot),
      // A slot of a launcher that ended is gone with it. One with a user namespace is not for a container without: the
      // machine's root could be above what owns the network.
      isUsable: ({ launcher_pid, user }) => isCurrent(launcher_pid) && (user !== null) === users.areWanted,
    });
  }

  /** Where this machine is found from inside of instances. */
  get gateway(): string {
    return formatAddress(this.subnet.base + 1);
  }

  /** Looks at the bridge, before anything is changed. Throws WRONG_STATE when it is another daemon's. */
  claim(): void {
    const { bridge, owner } = this.#text;
    if (existsSync(`/sys/class/net/${bridge}`)) {
      const alias = readFileSync(`/sys/class/net/${bridge}/ifalias`, "utf8").trimEnd();
      if (alias !== owner) {
        const whose = alias === "" ? "something else" : `'${alias}'`;
        throw new AppError(
          "WRONG_STATE",
          `the bridge ${bridge} belongs to ${whose}: set HEARTH_BRIDGE and HEARTH_SUBNET`,
        );
      }
      // Only interfaces that are up and have a carrier are listed: a bridge without a port is made again.
      const addresses = networkInterfaces()[bridge] ?? [];
      this.#isKept = addresses.some(
        ({ cidr, mac }) => cidr === `${this.gateway}/${this.subnet.prefix_length}` && mac === this.#text.mac,
      );
    }
    this.#isOwner = true;
  }

  /** The slot that goes with a uid, as an earlier process made it. Null when there is none such. */
  slotOfUid(uid: number): NetworkSlot | null {
    const index = uid - LIMITS.instance_uid_base;
    if (!Number.isInteger(index) || index < 0 || index >= this.#slots_max) return null;
    return this.#slot(index, NO_NETNS, NO_LAUNCHER);
  }

  /** The slot with this index, as an earlier process made it. Null when there can be none. */
  slotOfIndex(index: number): NetworkSlot | null {
    return this.slotOfUid(LIMITS.instance_uid_base + index);
  }

  /** Whether a slot of an earlier process is still connected: its link a port of the bridge. */
  isPort({ host_interface }: NetworkSlot): boolean {
    if (!this.#isKept) return false;
    try {
      return readlinkSync(`/sys/class/net/${host_interface}/master`).endsWith(`/${this.#text.bridge}`);
    } catch {
      return false;
    }
  }

  /**
   * Brings up bridge and rules, keeping a bridge that is as it has to be, and counts `taken` as in use. With `isFilled`
   * it waits for the reserve of slots and rejects when one cannot be made.
   */
  async boot(taken: readonly NetworkSlot[], isFilled: boolean): Promise<void> {
    for (const slot of taken) this.#slots.adopt(slot);
    await this.#sweepLinks(new Set(taken.map(({ host_interface }) => host_interface)));
    if (!this.#isKept) await this.#makeBridge();
    writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
    await this.#applyRules();
    if (isFilled) await this.#slots.fill();
    else this.#slots.fillSoon();
  }

  /** Lets instances reach a TCP port of the gateway. */
  async openPort(port: number): Promise<void> {
    this.#ports.add(port);
    this.#standing = null;
    await this.#applyRules();
  }

  /** Notes the policy of a slot that an earlier process made, for the rules that `boot` makes. */
  keepPolicy(slot: NetworkSlot, policy: NetworkPolicy): void {
    if (policy.egress === "on" && policy.ports.length === 0) return;
    const { address, host_interface } = slot;
    this.#policies.set(address, { address, host_interface, policy });
  }

  /** Resolves when the policy is in force for a slot that was taken. `release` ends it, after a failure too. */
  async setPolicy(slot: NetworkSlot, policy: NetworkPolicy): Promise<void> {
    this.keepPolicy(slot, policy);
    if (this.#policies.has(slot.address)) await this.#applyRules();
  }

  /** Takes a slot, a ready one where there is one. Rejects with CAPACITY_FULL when all are in use. */
  acquire(): Promise<NetworkSlot> {
    return this.#slots.acquire();
  }

  /** Gives a slot back after its container is gone. Its policy ends first: nobody gets the address with it. */
  async release(slot: NetworkSlot): Promise<void> {
    if (this.#policies.delete(slot.address)) await this.#applyRules();
    await this.#slots.release(slot);
  }

  /** Removes all slots but those of containers that live on, and unless there are such the bridge and the rules too. */
  async shutdown(living: readonly NetworkSlot[]): Promise<void> {
    if (!this.#isOwner) return;
    await this.#slots.close();
    // The link of a container that is gone goes by itself, a moment later.
    await this.#sweepLinks(new Set(living.map(({ host_interface }) => host_interface)));
    if (living.length > 0) return;
    await (this.#waiting ?? this.#ruling).catch(() => {});
    const { client } = this.#launcher();
    await client.spawn({ argv: ["ip", "link", "delete", this.#text.bridge], timeout_ms: COMMAND_TIMEOUT_MS });
    await this.#nft(noRules(this.#text.table));
  }

  async #makeBridge(): Promise<void> {
    const { bridge, owner, mac } = this.#text;
    const { client } = this.#launcher();
    const ip = (...args: string[]) => client.run(["ip", ...args], COMMAND_TIMEOUT_MS);
    await client.spawn({ argv: ["ip", "link", "delete", bridge], timeout_ms: COMMAND_TIMEOUT_MS });
    // With its address set: else it takes the lowest of its ports', and whenever a port comes or goes that changes it,
    // whoever inside an instance knew the gateway talks to nobody for seconds.
    await ip("link", "add", bridge, "address", mac, "type", "bridge");
    // As the instances' links: see no_link_local of the helper. Fails where the machine has no IPv6, and is not needed.
    await client.spawn({ argv: ["ip", "link", "set", bridge, "addrgenmode", "none"], timeout_ms: COMMAND_TIMEOUT_MS });
    await ip("link", "set", bridge, "alias", owner, "up");
    await ip("address", "add", `${this.gateway}/${this.subnet.prefix_length}`, "dev", bridge);
  }

  /** Resolves when what is wanted now is in force. Calls that come while a change is being made share the next one. */
  #applyRules(): Promise<void> {
    this.#waiting ??= this.#ruling
      .catch(() => {})
      .then(() => {
        this.#waiting = null;
        this.#ruling = this.#apply();
        return this.#ruling;
      });
    return this.#waiting;
  }

  async #apply(): Promise<void> {
    const { table, bridge, subnet } = this.#text;
    const policies = [...this.#policies.values()];
    const standing = this.#standing;
    const names = { table, bridge, subnet, gateway: this.gateway, opened: [...this.#ports] };
    const rules = standing === null ? tableRules(names, policies) : policyRules(table, standing, policies);
    // After a change that failed the kernel has either.
    this.#standing = null;
    await this.#nft(rules);
    this.#standing = policies;
    // Never before the rules that make it harmless (P4 of rules.ts).
    if (policies.some(({ policy }) => policy.ports.length > 0)) {
      writeFileSync(`/proc/sys/net/ipv4/conf/${bridge}/route_localnet`, "1");
    }
  }

  /** By way of a file: an argument may be 128 KiB at most. */
  async #nft(rules: string): Promise<void> {
    writeFileSync(this.#text.rules_file, rules, { mode: 0o600 });
    await this.#launcher().client.run(["nft", "-f", this.#text.rules_file], COMMAND_TIMEOUT_MS);
  }

  /** Deletes host ends that an earlier process left, but those of containers that are still there. */
  async #sweepLinks(kept: ReadonlySet<string>): Promise<void> {
    const { client } = this.#launcher();
    const own = new RegExp(`^h${this.#text.tag}\\d+$`);
    const links = readdirSync("/sys/class/net").filter((name) => own.test(name) && !kept.has(name));
    // One that stays is replaced when its name is needed.
    await each(links, LIMITS.leftovers_at_once, (name) => client.deleteNetns(NO_NETNS, name).catch(() => {}));
  }

  async #make(index: number): Promise<NetworkSlot> {
    const launcher = this.#launcher();
    const first_id = this.#users.areWanted ? UserNamespaces.firstId(index) : null;
    const netns = await this.#add(launcher, index, first_id).catch((error) => {
      const isRefused = first_id !== null && errorText(error).includes("user namespace: ");
      if (isRefused && this.#users.goOnWithout(error)) return this.#add(launcher, index, null);
      throw error;
    });
    return this.#slot(index, netns, launcher.pid);
  }

  #add(launcher: LauncherHandle, index: number, first_id: number | null): Promise<Netns> {
    return launcher.client.addNetns({
      first_id,
      address: this.subnet.base + 2 + index,
      gateway: this.subnet.base + 1,
      prefix_length: this.subnet.prefix_length,
      host_interface: this.#interface(index),
      bridge: this.#text.bridge,
    });
  }

  #interface(index: number): string {
    return `h${this.#text.tag}${index}`;
  }

  #slot(index: number, { fd, user }: Netns, launcher_pid: number): NetworkSlot {
    const path = (fd: number) => `/proc/${launcher_pid}/fd/${fd}`;
    return {
      index,
      fd,
      netns: path(fd),
      user: user === null ? null : { ...user, path: path(user.fd) },
      address: formatAddress(this.subnet.base + 2 + index),
      uid: LIMITS.instance_uid_base + index,
      host_interface: this.#interface(index),
      launcher_pid,
    };
  }

  async #unmake(slot: NetworkSlot): Promise<void> {
    if (slot.launcher_pid === NO_LAUNCHER) return this.#outlast(slot);
    // The descriptor number of a launcher that ended may name another namespace by now; the kernel took the old one.
    if (!this.#isCurrent(slot.launcher_pid)) return;
    await this.#launcher().client.deleteNetns(slot, slot.host_interface);
  }

  /**
   * The namespace of a slot that no launcher holds ends with its container, and takes the link along a moment later:
   * many at once, which the kernel does far quicker than it would by name. Only what stays is deleted.
   */
  async #outlast({ host_interface }: NetworkSlot): Promise<void> {
    const end_ms = this.#clock.monotonicMs() + LIMITS.reap_wait_ms;
    while (existsSync(`/sys/class/net/${host_interface}`)) {
      if (this.#clock.monotonicMs() > end_ms) return this.#launcher().client.deleteNetns(NO_NETNS, host_interface);
      await sleep(this.#clock, LINK_LOOK_INTERVAL_MS);
    }
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
