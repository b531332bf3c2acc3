/**
 * `npm run sim -- --seed N [--count M] [--json] [--trace] [--bug NAME]`: runs the real scheduler through the simulated
 * histories of M seeds from N on (one unless given) and prints what happened. A broken invariant is printed with its
 * seed, what led to it and how to see it again; the exit code is then 1. `--trace` prints every event and what came of
 * it. `--bug` runs a copy of the scheduler with one of the bugs of `bugs.ts` instead.
 */
import { parseArgs } from "node:util";
import { BUGS, type Bug, Copy, isBug, POOL_URL } from "./bugs.ts";
import { loadPool, type SeedsReport } from "./seed-thread.ts";
import { replayCommand, runSeeds } from "./seeds.ts";
import { Simulation, Violation } from "./simulation.ts";

const { values: flags } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    count: { type: "string", default: "1" },
    json: { type: "boolean", default: false },
    trace: { type: "boolean", default: false },
    bug: { type: "string" },
  },
});

function whole(name: "seed" | "count", min: number): number {
  const value = Number(flags[name]);
  if (!Number.isSafeInteger(value) || value < min) throw new Error(`--${name} is '${flags[name]}', not a whole number`);
  return value;
}

function bugOf(name: string | undefined): Bug | null {
  if (name === undefined) return null;
  if (!isBug(name)) throw new Error(`no bug '${name}', there are ${Object.keys(BUGS).join(", ")}`);
  return BUGS[name];
}

/** Every event of one seed and what came of it. */
async function trace(seed: number, pool_url: string): Promise<void> {
  const simulation = new Simulation(seed, await loadPool(pool_url), (line) => process.stdout.write(`${line}\n`));
  try {
    simulation.run();
  } catch (error) {
    // It is printed with the report.
    if (!(error instanceof Violation)) throw error;
  }
}

function reportText(report: SeedsReport): string {
  const lines = [`${report.seeds_count} seeds, ${report.steps_count} steps, ${report.calls_count} calls`];
  const kinds = Object.groupBy(Object.entries(report.coverage), ([what]) => what.slice(0, what.indexOf(" ")));
  for (const [kind, counts = []] of Object.entries(kinds).sort()) {
    const named = counts.map(([what, count]) => `${what.slice(kind.length + 1)} ${count}`).sort();
    lines.push(`  ${kind.padEnd(10)} ${named.join(", ")}`);
  }
  const { violation } = report;
  if (violation === null) return lines.join("\n");
  const { seed, step, message, recent } = violation;
  lines.push("", `seed ${seed}, step ${step}: ${message}`, "the last steps:", ...recent.map((line) => `  ${line}`));
  lines.push(`again with: ${replayCommand(seed, flags.bug ?? null)} --trace`);
  return lines.join("\n");
}

// Whoever reads (`| head`) may have read enough: the run goes on to its exit code, and its copy is removed.
process.stdout.on("error", () => {});
const request = { first: whole("seed", 0), count: whole("count", 1) };
const bug = bugOf(flags.bug);
using copy = bug === null ? null : new Copy(bug);
const pool_url = copy?.url ?? POOL_URL;
if (flags.trace) await trace(request.first, pool_url);
const report = await runSeeds({ ...request, pool_url });
process.stdout.write(`${flags.json ? JSON.stringify(report) : reportText(report)}\n`);
process.exitCode = report.violation === null ? 0 : 1;
