/**
 * The rules in force: rules.ts writes them, this file applies them, one change at a time, with the policies of containers
 * and the uplink classes and connection buckets of their tenants.
 *
 * W1 A policy is in force before the first process in its slot starts, and until nothing is left of the last one. The
 *    kernel holds it without the daemon, and the next daemon's first transaction contains it.
 */
import { existsSync, writeFileSync } from "node:fs";
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { NetworkCheck } from "../ports/networks.ts";
import { Batching } from "./batching.ts";
import type { Members } from "./members.ts";
import { type Place, Policies } from "./policies.ts";
import { ruleChecks } from "./rule-checks.ts";
import {
  type DnsPorts,
  elementsIn,
  FLOWS_COUNTER,
  type NetworkPolicy,
  noRules,
  type PolicyOf,
  policyRules,
  type RuleNames,
  tableRules,
} from "./rules.ts";
import type { Uplink } from "./uplink.ts";

export const COMMAND_TIMEOUT_MS = 5_000;

export interface FirewallOptions {
  readonly client: () => LauncherClient;
  readonly clock: Clock;
  readonly log: Log;
  readonly uplink: Uplink;
  readonly names: Omit<RuleNames, "opened" | "isUplinkShared" | "dns">;
  /** File for the transaction that nft reads. */
  readonly rules_file: string;
}

export class Firewall {
  readonly #options: FirewallOptions;
  readonly #ports = new Set<number>();
  #dns: DnsPorts | null = null;
  readonly #policies: Policies;
  /** The policies in force; null if they are unknown: the next change makes the table anew. */
  #standing: readonly PolicyOf[] | null = null;
  /** One change of the rules at a time, or an older set could come last. */
  readonly #ruling = new Batching<null>(() => this.#apply());
  /** True once this object has applied its rules. Before, with policies still to be noted, older rules must stay (W1). */
  #isRuled = false;
  #cancelRuling: CancelTimer | null = null;

  constructor(options: FirewallOptions) {
    this.#options = options;
    this.#policies = new Policies(options.uplink);
  }

  /** Applies the first rules, with all policies that `keepPolicy` noted. */
  async begin(): Promise<void> {
    await this.#ruling.add(null);
    this.#isRuled = true;
  }

  /** Lets every container and instance reach a TCP port of the gateway (`Engine.openPort`). */
  async openPort(port: number): Promise<void> {
    this.#ports.add(port);
    this.#standing = null;
    await this.#ruling.add(null);
  }

  /** Leads name queries of members to the ports of the name server. */
  async openNames(dns: DnsPorts): Promise<void> {
    this.#dns = dns;
    this.#standing = null;
    await this.#ruling.add(null);
  }

  get members(): Members {
    return this.#policies.members;
  }

  /** Notes a policy without applying it. */
  keepPolicy(place: Place, policy: NetworkPolicy): void {
    this.#policies.set(place, policy);
  }

