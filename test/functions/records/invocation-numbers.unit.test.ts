/** Numbers of invocations from blocks that the store reserves. */
import { describe, expect, it } from "vitest";
import { NumberBlocks } from "../../../src/functions/records/invocation-numbers.ts";
import { scratchStores } from "../../store/scratch.ts";
import { eventually } from "../../support/native.ts";

const BLOCK = 1_000_000;

describe("numbers of invocations", () => {
  const scratch = scratchStores();
  const reservedOf = async (store: ReturnType<ReturnType<typeof scratch>["open"]>) =>
    Number((await store.readOne("SELECT value FROM meta WHERE key = 'invocation_number_high'"))?.value);

  it("ascend past the end of a block, which was reserved before", async () => {
    const store = scratch().open();
    const numbers = new NumberBlocks(store);
    expect(await numbers.boot()).toBe(1);
    const take = (count: number): number => {
      let last = 0;
      for (let i = 0; i < count; i++) last = numbers.next();
      return last;
    };
    expect(take(BLOCK / 2 + 10)).toBe(BLOCK / 2 + 10);
    await eventually("the next block is reserved", async () => (await reservedOf(store)) === 2 * BLOCK);
    // A committed block is used when it is durable, which a store that closes waits for.
    await store.close();
    expect(take(BLOCK)).toBe(BLOCK + BLOCK / 2 + 10);
  });

  it("are never the same from two sources of one store", async () => {
    const store = scratch().open();
    const sources = [new NumberBlocks(store), new NumberBlocks(store), new NumberBlocks(store)];
    const firsts = await Promise.all(sources.map((source) => source.boot()));
    expect(firsts.toSorted((a, b) => a - b)).toEqual([1, BLOCK + 1, 2 * BLOCK + 1]);
    expect(await reservedOf(store)).toBe(3 * BLOCK);
  });

  it("are refused when the store does not reserve any", async () => {
    const { open } = scratch();
    const store = open();
    const numbers = new NumberBlocks(store);
    await numbers.boot();
    await store.close();
    for (let i = 0; i < BLOCK; i++) numbers.next();
    expect(() => numbers.next()).toThrow(/cannot reserve invocation numbers/);
  });
});
