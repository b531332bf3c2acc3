/** Patterns of COPY and .dockerignore: what they match, and that none costs more than its bound. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { componentMatcher, ignoreMatcher, newMatchBudget } from "../../../src/oci/builds/glob.ts";

describe("a pattern of one component", () => {
  it.each([
    ["*", "a", true],
    ["a*c", "abc", true],
    ["a*c", "abd", false],
    ["a*b*c", "a--b--b-c", true],
    ["**", "a", true],
    ["?b", "ab", true],
    ["?", "", false],
    ["[a-c]x", "bx", true],
    ["[^a-c]x", "bx", false],
    ["[^a-c]x", "dx", true],
    ["[]a]", "]", true],
    ["[a-]", "-", true],
    ["\\*", "*", true],
    ["\\*", "a", false],
    ["a.b", "axb", false],
    ["*.txt", ".txt", true],
  ])("%s matches %s: %s", (pattern, name, isMatch) => {
    expect(componentMatcher(pattern, newMatchBudget())(name)).toBe(isMatch);
  });

  it.each(["[", "[a", "[a-", "[\\"])("refuses %s", (pattern) => {
    expect(() => componentMatcher(pattern, newMatchBudget())).toThrow("malformed pattern");
  });

  it("of many stars ends soon where a regular expression would not end", () => {
    const budget = newMatchBudget();
    expect(componentMatcher(`${"a*".repeat(200)}b`, budget)("a".repeat(255))).toBe(false);
    expect(LIMITS.build_match_steps_max - budget.steps).toBeLessThan(255 * 401 * 2);
  });

  it("fails the build when its steps are used up", () => {
    const isMatch = componentMatcher("*a*a*b", { steps: 1_000 });
    expect(() => {
      for (;;) isMatch("a".repeat(200));
    }).toThrow("too many steps");
  });
});

describe(".dockerignore", () => {
  const table: readonly [string, readonly string[], readonly string[], readonly string[]][] = [
    ["names at the top alone", ["a.txt"], ["a.txt"], ["d/a.txt"]],
    ["what is below", ["d"], ["d", "d/x", "d/e/x"], ["e/d"]],
    ["leading and trailing slashes", ["/d/"], ["d/x"], ["x/d"]],
    ["components", ["a/*/b"], ["a/x/b", "a/x/b/c"], ["a/b", "a/x/y/b"]],
    ["any depth", ["**/x"], ["x", "a/x", "a/b/x/y"], ["a/xx"]],
    ["any depth at the end", ["a/**"], ["a/b", "a/b/c"], ["a", "b"]],
    ["any depth in the middle", ["a/**/z"], ["a/z", "a/b/c/z"], ["a", "b/z"]],
    ["everything", ["**"], ["a", "a/b"], []],
    ["exceptions, the last one decides", ["*", "!keep", "keep/not"], ["a", "keep/not"], ["keep", "keep/yes"]],
    ["an exception below", ["d", "!d/keep"], ["d/x"], ["d/keep"]],
    ["comments, blanks and spaces", ["# a", "", "  b  "], ["b"], ["a", "# a"]],
    ["cleaned paths", ["./a//b/../c"], ["a/c"], ["a/b", "b"]],
    ["cases", ["README"], ["README"], ["readme"]],
    ["any depth before a name", ["**.log"], ["a.log", "a/b.log"], ["a.txt"]],
    ["nothing outside of the context", ["../a", "a/../../b"], [], ["a", "b"]],
  ];
  it.each(table)("leaves out %s", (_, lines, ignored, kept) => {
    const isIgnored = ignoreMatcher(lines, newMatchBudget());
    expect(ignored.filter((path) => !isIgnored(path))).toEqual([]);
    expect(kept.filter((path) => isIgnored(path))).toEqual([]);
  });

  it.each(["!", "!   "])("are refused for a lone '%s', as Docker does", (line) => {
    expect(() => ignoreMatcher(["a", line], newMatchBudget())).toThrow("malformed pattern: '!'");
  });

  it("of hostile lines ends or fails by its bound", () => {
    const isIgnored = ignoreMatcher([`${"**/*a".repeat(50)}/b`], newMatchBudget());
    const path = Array.from({ length: 100 }, () => "a".repeat(200)).join("/");
    expect(() => {
      for (let i = 0; i < 1_000; i++) isIgnored(path);
    }).toThrow("too many steps");
  });
});
