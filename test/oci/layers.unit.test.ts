/** Checks of single layers: what passes, what is refused and why. Each layer is made byte by byte. */
import { createHash } from "node:crypto";
import { deflateRawSync, gzipSync, zstdCompressSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { LayerInspection } from "../../src/oci/layers/inspection.ts";
import { LayerEntries } from "../../src/oci/layers/layer-entries.ts";
import { directory, END, entry, hardLink, long, padded, pax, sha256, symlink, tar } from "../support/layer-bytes.ts";

const UNPACKED_MAX = 64 * 1024 * 1024;

/** Checks a layer that comes in pieces of `piece_bytes`. */
async function inspect(
  layer: Buffer,
  more: { digest?: string; size_bytes?: number; max?: number; piece?: number } = {},
) {
  const { digest = sha256(layer), size_bytes = layer.length, max = UNPACKED_MAX, piece = 16_384 } = more;
  const inspection = new LayerInspection({ digest, size_bytes, unpacked_bytes_max: max });
  try {
    for (let at = 0; at < layer.length; at += piece) await inspection.write(layer.subarray(at, at + piece));
    return await inspection.end();
  } finally {
    inspection.destroy();
  }
}

/** Expects that the layer is refused with a message. */
async function expectRefused(layer: Buffer, message: string | RegExp, more: object = {}): Promise<void> {
  const code = String(message).includes("too large when unpacked") ? "QUOTA_EXCEEDED" : "IMAGE_INVALID";
  const refused = { code, message: expect.stringMatching(message) };
  await expect(inspect(layer, more)).rejects.toMatchObject(refused);
}

const LAYER = tar(
  directory("./"),
  directory("./etc/"),
  entry({ name: "./etc/passwd", content: "root:x:0:0\n" }),
  symlink("bin", "usr/bin"),
  directory("usr/bin/"),
  entry({ name: "usr/bin/sh", content: Buffer.alloc(70_000, 7), mode: 0o4755 }),
  hardLink("usr/bin/dash", "usr/bin/sh"),
  entry({ name: "run/pipe", type: "6" }),
  entry({ name: "dev/null", type: "3", device: [1, 3] }),
  entry({ name: "etc/.wh.shadow" }),
  entry({ name: "var/.wh..wh..opq" }),
);

/** Several members or frames, as estargz and zstd:chunked have them. */
function parts(bytes: Buffer, compress: (part: Buffer) => Buffer, part_bytes: number): Buffer {
  const all = [];
  for (let at = 0; at < bytes.length; at += part_bytes) all.push(compress(bytes.subarray(at, at + part_bytes)));
  return Buffer.concat(all);
}

/** A skippable frame of zstd. */
function skippable(content: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32LE(0x184d2a53, 0);
  head.writeUInt32LE(content.length, 4);
  return Buffer.concat([head, content]);
}

describe("a layer", () => {
  const expected = { diff_id: sha256(LAYER), unpacked_bytes: LAYER.length, skipped_devices: 0 };

  it.each([
    ["uncompressed", LAYER],
    ["gzip", gzipSync(LAYER)],
    ["gzip in members", parts(LAYER, (part) => gzipSync(part), 1_000)],
    ["zstd", zstdCompressSync(LAYER)],
    ["zstd in frames", parts(LAYER, (part) => zstdCompressSync(part), 1_000)],
    [
      "zstd with skippable frames",
      Buffer.concat([zstdCompressSync(LAYER), skippable(Buffer.alloc(3_000, 1)), skippable(Buffer.alloc(0))]),
    ],
  ])("passes as %s, in pieces of any size", async (_name, layer) => {
    for (const piece of [1, 7, 512, 1_000_000]) expect(await inspect(layer, { piece })).toEqual(expected);
  });

  it("passes without the blocks of zeros at its end, with more of them, and without entries", async () => {
    expect(await inspect(LAYER.subarray(0, -1024))).toMatchObject({ unpacked_bytes: LAYER.length - 1024 });
    expect(await inspect(LAYER.subarray(0, -512))).toMatchObject({ unpacked_bytes: LAYER.length - 512 });
    expect(await inspect(Buffer.concat([LAYER, Buffer.alloc(9_000)]))).toMatchObject({});
    expect(await inspect(END)).toMatchObject({ unpacked_bytes: 1024 });
    expect(await inspect(gzipSync(Buffer.alloc(0)))).toMatchObject({
      diff_id: sha256(Buffer.alloc(0)),
      unpacked_bytes: 0,
    });
  });

  it("passes with the names and attributes of PAX and GNU", async () => {
    const name = `${"d".repeat(200)}/${"f".repeat(200)}`;
    const capability = { "SCHILY.xattr.security.capability": "\x01\0\0\x02", "SCHILY.xattr.user.mime": "text" };
    await inspect(
      tar(
        pax({ comment: "made by git" }, "g"),
        pax({ path: name, mtime: "1.5", ...capability }),
        entry({ content: "x" }),
        long("L", `${name}2`),
        long("K", name),
        hardLink("short", "short"),
        pax({ size: "3" }),
        entry({ name: "sized", size: 0, content: "abc" }),
      ),
    );
  });
});

describe("a layer that lies", () => {
  it("about its digest is refused before anything else is said of it", async () => {
    await expectRefused(LAYER, /^layer has the digest sha256:/, { digest: sha256(END) });
    await expectRefused(gzipSync(LAYER), /^layer has the digest sha256:/, { digest: sha256(LAYER) });
  });

  it("about its size is refused, as soon as it is larger", async () => {
    await expectRefused(LAYER, /^layer larger than its manifest says \(1000 bytes\)$/, { size_bytes: 1_000 });
    await expectRefused(LAYER, /^layer has \d+ bytes \(expected 1000000 bytes\)$/, { size_bytes: 1_000_000 });
  });

  it.each([
    ["truncated gzip", gzipSync(LAYER).subarray(0, -9), /^corrupt or truncated gzip data/],
    ["truncated zstd", zstdCompressSync(LAYER).subarray(0, -9), /^truncated zstd data/],
    [
      "corrupt gzip",
      Buffer.concat([gzipSync(LAYER).subarray(0, 12), Buffer.alloc(500, 0xff)]),
      /^corrupt or truncated gzip/,
    ],
    ["gzip with a tail", Buffer.concat([gzipSync(LAYER), Buffer.alloc(20)]), /^data after the end of the gzip data$/],
    ["gzip with another format behind", Buffer.concat([gzipSync(LAYER), zstdCompressSync(LAYER)]), /gzip data/],
    ["zstd with a tail", Buffer.concat([zstdCompressSync(LAYER), Buffer.alloc(20)]), /zstd data/],
    [
      "bzip2",
      Buffer.concat([Buffer.from("BZh91AY&SY"), Buffer.alloc(100)]),
      /unsupported compression of a layer: bzip2/,
    ],
    ["xz", Buffer.concat([Buffer.from("fd377a585a000004", "hex"), Buffer.alloc(100)]), /compression of a layer: xz/],
    ["HTML", Buffer.from(`<!doctype html>${" ".repeat(600)}`), /not a tar archive/],
    ["a short text", Buffer.from("nothing"), /^truncated tar archive/],
    ["gzip in gzip", gzipSync(gzipSync(LAYER)), /^layer compressed twice: its tar begins as gzip data$/],
    ["zstd in gzip", gzipSync(zstdCompressSync(LAYER)), /^layer compressed twice: its tar begins as zstd data$/],
    [
      "a tar whose first name begins as bzip2 data",
      gzipSync(tar(entry({ name: "BZh9", content: "x" }))),
      /^layer compressed twice: its tar begins as bzip2 data$/,
    ],
  ])("about its format is refused: %s", async (_name, layer, message) => {
    for (const piece of [1, 100_000]) await expectRefused(layer, message, { piece });
  });
});

describe("a bomb", () => {
  const ZEROS = Buffer.alloc(8 * 1024 * 1024);
  const max = 1024 * 1024;
  const large = tar(entry({ name: "zeros", size: ZEROS.length, content: ZEROS }));

  it.each([
    ["gzip", gzipSync(large)],
    ["zstd", zstdCompressSync(large)],
    ["gzip in members", parts(large, (part) => gzipSync(part), 65_536)],
    ["uncompressed", large],
  ])("of %s is refused when it passes the bound", async (_name, layer) => {
    await expectRefused(layer, /^layer too large when unpacked \(limit 1048576 bytes\)$/, { max });
  });

  it("of sparse files counts what they take on the disk", async () => {
    const sparse = { "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "big" };
    const map = padded(Buffer.from("1\n0\n0\n"));
    await inspect(tar(pax({ ...sparse, "GNU.sparse.realsize": "1000" }), entry({ content: map })), { max });
    const huge = pax({ ...sparse, "GNU.sparse.realsize": String(2 ** 40) });
    await expectRefused(tar(huge, entry({ content: map })), /too large when unpacked/, { max });
    const guessed = pax({ "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1", "GNU.sparse.size": String(2 ** 40) });
    await expectRefused(tar(guessed, entry()), /too large when unpacked/, { max });
    const old = entry({ type: "S", magic: "ustar  \0", patches: [[483, `${(2 ** 33).toString(8)}\0`]] });
    await expectRefused(tar(old), /too large when unpacked/, { max });
  });

  it("of sparse files refuses more holes than bytes, which limits of tenants would not count", async () => {
    const sparse = { "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "big" };
    const map = padded(Buffer.from("1\n0\n0\n"));
    const holes = (bytes: number) => pax({ ...sparse, "GNU.sparse.realsize": String(bytes) });
    const refused = /^layer has more holes than bytes: \d+ bytes of sparse files$/;
    await expectRefused(tar(holes(100_000), entry({ content: map })), refused, { max });
    const guessed = pax({ "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1", "GNU.sparse.size": "100000" });
    await expectRefused(tar(guessed, entry()), refused, { max });
    // Two of them count together, and with the rest of the tar.
    const rest = entry({ name: "rest", content: Buffer.alloc(200_000) });
    const two = tar(holes(100_000), entry({ content: map }), holes(90_000), entry({ content: map }), rest);
    expect((await inspect(two, { max })).unpacked_bytes).toBeGreaterThan(389_000);
  });

  it("of directories counts a block for each", async () => {
    const many = tar(...Array.from({ length: 300 }, (_, i) => directory(`d${i}`)));
    await inspect(many);
    await expectRefused(many, /too large when unpacked/, { max });
  });

  it("of a zstd window is refused before the window is made", async () => {
    // A frame that is one segment of 1 GiB, and one with a window of 2 GiB.
    const single = Buffer.from("28b52ffda000000040010000", "hex");
    const window = Buffer.from("28b52ffd00a8010000", "hex");
    await expectRefused(single, /^zstd data needs a window of 1073741824 bytes \(limit 16777216 bytes\)$/);
    await expectRefused(window, /^zstd data needs a window of 2147483648 bytes \(limit 16777216 bytes\)$/);
  });

  it("of extended headers is refused", async () => {
    const nine = Array.from({ length: 9 }, () => long("L", "x"));
    await expectRefused(tar(...nine, entry()), /too many extended tar headers for one entry \(limit 8\)/);
    await expectRefused(tar(entry({ type: "x", size: 2 ** 30 })), /extended tar header too large: 1073741824 bytes/);
  });

  it("of symbolic links is refused by what they take in memory", () => {
    const entries = new LayerEntries();
    const link = { type: "2", link: "x", size: 0, hole_bytes: 0, device_major: 0, device_minor: 0, attributes: [] };
    const bytes = LIMITS.layer_link_bytes + "l0000000x".length;
    const add = (i: number) => entries.add({ ...link, name: `l${String(i).padStart(7, "0")}` });
    const count = Math.floor(LIMITS.layer_links_bytes_max / bytes);
    for (let i = 0; i < count; i++) add(i);
    expect(() => add(count)).toThrow(/exceeds the bytes of all symbolic links/);
  });

  it("of entries is refused", { timeout: 60_000 }, async () => {
    const one = entry({ name: "e" });
    const thousand = Buffer.concat(Array.from({ length: 1_000 }, () => one));
    const layer = Buffer.concat(Array.from({ length: LIMITS.layer_entries_max / 1_000 }, () => thousand));
    const inspection = new LayerInspection({ digest: "", size_bytes: 2 ** 40, unpacked_bytes_max: 2 ** 40 });
    for (let at = 0; at < layer.length; at += 2 ** 20) await inspection.write(layer.subarray(at, at + 2 ** 20));
    const limit = `layer entry e exceeds the number of entries of a layer (limit ${LIMITS.layer_entries_max})`;
    await expect(inspection.write(one)).rejects.toMatchObject({ code: "IMAGE_INVALID", message: limit });
  });
});

describe("an entry that leads out of the layer", () => {
  it.each([
    ["an absolute path with ..", entry({ name: "/../etc/passwd" }), /leads out of the layer/],
    [
      "a root that is a file under an absolute name",
      entry({ name: "//." }),
      /is the root of the image, and no directory/,
    ],
    ["..", entry({ name: "../x" }), /leads out of the layer: \.\.\/x/],
    [".. in its middle", entry({ name: "a/../../x" }), /leads out/],
    [".. behind a dot", entry({ name: "./../x" }), /leads out/],
    [".. at its end", directory("a/.."), /leads out/],
    [".. in a PAX path", Buffer.concat([pax({ path: "../x" }), entry()]), /leads out/],
    [".. in a GNU name", Buffer.concat([long("L", "../x"), entry()]), /leads out/],
    [
      ".. in a GNU name behind a PAX path",
      Buffer.concat([long("L", "../x"), pax({ path: "ok" }), entry()]),
      /leads out/,
    ],
    [".. in the prefix", entry({ name: "x", patches: [[345, ".."]] }), /leads out/],
    [
      ".. in the name of a sparse file",
      Buffer.concat([
        pax({ "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "../x", "GNU.sparse.size": "0" }),
        entry(),
      ]),
      /leads out/,
    ],
    [".. in a hard link", hardLink("x", "../etc/passwd"), /leads out of the layer/],
    [".. in a hard link of PAX", Buffer.concat([pax({ linkpath: "a/../../x" }), hardLink("x", "y")]), /leads out/],
    ["a hard link to the root", hardLink("x", "/"), /is a hard link to the root of the image/],
    ["a root that is a file", entry({ name: "./" }), /is the root of the image, and no directory/],
    ["a root that is a link", symlink(".", "/etc"), /is the root of the image, and no directory/],
    ["a whiteout of ..", entry({ name: "a/.wh..." }), /is a whiteout of no name/],
    ["a whiteout of nothing", entry({ name: ".wh." }), /is a whiteout of no name/],
  ])("is refused: %s", async (_name, bytes, message) => {
    await expectRefused(gzipSync(tar(bytes)), message);
  });

  it("may be a hard link with a leading slash: that is the root of the image", async () => {
    await inspect(tar(entry({ name: "a" }), hardLink("b", "/a")));
  });
});

describe("an entry that no layer may have", () => {
  const device = (type: "3" | "4", major: number, minor: number, more = {}) =>
    entry({ name: "x", type, device: [major, minor], ...more });

  it.each([
    ["a disk under a name that begins as /dev does", device("4", 8, 0, { name: "/device" }), /block device 8:0/],
    ["a raw whiteout in /dev", device("3", 0, 0, { name: "/dev/x" }), /is a raw whiteout: character device 0:0/],
    ["a raw whiteout", device("3", 0, 0), /is a raw whiteout: character device 0:0/],
    ["a raw whiteout of the oldest format", entry({ name: "x", type: "3", magic: "" }), /is a raw whiteout/],
    ["a disk", device("4", 8, 0), /is a device that no container may open: block device 8:0/],
    ["a block device with the numbers of null", device("4", 1, 3), /block device 1:3/],
    ["the memory", device("3", 1, 1), /character device 1:1/],
    ["an unknown type", entry({ name: "x", type: "7" }), /is of an unknown type: '7'/],
    ["a part of a volume", entry({ name: "x", type: "M" }), /is of an unknown type: 'M'/],
    ["a long path", Buffer.concat([long("L", "a/".repeat(2_100)), entry()]), /is too long \(limit 4095 bytes\)/],
    [
      "a long name",
      Buffer.concat([pax({ path: `a/${"b".repeat(256)}` }), entry()]),
      /name that is too long \(limit 255 bytes\)/,
    ],
  ])("is refused: %s", async (_name, bytes, message) => {
    await expectRefused(tar(bytes), message);
  });

  it.each([
    "SCHILY.xattr.trusted.overlay.opaque",
    "SCHILY.xattr.trusted.overlay.redirect",
    "SCHILY.xattr.user.overlay.whiteout",
    "LIBARCHIVE.xattr.trusted.overlay.metacopy",
    "LIBARCHIVE.xattr.trusted%2Eoverlay%2Eredirect",
  ])("is refused with the attribute %s", async (key) => {
    await expectRefused(tar(pax({ [key]: "/" }), directory("d")), /has an attribute of overlayfs/);
  });

  it("passes below /dev as any device, which is counted unless each container has it", async () => {
    const inDev = (name: string, ...of: Parameters<typeof device>) => device(of[0], of[1], of[2], { name });
    const layer = tar(
      inDev("dev/sda", "4", 8, 0),
      inDev("/dev/mem", "3", 1, 1),
      inDev("./dev/sub/loop0", "4", 7, 0),
      inDev("dev/null", "3", 1, 3),
      entry({ name: "dev/pipe", type: "6" }),
    );
    expect(await inspect(layer)).toMatchObject({ skipped_devices: 3 });
  });

  it("passes as one of the devices that each container has", async () => {
    const numbers = [
      [1, 3],
      [1, 5],
      [1, 7],
      [1, 8],
      [1, 9],
      [5, 0],
      [5, 1],
      [5, 2],
    ] as const;
    await inspect(tar(...numbers.map(([major, minor]) => device("3", major, minor))));
  });
});

/** Each of these is one archive to a lenient reader, and another one to Go's, which unpacks the layer. */
describe("an archive that readers take for different ones", () => {
  const bad = entry({ name: "../evil" });

  it("is read as Go reads it: a size among NULs and spaces", async () => {
    // A reader that stops at the first NUL sees a size of 0, and the content as the next entry.
    await inspect(tar(entry({ name: "a", size: "\0\0\0\0\0\u00001000\0", content: bad })));
    await expectRefused(tar(entry({ name: "a", size: "\0\0\0\0\0\0\0\0\0\0\0\0", content: bad })), /leads out/);
    await inspect(tar(entry({ name: "a", size: "      1000  ", content: bad })));
    await expectRefused(tar(entry({ name: "a", size: "1000 10", content: bad })), /invalid numeric field/);
    await inspect(tar(entry({ name: "a", size: "\x80\0\0\0\0\0\0\0\0\0\x02\0", content: bad })));
    await expectRefused(tar(entry({ name: "a", size: "\xff".repeat(12), content: bad })), /invalid numeric field/);
  });

  it("is read as Go reads it: links and directories without content, whatever their size", async () => {
    for (const type of ["1", "2", "5", "6"]) {
      await expectRefused(tar(entry({ name: "a", type, link: "b", size: 512 }), bad), /leads out/);
    }
  });

  it("is read as Go reads it: the last PAX header, and the name of GNU before that of PAX", async () => {
    await inspect(tar(pax({ path: "../evil" }), pax({ path: "good" }), entry()));
    await inspect(tar(pax({ path: "../evil" }), pax({ comment: "no path" }), entry()));
    await inspect(tar(pax({ path: "../evil" }), long("L", "good"), entry()));
    await inspect(tar(pax({ path: "../evil" }), pax({ comment: "drops what came before" }, "g"), entry()));
    await expectRefused(tar(pax({ path: "" }), entry({ name: "../evil" })), /leads out/);
  });

  it("is read as Go reads it: a prefix of 131 bytes in the format of star", async () => {
    const star = {
      name: "x",
      patches: [
        [345, ".."],
        [508, "tar\0"],
      ],
    } as const;
    await expectRefused(tar(entry(star)), /leads out/);
    const behind = {
      name: "x",
      patches: [
        [345, "a".repeat(131)],
        [476, "/../../.."],
        [508, "tar\0"],
      ],
    } as const;
    await inspect(tar(entry(behind)));
  });

  it("is read as Go reads it: blocks of a sparse map before the content", async () => {
    const head = (extended: number) =>
      entry({
        name: "s",
        type: "S",
        magic: "ustar  \0",
        size: 512,
        patches: [
          [482, String.fromCharCode(extended)],
          [483, "1000\0"],
        ],
      }).subarray(0, 512);
    const map = (extended: number) => Buffer.concat([Buffer.alloc(504), Buffer.from([extended]), Buffer.alloc(7)]);
    await inspect(tar(head(0), bad.subarray(0, 512), entry({ name: "b" })));
    await inspect(tar(head(1), map(0), bad.subarray(0, 512), entry({ name: "b" })));
    await inspect(tar(head(1), map(1), map(0), bad.subarray(0, 512), entry({ name: "b" })));
    await expectRefused(tar(head(1), map(0), entry({ name: "b" }), bad), /leads out/);
  });

  it.each([
    ["a global path", tar(pax({ path: "../evil" }, "g"), entry()), /global PAX header sets path/],
    [
      "global attributes",
      tar(pax({ "SCHILY.xattr.trusted.overlay.opaque": "y" }, "g"), entry()),
      /global PAX header sets SCHILY/,
    ],
    [
      "an unknown sparse version",
      tar(pax({ "GNU.sparse.major": "2", "GNU.sparse.name": "good" }), bad),
      /unknown version of sparse file: 2\./,
    ],
    [
      "a sparse file without map",
      tar(pax({ "GNU.sparse.numblocks": "0", "GNU.sparse.name": "good", "GNU.sparse.size": "0" }), bad),
      /unknown version of sparse file/,
    ],
    [
      "a sparse link",
      tar(pax({ "GNU.sparse.map": "0,0", "GNU.sparse.size": "0" }), symlink("a", "b")),
      /sparse tar entry without content/,
    ],
    ["a sparse file not of GNU", tar(entry({ type: "S" })), /sparse tar entry not in the format of GNU/],
    [
      "times of GNU that are a prefix",
      tar(entry({ magic: "ustar  \0", patches: [[345, "../.."]] })),
      /invalid numeric field/,
    ],
    ["a zero block before an entry", tar(Buffer.alloc(512), entry()), /one block of zeros before an entry/],
    ["a NUL in a PAX path", tar(pax({ path: "a\0../../evil" }), entry()), /NUL in a PAX header/],
    ["a PAX record that is too long", tar(entry({ type: "x", content: "99 path=a\n" }), entry()), /corrupt PAX header/],
    ["a PAX record with a sign", tar(entry({ type: "x", content: "+10 path=a\n" }), entry()), /corrupt PAX header/],
    ["a PAX size with a sign", tar(pax({ size: "-1" }), entry()), /invalid number in a PAX header: size=-1/],
    ["an extension without an entry", tar(pax({ path: "a" })), /truncated tar archive/],
    ["a truncated content", tar(entry({ content: "abc" })).subarray(0, 700), /truncated tar archive/],
    ["a wrong checksum", tar(Buffer.concat([Buffer.from("y"), entry({ name: "xa" }).subarray(1)])), /wrong checksum/],
  ])("is refused: %s", async (_name, layer, message) => {
    await expectRefused(layer, message);
  });
});

describe("random bytes", () => {
  /** A number generator with a seed: each failure can be repeated. */
  const bytesOf = (seed: number, length: number) => {
    const hash = createHash("shake256", { outputLength: length });
    return hash.update(String(seed)).digest();
  };

  it("in a layer never do anything but pass or be refused", async () => {
    for (let seed = 0; seed < 300; seed++) {
      const layer = Buffer.from(LAYER);
      for (const byte of bytesOf(seed, 8)) layer[(byte * 97 + seed * 13) % (512 * 6)] = byte;
      const format = [(bytes: Buffer) => bytes, gzipSync, zstdCompressSync][seed % 3] ?? gzipSync;
      const outcome = await inspect(Buffer.from(format(layer))).catch((error: unknown) => error);
      if (outcome instanceof Error) expect(outcome).toMatchObject({ code: "IMAGE_INVALID" });
    }
  });

  it("in compressed data never do anything but pass or be refused", async () => {
    for (let seed = 0; seed < 300; seed++) {
      const layer = Buffer.from((seed % 2 === 0 ? gzipSync : zstdCompressSync)(LAYER));
      for (const byte of bytesOf(seed, 4)) layer[4 + ((byte * 31 + seed) % (layer.length - 4))] = byte;
      const outcome = await inspect(layer).catch((error: unknown) => error);
      if (outcome instanceof Error) expect(outcome).toMatchObject({ code: "IMAGE_INVALID" });
    }
    await expectRefused(Buffer.concat([Buffer.from("1f8b0800", "hex"), deflateRawSync(LAYER)]), /gzip/);
  });
});
