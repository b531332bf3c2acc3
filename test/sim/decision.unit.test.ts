/** The bench of one scheduling decision with a handful of samples, so that it cannot rot. The figures are not looked at. */
import { expect, test } from "vitest";
import { benchDecision } from "../../bench/decision.ts";
import { sectionText } from "../../bench/text.ts";

test("the bench of a decision takes its samples of every subject and size, and prints", async () => {
  const sizes = [10, 50];
  const section = await benchDecision({ rounds_count: 2, samples_per_round: 3, cycles_per_sample: 60, sizes });
  expect(section.rows.map((row) => row.summary.count)).toEqual(Array.from({ length: 12 }, () => 6));
  for (const row of section.rows) expect(row.summary.p50, row.label).toBeGreaterThan(0);
  for (const bar of section.bars) expect(Number.isFinite(bar.value), bar.label).toBe(true);
  expect(section.failures).toEqual({});
  expect(sectionText(section)).toContain(section.title);
});
