/** Which addresses share a bucket of tracked connections. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { DEFAULT_TENANT_ID } from "../../src/base/tenant-limits.ts";
import { Crowds } from "../../src/engine/network/connection-buckets.ts";

const { crowd_buckets } = LIMITS;
const addresses = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `10.0.0.${from + n}`);

describe("buckets of tracked connections", () => {
  it("are none for a tenant with few addresses", () => {
    const crowds = new Crowds();
    for (const address of addresses(crowd_buckets)) expect(crowds.enter(address, "a").size).toBe(0);
    // An address that comes twice counts once.
    expect(crowds.enter("10.0.0.0", "a").size).toBe(0);
    crowds.leave("10.0.0.0");
    expect(crowds.enter("10.0.1.0", "a").size).toBe(0);
  });

  it("hold all addresses of a tenant from the next address on, equally many each", () => {
    const crowds = new Crowds();
    for (const address of addresses(crowd_buckets)) crowds.enter(address, "a");
    const placed = new Map(crowds.enter("10.0.1.0", "a"));
    expect([...placed.keys()].sort()).toEqual([...addresses(crowd_buckets), "10.0.1.0"].sort());
    for (const address of addresses(2 * crowd_buckets - 1, 100)) {
      const entered = crowds.enter(address, "a");
      expect([...entered.keys()]).toEqual([address]);
      for (const [one, bucket] of entered) placed.set(one, bucket);
    }
    const names = [...placed.values()];
    expect(new Set(names).size).toBe(crowd_buckets);
    for (const name of names) expect(names.filter((other) => other === name)).toHaveLength(3);
  });

  it("are each one tenant's, and never named again", () => {
    const crowds = new Crowds();
    const names = ["a", "b", "a"].map((tenant_id, n) => {
      const own = addresses(crowd_buckets + 1, 20 * n);
      const buckets = own.flatMap((address) => [...crowds.enter(address, tenant_id).values()]);
      for (const address of own) crowds.leave(address);
      return buckets;
    });
    expect(new Set(names.flat()).size).toBe(3 * crowd_buckets);
  });

  it("are none for the operator's tenant", () => {
    const crowds = new Crowds();
    for (const address of addresses(4 * crowd_buckets)) {
      expect(crowds.enter(address, DEFAULT_TENANT_ID).size).toBe(0);
    }
  });
});
