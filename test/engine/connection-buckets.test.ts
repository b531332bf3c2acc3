/** Addresses that share a bucket of tracked connections. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { DEFAULT_TENANT_ID } from "../../src/base/tenant-limits.ts";
import { ConnectionBuckets } from "../../src/engine/network/connection-buckets.ts";

const { connection_buckets } = LIMITS;
const addresses = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `10.0.0.${from + n}`);

describe("buckets of tracked connections", () => {
  it("are none for a tenant with few addresses", () => {
    const buckets = new ConnectionBuckets();
    for (const address of addresses(connection_buckets)) expect(buckets.enter(address, "a").size).toBe(0);
    // An address that comes twice counts once.
    expect(buckets.enter("10.0.0.0", "a").size).toBe(0);
    buckets.leave("10.0.0.0");
    expect(buckets.enter("10.0.1.0", "a").size).toBe(0);
  });

  it("hold all addresses of a tenant from the next address on, equally many each", () => {
    const buckets = new ConnectionBuckets();
    for (const address of addresses(connection_buckets)) buckets.enter(address, "a");
    const placed = new Map(buckets.enter("10.0.1.0", "a"));
    expect([...placed.keys()].sort()).toEqual([...addresses(connection_buckets), "10.0.1.0"].sort());
    for (const address of addresses(2 * connection_buckets - 1, 100)) {
      const entered = buckets.enter(address, "a");
      expect([...entered.keys()]).toEqual([address]);
      for (const [one, bucket] of entered) placed.set(one, bucket);
    }
    const names = [...placed.values()];
    expect(new Set(names).size).toBe(connection_buckets);
    for (const name of names) expect(names.filter((other) => other === name)).toHaveLength(3);
  });

  it("are each one tenant's, and never named again", () => {
    const buckets = new ConnectionBuckets();
    const names = ["a", "b", "a"].map((tenant_id, n) => {
      const own = addresses(connection_buckets + 1, 20 * n);
      const entered = own.flatMap((address) => [...buckets.enter(address, tenant_id).values()]);
      for (const address of own) buckets.leave(address);
      return entered;
    });
    expect(new Set(names.flat()).size).toBe(3 * connection_buckets);
  });

  it("are none for the operator's tenant", () => {
    const buckets = new ConnectionBuckets();
    for (const address of addresses(4 * connection_buckets)) {
      expect(buckets.enter(address, DEFAULT_TENANT_ID).size).toBe(0);
    }
  });
});
