/**
 * Addresses that containers keep while they do not run. The engine keeps a reserved address from all others; this file
 * knows the container of each, and how many a tenant may have. Single writer, like the ports: one process knows
 * them, from the rows of its node.
 *
 * D1 An address is reserved in memory before the store has it, and until the store has forgotten it. No other container gets it
 *    in between.
 */
import { LIMITS } from "../../base/limits.ts";
import type { Networks } from "../../engine/ports.ts";

/** A container of this node and the address that it reserved. */
export interface Reservation {
  readonly id: string;
  readonly address: string;
}

export class Addresses {
  readonly #networks: () => Networks;
  /** By the container's id. */
  readonly #reserved: Map<string, string>;

  /** `kept`: what the store has, which the engine was told at its boot. */
  constructor(networks: () => Networks, kept: readonly Reservation[]) {
    this.#networks = networks;
    this.#reserved = new Map(kept.map(({ id, address }) => [id, address]));
  }

  /** Largest numbers of reserved addresses, of one tenant and of all. */
  get bounds(): { readonly tenant_max: number; readonly all_max: number } {
    const { count } = this.#networks().addresses;
    const part = (ratio: number) => Math.max(1, Math.floor(count * ratio));
    return {
      tenant_max: Math.min(LIMITS.reserved_addresses_per_tenant_max, part(LIMITS.reserved_addresses_tenant_ratio)),
      all_max: part(LIMITS.reserved_addresses_ratio),
    };
  }

  /**
   * Reserves an address for a container while `write` stores that, in place of the one that it had; null: ends its
   * reservation. Returns false, with nothing changed, if another has the address (D1). Rejects as `write`.
   */
  async change(id: string, address: string | null, isHolder: boolean, write: () => Promise<void>): Promise<boolean> {
    const networks = this.#networks();
    if (address !== null && !networks.reserve(address, isHolder)) return false;
    try {
      await write();
    } catch (error) {
      if (address !== null) networks.unreserve(address);
      throw error;
    }
    this.release(id);
    if (address !== null) this.#reserved.set(id, address);
    return true;
  }

  /** Ends the reservation of a container, if it has one. */
  release(id: string): void {
    const address = this.#reserved.get(id);
    if (address !== undefined) this.#networks().unreserve(address);
    this.#reserved.delete(id);
  }
}
