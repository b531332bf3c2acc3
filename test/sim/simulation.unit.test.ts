/** The real scheduler through thousands of simulated histories, and the command that shows one of them. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { BUGS, Copy, POOL_URL } from "./bugs.ts";
import { MUST_OCCUR } from "./coverage.ts";
import { replayCommand, runSeeds } from "./seeds.ts";

/** All of them in `npm run check`, which has the processors to itself: the tests on containers run beside these. */
const SEEDS = process.env.npm_lifecycle_event === "check" ? 10_000 : 2_000;
/** For those that start processes and threads, on a machine that has other things to do. */
const timeout = 240_000;

const run = promisify(execFile);
const COMMAND = join(import.meta.dirname, "command.ts");

/** Runs the command; answers its exit code and what it printed. */
async function sim(...args: string[]): Promise<{ code: number; text: string }> {
  try {
    return { code: 0, text: (await run(process.execPath, [COMMAND, ...args])).stdout };
  } catch (error) {
    const { code, stdout } = error as { code: number; stdout: string };
    return { code, text: stdout };
  }
}

test("the scheduler keeps its invariants under every seeded history", { timeout }, async () => {
  const { seeds_count, violation, coverage } = await runSeeds({ first: 1, count: SEEDS });
  const seed = violation?.seed ?? 0;
  expect(violation, `seed ${seed}: ${violation?.message}\nagain with: ${replayCommand(seed)}`).toBeNull();
  expect(seeds_count).toBe(SEEDS);
  // The histories reach everything that can happen, or they prove little; and nothing happens that is not listed.
  expect(Object.keys(coverage).sort()).toEqual([...MUST_OCCUR].sort());
});

test("a seed gives the same history every time", { timeout }, async () => {
  const [first, second] = await Promise.all([1, 2].map(() => runSeeds({ first: 7, count: 1 })));
  expect(first?.steps_count).toBeGreaterThan(50);
  expect(second).toEqual(first);
});

test("every bug that the simulator must find can be planted", () => {
  for (const bug of Object.values(BUGS)) new Copy(bug)[Symbol.dispose]();
});

test("the command counts what happened, as text or as JSON", { timeout }, async () => {
  const { code, text } = await sim("--seed", "3", "--count", "2");
  expect(code).toBe(0);
  expect(text).toMatch(/^2 seeds, \d+ steps, \d+ calls\n/);
  expect(text).toMatch(/served +.*cold \d+.*warm \d+/);
  const report = JSON.parse((await sim("--seed", "3", "--count", "2", "--json")).text);
  expect(report).toEqual(await runSeeds({ first: 3, count: 2, pool_url: POOL_URL }));
});

test("the command prints every event and what came of it", { timeout }, async () => {
  const { text } = await sim("--seed", "3", "--trace");
  expect(text).toMatch(/^call_arrived call=\d+ .*\n {4}(assign|refuse|start) /m);
});

test("the command names the seed, the invariant, the last steps and how to see them again, and fails", {
  timeout,
}, async () => {
  const { code, text } = await sim("--count", "1000", "--bug", "a-deadline-is-forgotten");
  expect(code).toBe(1);
  const [, seed = "", step = ""] = /seed (\d+), step (\d+): P4: .*call \d+/.exec(text) ?? [];
  expect(text).toMatch(/the last steps:\n {2}\w+ /);
  const again = `npm run sim -- --seed ${seed} --bug a-deadline-is-forgotten`;
  expect(text).toContain(`again with: ${again}`);
  const replay = await sim(...again.split(" ").slice(4));
  expect(replay.code).toBe(1);
  expect(replay.text).toContain(`seed ${seed}, step ${step}: P4: `);
});
