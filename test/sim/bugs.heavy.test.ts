/** The simulator itself is tested: it finds bugs that are planted into the real scheduler, each a changed line. */
import { describe, expect, test } from "vitest";
import { BUGS, type BugName, Copy } from "./bugs.ts";
import { runSeeds } from "./seeds.ts";

const SEEDS_MAX = 1_000;

describe("the simulator", { timeout: 60_000 }, () => {
  const needed = { seeds_count: 1 };

  test.for(Object.keys(BUGS) as BugName[])("finds within a thousand seeds that %s", async (name, { annotate }) => {
    using copy = new Copy(BUGS[name]);
    const { violation } = await runSeeds({ first: 1, count: SEEDS_MAX, pool_url: copy.url });
    expect(violation, `${name} is not found in ${SEEDS_MAX} seeds`).not.toBeNull();
    const { seed = 0, message = "" } = violation ?? {};
    needed.seeds_count = Math.max(needed.seeds_count, seed);
    await annotate(`${name} took ${seed} seeds: ${message}`);
  });

  test("finds nothing by the same seeds in a copy without a bug", async () => {
    using copy = new Copy(null);
    const { violation, seeds_count } = await runSeeds({ first: 1, count: needed.seeds_count, pool_url: copy.url });
    expect(violation).toBeNull();
    expect(seeds_count).toBe(needed.seeds_count);
  });

  test("refuses to plant a bug where its line is not found", () => {
    expect(() => new Copy({ file: "queue.ts", line: "no such line", instead: "" })).toThrow(/queue.ts has 0 times/);
  });
});
