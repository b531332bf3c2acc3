/**
 * The networks of containers: what the kernel has of each, checks and mending of them, the address that a container keeps,
 * and the destinations of its egress list. The engine reads and changes the machine; the rows are the containers'.
 *
 * G1 A container changes its address at its next start: its sockets, its namespace and the rules all belong to the one it
 *    has. While it runs only that one can be reserved.
 * G2 A destination is in the store before the packet filter allows it. One that was removed is in no list of the store
 *    before the request ends, and then no packet goes there, of a connection that stood before neither.
 */
import { addressBytes, contains, network } from "../../base/addresses.ts";
import { type Clock, toEpochSeconds } from "../../base/clock.ts";
import { parseAllowRule } from "../../base/egress.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Listed, Place } from "../../base/paging.ts";
import { Shares } from "../../base/shares.ts";
import type { Engine, NetworkCheck } from "../../engine/ports.ts";
import type { Events } from "../../events/service.ts";
import type { Guard, Store, StoredNode } from "../../store/store.ts";
import { ContainerChanges, eventOf } from "../events.ts";
import { type ContainerRow, ContainerRows } from "../rows.ts";
import type { Containers } from "../service.ts";
import type { Addresses } from "./addresses.ts";
import type { ContainerNetwork, NetworkAllocation, NetworkDiagnostics } from "./schema.ts";

/** Networks that no policy opens, beside the machine's own addresses (P1 of src/engine/network/rules.ts). */
const NEVER_REACHED = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"];

export interface ContainerNetworksOptions {
  readonly containers: Containers;
  readonly addresses: Addresses;
  readonly engine: Engine;
  readonly events: Events;
  readonly store: Store;
  readonly node: StoredNode;
  readonly clock: Clock;
}

