/**
 * The network of instances: a link to each, routed to its one address; NAT to the outside, and no way to a neighbour:
 * the forward chain drops packets from link to link. Packets from an instance to this machine itself are dropped but
 * for answers and pings. The rules are rules.ts's, and firewall.ts puts them in force; here are slots and links. A bridge
 * without a port carries the gateway's address.
 *
 * Namespaces are slots, made before they are needed and used once (`slots.ts`): a socket of an instance may be held
 * open elsewhere when the instance is gone. The slot of an instance that an earlier process started is counted as in
 * use (its index, and so its address and uid, is nobody else's).
 *
 * W2 An index is used again only when nothing is left of its last use: no link, no policy, no tracked connection.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { UserNamespaces } from "../kernel/user-namespaces.ts";
import {
  type AddressSet,
  type LauncherClient,
  type LauncherHandle,
  type Netns,
  NO_NETNS,
  type UserNamespace,
} from "../launcher/launcher.ts";
import type { Budget } from "../ports/machine.ts";
import { Batching } from "./batching.ts";
import { COMMAND_TIMEOUT_MS, Firewall } from "./firewall.ts";
import type { LinkNames } from "./link-checks.ts";
import type { Members } from "./members.ts";
import type { DnsPorts, LinkGroups, NetworkPolicy } from "./rules.ts";
import { Slots } from "./slots.ts";
import { foreignLink, formatAddress, hexOf, parseAddress, parseSubnet, type Subnet } from "./subnet.ts";
import type { Uplink } from "./uplink.ts";

const NO_LAUNCHER = 0;
/** Link groups of all daemons: above those that people number by hand, four for each tag. */
const GROUPS_BASE = 0x2000_0000;

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

export interface NetworkNames {
  readonly bridge: string;
  readonly subnet: string;
  readonly host_tag: string;
  readonly data_dir: string;
  readonly run_dir: string;
  readonly slots_max: number;
  readonly flows_max: number;
}

export interface NetworkOptions {
  readonly launcher: () => LauncherHandle;
  readonly isCurrent: (launcher_pid: number) => boolean;
  readonly clock: Clock;
  readonly log: Log;
  readonly users: UserNamespaces;
  readonly uplink: Uplink;
  readonly names: NetworkNames;
}

export class Network {
  readonly subnet: Subnet;
  readonly #options: NetworkOptions;
  readonly #text: { mac: string; table: string; tag: string; owner: string };
  readonly #groups: LinkGroups;
  readonly #slots: Slots<NetworkSlot>;
  /** Indexes of slots, and so addresses. */
  readonly #indexes_max: number;
  /** True if bridge and rules are this object's: it never removes those of another daemon. */
  #isOwner = false;
  /** True if the bridge is there and as it has to be. */
  #isReady = false;
  readonly #firewall: Firewall;
  readonly #cutting = new Batching<NetworkSlot>((slots) => this.#cut(slots));

