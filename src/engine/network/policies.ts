/** The policies of slots in use, each with what its tenant adds: a class of the uplink, a bucket of connections. */
import { ConnectionBuckets } from "./connection-buckets.ts";
import { Members } from "./members.ts";
import { type NetworkPolicy, OPEN_POLICY, type PolicyOf } from "./rules.ts";
import type { Uplink } from "./uplink.ts";

/** A slot, as its rules name it. */
export interface Place {
  readonly address: string;
  readonly host_interface: string;
}

export class Policies {
  readonly #uplink: Uplink;
  readonly #buckets = new ConnectionBuckets();
  /** Containers in private networks, and containers with names. */
  readonly members = new Members();
  /** Only those that need a rule, by address. */
  readonly #policies = new Map<string, PolicyOf>();
  /** Links of the addresses that a tenant has. */
  readonly #links = new Map<string, string>();

  constructor(uplink: Uplink) {
    this.#uplink = uplink;
  }

  /** A policy that did not change is the same object as before. */
  get all(): readonly PolicyOf[] {
    return [...this.#policies.values()];
  }

  set(place: Place, policy: NetworkPolicy): void {
    const { egress, ports, member } = policy;
    const marks = member === undefined ? null : this.members.enter(place.address, { ...member, egress });
    if (egress === "on" && ports.length === 0 && marks === null) return;
    this.#change(place, { policy, marks });
  }

  /** Notes the tenant of a slot. Returns true if the rules have to change. `delete` ends it. */
  attribute(place: Place, tenant_id: string): boolean {
    const { address, host_interface } = place;
    this.#links.set(address, host_interface);
    const entered = this.#buckets.enter(address, tenant_id);
    for (const [one, bucket] of entered) {
      this.#change({ address: one, host_interface: this.#links.get(one) ?? "" }, { bucket });
    }
    if (this.#uplink.isShared) this.#change(place, { uplink_class: this.#uplink.enter(address, tenant_id) });
    return this.#uplink.isShared || entered.size > 0;
  }

  /** Policy of an address; `OPEN_POLICY` for one without. */
  policyOf(address: string): NetworkPolicy {
    return this.#policies.get(address)?.policy ?? OPEN_POLICY;
  }

  /** True if a container has a policy of its own. */
  isRestricted(address: string): boolean {
    return this.policyOf(address) !== OPEN_POLICY;
  }

  delete(address: string): void {
    this.#policies.delete(address);
    this.#links.delete(address);
    this.members.leave(address);
    this.#buckets.leave(address);
    this.#uplink.leave(address);
  }

  #change(place: Place, change: Partial<Pick<PolicyOf, "policy" | "uplink_class" | "bucket" | "marks">>): void {
    const { address, host_interface } = place;
    const before = this.#policies.get(address) ?? NONE;
    this.#policies.set(address, { ...before, address, host_interface, ...change });
  }
}

const NONE: Pick<PolicyOf, "policy" | "uplink_class" | "bucket" | "marks"> = {
  policy: OPEN_POLICY,
  uplink_class: null,
  bucket: null,
  marks: null,
};
