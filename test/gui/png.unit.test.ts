/** Pictures of containers: only a whole PNG of bounded size passes. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { pngSize } from "../../src/gui/png.ts";

function chunk(type: string, data: Buffer, length = data.length): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(length);
  return Buffer.concat([head, Buffer.from(type), data, Buffer.alloc(4)]);
}

function header(width: number, height: number): Buffer {
  const data = Buffer.alloc(13);
  data.writeUInt32BE(width, 0);
  data.writeUInt32BE(height, 4);
  return chunk("IHDR", data);
}

const SIGNATURE = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
const END = chunk("IEND", Buffer.alloc(0));
const png = (...chunks: Buffer[]) => Buffer.concat([SIGNATURE, ...chunks]);

describe("the size of a picture", () => {
  it("is that of its header", () => {
    expect(pngSize(png(header(1_280, 800), chunk("IDAT", Buffer.alloc(100)), END))).toEqual({
      width: 1_280,
      height: 800,
    });
  });

  it.each([
    ["nothing", Buffer.alloc(0)],
    ["HTML", Buffer.from("<html><script>alert(1)</script>")],
    ["a signature alone", SIGNATURE],
    ["HTML behind the end", Buffer.concat([png(header(1, 1), END), Buffer.from("<html>")])],
    ["no end", png(header(1, 1), chunk("IDAT", Buffer.alloc(10)))],
    ["a chunk longer than the file", png(header(1, 1), chunk("IDAT", Buffer.alloc(10), 0xffff_fff0), END)],
    ["no header", png(chunk("IDAT", Buffer.alloc(10)), END)],
    ["a width of zero", png(header(0, 1), END)],
    ["a height beyond the bound", png(header(1, 100_000), END)],
    ["an end with data", png(header(1, 1), chunk("IEND", Buffer.alloc(1)))],
  ])("is none of %s", (_, bytes) => {
    expect(pngSize(bytes)).toBeNull();
  });
  it("is none of millions of chunks, and costs little of the event loop", () => {
    const one = chunk("tEXt", Buffer.alloc(0));
    const many = Buffer.alloc(LIMITS.gui_screenshot_bytes_max / 2, one);
    const began_ms = performance.now();
    expect(pngSize(png(header(1, 1), many.subarray(0, many.length - (many.length % one.length)), END))).toBeNull();
    expect(performance.now() - began_ms).toBeLessThan(100);
    const few = Buffer.alloc(one.length * (LIMITS.gui_screenshot_chunks_max - 2), one);
    expect(pngSize(png(header(1, 1), few, END))).toEqual({ width: 1, height: 1 });
  });
});