export class ContainerNetworks {
  readonly #options: ContainerNetworksOptions;
  readonly #rows: ContainerRows;
  readonly #changes: ContainerChanges;
  readonly #reads = new Shares({
    each_max: LIMITS.network_checks_per_tenant_max,
    all_max: Number.POSITIVE_INFINITY,
  });

  constructor(options: ContainerNetworksOptions) {
    this.#options = options;
    this.#rows = new ContainerRows(options.store, options.node);
    this.#changes = new ContainerChanges({ events: options.events, rows: this.#rows });
  }

  /** Lists the addresses of a tenant's containers. A page may have fewer entries than its limit. */
  async allocations(tenant_id: string, page: Place): Promise<Listed<NetworkAllocation>> {
    const { items, last } = await this.#rows.listAddressed(tenant_id, page, (row) => this.#allocation(row));
    return { items: items.filter((item) => item !== null), last };
  }

  #allocation(row: ContainerRow): NetworkAllocation | null {
    const { networks } = this.#options.engine;
    const { ip_address, ...rest } = this.#addressOf(row);
    if (ip_address === null) return null;
    const bridge_interface = networks.common.bridge;
    return { container_id: row.id, container_name: row.name, ip_address, bridge_interface, ...rest };
  }

  /** The fields of a container's address: the present one, else the reserved one. */
  #addressOf(row: ContainerRow): Omit<
    NetworkAllocation,
    "container_id" | "container_name" | "bridge_interface" | "ip_address"
  > & {
    readonly ip_address: string | null;
  } {
    const place = this.#options.engine.networks.place(row.id);
    if (place === null || row.started_at_ms === null) {
      const status = row.reserved_address === null ? null : ("allocated" as const);
      const none = { veth_host: null, veth_container: null, setup_completed: false };
      return {
        ip_address: row.reserved_address,
        ...none,
        allocation_time: row.reserved_at,
        status: status ?? "cleaned",
      };
    }
    return {
      ip_address: place.address,
      veth_host: place.host_interface,
      veth_container: place.interface,
      setup_completed: place.is_linked,
      allocation_time: toEpochSeconds(row.started_at_ms),
      status: place.is_ending ? ("cleanup_pending" as const) : ("active" as const),
    };
  }

  async get(tenant_id: string, id: string): Promise<ContainerNetwork> {
    const row = await this.#options.containers.held(tenant_id, id);
    const { networks } = this.#options.engine;
    const inside = await this.#reading(tenant_id, () => networks.inside(row.id));
    const place = networks.place(row.id);
    const { ip_address, status, ...link } = this.#addressOf(row);
    const { bridge, ...common } = networks.common;
    return {
      container_id: row.id,
      container_name: row.name,
      state: row.state,
      ip_address: place === null ? null : ip_address,
      reserved_address: row.reserved_address,
      addresses: [...(inside?.addresses ?? [])],
      ...common,
      bridge_interface: bridge,
      ...link,
      mac_address: inside?.mac_address ?? null,
      mtu: inside?.mtu ?? null,
      status: ip_address === null ? null : status,
      name_servers: [...(place?.name_servers ?? [])],
      ports: [...row.ports],
      egress: typeof row.egress === "string" ? row.egress : [...row.egress],
      counters: this.#counters(row.id),
    };
  }

  /**
   * Reserves an address, or ends the reservation (null). Throws INVALID_ARGUMENT for an address that no container may have,
   * ADDRESS_TAKEN, WRONG_STATE while the container has another one (G1), QUOTA_EXCEEDED, CAPACITY_FULL.
   */
  async setAddress(tenant_id: string, id: string, address: string | null): Promise<string> {
    const { containers } = this.#options;
    const found = await containers.held(tenant_id, id);
    return containers.inTurn(found.id, async () => {
      const row = await containers.held(tenant_id, found.id);
      if (address === row.reserved_address)
        return address === null ? "no address was reserved" : `${address} was reserved`;
      if (address === null) {
        await this.#write(row, null, false);
        return `${row.reserved_address} is free once the container does not have it`;
      }
      const present = this.#checkAddress(row, address);
      await this.#write(row, address, present === address);
      return present === address
        ? "the container keeps its address"
        : "the container has the address from its next start on";
    });
  }

  /** Returns the address that the container has now; null: none. */
  #checkAddress(row: ContainerRow, address: string): string | null {
    const { containers, networks } = this.#options.engine;
    const { first, last } = networks.addresses;
    if (!networks.isAddress(address)) {
      throw new AppError("INVALID_ARGUMENT", `no address for containers: ${address} (expected ${first} to ${last})`, {
        details: { expected: [`${first}-${last}`], received: address },
      });
    }
    const present = containers.live(row.id)?.address ?? null;
    if (present === address || (present === null && row.state !== "running" && row.state !== "starting"))
      return present;
    throw new AppError(
      "WRONG_STATE",
      `cannot change the address of a container that runs: it has ${present ?? "one"}`,
      {
        details: { state: row.state },
        hint: "stop the container first",
      },
    );
  }

  async #write(row: ContainerRow, address: string | null, isHolder: boolean): Promise<void> {
    const { addresses, clock } = this.#options;
    const now = address === null ? null : toEpochSeconds(clock.epochMs());
    const set: Guard = { statement: this.#rows.setAddress(row.id, address, now), refusal: () => taken(address) };
    const checks = address === null ? [set] : [...this.#roomChecks(row), set];
    const write = () => this.#changes.writeAll(checks, eventOf(row, "address_changed", row.state));
    if (!(await addresses.change(row.id, address, isHolder, write))) throw taken(address);
  }

  #roomChecks({ id, tenant_id }: ContainerRow): readonly Guard[] {
    const { tenant_max, all_max } = this.#options.addresses.bounds;
    const none = Number.MAX_SAFE_INTEGER;
    return [
      {
        statement: this.#rows.addressRoom(tenant_id, id, tenant_max, none),
        refusal: () =>
          new AppError("QUOTA_EXCEEDED", `too many reserved addresses of the tenant (limit ${tenant_max})`, {
            hint: "end other reservations first",
          }),
      },
      {
        statement: this.#rows.addressRoom(tenant_id, id, none, all_max),
        refusal: () =>
          new AppError("CAPACITY_FULL", `too many reserved addresses on this node (limit ${all_max})`, {
            retryable: false,
            hint: "leave the address to the daemon",
          }),
      },
    ];
  }

  async diagnostics(tenant_id: string, id: string): Promise<NetworkDiagnostics> {
    const row = await this.#options.containers.held(tenant_id, id);
    return this.#diagnose(row);
  }

  /** Checks a container and mends what failed. Throws NOT_RUNNING. */
  async setup(tenant_id: string, id: string) {
    const row = await this.#options.containers.held(tenant_id, id);
    const { networks } = this.#options.engine;
    const before = await this.#diagnose(row);
    if (before.checks.some(({ name }) => name === "running" && !before.ok && before.checks.length === 1)) {
      throw new AppError("NOT_RUNNING", `container '${row.name}' is not running`, { details: { state: row.state } });
    }
    if (!before.ok) await this.#reading(tenant_id, () => networks.mend(row, before.checks));
    const after = before.ok ? before : await this.#diagnose(row);
    const failing = (checks: readonly NetworkCheck[]) => checks.filter(({ ok }) => !ok).map(({ name }) => name);
    const found = failing(before.checks);
    const left = failing(after.checks);
    const mended = found.filter((name) => !left.includes(name));
    const message = messageOf(found.length, left);
    return { success: after.ok, message, container_id: row.id, found, mended, checks: after.checks };
  }

  async #diagnose(row: ContainerRow): Promise<NetworkDiagnostics> {
    const { engine, clock } = this.#options;
    const checks = await this.#reading(row.tenant_id, () => engine.networks.check(row));
    const running = (ok: boolean): NetworkCheck => ({
      name: "running",
      ok,
      message: ok ? "the container runs" : `the container does not run: it is ${row.state}`,
    });
    const all = checks === null ? [running(false)] : [running(true), ...checks];
    return {
      container_id: row.id,
      state: row.state,
      ok: all.every(({ ok }) => ok),
      checked_at: toEpochSeconds(clock.epochMs()),
      checks: all,
    };
  }

  async egress(tenant_id: string, id: string) {
    const row = await this.#options.containers.held(tenant_id, id);
    const { networks } = this.#options.engine;
    const { egress } = row;
    return {
      container_id: row.id,
      state: row.state,
      egress: typeof egress === "string" ? egress : [...egress],
      mode: typeof egress === "string" ? egress : ("list" as const),
      destinations: typeof egress === "string" ? [] : [...egress],
      always_refused: [...NEVER_REACHED, networks.common.subnet],
      in_force: networks.isApplied(row),
      counters: this.#counters(row.id),
    };
  }

  /**
   * Adds a destination to a container's egress list, or removes it. Throws WRONG_STATE without a list, INVALID_ARGUMENT for a
   * destination that no policy opens, NOT_FOUND for one that is not in the list, QUOTA_EXCEEDED.
   */
  async changeRoute(tenant_id: string, id: string, destination: string, isAdded: boolean): Promise<string> {
    const { containers, engine } = this.#options;
    const found = await containers.held(tenant_id, id);
    return containers.inTurn(found.id, async () => {
      const row = await containers.held(tenant_id, found.id);
      const egress = changed(row, destination, isAdded, engine.networks.common.subnet);
      if (egress !== null) {
        const set = { statement: this.#rows.setEgress(row.id, egress), refusal: () => gone(id) };
        await this.#changes.writeAll([set], eventOf(row, "egress_changed", row.state));
      }
      // Also where the list is as it was: an earlier request may have failed after the store had it.
      await engine.networks.apply({ ...row, egress: egress ?? row.egress });
      if (isAdded) return egress === null ? `${destination} was allowed already` : `${destination} is allowed`;
      return `${destination} is no longer in the list`;
    });
  }

  #counters(id: string) {
    if (this.#options.engine.containers.live(id) === null) return null;
    const metrics = this.#options.engine.containers.metrics(id);
    return {
      rx_bytes: metrics.network_rx_bytes,
      tx_bytes: metrics.network_tx_bytes,
      rx_packets: metrics.network_rx_packets,
      tx_packets: metrics.network_tx_packets,
      rx_errors: metrics.network_rx_errors,
      tx_errors: metrics.network_tx_errors,
    };
  }

  async #reading<Result>(tenant_id: string, work: () => Promise<Result>): Promise<Result> {
    const give = this.#reads.take(tenant_id, (_, max) => {
      return new AppError("CONCURRENCY_LIMIT", `too many concurrent network checks of the tenant (limit ${max})`, {
        retry_after: 1,
      });
    });
    return work().finally(give);
  }
}

