/**
 * Many seeds at once, on all processors: hands out portions of seeds to worker threads (`seed-thread.ts`) and adds up
 * what they report. The first seed that breaks an invariant ends the run, whichever thread found it.
 */
import { availableParallelism } from "node:os";
import { Piscina } from "piscina";
import { POOL_URL } from "./bugs.ts";
import { addCounts } from "./coverage.ts";
import type { Portion, SeedsReport, SeedViolation } from "./seed-thread.ts";

/** Seeds a thread takes at a time, some 100 ms. */
const PORTION = 50;

export interface SeedsRequest extends Omit<Portion, "pool_url"> {
  /** The real scheduler unless given. */
  readonly pool_url?: string;
}

/** The command that shows a seed again. */
export function replayCommand(seed: number, bug: string | null = null): string {
  return `npm run sim -- --seed ${seed}${bug === null ? "" : ` --bug ${bug}`}`;
}

export async function runSeeds({ first, count, pool_url = POOL_URL }: SeedsRequest): Promise<SeedsReport> {
  const end = first + count;
  const lanes_count = Math.min(availableParallelism(), Math.ceil(count / PORTION));
  const threads = new Piscina<Portion, SeedsReport>({
    filename: new URL("./seed-thread.ts", import.meta.url).href,
    minThreads: lanes_count,
    maxThreads: lanes_count,
  });
  const total = { seeds_count: 0, steps_count: 0, calls_count: 0 };
  const coverage: Record<string, number> = {};
  const violations: SeedViolation[] = [];
  let next = first;
  // Portions are begun in their order: none below the one that is found broken is left out.
  const lane = async (): Promise<void> => {
    while (next < end && violations.length === 0) {
      const portion = { first: next, count: Math.min(PORTION, end - next), pool_url };
      next += portion.count;
      const report = await threads.run(portion, { name: "runPortion" });
      total.seeds_count += report.seeds_count;
      total.steps_count += report.steps_count;
      total.calls_count += report.calls_count;
      addCounts(coverage, report.coverage);
      if (report.violation !== null) violations.push(report.violation);
    }
  };
  try {
    await Promise.all(Array.from({ length: lanes_count }, lane));
  } finally {
    await threads.destroy();
  }
  violations.sort((a, b) => a.seed - b.seed);
  return { ...total, coverage, violation: violations[0] ?? null };
}
