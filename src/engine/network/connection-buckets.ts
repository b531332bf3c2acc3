/**
 * The bound of tracked connections of a tenant that has many addresses (P8 of rules.ts). The addresses of such a tenant
 * share buckets: the kernel counts the connections of a bucket together, and a bucket has as many as one address may
 * have. Counting walks a list as long as the bucket, so one bucket for a whole tenant would cost too much.
 *
 * C1 A tenant with at most `connection_buckets` addresses has no buckets: the bounds of its addresses are enough.
 * C2 An address stays in its bucket until its release. A tenant keeps its buckets until its last address is released.
 * C3 The operator's tenant has no buckets: it may use the whole node.
 */
import { LIMITS } from "../../base/limits.ts";
import { DEFAULT_TENANT_ID } from "../../base/tenant-limits.ts";

interface TenantAddresses {
  readonly addresses: Set<string>;
  /** Names of the buckets, each with its addresses; empty as long as the tenant needs none (C1). */
  buckets: readonly Bucket[];
}

interface Bucket {
  readonly name: string;
  readonly addresses: Set<string>;
}

export class ConnectionBuckets {
  readonly #holders = new Map<string, TenantAddresses>();
  /** The tenant of each address. */
  readonly #tenants = new Map<string, string>();
  /** Buckets made so far: a name is never used again. */
  #made_count = 0;

  /** Notes that a tenant has an address, until `leave`. Returns the addresses that enter a bucket now, each with its name. */
  enter(address: string, tenant_id: string): ReadonlyMap<string, string> {
    this.leave(address);
    if (tenant_id === DEFAULT_TENANT_ID) return new Map();
    const holder = this.#holders.get(tenant_id) ?? { addresses: new Set(), buckets: [] };
    this.#holders.set(tenant_id, holder);
    this.#tenants.set(address, tenant_id);
    holder.addresses.add(address);
    if (holder.buckets.length > 0) return new Map([[address, place(address, holder.buckets)]]);
    if (holder.addresses.size <= LIMITS.connection_buckets) return new Map();
    holder.buckets = Array.from({ length: LIMITS.connection_buckets }, () => this.#makeBucket());
    return new Map([...holder.addresses].map((one) => [one, place(one, holder.buckets)]));
  }

  leave(address: string): void {
    const tenant_id = this.#tenants.get(address);
    const holder = tenant_id === undefined ? undefined : this.#holders.get(tenant_id);
    if (tenant_id === undefined || holder === undefined) return;
    this.#tenants.delete(address);
    holder.addresses.delete(address);
    for (const bucket of holder.buckets) bucket.addresses.delete(address);
    if (holder.addresses.size === 0) this.#holders.delete(tenant_id);
  }

  #makeBucket(): Bucket {
    return { name: `bucket_${++this.#made_count}`, addresses: new Set() };
  }
}

/** Puts an address into the bucket with the fewest. Returns its name. */
function place(address: string, buckets: readonly Bucket[]): string {
  const bucket = buckets.reduce((least, one) => (one.addresses.size < least.addresses.size ? one : least));
  bucket.addresses.add(address);
  return bucket.name;
}
