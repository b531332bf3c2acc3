import { describe, expect, it } from "vitest";
import { seededRandom } from "../../../bench/stats.ts";
import { Mask } from "../../../src/oci/builds/mask.ts";

const bytes = (text: string): Uint8Array => Buffer.from(text);

/** Returns the text that a mask shows if it gets pieces of `length` characters. */
function shown(secrets: readonly string[], text: string, length: number): string {
  const mask = new Mask(secrets.map(bytes));
  let found = "";
  for (let at = 0; at < text.length; at += length) found += mask.write(text.slice(at, at + length));
  return found + mask.end();
}

describe("a mask", () => {
  const CASES: readonly (readonly [string, readonly string[], string, string])[] = [
    ["a value", ["hunter22"], "is hunter22.", "is ***."],
    ["each line of a value", ["line-one\nline-two"], "line-two, line-one", "***, ***"],
    ["a value that begins like a shorter one", ["pass", "password-long"], "a password-long b pass c", "a *** b *** c"],
    ["a value that ends like a shorter one", ["word", "password"], "a password b", "a *** b"],
    ["values that overlap", ["abcdef", "defghi"], "x abcdefghi y", "x *** y"],
    ["a value within another", ["abcdefgh", "cdef"], "x abcdefgh cdef y", "x *** *** y"],
    ["nothing of the beginning of a value alone", ["abcdefgh"], "abcdefg", "abcdefg"],
    ["no value of fewer than four characters", ["abc"], "abc", "abc"],
    ["values that follow each other", ["abcd", "efgh"], "abcdefghabcd", "*********"],
    ["values at the beginning and at the end", ["abcd"], "abcd x abcd", "*** x ***"],
  ];

  for (const [what, secrets, text, expected] of CASES) {
    it(`hides ${what}, whatever pieces it comes in`, () => {
      for (let length = 1; length <= text.length; length++) expect(shown(secrets, text, length)).toBe(expected);
    });
  }

  it("keeps less than the longest value", () => {
    const mask = new Mask([bytes("x".repeat(100))]);
    expect(mask.write("y".repeat(1000)).length).toBe(901);
    expect(mask.end().length).toBe(99);
  });

  it("hides random values that overlap, in pieces of any length", () => {
    const unit = seededRandom(7);
    const random = (below: number) => Math.floor(unit() * below);
    const word = (length: number) => Array.from({ length }, () => "abc"[random(3)]).join("");
    for (let round = 0; round < 2000; round++) {
      const secrets = Array.from({ length: 1 + random(3) }, () => word(4 + random(5)));
      const text = Array.from({ length: 20 }, () =>
        random(2) === 0 ? "-" : (secrets[random(secrets.length)] ?? ""),
      ).join("");
      for (const secret of secrets) expect(shown(secrets, text, 1 + random(7))).not.toContain(secret);
    }
  });
});