  constructor(options: NetworkOptions) {
    const { clock, log, users, isCurrent, names } = options;
    this.#options = options;
    this.subnet = parseSubnet(names.subnet);
    this.#text = {
      // One of our own (02 marks it as such), and the same at every start.
      mac: ["02", "00", ...(names.host_tag.slice(0, 8).match(/../g) ?? [])].join(":"),
      table: `hearth_${names.host_tag}`,
      tag: names.host_tag.slice(0, 6),
      owner: `hearth ${names.data_dir}`.slice(0, 255),
    };
    const live = GROUPS_BASE + 4 * Number.parseInt(names.host_tag.slice(0, 7), 16);
    this.#groups = { live, dead: live + 1, doomed: live + 2 };
    const slots_max = Math.min(names.slots_max, this.subnet.size);
    const wanted = LIMITS.network_addresses_per_slot * slots_max;
    this.#indexes_max = Math.min(wanted, this.subnet.size, UserNamespaces.slots_max);
    this.#firewall = new Firewall({
      client: () => this.#client,
      clock,
      log,
      uplink: options.uplink,
      names: {
        table: this.#text.table,
        groups: this.#groups,
        subnet: names.subnet,
        gateway: this.gateway,
        flows_max: names.flows_max,
        sources_max: this.#indexes_max,
      },
      rules_file: `${names.run_dir}/rules.nft`,
    });
    this.#slots = new Slots({
      clock,
      ready_count: Math.min(LIMITS.network_slots_ready, slots_max),
      slots_max,
      indexes_max: this.#indexes_max,
      make: (index) => this.#make(index),
      remnant: (index) => this.#slot(index, NO_NETNS, NO_LAUNCHER),
      cut: (slot) => this.#cutting.add(slot),
      remove: (slots) => this.#remove(slots),
      onRemovalFailed: (error) => log.warn("cannot remove network links, retrying later", { error: errorText(error) }),
      // A slot of a launcher that ended is gone with it. One with a user namespace is not for a container without: the
      // machine's root could be above what owns the network.
      isUsable: ({ launcher_pid, user }) => isCurrent(launcher_pid) && (user !== null) === users.areWanted,
    });
  }

  /** Address of this machine as seen from inside of instances. */
  get gateway(): string {
    return formatAddress(this.subnet.base + 1);
  }

  /** Looks at bridge and subnet, before anything is changed. Throws WRONG_STATE when they are somebody else's. */
  claim(): void {
    const { bridge, subnet } = this.#options.names;
    const { owner, mac, tag } = this.#text;
    const link = foreignLink(readFileSync("/proc/net/route", "utf8"), this.subnet, (name) => {
      return name === bridge || new RegExp(`^h${tag}\\d+$`).test(name) || settingOf(name, "ifalias") === owner;
    });
    if (link !== null) {
      const message = `subnet ${subnet} overlaps addresses that this machine reaches through ${link}`;
      throw new AppError("WRONG_STATE", `${message}: set HEARTH_SUBNET`);
    }
    if (existsSync(`/sys/class/net/${bridge}`)) {
      const alias = settingOf(bridge, "ifalias");
      if (alias !== owner) {
        const whose = alias === "" ? "another program" : `'${alias}'`;
        throw new AppError(
          "WRONG_STATE",
          `the bridge ${bridge} belongs to ${whose}: set HEARTH_BRIDGE and HEARTH_SUBNET`,
        );
      }
      const isRouted = readFileSync("/proc/net/route", "utf8").includes(`\n${bridge}\t${this.#routeText()}`);
      this.#isReady = isRouted && settingOf(bridge, "address") === mac && this.#isLive(bridge);
    }
    this.#isOwner = true;
  }

  /** The slot that goes with a uid, as an earlier process made it. Null when there is none such. */
  slotOfUid(uid: number): NetworkSlot | null {
    const index = uid - LIMITS.instance_uid_base;
    if (!Number.isInteger(index) || index < 0 || index >= this.#indexes_max) return null;
    return this.#slot(index, NO_NETNS, NO_LAUNCHER);
  }

  /** The slot with this index, as an earlier process made it. Null when there can be none. */
  slotOfIndex(index: number): NetworkSlot | null {
    return this.slotOfUid(LIMITS.instance_uid_base + index);
  }

  /** True if a slot is connected: its link not cut, and the gateway there. */
  isConnected({ host_interface }: NetworkSlot): boolean {
    return this.#isReady && this.#isLive(host_interface);
  }

  /**
   * Brings up bridge and rules, keeping a bridge that is as it has to be, and counts `taken` as in use. With `isFilled`
   * it waits for the reserve of slots and rejects when one cannot be made.
   */
  async boot(taken: readonly NetworkSlot[], isFilled: boolean): Promise<void> {
    for (const slot of taken) this.#slots.adopt(slot);
    await this.#cutStrange(taken);
    // Before an old bridge goes: what it held apart passes the rules then.
    await this.#firewall.begin();
    if (!this.#isReady) await this.#makeBridge();
    this.#isReady = true;
    this.forward();
    await this.#sweep(taken);
    if (isFilled) await this.#slots.fill();
    else this.#slots.fillSoon();
  }

  /** Has the machine pass packets from link to link. */
  forward(): void {
    writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
  }

  /** Lets every container and instance reach a TCP port of the gateway. */
  openPort(port: number): Promise<void> {
    return this.#firewall.openPort(port);
  }

  /** Leads name queries of members to the ports of the name server. */
  openNames(dns: DnsPorts): Promise<void> {
    return this.#firewall.openNames(dns);
  }

  /** Containers in private networks, and containers with names. */
  get members(): Members {
    return this.#firewall.members;
  }

  /** Notes the policy of a slot that an earlier process made, for the rules that `boot` makes. */
  keepPolicy(slot: NetworkSlot, policy: NetworkPolicy): void {
    this.#firewall.keepPolicy(slot, policy);
  }

  /** Brings up the shares of the uplink. Before `boot`. Never rejects; returns what came of it. */
  shareUplink(): Promise<Budget> {
    return this.#options.uplink.begin(this.#client);
  }

  /**
   * Counts a slot to a tenant: for the class in which its packets leave, and for the bound of tracked connections. Both
   * hold from a moment later on. `release` ends it.
   */
  attribute(slot: NetworkSlot, tenant_id: string): void {
    this.#firewall.attribute(slot, tenant_id);
  }

  /** Resolves when the policy is in force for a slot that was taken. `release` ends it, after a failure too. */
  setPolicy(slot: NetworkSlot, policy: NetworkPolicy): Promise<void> {
    return this.#firewall.setPolicy(slot, policy);
  }

  /**
   * Takes a slot, a ready one where there is one, or makes the one of a reserved `address`. Rejects with CAPACITY_FULL when
   * all are in use.
   */
  acquire(address: string | null = null): Promise<NetworkSlot> {
    const index = address === null ? null : this.indexOf(address);
    return index === null ? this.#slots.acquire() : this.#slots.acquireReserved(index);
  }

  /** First and last address that a slot may have. */
  get addresses(): readonly [string, string] {
    const first = this.subnet.base + 2;
    return [formatAddress(first), formatAddress(first + this.#indexes_max - 1)];
  }

  /** Number of addresses that slots may have. */
  get addresses_count(): number {
    return this.#indexes_max;
  }

  /** Index of the slot with this address; null if no slot may have it. */
  indexOf(address: string): number | null {
    const number = parseAddress(address);
    const index = number === null ? -1 : number - this.subnet.base - 2;
    return index >= 0 && index < this.#indexes_max ? index : null;
  }

  /** Keeps an address from all slots but those of `acquire(address)`. Returns false if another has it. See `Slots.reserve`. */
  reserve(address: string, isHolder: boolean): boolean {
    const index = this.indexOf(address);
    return index !== null && this.#slots.reserve(index, isHolder);
  }

  /** Ends the reservation of an address. Safe to repeat. */
  unreserve(address: string): void {
    const index = this.indexOf(address);
    if (index !== null) this.#slots.unreserve(index);
  }

  /** Names and rules by which the link of a slot is checked. */
  get linkNames(): LinkNames {
    return { bridge: this.#options.names.bridge, gateway: this.gateway, live_group: this.#groups.live };
  }

  /** The rules in force. */
  get firewall(): Firewall {
    return this.#firewall;
  }

  /**
   * Ends a slot after its container is gone: resolves when its link is cut and its policy ended. After a rejection both
   * are tried again, and nobody gets the address before (W2).
   */
  release(slot: NetworkSlot): Promise<void> {
    return this.#firewall.release(slot, () => this.#slots.release(slot));
  }

  /** Number of packets dropped because their container had reached HEARTH_FLOWS_MAX. */
  flowsRefused(): Promise<number> {
    return this.#firewall.flowsRefused();
  }

  /** Removes all slots but those of containers that live on, and unless there are such the bridge and the rules too. */
  async shutdown(living: readonly NetworkSlot[]): Promise<void> {
    if (!this.#isOwner) return;
    const { uplink, log } = this.#options;
    this.#firewall.hush();
    await this.#slots.close();
    const failed = (error: unknown) => log.warn("the uplink keeps its classes", { error: errorText(error) });
    await uplink.end(this.#client).catch(failed);
    await this.#sweep(living);
    if (living.length > 0) return;
    await this.#firewall.idle();
    const argv = ["ip", "link", "delete", this.#options.names.bridge];
    await this.#client.spawn({ argv, timeout_ms: COMMAND_TIMEOUT_MS });
    await this.#firewall.remove();
  }

  get #client(): LauncherClient {
    return this.#options.launcher().client;
  }

  #isLive(link: string): boolean {
    return settingOf(link, "netdev_group") === String(this.#groups.live);
  }

  /** The subnet's line in /proc/net/route: destination, gateway, and all up to the mask, as the kernel prints numbers. */
  #routeText(): string {
    return `${hexOf(this.subnet.base)}\t00000000\t`;
  }

  /**
   * Cuts links that are not as this process makes them, as after a change of the subnet or of the program: the rules do
   * not hold for a link of no group, and no route leads to a container with another address.
   */
  async #cutStrange(taken: readonly NetworkSlot[]): Promise<void> {
    const routes = readFileSync("/proc/net/route", "utf8");
    const strange = taken.filter(({ index, host_interface }) => {
      if (settingOf(host_interface, "ifindex") === "") return false;
      const isRouted = routes.includes(`\n${host_interface}\t${hexOf(this.subnet.base + 2 + index)}\t`);
      return !(this.#isReady && isRouted && this.#isLive(host_interface));
    });
    if (strange.length === 0) return;
    await this.#cut(strange);
    this.#options.log.warn("running containers have no network until they are restarted", {
      links: namesOf(strange).join(" "),
      reason: "their links belong to another subnet, bridge or version",
    });
  }

  async #makeBridge(): Promise<void> {
    const { bridge } = this.#options.names;
    const { owner, mac } = this.#text;
    const client = this.#client;
    const ip = (...args: string[]) => client.run(["ip", ...args], COMMAND_TIMEOUT_MS);
    await client.spawn({ argv: ["ip", "link", "delete", bridge], timeout_ms: COMMAND_TIMEOUT_MS });
    // An earlier version's.
    const argv = ["nft", "delete", "table", "bridge", this.#text.table];
    await client.spawn({ argv, timeout_ms: COMMAND_TIMEOUT_MS });
    await ip("link", "add", bridge, "address", mac, "group", String(this.#groups.live), "type", "bridge");
    // As the instances' links: see no_link_local of the helper. Fails where the machine has no IPv6, and is not needed.
    await client.spawn({ argv: ["ip", "link", "set", bridge, "addrgenmode", "none"], timeout_ms: COMMAND_TIMEOUT_MS });
    await ip("link", "set", bridge, "alias", owner, "up");
    await ip("address", "add", `${this.gateway}/${this.subnet.prefix_length}`, "dev", bridge);
  }

  /** Removes host ends that an earlier process left, and tracked connections, but those of slots that are still there. */
  async #sweep(kept: readonly NetworkSlot[]): Promise<void> {
    const own = new RegExp(`^h${this.#text.tag}\\d+$`);
    const keptNames = new Set(kept.map(({ host_interface }) => host_interface));
    const keptIndexes = new Set(kept.map(({ index }) => index));
    const links = readdirSync("/sys/class/net").filter((name) => own.test(name) && !keptNames.has(name));
    const indexes = Array.from({ length: this.#indexes_max }, (_, i) => i).filter((index) => !keptIndexes.has(index));
    await this.#client.removeNetns([], this.#groups.doomed, this.#addresses(indexes));
    for (let at = 0; at < links.length; at += LIMITS.network_removal_slots_max) {
      const batch = links.slice(at, at + LIMITS.network_removal_slots_max);
      await this.#client.removeNetns(batch, this.#groups.doomed, this.#addresses([]));
    }
  }

  #addresses(indexes: readonly number[]): AddressSet {
    const bits = new Uint8Array(indexes.length === 0 ? 0 : Math.ceil(this.#indexes_max / 8));
    for (const index of indexes) bits[index >> 3] = (bits[index >> 3] ?? 0) | (1 << (index & 7));
    return { first: this.subnet.base + 2, bits };
  }

  async #make(index: number): Promise<NetworkSlot> {
    const { users } = this.#options;
    const launcher = this.#options.launcher();
    const first_id = users.areWanted ? UserNamespaces.firstId(index) : null;
    const netns = await this.#add(launcher, index, first_id).catch((error) => {
      const isRefused = first_id !== null && errorText(error).includes("user namespace: ");
      if (isRefused && users.goOnWithout(error)) return this.#add(launcher, index, null);
      throw error;
    });
    return this.#slot(index, netns, launcher.pid);
  }

  #add(launcher: LauncherHandle, index: number, first_id: number | null): Promise<Netns> {
    return launcher.client.addNetns({
      first_id,
      address: this.subnet.base + 2 + index,
      gateway: this.subnet.base + 1,
      host_interface: this.#interface(index),
      group: this.#groups.live,
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

  /** Cuts links, and lets go of the namespaces: the kernel takes those that nothing holds, with their links. */
  async #cut(slots: readonly NetworkSlot[]): Promise<void> {
    // A descriptor number of a launcher that ended may name another namespace by now.
    const held = slots.filter(({ launcher_pid }) => this.#options.isCurrent(launcher_pid));
    await this.#client.cutNetns(namesOf(slots), this.#groups.dead, held);
  }

  async #remove(slots: readonly NetworkSlot[]): Promise<void> {
    await this.#firewall.settle(slots);
    const indexes = slots.map(({ index }) => index);
    await this.#client.removeNetns(namesOf(slots), this.#groups.doomed, this.#addresses(indexes));
  }
}

function namesOf(slots: readonly NetworkSlot[]): readonly string[] {
  return slots.map(({ host_interface }) => host_interface);
}

/** An attribute of a link; empty where there is no such link. */
function settingOf(link: string, name: string): string {
  try {
    return readFileSync(`/sys/class/net/${link}/${name}`, "utf8").trimEnd();
  } catch {
    return "";
  }
}
