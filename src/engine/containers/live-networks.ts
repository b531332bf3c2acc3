/**
 * The networks of API containers that run, as the kernel has them: reads, checks, mending, and changes of their policy; and
 * the addresses that are kept for containers.
 *
 * K2 Commands look at the namespace of the container that was asked about, or at none: its descriptor is opened first, and
 *    the container must live after that.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { notePolicy } from "../bundles/container.ts";
import type { EngineHost } from "../host/host.ts";
import { checksOf, INSIDE_INTERFACE, isStrange, LinkChecks, type LinkEnds } from "../network/link-checks.ts";
import type { NetworkSlot } from "../network/network.ts";
import { containerPolicyOf, type NetworkPolicy } from "../network/rules.ts";
import type { ContainerSpec } from "../ports/containers.ts";
import type { CommonNetwork, LinkInside, LinkPlace, NetworkCheck, Networks } from "../ports/networks.ts";
import type { RunningContainers } from "./running.ts";

/** Checks that only the link's own commands can mend. */
const LINK_CHECKS: ReadonlySet<string> = new Set(["link", "address", "route", "neighbour"]);
const RULE_CHECKS: ReadonlySet<string> = new Set(["rules", "egress"]);
const FORWARDING = "/proc/sys/net/ipv4/ip_forward";

