/** What was probably meant. */
import { describe, expect, it } from "vitest";
import { didYouMean, distance, nearest } from "../../src/base/suggest.ts";

const NAMES = ["hello", "help-desk", "report", "resize", "日本語"];

describe("suggestions", () => {
  it("count insertions, deletions, replacements and swaps", () => {
    expect(distance("hello", "helo")).toBe(1);
    expect(distance("hello", "hlelo")).toBe(1);
    expect(distance("hello", "jello")).toBe(1);
    expect(distance("", "abc")).toBe(3);
    expect(distance("kitten", "sitting")).toBe(3);
  });

  it("are the nearest names, beginnings too, and none that is far away", () => {
    expect(nearest("helo", NAMES)).toEqual(["hello"]);
    expect(nearest("HELLO", NAMES)).toEqual(["hello"]);
    expect(nearest("rep", NAMES)).toEqual(["report"]);
    expect(nearest("日本", NAMES)).toEqual(["日本語"]);
    expect(nearest("xyzzy", NAMES)).toEqual([]);
    expect(nearest("a".repeat(100_000), NAMES)).toEqual([]);
  });

  it("are a question", () => {
    expect(didYouMean("hel", NAMES)).toBe("did you mean 'hello' or 'help-desk'?");
    expect(didYouMean("xyzzy", NAMES)).toBeNull();
  });
});
