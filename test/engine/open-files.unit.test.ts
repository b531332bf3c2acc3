import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { checkOpenFiles } from "../../src/engine/kernel/open-files.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "hearth-files-"));
  mkdirSync(join(root, "self"));
});
afterEach(() => rmSync(root, { recursive: true }));

const limit = (hard: string) =>
  writeFileSync(
    join(root, "self/limits"),
    `Limit                     Soft Limit           Hard Limit           Units\nMax open files            256                  ${hard.padEnd(20)} files\n`,
  );

describe("the limit of open files", () => {
  it("fails the start with the remedy if containers could not get theirs", () => {
    limit("400");
    expect(() => checkOpenFiles(root)).toThrow("hard limit of open files too low: 400 (at least 16384)");
    expect(() => checkOpenFiles(root)).toThrow(expect.objectContaining({ hint: expect.stringContaining("ulimit -n") }));
  });

  it.each([String(LIMITS.container_files_max), "1048576", "unlimited"])("passes: %s", (hard) => {
    limit(hard);
    expect(() => checkOpenFiles(root)).not.toThrow();
  });

  it("of this machine is read", () => {
    expect(() => checkOpenFiles()).not.toThrow();
  });
});
