/** Times and amounts as they are read and written. */
import { describe, expect, it } from "vitest";
import { bytes, milliseconds, parseMoment, parseSpan, relative, span, stamp } from "../../src/cli/output/time.ts";

const NOW = 1_800_000_000;

describe("times", () => {
  it("are told in their two largest units, or in one beside others", () => {
    expect([0, 59, 60, 3_661, 90_000, 86_400].map(span)).toEqual([
      "0 s",
      "59 s",
      "1 min",
      "1 h 1 min",
      "1 d 1 h",
      "1 d",
    ]);
    const moments = [null, NOW, NOW - 3, NOW - 7_300, NOW + 90, NOW - 100_000];
    expect(moments.map((at) => relative(at, NOW))).toEqual([
      "never",
      "now",
      "3 s ago",
      "2 h ago",
      "in 1 min",
      "1 d ago",
    ]);
    // A moment that was given as a span, read back a second later.
    expect([60, 3_600, 86_400, 90 * 86_400].map((seconds) => relative(NOW + seconds, NOW + 2))).toEqual([
      "in 1 min",
      "in 1 h",
      "in 1 d",
      "in 90 d",
    ]);
    expect([0, 0.211, 1.299, 41.6, 999, 3_100, 61_000].map(milliseconds)).toEqual([
      "0 ms",
      "0.21 ms",
      "1.3 ms",
      "42 ms",
      "999 ms",
      "3.1 s",
      "61 s",
    ]);
    expect(stamp(NOW)).toMatch(/^2027-01-1[45] \d\d:\d\d:\d\d$/);
  });

  it("are read as spans and as moments, and nothing else is", () => {
    expect(["90", "15m", "15 min", "12h", "30d", "2w"].map(parseSpan)).toEqual([
      90, 900, 900, 43_200, 2_592_000, 1_209_600,
    ]);
    expect(["", "m", "1.5h", "-3", "1y", "1e3"].map(parseSpan)).toEqual(new Array(6).fill(null));
    expect(parseMoment("30d", NOW)).toBe(NOW + 2_592_000);
    expect(parseMoment("2027-01-31T12:00Z", NOW)).toBe(Date.UTC(2027, 0, 31, 12) / 1000);
    expect(parseMoment("2027-01-31", NOW)).toBe(Date.UTC(2027, 0, 31) / 1000);
    // A bare number is neither.
    expect(["1800000000", "tomorrow", "2027-13-45", ""].map((text) => parseMoment(text, NOW))).toEqual(
      new Array(4).fill(null),
    );
  });

  it("and amounts have the unit that makes them short", () => {
    expect([0, 1_023, 1_024, 1_572_864, 5e9].map(bytes)).toEqual(["0 B", "1023 B", "1 KiB", "1.5 MiB", "4.7 GiB"]);
  });
});
