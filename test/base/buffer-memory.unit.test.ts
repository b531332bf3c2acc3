/** Memory that is given back before it is collected: whose, and whose not. */
import { describe, expect, it } from "vitest";
import { giveBack, giveBackLast } from "../../src/base/buffer-memory.ts";

const LARGE = 64 * 1024;

describe("memory that is given back", () => {
  it("is that of a piece which is all of it", () => {
    const piece = Buffer.allocUnsafeSlow(LARGE);
    giveBack(piece);
    expect([piece.length, piece.buffer.byteLength]).toEqual([0, 0]);
  });

  it("is not what others share: a part, or what Node gives out of a pool", () => {
    const buffer = Buffer.alloc(LARGE, "a");
    for (const part of [buffer.subarray(0, LARGE - 1), buffer.subarray(1)]) giveBack(part);
    expect(buffer.equals(Buffer.alloc(LARGE, "a"))).toBe(true);
    const small = Buffer.allocUnsafe(10);
    giveBack(small);
    giveBackLast(small, LARGE * 2);
    expect(small.length).toBe(10);
  });

  it("is that of many parts with the last of them", () => {
    const buffer = Buffer.allocUnsafeSlow(LARGE);
    const [first, last] = [buffer.subarray(0, 10), buffer.subarray(10)];
    giveBackLast(first, LARGE);
    expect(buffer.length).toBe(LARGE);
    giveBackLast(last, LARGE);
    expect([buffer.length, last.length]).toEqual([0, 0]);
  });
});
