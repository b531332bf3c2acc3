/** The error table: well formed, and every code is produced and named by some test. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ERRORS } from "../src/base/errors.ts";

const ROOT = join(import.meta.dirname, "..");

describe("the error table", () => {
  it("gives each code a status of an error, and marks as retryable only what the platform may mend", () => {
    for (const [code, { status, fault, retryable }] of Object.entries(ERRORS)) {
      expect([code, status >= 400 && status < 600]).toEqual([code, true]);
      if (retryable) expect([code, fault]).toEqual([code, "platform"]);
    }
  });

  it("holds no code that no test produces", () => {
    const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "test"], { cwd: ROOT })
      .toString()
      .split("\n")
      .filter((file) => /\.test\.ts$/.test(file) && file !== "test/errors.test.ts");
    const tests = files.map((file) => readFileSync(join(ROOT, file), "utf8")).join("\n");
    expect(Object.keys(ERRORS).filter((code) => !tests.includes(`"${code}"`))).toEqual([]);
  });

  it("holds no code that no source names", () => {
    const sources = execFileSync("git", ["ls-files", "src", "pool", "runtimes"], { cwd: ROOT })
      .toString()
      .split("\n")
      .filter((file) => /\.ts$/.test(file) && file !== "src/base/errors.ts");
    const text = sources.map((file) => readFileSync(join(ROOT, file), "utf8")).join("\n");
    expect(Object.keys(ERRORS).filter((code) => !text.includes(`"${code}"`))).toEqual([]);
  });
});
