/**
 * `npm run bench [-- --quick] [-- --json FILE] [-- --only cold,warm]`: measures hearth against what it is compared
 * with, in one run and in alternating order, and prints a table. Bars are ratios within the run, so that they hold on
 * any machine; a bar that is not met is printed as such and is no failure of the program.
 *
 * Full: at least 300 cold and 3,000 warm samples, some ten minutes. `--quick`: under two minutes, for a first look.
 * `--json` writes every sample. Use a machine that has nothing else to do.
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { benchBurst } from "./burst.ts";
import { benchCold } from "./cold.ts";
import { describeMachine, headerText, type Section, sectionText } from "./report.ts";
import { benchRestart } from "./restart.ts";
import { benchSustained } from "./sustained.ts";
import { benchWarm } from "./warm.ts";

const { values: flags } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "string" },
    only: { type: "string" },
    // Read by `readDirectories`: where set-up has put things.
    "data-dir": { type: "string" },
    "image-dir": { type: "string" },
  },
});

/** In quick mode a fraction of the samples; the bodies are the same. */
function size<T>(full: T, quick: T): T {
  return flags.quick ? quick : full;
}

const BENCHES: Readonly<Record<string, () => Promise<Section>>> = {
  cold: () => benchCold({ rounds_count: size(4, 2), samples_per_round: size(75, 15) }),
  sustained: () => benchSustained({ rounds_count: size(3, 1), functions_count: size(200, 100) }),
  warm: () => benchWarm({ rounds_count: size(3, 1), warmup_ms: size(1_000, 500), length_ms: size(5_000, 2_500) }),
  burst: () => benchBurst({ rounds_count: size(5, 2), calls_count: 100 }),
  restart: () => benchRestart({ samples_count: size(10, 3) }),
};

const names = flags.only?.split(",") ?? Object.keys(BENCHES);
const header = await describeMachine();
process.stdout.write(`hearth bench${flags.quick ? " (quick: few samples)" : ""}\n${headerText(header)}\n`);
const sections: Record<string, Section> = {};
for (const name of names) {
  const bench = BENCHES[name];
  if (bench === undefined) throw new Error(`no bench '${name}', there are ${Object.keys(BENCHES).join(", ")}`);
  const section = await bench();
  sections[name] = section;
  process.stdout.write(`${sectionText(section)}\n`);
}
if (flags.json !== undefined) writeFileSync(flags.json, JSON.stringify({ header, sections }));
