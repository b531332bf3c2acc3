/** The work of the worker threads of `seeds.ts`: some seeds, one after the other, until one breaks an invariant. */
import { addCounts } from "./coverage.ts";
import { type PoolCode, Simulation, Violation } from "./simulation.ts";

export interface Portion {
  readonly first: number;
  readonly count: number;
  /** The folder of the scheduler under test. */
  readonly pool_url: string;
}

export interface SeedsReport {
  /** All that were asked for, or fewer where one broke an invariant. */
  readonly seeds_count: number;
  readonly steps_count: number;
  readonly calls_count: number;
  readonly coverage: Readonly<Record<string, number>>;
  /** The lowest seed that broke an invariant. */
  readonly violation: SeedViolation | null;
}

export interface SeedViolation {
  readonly seed: number;
  readonly step: number;
  readonly message: string;
  /** The last steps before it, a line each. */
  readonly recent: readonly string[];
}

/** The scheduler in a folder: the real one, or a copy with a bug. */
export async function loadPool(pool_url: string): Promise<PoolCode> {
  const { step } = (await import(new URL("scheduler.ts", pool_url).href)) as Pick<PoolCode, "step">;
  const { PoolState } = (await import(new URL("states.ts", pool_url).href)) as Pick<PoolCode, "PoolState">;
  return { step, PoolState };
}

export async function runPortion({ first, count, pool_url }: Portion): Promise<SeedsReport> {
  const code = await loadPool(pool_url);
  const total = { seeds_count: 0, steps_count: 0, calls_count: 0 };
  const coverage: Record<string, number> = {};
  for (let seed = first; seed < first + count; seed++) {
    total.seeds_count += 1;
    try {
      const report = new Simulation(seed, code).run();
      total.steps_count += report.steps_count;
      total.calls_count += report.calls_count;
      addCounts(coverage, report.coverage);
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      const { message, step, recent } = error;
      return { ...total, coverage, violation: { seed, step, message, recent } };
    }
  }
  return { ...total, coverage, violation: null };
}
