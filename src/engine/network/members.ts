/**
 * Containers that are in a private network or have names, by address and by name. A container is one from the moment
 * before its first process starts until its link is cut (W1 of firewall.ts).
 *
 * M1 The members of a network have the same tenant and named the same network. A network, and a tenant, has a number that
 *    no other one gets while this process lives.
 * M2 A name leads to at most one container of a tenant, to its newest run.
 */
import type { AllowRule } from "../../base/egress.ts";

/** A container as private networks and names see it. JSON. */
export interface Member {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  /** Name of its private network; null: it is in none. */
  readonly network: string | null;
  /** True if it shares its name with all containers of its tenant that do the same. */
  readonly dns: boolean;
}

/** A member with its place. */
export interface PlacedMember extends Member {
  readonly address: string;
  readonly egress: "on" | "off" | readonly AllowRule[];
}

/** Numbers of a tenant and of a private network in the packet filter. */
export interface Marks {
  readonly tenant: number;
  readonly network: number | null;
}

export class Members {
  readonly #members = new Map<string, PlacedMember>();
  /** Addresses by tenant and name (M2). */
  readonly #names = new Map<string, string>();
  readonly #marks = new Map<string, { readonly mark: number; count: number }>();
  /** Numbers given so far; 0 means none. */
  #marks_count = 0;

  /** Notes a member until `leave`. Returns the numbers that the packet filter knows it by. */
  enter(address: string, member: Omit<PlacedMember, "address">): Marks {
    this.leave(address);
    const { id, tenant_id, name, network, dns, egress } = member;
    this.#members.set(address, { id, tenant_id, name, network, dns, egress, address });
    this.#names.set(keyOf(tenant_id, name), address);
    return {
      tenant: this.#takeMark(tenant_id),
      network: network === null ? null : this.#takeMark(keyOf(tenant_id, network)),
    };
  }

  leave(address: string): void {
    const member = this.#members.get(address);
    if (member === undefined) return;
    const { tenant_id, name, network } = member;
    this.#members.delete(address);
    if (this.#names.get(keyOf(tenant_id, name)) === address) this.#names.delete(keyOf(tenant_id, name));
    this.#dropMark(tenant_id);
    if (network !== null) this.#dropMark(keyOf(tenant_id, network));
  }

  /** Gives a container another name. Returns false if it is no member. */
  rename(id: string, new_name: string): boolean {
    const member = [...this.#members.values()].findLast((one) => one.id === id);
    if (member === undefined) return false;
    const { tenant_id, name, address } = member;
    if (this.#names.get(keyOf(tenant_id, name)) === address) this.#names.delete(keyOf(tenant_id, name));
    this.#members.set(address, { ...member, name: new_name });
    this.#names.set(keyOf(tenant_id, new_name), address);
    return true;
  }

  /** Null: the address is no member's. */
  at(address: string): PlacedMember | null {
    return this.#members.get(address) ?? null;
  }

  /** Null: no member of the tenant has the name. */
  named(tenant_id: string, name: string): PlacedMember | null {
    const address = this.#names.get(keyOf(tenant_id, name));
    return address === undefined ? null : this.at(address);
  }

  /** In the order in which they started. */
  ofTenant(tenant_id: string): readonly PlacedMember[] {
    return [...this.#members.values()].filter((one) => one.tenant_id === tenant_id);
  }

  #takeMark(key: string): number {
    const mark = this.#marks.get(key) ?? { mark: ++this.#marks_count, count: 0 };
    mark.count++;
    this.#marks.set(key, mark);
    return mark.mark;
  }

  #dropMark(key: string): void {
    const mark = this.#marks.get(key);
    if (mark !== undefined && --mark.count === 0) this.#marks.delete(key);
  }
}

/** Ids of tenants and names of networks and containers have no '/'. */
const keyOf = (tenant_id: string, name: string): string => `${tenant_id}/${name}`;
