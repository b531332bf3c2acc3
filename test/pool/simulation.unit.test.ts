import { expect, test } from "vitest";
import { simulate } from "./simulator.ts";

const SEEDS = 300;
const only = process.env.SEED;
const seeds = only === undefined ? Array.from({ length: SEEDS }, (_, i) => i + 1) : [Number(only)];

test("the scheduler keeps its invariants under every seeded history", () => {
  const removed = new Set<string>();
  const codes = new Set<string>();
  let warm = 0;
  let cold = 0;
  for (const seed of seeds) {
    const report = simulate(seed);
    for (const reason of report.removed) removed.add(reason);
    for (const code of report.refusal_codes) codes.add(code);
    warm += report.warm;
    cold += report.cold;
  }
  if (only !== undefined) return;
  // The histories reach every way that an instance ends and every refusal, or they prove little.
  const reasons = [
    "crashed",
    "drained",
    "dropped",
    "evicted",
    "expired",
    "start_failed",
    "stuck",
    "surplus",
    "used_up",
  ];
  expect([...removed].sort()).toEqual(reasons);
  const refusals = ["CAPACITY_FULL", "NOT_FOUND", "QUEUE_FULL", "QUEUE_TIMEOUT", "SHUTTING_DOWN", "START_FAILED"];
  expect([...codes].sort()).toEqual([...refusals, "WRONG_STATE"]);
  expect(warm).toBeGreaterThan(5_000);
  expect(cold).toBeGreaterThan(1_000);
});

test("a seed gives the same history every time", () => {
  expect(simulate(7)).toEqual(simulate(7));
});
