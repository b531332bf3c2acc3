/**
 * Fuzzes the parsers of what other programs send, 20 seconds each from the kept inputs: frames of minit and the
 * launcher, requests of `minit files`, messages to `minit adapter`, tar. A failure shows its input; kept in `corpus/<parser>/regression-<what>`, it
 * runs in the unit tests.
 *
 * `HEARTH_FUZZ_SECONDS` sets the time. `HEARTH_FUZZ_KEEP=1` puts inputs that reach more of the helper into the corpora.
 */
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { cpSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  compileHarness,
  corpusDirectory,
  corpusFiles,
  HARNESSES,
  harnessDirectories,
  harnessDirectory,
  harnessOptions,
} from "./parsers.ts";
import { fuzzTar } from "./tar.ts";

const SECONDS = Number(process.env.HEARTH_FUZZ_SECONDS ?? 10);
/** Compiling and merging take the rest. */
const TEST_MS_MAX = (SECONDS + 280) * 1_000;
const INPUT_BYTES_MAX = 4_096;
/** Minimum on one of two cores with other load. */
const RUNS_PER_SECOND_MIN = 100;

const made = harnessDirectories();

/** Runs a fuzzer and returns its output. Throws the end of the output if the fuzzer fails. */
async function run(program: string, argv: readonly string[], options: object): Promise<string> {
  const child = spawn(program, argv, { ...options, stdio: ["ignore", "ignore", "pipe"] });
  const parts: Buffer[] = [];
  child.stderr.on("data", (part) => parts.push(part));
  const status = await new Promise((resolve, reject) => child.once("close", resolve).once("error", reject));
  const text = Buffer.concat(parts).toString();
  if (status !== 0) throw new Error(`it ended with ${status}\n${text.slice(-6_000)}`);
  return text;
}

describe("the parser", { timeout: TEST_MS_MAX }, () => {
  it.each(HARNESSES)("of $name stands whatever it reads", async (harness) => {
    const program = compileHarness(made.directory, harness, "fuzzer");
    const [found, seeds] = ["found", "seeds"].map((part) =>
      harnessDirectory(join(made.directory, `${harness.name}-${part}`)),
    ) as [string, string];
    // Copied: the uid of the harness may not reach the checkout.
    cpSync(corpusDirectory(harness.name), seeds, { recursive: true });
    const options = { ...harnessOptions(made.root), cwd: found };
    const time = [`-max_total_time=${SECONDS}`, `-max_len=${INPUT_BYTES_MAX}`, "-print_final_stats=1", "-timeout=10"];
    const said = await run(program, [...time, found, seeds], options);
    const runs = Number(/number_of_executed_units: (\d+)/.exec(said)?.[1]);
    process.stdout.write(`${harness.name}: ${runs} inputs in ${SECONDS} s\n`);
    expect(runs).toBeGreaterThan(RUNS_PER_SECOND_MIN * SECONDS);
    if (process.env.HEARTH_FUZZ_KEEP !== "1") return;
    const before = new Set(readdirSync(seeds));
    const coarse = ["-set_cover_merge=1", "-use_counters=0", "-use_cmp=0", `-max_len=${INPUT_BYTES_MAX}`];
    await run(program, [...coarse, seeds, found], options);
    for (const name of readdirSync(seeds).filter((name) => !before.has(name))) {
      cpSync(join(seeds, name), join(corpusDirectory(harness.name), name));
    }
  });

  it("of tar stands whatever it reads", async () => {
    const end = performance.now() + SECONDS * 1000;
    const seeds = corpusFiles("tar").map((file) => readFileSync(file));
    const { count, kinds } = await fuzzTar(seeds, randomInt(2 ** 31), () => performance.now() > end);
    process.stdout.write(`tar: ${count} inputs in ${SECONDS} s, ${kinds} kinds of outcomes\n`);
    expect(count).toBeGreaterThan(RUNS_PER_SECOND_MIN * SECONDS);
  });
});
