/** Zips as sequences of entries, from memory. */
import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { inMemory } from "../../src/code/archive.ts";
import { readZip } from "../../src/code/zip.ts";
import { type ZipEntry, zip } from "../support/zip.ts";

async function read(
  bytes: Buffer,
): Promise<{ type: string; name: string; link: string; mode: number; text: string }[]> {
  const reader = await readZip(inMemory(bytes));
  const found = [];
  try {
    for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
      const { type, name, link, mode } = entry;
      const text = type === "file" ? Buffer.from(await reader.content()).toString() : "";
      found.push({ type, name, link, mode, text });
    }
  } finally {
    await reader.close();
  }
  return found;
}

const readOf = (...entries: ZipEntry[]) => read(zip(...entries));

describe("a zip", () => {
  it("has files, directories, links and modes of unix", async () => {
    const found = await readOf(
      { name: "d/", mode: 0o040755 },
      { name: "d/run", content: "#!", mode: 0o104755 },
      { name: "stored", content: "text", method: 0 },
      { name: "l", content: "d/run", mode: 0o120777 },
      { name: "empty" },
      { name: "bare", mode: 0o644 },
    );
    expect(found.map(({ type, name, link, mode, text }) => [type, name, link, mode, text])).toEqual([
      ["directory", "d/", "", 0o755, ""],
      ["file", "d/run", "", 0o4755, "#!"],
      ["file", "stored", "", 0o644, "text"],
      ["symlink", "l", "d/run", 0o777, ""],
      ["file", "empty", "", 0o644, ""],
      ["file", "bare", "", 0o644, ""],
    ]);
  });

  it("has plain files and slashes where it comes from another system", async () => {
    const [entry] = await readOf({ name: "a\\b", content: "x", mode: 0o120777, system: 0 });
    expect(entry).toMatchObject({ type: "file", name: "a/b", mode: 0o644, text: "x" });
  });

  it("is read in pieces where a file is large", async () => {
    for (const method of [0, 8]) {
      const content = randomBytes(1_000_001);
      const reader = await readZip(inMemory(zip({ name: "f", content, method }, { name: "g", content: "end" })));
      expect(await reader.next()).toMatchObject({ name: "f", size: content.length });
      const parts: Uint8Array[] = [];
      for (let piece = await reader.piece(); piece !== null; piece = await reader.piece()) {
        expect(piece.length).toBeLessThanOrEqual(65_536);
        parts.push(piece);
      }
      expect(Buffer.concat(parts).equals(content)).toBe(true);
      await reader.next();
      expect(Buffer.from(await reader.content()).toString()).toBe("end");
      expect(await reader.next()).toBeNull();
      await reader.close();
    }
  });

  it("is given up in the middle of a file", async () => {
    const content = randomBytes(1_000_000);
    const reader = await readZip(inMemory(zip({ name: "f", content }, { name: "g", content })));
    await reader.next();
    await reader.piece();
    expect(await reader.next()).toMatchObject({ name: "g" });
    await reader.piece();
    await reader.close();
  });

  it("is refused if it is damaged, lies about a size, or has what nobody can unpack", async () => {
    const content = "x".repeat(1_000);
    const large = "x".repeat(1_000_000);
    const cases: [ZipEntry, RegExp][] = [
      [{ name: "sum", content, sum: 1 }, /archive entry sum is damaged/],
      [{ name: "sum", content: large, sum: 1 }, /archive entry sum is damaged/],
      [{ name: "small", content, size: 10 }, /archive entry small has another size/],
      [{ name: "small", content: large, size: 10 }, /corrupt/],
      [{ name: "small", content: large, size: 100_000 }, /archive entry small has another size/],
      [{ name: "large", content, size: 1_001 }, /archive entry large has another size/],
      [{ name: "large", content: large, size: 2_000_000 }, /archive entry large has another size/],
      [{ name: "stored", content, method: 0, size: 999 }, /mismatch/],
      [{ name: "packed", content, packed_size: 4_000 }, /overflows|corrupt/],
      [{ name: "offset", content, offset: 1_000_000 }, /corrupt/],
      [{ name: "offset", content, offset: 1 }, /corrupt/],
      [{ name: "fifo", mode: 0o010644 }, /archive entry fifo is a device, a pipe or a socket/],
      [{ name: "device", mode: 0o020644 }, /archive entry device is a device/],
      [{ name: "socket", mode: 0o140644 }, /archive entry socket is a device/],
      [{ name: "secret", content, flags: 1 }, /archive entry secret is encrypted/],
      [{ name: "bzip2", content, method: 12 }, /archive entry bzip2 has an unsupported compression method: 12/],
      [{ name: "link", content: "x".repeat(5_000), mode: 0o120777 }, /archive entry link is a symbolic link/],
    ];
    for (const [entry, expected] of cases) {
      await expect(readOf(entry)).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringMatching(expected),
      });
    }
  });

  it("is refused if its end is missing, or if it announces too many entries", async () => {
    const whole = zip({ name: "a", content: "1" }, { name: "b", content: "2" });
    for (let length = 4; length < whole.length; length += 7)
      await expect(read(whole.subarray(0, length))).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    const many = zip(...Array.from({ length: 10 }, () => ({ name: "a" })));
    many.writeUInt16LE(65_000, many.length - 12);
    await expect(read(many)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(LIMITS.code_entries_max).toBeGreaterThan(65_535);
  });

  it("ends with an answer whatever bytes of it are changed", async () => {
    const whole = zip({ name: "a", content: "1".repeat(500) }, { name: "l", content: "a", mode: 0o120777 });
    for (let at = 0; at < whole.length; at++) {
      for (const value of [0, 0xff, (whole[at] ?? 0) ^ 1]) {
        const changed = Buffer.from(whole);
        changed[at] = value;
        const outcome = await read(changed).then(
          () => "read",
          (error) => (error as { code?: string }).code,
        );
        expect(["read", "INVALID_ARGUMENT"]).toContain(outcome);
      }
    }
  });
});
