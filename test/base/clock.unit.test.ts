import { describe, expect, it } from "vitest";
import { toIsoTime } from "../../src/base/clock.ts";

const MOMENTS = [0, 999, 1_000, 1_001, 1_767_225_599_999, 1_767_225_600_000, 1_767_225_600_000.9, 4_102_444_800_007];

describe("the text of a moment", () => {
  it("is the one that Date gives, whatever was asked for before", () => {
    for (const before of MOMENTS) {
      for (const ms of MOMENTS) {
        toIsoTime(before);
        expect(toIsoTime(ms)).toBe(new Date(ms).toISOString());
      }
    }
  });

  it("is none of what is no moment", () => {
    toIsoTime(0);
    expect(() => toIsoTime(Number.NaN)).toThrow(RangeError);
  });
});
