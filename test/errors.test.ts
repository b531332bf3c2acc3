/** The error table: well formed, and every code is produced and named by some test. */
import { describe, expect, it } from "vitest";
import { ERRORS } from "../src/base/errors.ts";
import { PROJECT_FILES, readText, SOURCES } from "./support/project-files.ts";

describe("the error table", () => {
  it("gives each code a status of an error, and marks as retryable only what the platform may mend", () => {
    for (const [code, { status, fault, retryable }] of Object.entries(ERRORS)) {
      expect([code, status >= 400 && status < 600]).toEqual([code, true]);
      if (retryable) expect([code, fault]).toEqual([code, "platform"]);
    }
  });

  it("holds no code that no test produces", () => {
    const files = PROJECT_FILES.filter((file) => /^test\/.*\.test\.ts$/.test(file) && file !== "test/errors.test.ts");
    const tests = files.map(readText).join("\n");
    expect(Object.keys(ERRORS).filter((code) => !tests.includes(`"${code}"`))).toEqual([]);
  });

  it("holds no code that no source names", () => {
    const sources = SOURCES.filter((file) => file.endsWith(".ts") && file !== "src/base/errors.ts");
    const text = sources.map(readText).join("\n");
    expect(Object.keys(ERRORS).filter((code) => !text.includes(`"${code}"`))).toEqual([]);
  });
});
