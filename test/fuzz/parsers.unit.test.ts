/** The kept inputs of all fuzzed parsers, past failures included, with ASan and UBSan where the parser is in C. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { compileHarness, corpusFiles, HARNESSES, harnessDirectories, harnessOptions } from "./parsers.ts";
import { checkTar, numbers } from "./tar.ts";

const CORPUS_FILES_MAX = 200;

const made = harnessDirectories();

describe("the kept inputs", () => {
  it.each(HARNESSES)(
    "of $name break nothing in the helper",
    (harness) => {
      const program = compileHarness(made.directory, harness, "replay");
      // Read here: the uid of the harness may not reach the checkout.
      const input = corpusFiles(harness.name);
      const { status, stderr } = spawnSync(program, ["-"], {
        ...harnessOptions(made.root),
        input: Buffer.concat(input.flatMap((file) => framed(readFileSync(file)))),
      });
      expect([status, stderr.toString()]).toEqual([0, ""]);
      expect(input.length).toBeGreaterThan(20);
    },
    60_000,
  );

  it("of tar give the same outcome in whatever pieces they come", async () => {
    const files = corpusFiles("tar");
    for (const [seed, file] of files.entries()) await checkTar(readFileSync(file), numbers(seed));
    expect(files.length).toBeGreaterThan(10);
  });

  it("are few", () => {
    const all = ["tar", ...HARNESSES.map(({ name }) => name)].flatMap(corpusFiles);
    expect(all.length).toBeLessThan(CORPUS_FILES_MAX);
  });
});

/** Returns an input in the form that replay.c reads. */
function framed(bytes: Buffer): Buffer[] {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return [length, bytes];
}
