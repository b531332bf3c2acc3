/** Frames between the daemon and minit. */
import { describe, expect, it } from "vitest";
import { FRAME, FrameReader, FrameWriter, strBytes } from "../../src/engine/minit/frames.ts";

describe("frames", () => {
  it("come out as they went in, however the bytes are cut", () => {
    const frames = [
      new FrameWriter(FRAME.KILL, 7, 4).u32(9),
      new FrameWriter(FRAME.STDIN, 8, 5 + strBytes("ü")).text("hello").str("ü"),
    ];
    const bytes = Buffer.concat(frames.map(({ buffer }) => buffer));
    for (const size of [1, 2, 5, 9, 13, bytes.length]) {
      const seen: [number, number, string][] = [];
      const reader = new FrameReader((type, id, body) => seen.push([type, id, body.toString("hex")]));
      for (let at = 0; at < bytes.length; at += size) reader.push(Buffer.from(bytes.subarray(at, at + size)));
      expect(seen).toEqual([
        [FRAME.KILL, 7, "09000000"],
        [FRAME.STDIN, 8, Buffer.from("hello\x03\0\0\0ü\0").toString("hex")],
      ]);
    }
  });

  it("of a stream come in pieces, without being held, and the others whole", () => {
    const output = Buffer.from("a stream of bytes that is cut anywhere");
    const frames = [
      new FrameWriter(FRAME.STDOUT, 7, output.length).raw(output),
      new FrameWriter(FRAME.EXIT, 7, 4).u32(9),
      new FrameWriter(FRAME.STDOUT, 7, 0),
      new FrameWriter(FRAME.STDOUT, 8, 2).text("ab"),
      new FrameWriter(FRAME.EXIT, 8, 4).u32(9),
    ];
    const bytes = Buffer.concat(frames.map(({ buffer }) => buffer));
    for (let size = 1; size <= bytes.length; size++) {
      const seen = { 7: "", 8: "" };
      const reader = new FrameReader(
        (type, id, body) => {
          if (id !== 7 && id !== 8) throw new Error(`a frame of ${id}`);
          seen[id] += type === FRAME.STDOUT ? body.toString() : ` exit ${body.toString("hex")}`;
        },
        (type) => type === FRAME.STDOUT,
      );
      for (let at = 0; at < bytes.length; at += size) reader.push(Buffer.from(bytes.subarray(at, at + size)));
      expect(seen).toEqual({ 7: `${output} exit 09000000`, 8: "ab exit 09000000" });
    }
  });

  it("of an impossible length are refused", () => {
    const reader = new FrameReader(() => {});
    expect(() => reader.push(Buffer.from([0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0]))).toThrow(/length/);
    expect(() => new FrameReader(() => {}).push(Buffer.alloc(9))).toThrow(/length/);
  });
});
