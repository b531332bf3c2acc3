/** The bodies of the bench with a handful of samples, so that they cannot rot. The figures are not looked at. */
import { describe, expect, it } from "vitest";
import { benchBurst } from "../../bench/burst.ts";
import { benchCold } from "../../bench/cold.ts";
import { describeMachine, headerText, type Section, sectionText } from "../../bench/report.ts";
import { benchRestart } from "../../bench/restart.ts";
import { median, percentile, poissonArrivals, summarize } from "../../bench/stats.ts";
import { benchSustained } from "../../bench/sustained.ts";
import { benchWarm } from "../../bench/warm.ts";

/** Every call succeeded, every bar has a figure, and the section prints. */
function expectSound(section: Section): void {
  expect(section.failures).toEqual({});
  for (const bar of section.bars) expect(bar.value, bar.label).toBeTypeOf("number");
  for (const bar of section.bars) expect(Number.isFinite(bar.value), bar.label).toBe(true);
  expect(sectionText(section)).toContain(section.title);
}

function counts(section: Section): Record<string, number> {
  return Object.fromEntries(section.rows.map((row) => [row.label, row.summary.count]));
}

describe("bench", () => {
  it("names the machine, the runtimes and what it leaves out", async () => {
    const text = headerText(await describeMachine());
    expect(text).toMatch(/crun version \d/);
    expect(text).toMatch(/runc version \d/);
    expect(text).toContain("not measured");
  });

  it("takes cold samples with a cell, without one, of crun and of runc", async () => {
    const section = await benchCold({ rounds_count: 1, samples_per_round: 3 });
    expectSound(section);
    expect(Object.values(counts(section))).toEqual([3, 3, 3, 3, 3]);
  }, 120_000);

  it("counts hits and misses of calls that outrun the cells", async () => {
    const section = await benchSustained({ rounds_count: 1, functions_count: 20 });
    expectSound(section);
    const [hits = 0, misses = 0, crun = 0] = Object.values(counts(section));
    expect([hits + misses, crun]).toEqual([20, 20]);
    expect(hits).toBeGreaterThan(0);
  }, 120_000);

  it("loads hearth and the spawn-cat server in closed and in open loop", async () => {
    const section = await benchWarm({ rounds_count: 1, warmup_ms: 200, length_ms: 300 });
    expectSound(section);
    expect(section.rows).toHaveLength(7);
    for (const row of section.rows) expect(row.summary.count, row.label).toBeGreaterThan(0);
  }, 120_000);

  it("answers every call of a burst", async () => {
    const section = await benchBurst({ rounds_count: 1, calls_count: 20 });
    expectSound(section);
    expect(counts(section)).toEqual({ "each call": 20, "last answer": 1 });
  }, 120_000);

  it("restarts a daemon and waits until it is gone", async () => {
    const section = await benchRestart({ samples_count: 1 });
    expectSound(section);
    expect(counts(section)).toEqual({ ready: 1, "gone after SIGTERM": 1 });
  }, 120_000);
});

describe("bench statistics", () => {
  it("take the nearest rank, which is always a sample", () => {
    const samples = Array.from({ length: 100 }, (_, i) => 100 - i);
    expect(summarize(samples)).toEqual({ count: 100, p50: 50, p90: 90, p99: 99, max: 100 });
    expect(median([3, 1, 2])).toBe(2);
    expect(percentile([7], 99)).toBe(7);
    expect(percentile([], 50)).toBeNaN();
  });

  it("draw the same Poisson arrivals from the same seed, at the rate that was asked for", () => {
    const arrivals = poissonArrivals(500, 20_000, 7);
    expect(arrivals).toEqual(poissonArrivals(500, 20_000, 7));
    expect(arrivals).not.toEqual(poissonArrivals(500, 20_000, 8));
    // 10,000 expected with a standard deviation of 100.
    expect(Math.abs(arrivals.length - 10_000)).toBeLessThan(500);
    expect([...arrivals]).toEqual([...arrivals].sort((a, b) => a - b));
  });
});