export class LiveNetworks implements Networks {
  readonly #host: EngineHost;
  readonly #running: RunningContainers;
  readonly #bundle: (run: string) => string;
  readonly #gate = new Semaphore(LIMITS.network_checks_at_once, LIMITS.network_checks_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many concurrent network checks", { retry_after: 1 });
  });

  /** `bundle`: directory of a run. */
  constructor(host: EngineHost, running: RunningContainers, bundle: (run: string) => string) {
    this.#host = host;
    this.#running = running;
    this.#bundle = bundle;
  }

  get addresses(): Networks["addresses"] {
    const { network } = this.#host;
    const [first, last] = network.addresses;
    return { first, last, count: network.addresses_count };
  }

  isAddress(address: string): boolean {
    return this.#host.network.indexOf(address) !== null;
  }

  reserve(address: string, isHolder: boolean): boolean {
    return this.#host.network.reserve(address, isHolder);
  }

  unreserve(address: string): void {
    this.#host.network.unreserve(address);
  }

  get common(): CommonNetwork {
    const { network, options } = this.#host;
    const { subnet, bridge } = options.config;
    return { gateway: network.gateway, subnet, prefix_length: network.subnet.prefix_length, bridge };
  }

  place(id: string): LinkPlace | null {
    const live = this.#running.find(id);
    if (live === null) return null;
    const { slot, control } = live;
    return {
      address: slot.address,
      host_interface: slot.host_interface,
      interface: INSIDE_INTERFACE,
      name_servers: this.#nameServers(slot),
      is_linked: control.isOpen && this.#host.network.isConnected(slot),
      is_ending: !control.isOpen,
    };
  }

  async inside(id: string): Promise<LinkInside | null> {
    return this.#within(id, async (slot, netns) => {
      const { inside } = await this.#links.read(slot, netns);
      if (inside.link === null) return null;
      const { address, mtu, flags, addr_info = [] } = inside.link;
      const addresses = addr_info.map(({ local, prefixlen }) => `${local}/${prefixlen}`);
      return { mac_address: address, mtu, is_up: flags.includes("UP"), addresses };
    });
  }

  async check(spec: ContainerSpec): Promise<readonly NetworkCheck[] | null> {
    return this.#within(spec.id, async (slot, netns) => {
      const { network } = this.#host;
      const ends = await this.#links.read(slot, netns);
      const port = network.firewall.openedPort;
      const [rules, reached] = await Promise.all([
        network.firewall.check(slot),
        port === null ? null : this.#links.reachGateway(netns, port),
      ]);
      return [
        ...checksOf(slot, ends, network.linkNames),
        ...(reached === null ? [] : [reached]),
        forwarding(),
        ...rules.map((one) => (one.name === "egress" ? this.#egress(spec, one) : one)),
        this.#names(spec, slot),
      ];
    });
  }

  async mend(spec: ContainerSpec, checks: readonly NetworkCheck[]): Promise<void> {
    const failed = checks.filter(({ ok }) => !ok).map(({ name }) => name);
    await this.#within(spec.id, async (slot, netns) => {
      const { network } = this.#host;
      if (failed.includes("forwarding")) network.forward();
      if (failed.some((name) => RULE_CHECKS.has(name))) {
        await this.apply(spec);
        await network.firewall.renew();
      }
      if (!failed.some((name) => LINK_CHECKS.has(name))) return;
      const ends = await this.#links.read(slot, netns);
      // A link that was cut belongs to a container that ends, or to another subnet: its next start makes it anew.
      if (isStrange(ends.outside, network.linkNames)) return;
      await this.#mendLink(spec.id, slot, netns, ends);
      // A new link has none of the settings that come with rules.
      if (ends.outside.link === null) await network.firewall.renew();
    });
  }

  isApplied(spec: ContainerSpec): boolean | null {
    const live = this.#live(spec.id);
    if (live === null) return null;
    const inForce = this.#host.network.firewall.policyOf(live.slot.address);
    return rulesOf(inForce) === rulesOf(containerPolicyOf(spec));
  }

  async apply(spec: ContainerSpec): Promise<void> {
    const live = this.#live(spec.id);
    if (live === null || this.isApplied(spec) === true) return;
    const policy = containerPolicyOf(spec);
    await this.#host.network.firewall.setPolicy(live.slot, policy);
    if (this.#live(spec.id) === live) notePolicy(this.#bundle(live.run), policy);
  }

  async #mendLink(id: string, slot: NetworkSlot, netns: string, ends: LinkEnds): Promise<void> {
    try {
      await this.#links.mend(slot, netns, ends);
    } finally {
      // The removal of a container that ended has not seen the link.
      if (ends.outside.link === null && this.#running.find(id)?.slot !== slot) await this.#links.remove(slot);
    }
  }

  get #links(): LinkChecks {
    return new LinkChecks(() => this.#host.launcher(), this.#host.network.linkNames);
  }

  /** Null for a container that ended, also before its remains are removed: another may get its address meanwhile. */
  #live(id: string): ReturnType<RunningContainers["find"]> {
    const live = this.#running.find(id);
    return live?.control.isOpen === true ? live : null;
  }

  /** K2. Null: the container does not run. */
  #within<Result>(
    id: string,
    work: (slot: NetworkSlot, netns: string) => Promise<Result | null>,
  ): Promise<Result | null> {
    return this.#gate.run(async () => {
      const live = this.#live(id);
      if (live === null) return null;
      let fd: number;
      try {
        fd = openSync(`/proc/${live.pid}/ns/net`, "r");
      } catch {
        return null;
      }
      try {
        if (this.#live(id) !== live) return null;
        return await work(live.slot, `/proc/${process.pid}/fd/${fd}`);
      } finally {
        closeSync(fd);
      }
    });
  }

  #egress(spec: ContainerSpec, inForce: NetworkCheck): NetworkCheck {
    if (!inForce.ok || this.isApplied(spec) !== true) {
      return { name: "egress", ok: false, message: "the egress policy is not in force" };
    }
    const { egress } = spec;
    const text = typeof egress === "string" ? egress : `${egress.length} allowed destinations`;
    return { name: "egress", ok: true, message: `in force: ${text}` };
  }

  #names({ egress }: ContainerSpec, slot: NetworkSlot): NetworkCheck {
    const servers = this.#nameServers(slot);
    if (servers.length === 0) {
      return { name: "dns", ok: false, message: "resolv.conf names no server that containers can reach" };
    }
    const isMember = servers.includes(this.#host.network.gateway);
    const note = egress === "off" && !isMember ? "; egress off keeps the container from asking" : "";
    return { name: "dns", ok: true, message: `name servers: ${servers.join(", ")}${note}` };
  }

  #nameServers({ address }: NetworkSlot): readonly string[] {
    const { network, resolv_conf, member_resolv_conf } = this.#host;
    const { member } = network.firewall.policyOf(address);
    try {
      const text = readFileSync(member === undefined ? resolv_conf : member_resolv_conf, "utf8");
      return [...text.matchAll(/^\s*nameserver\s+(\S+)/gm)].map(([, server = ""]) => server);
    } catch {
      return [];
    }
  }
}

/** Returns the rules of a policy, without those of its private network, which never changes. */
const rulesOf = ({ egress, ports }: NetworkPolicy): string => JSON.stringify([egress, ports]);

function forwarding(): NetworkCheck {
  const ok = readFileSync(FORWARDING, "utf8").trim() === "1";
  const message = ok ? "the host forwards packets" : "the host forwards no packets: net.ipv4.ip_forward is 0";
  return { name: "forwarding", ok, message };
}