/** Returns the list after a change; null: it stays as it is. */
function changed(row: ContainerRow, destination: string, isAdded: boolean, subnet: string): readonly string[] | null {
  const { egress, name } = row;
  if (typeof egress === "string") {
    throw new AppError("WRONG_STATE", `container '${name}' has no list of destinations: its egress is ${egress}`, {
      details: { state: egress, expected: ["list"] },
      hint: "create the container with a list of destinations as egress",
    });
  }
  if (!isAdded) {
    if (!egress.includes(destination)) {
      throw new AppError("NOT_FOUND", `destination not in the egress list of '${name}': ${destination}`);
    }
    return egress.filter((one) => one !== destination);
  }
  if (egress.includes(destination)) return null;
  const unreachable = [...NEVER_REACHED, subnet].find((one) => isWithin(one, destination));
  if (unreachable !== undefined) {
    throw new AppError("INVALID_ARGUMENT", `destination is never reachable: ${destination} (in ${unreachable})`, {
      details: { received: destination },
    });
  }
  if (egress.length >= LIMITS.egress_rules_max) {
    throw new AppError("QUOTA_EXCEEDED", `too many destinations of '${name}' (limit ${LIMITS.egress_rules_max})`, {
      hint: "remove destinations first",
    });
  }
  return [...egress, destination];
}

/** True if a network contains all addresses of a destination. */
function isWithin(text: string, destination: string): boolean {
  const [outer, inner] = [network(text), parseAllowRule(destination)];
  if (typeof inner === "string" || inner.prefix_length < outer.prefix_bits) return false;
  const bytes = addressBytes(inner.address);
  return bytes !== null && contains(outer, bytes);
}

function messageOf(found_count: number, left: readonly string[]): string {
  if (found_count === 0) return "the network was set up";
  if (left.length === 0) return "the network is set up again";
  return `not mended: ${left.join(", ")}; restart the container`;
}

const gone = (id: string): AppError => new AppError("NOT_FOUND", `container '${id}' not found`);

function taken(address: string | null): AppError {
  return new AppError("ADDRESS_TAKEN", `address already in use: ${address}`, {
    details: { received: address },
    hint: "send another address, or null to get any free one",
  });
}
