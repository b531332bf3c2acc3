/** Places for work on behalf of tenants. */
import { describe, expect, it } from "vitest";
import { TenantSlots } from "../../src/icc/tenant-slots.ts";

const settle = () => new Promise((resolve) => setImmediate(resolve));

describe("places of tenants", () => {
  it("are bounded of each tenant and in all, and go round", async () => {
    const slots = new TenantSlots({ all_max: 3, tenant_max: 2 });
    const order: string[] = [];
    const ends: (() => void)[] = [];
    const take = (tenant_id: string) =>
      slots.take(tenant_id).then((end) => {
        order.push(tenant_id);
        ends.push(end);
      });
    for (let i = 0; i < 4; i++) void take("a");
    await settle();
    expect(order).toEqual(["a", "a"]);
    for (let i = 0; i < 3; i++) void take("b");
    await settle();
    expect(order).toEqual(["a", "a", "b"]);
    ends.shift()?.();
    await settle();
    // Two of a tenant wait, and both tenants are below their bound: the one that had a place last is last.
    expect(order.at(-1)).toBe("a");
    ends.shift()?.();
    await settle();
    expect(order.at(-1)).toBe("b");
  });

  it("are never all of others': a tenant without a call has one place above them", async () => {
    const slots = new TenantSlots({ all_max: 4, tenant_max: 2 });
    for (const tenant_id of ["a", "a", "b", "b"]) await slots.take(tenant_id);
    let taken = 0;
    const first = await slots.take("c");
    void slots.take("c").then(() => taken++);
    await settle();
    expect(taken).toBe(0);
    first();
    await settle();
    expect(taken).toBe(1);
  });

  it("come back once, however often they are given back", async () => {
    const slots = new TenantSlots({ all_max: 1, tenant_max: 1 });
    const end = await slots.take("a");
    end();
    end();
    await slots.take("a");
    let taken = 0;
    void slots.take("a").then(() => taken++);
    await settle();
    expect(taken).toBe(0);
  });
});
