/** Changes between two snapshots, from the stream of `btrfs send --no-data`. */
import { describe, expect, it } from "vitest";
import { SendStream } from "../../src/engine/storage/send-stream.ts";

const COMMANDS = {
  ...{ snapshot: 2, mkfile: 3, mkdir: 4, symlink: 8, rename: 9, link: 10, unlink: 11, rmdir: 12, set_xattr: 13 },
  ...{ chmod: 18, utimes: 20, end: 21, update_extent: 22 },
} as const;
const ATTRIBUTES = { xattr_name: 13, xattr_data: 14, path: 15, path_to: 16, path_link: 17 } as const;
type Step = readonly [command: keyof typeof COMMANDS, fields: Partial<Record<keyof typeof ATTRIBUTES, string>>];

function streamOf(steps: readonly Step[]): Buffer {
  const head = Buffer.from("btrfs-stream\0\x01\0\0\0", "latin1");
  const commands = steps.map(([command, fields]) => {
    const attributes = Object.entries(fields).map(([name, value]) => {
      const data = Buffer.from(value, "latin1");
      const tag = Buffer.alloc(4);
      tag.writeUInt16LE(ATTRIBUTES[name as keyof typeof ATTRIBUTES], 0);
      tag.writeUInt16LE(data.length, 2);
      return Buffer.concat([tag, data]);
    });
    const body = Buffer.concat(attributes);
    const begin = Buffer.alloc(10);
    begin.writeUInt32LE(body.length, 0);
    begin.writeUInt16LE(COMMANDS[command], 4);
    return Buffer.concat([begin, body]);
  });
  return Buffer.concat([head, ...commands]);
}

/** The touched paths as `before > after`, and `*` for what may have only other times. */
function touched(bytes: Buffer, piece = bytes.length): string[] {
  const stream = new SendStream();
  for (let at = 0; at < bytes.length; at += piece) stream.push(bytes.subarray(at, at + piece));
  return [...stream.touched()].map(
    ({ before, path, isTimesAlone, isOpaqueChanged }) =>
      `${before ?? ""} > ${path ?? ""}${isTimesAlone ? " *" : ""}${isOpaqueChanged ? " opaque" : ""}`,
  );
}
const play = (...steps: Step[]) => touched(streamOf(steps));

const FIRST: readonly Step[] = [
  ["snapshot", { path: "s2" }],
  ["update_extent", { path: "d/f" }],
  ["utimes", { path: "d/f" }],
  ["utimes", { path: "d" }],
  ["unlink", { path: "d/gone" }],
  ["mkfile", { path: "o257-8-0" }],
  ["rename", { path: "o257-8-0", path_to: "d/new" }],
  ["chmod", { path: "d/new" }],
  ["end", {}],
];

describe("a stream", () => {
  it("names new, changed and removed paths, in whatever pieces it comes", () => {
    const bytes = streamOf(FIRST);
    for (const piece of [1, 7, 64, bytes.length]) {
      expect(touched(bytes, piece)).toEqual(["d/gone > ", "d > d *", "d/f > d/f", " > d/new"]);
    }
  });

  it("counts up to where it is cut, and refuses what is none", () => {
    const bytes = streamOf(FIRST);
    for (let end = 0; end < bytes.length; end++) touched(bytes.subarray(0, end));
    expect(touched(bytes.subarray(0, bytes.length - 60))).toContain("d/f > d/f");
    expect(() => touched(Buffer.alloc(64))).toThrow("not a btrfs stream");
    const long = Buffer.from(bytes);
    long.writeUInt32LE(0xffffffff, 17);
    expect(() => touched(long)).toThrow("4294967295 bytes");
  });

  it("follows directories that are renamed, with what is in them", () => {
    expect(
      play(
        ["rename", { path: "d50", path_to: "e50" }],
        ["update_extent", { path: "e50/f" }],
        ["unlink", { path: "e50/g" }],
        ["rename", { path: "e50/h", path_to: "e50/i" }],
        ["mkdir", { path: "o300-8-0" }],
        ["rename", { path: "o300-8-0", path_to: "d50" }],
        ["mkfile", { path: "d50/f" }],
      ),
    ).toEqual(["d50/g > ", "d50 > e50", "d50/f > e50/f", "d50/h > e50/i", " > d50", " > d50/f"]);
  });

  it("reads names of any bytes, and takes no attribute of a file for a step", () => {
    expect(
      play(
        ["mkfile", { path: "o1-8-0" }],
        ["rename", { path: "o1-8-0", path_to: "a b\nc\xc3\xa9" }],
        ["symlink", { path: "l =\\", path_link: "/x y" }],
        ["link", { path: "h", path_link: "d/f" }],
        ["set_xattr", { path: "z", xattr_name: "user.a", xattr_data: "\nunlink ./s/h\n" }],
      ),
    ).toEqual([" > a b\nc\xc3\xa9", " > l =\\", " > h", "z > z"]);
  });

  it("tells a directory that hides what is below it", () => {
    expect(play(["set_xattr", { path: "upper/d", xattr_name: "trusted.overlay.opaque", xattr_data: "y" }])).toEqual([
      "upper/d > upper/d * opaque",
    ]);
    expect(play(["set_xattr", { path: "upper", xattr_name: "trusted.overlay.impure", xattr_data: "y" }])).toEqual([]);
  });
});