  /** Resolves when the policy is in force. `release` ends it, after a failure too. */
  async setPolicy(place: Place, policy: NetworkPolicy): Promise<void> {
    this.keepPolicy(place, policy);
    if (this.#policies.isRestricted(place.address)) await this.#ruling.add(null);
  }

  /** Notes the tenant of an address. Its uplink class and its bucket apply within `attribution_lag_ms`. */
  attribute(place: Place, tenant_id: string): void {
    if (this.#policies.attribute(place, tenant_id)) this.#ruleLater();
  }

  /** Drops the policy of an address. Resolves when `cut` has cut its link and no rule names the address. */
  async release({ address }: Place, cut: () => Promise<void>): Promise<void> {
    const hadPolicy = this.#policies.isRestricted(address);
    this.#policies.delete(address);
    await cut();
    failpoint("engine.network.cut");
    if (hadPolicy) await this.#ruling.add(null);
  }

  /** Policy of an address; `OPEN_POLICY` for one without. */
  policyOf(address: string): NetworkPolicy {
    return this.#policies.policyOf(address);
  }

  /** A TCP port of the gateway that all may reach; null before the first one is open. */
  get openedPort(): number | null {
    return [...this.#ports][0] ?? null;
  }

  /** Makes the table anew, in one transaction. */
  renew(): Promise<void> {
    this.#standing = null;
    return this.#ruling.add(null);
  }

  /** Compares the rules in the kernel with those that hold for all, and for one address. */
  async check({ address }: Place): Promise<readonly NetworkCheck[]> {
    const { names, client } = this.#options;
    const { table } = names;
    const own = this.#policies.all.filter((one) => one.address === address);
    const { isShared: isUplinkShared } = this.#options.uplink;
    const wanted = tableRules({ ...names, opened: [...this.#ports], isUplinkShared, dns: this.#dns }, own);
    const list = async (...argv: string[]) => {
      const { exit_code, stdout } = await client().spawn({ argv: ["nft", ...argv], timeout_ms: COMMAND_TIMEOUT_MS });
      return exit_code === 0 ? stdout : "";
    };
    const maps = elementsIn(own);
    const [found, ...texts] = await Promise.all([
      list("-t", "list", "table", "inet", table),
      ...maps.map(({ kind, name }) => list("list", kind, "inet", table, name)),
    ]);
    return ruleChecks(wanted, found, maps, texts);
  }

  /** Resolves when no rule names these released addresses. */
  async settle(places: readonly Place[]): Promise<void> {
    const addresses = new Set(places.map(({ address }) => address));
    const isRuled = this.#standing === null || this.#standing.some(({ address }) => addresses.has(address));
    if (isRuled) await this.#ruling.add(null);
  }

  /** Number of packets dropped because their container had reached HEARTH_FLOWS_MAX. */
  async flowsRefused(): Promise<number> {
    const argv = ["nft", "-j", "list", "counter", "inet", this.#options.names.table, FLOWS_COUNTER];
    const listed = JSON.parse(await this.#options.client().run(argv, COMMAND_TIMEOUT_MS)) as {
      nftables: readonly { counter?: { packets: number } }[];
    };
    return listed.nftables.find(({ counter }) => counter !== undefined)?.counter?.packets ?? 0;
  }

  /** Cancels a delayed change. Call when nothing runs any more that it could concern. */
  hush(): void {
    this.#cancelRuling?.();
  }

  /** Resolves when no change runs. */
  idle(): Promise<void> {
    return this.#ruling.idle();
  }

  /** Removes the table. */
  remove(): Promise<void> {
    return this.#nft(noRules(this.#options.names.table));
  }

  /** Fairness between tenants may lag, and one change costs as much as many. After a failure the next change makes the table anew. */
  #ruleLater(): void {
    if (!this.#isRuled) return;
    const { clock, log } = this.#options;
    this.#cancelRuling ??= clock.after(LIMITS.attribution_lag_ms, () => {
      this.#cancelRuling = null;
      this.#ruling
        .add(null)
        .catch((error) => log.warn("cannot set the classes and buckets of tenants", { error: errorText(error) }));
    });
  }

  async #apply(): Promise<void> {
    const { names, uplink } = this.#options;
    const policies = this.#policies.all;
    const standing = this.#standing;
    const rules =
      standing !== null
        ? policyRules(names, standing, policies)
        : tableRules({ ...names, opened: [...this.#ports], isUplinkShared: uplink.isShared, dns: this.#dns }, policies);
    if (rules.trim() === "") return;
    // After a failed change the kernel may have either set of rules.
    this.#standing = null;
    failpoint("engine.network.rules");
    await this.#nft(rules);
    this.#standing = policies;
    // Never before the rules that make it harmless (P4 of rules.ts).
    for (const one of policies) {
      if (one.policy.ports.length > 0 && standing?.includes(one) !== true) openLoopback(one.host_interface);
    }
  }

  /** By way of a file: an argument may be 128 KiB at most. */
  async #nft(rules: string): Promise<void> {
    const { rules_file, client } = this.#options;
    writeFileSync(rules_file, rules, { mode: 0o600 });
    await client().run(["nft", "-f", rules_file], COMMAND_TIMEOUT_MS);
  }
}

/** Lets packets with an address of this machine's loopback pass between it and a link. One that is gone needs nothing. */
function openLoopback(link: string): void {
  const file = `/proc/sys/net/ipv4/conf/${link}/route_localnet`;
  if (existsSync(file)) writeFileSync(file, "1");
}
