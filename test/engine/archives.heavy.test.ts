/** Archives into and out of a tree: what tar makes and reads, what is refused, and how much memory it takes. */
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { extract, pack } from "../../src/engine/files/archive.ts";
import type { HelperSession } from "../../src/engine/files/file-sessions.ts";
import { tarHeader, tarPadding } from "../../src/engine/files/tar.ts";
import type { ExtractOptions } from "../../src/engine/ports.ts";
import { archive, ENTRY, FileHelper, inPieces } from "../support/file-helper.ts";

const MIB = 2 ** 20;

let helper: FileHelper;
let top: string;
let root: string;
let session: HelperSession;

beforeAll(async () => {
  helper = await FileHelper.start();
});

afterAll(async () => {
  await helper?.stop();
});

beforeEach(async () => {
  top = mkdtempSync("/var/tmp/hearth-archives-");
  root = join(top, "root");
  mkdirSync(root);
  session = await helper.open(root);
});

afterEach(() => {
  session.close();
  rmSync(top, { recursive: true, force: true });
});

const at = (...parts: string[]) => join(root, ...parts);
const tar = (...args: string[]) => execFileSync("tar", args, { maxBuffer: 64 * MIB });
const unpack = (bytes: Buffer, options: Partial<ExtractOptions> = {}) =>
  extract(session, inPieces(bytes), { path: "t", ...options });

const codeOf = (promise: Promise<unknown>) => refusalOf(promise).then((text) => text.split(" ")[0]);
/** The code and text of a refusal, or "none". */
const refusalOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error: Error & { code?: string }) => `${error.code} ${error.message}`,
  );

/** Everything of a tree that an archive keeps. */
function shape(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const path = join(directory, name);
      const info = lstatSync(path);
      const link = info.isSymbolicLink() ? ` -> ${readlinkSync(path)}` : "";
      const content = info.isFile() ? ` ${readFileSync(path).subarray(0, 40)}` : "";
      return `${name} ${info.mode.toString(8)} ${Math.floor(info.mtimeMs / 1000)} ${info.uid} ${info.nlink}${link}${content}`;
    });
}

function makeTree(): string {
  const tree = join(top, "tree");
  mkdirSync(join(tree, "a/b/empty"), { recursive: true });
  writeFileSync(join(tree, "a/f"), "content");
  linkSync(join(tree, "a/f"), join(tree, "a/same"));
  symlinkSync("../a/f", join(tree, "a/b/link"));
  symlinkSync("/etc/hostname", join(tree, "absolute"));
  writeFileSync(join(tree, "tool"), "#!/bin/sh\n");
  chmodSync(join(tree, "tool"), 0o4755);
  writeFileSync(join(tree, "large"), "x".repeat(300_000));
  const long = `${"long-".repeat(30)}name`;
  mkdirSync(join(tree, long));
  writeFileSync(join(tree, long, `${"ä".repeat(60)}.txt`), "umlauts");
  symlinkSync(`${"target-".repeat(30)}x`, join(tree, long, "l"));
  for (const [name, time] of [
    ["a/f", 1e9],
    ["large", 1.1e9],
    ["a/b/empty", 1.2e9],
    ["a/b", 1.3e9],
    ["a", 1.4e9],
    [long, 1.5e9],
  ] as const) {
    utimesSync(join(tree, name), time, time);
  }
  chmodSync(join(tree, "a/b/empty"), 0o700);
  return tree;
}

describe("an archive", () => {
  it("of every format of tar is unpacked with names, modes, times and links", async () => {
    const tree = makeTree();
    for (const format of ["gnu", "pax", "posix", "oldgnu"]) {
      const bytes = tar("-C", tree, `--format=${format}`, "-cf", "-", ".");
      await unpack(bytes, { path: format, preserve_owner: true });
      expect(shape(at(format))).toEqual(shape(tree));
    }
    expect(existsSync(at("gnu/a/b/empty"))).toBe(true);
  });

  it("in gzip is known by its first bytes, in whatever pieces they come, and of several members", async () => {
    const tree = makeTree();
    const bytes = gzipSync(tar("-C", tree, "-cf", "-", "a"));
    await extract(session, inPieces(bytes, 1), { path: "t" });
    const [first, second] = [bytes.subarray(0, 0), archive({ name: "x", content: "two members" })];
    const halves = [gzipSync(second.subarray(0, 700)), gzipSync(second.subarray(700))];
    await unpack(Buffer.concat([first, ...halves]));
    expect(readFileSync(at("t/x"), "utf8")).toBe("two members");
    expect(readFileSync(at("t/a/f"), "utf8")).toBe("content");
  });

  it("loses leading components as tar takes them off, and passes over what has no more", async () => {
    await unpack(archive({ name: "top", type: "directory" }, { name: "top/in/f", content: "1" }, { name: "./top/g" }), {
      strip_components: 1,
    });
    expect(readdirSync(at("t"), { recursive: true }).sort()).toEqual(["in", "in/f", "top", "top/g"]);
  });

  it("makes its path, whose own links are followed as inside, and belongs to root unless owners are kept", async () => {
    mkdirSync(at("usr/bin"), { recursive: true });
    symlinkSync("usr/bin", at("bin"));
    symlinkSync("/usr", at("absolute"));
    await unpack(archive({ name: "bin/tool", content: "t", uid: 7, gid: 8 }), { path: "/" });
    await unpack(archive({ name: "new/tool", content: "t", uid: 7, gid: 8 }), {
      path: "absolute/x",
      preserve_owner: true,
    });
    expect(lstatSync(at("bin")).isSymbolicLink()).toBe(true);
    expect(statSync(at("usr/bin/tool"))).toMatchObject({ uid: 0, gid: 0 });
    expect(statSync(at("usr/x/new/tool"))).toMatchObject({ uid: 7, gid: 8 });
    const shifted = await helper.open(root, { uid_base: 1_000_000 });
    await extract(shifted, inPieces(archive({ name: "f", uid: 7, gid: 8 })), { path: "s", preserve_owner: true });
    expect(statSync(at("s/f"))).toMatchObject({ uid: 1_000_007, gid: 1_000_008 });
    shifted.close();
  });

  it("belongs to an owner that is given, but for the directories that are there", async () => {
    mkdirSync(at("t/old"), { recursive: true });
    const shifted = await helper.open(root, { uid_base: 1_000_000 });
    const entries = archive(
      { name: "old/", type: "directory", mode: 0o700, uid: 7 },
      { name: "old/made/f", content: "f", uid: 7 },
      { name: "new/", type: "directory", uid: 7 },
      { name: "new/link", type: "symlink", link: "f", uid: 7 },
    );
    await unpack(entries, { owner: { uid: 5, gid: 6 } });
    await extract(shifted, inPieces(entries), { path: "s/s", owner: { uid: 5, gid: 6 } });
    // The owner was that of one archive.
    await extract(shifted, inPieces(archive({ name: "later/f" })), { path: "s" });
    const owners = (...names: string[]) =>
      names.map((name) => [name, lstatSync(at(name)).uid, lstatSync(at(name)).gid]);
    expect(owners("t", "t/old", "t/old/made", "t/old/made/f", "t/new", "t/new/link")).toEqual([
      ...[
        ["t", 0, 0],
        ["t/old", 0, 0],
        ["t/old/made", 5, 6],
        ["t/old/made/f", 5, 6],
      ],
      ...[
        ["t/new", 5, 6],
        ["t/new/link", 5, 6],
      ],
    ]);
    expect(statSync(at("t/old")).mode & 0o777).toBe(0o700);
    const [uid, gid] = [1_000_005, 1_000_006];
    const made = ["s", "s/s", "s/s/old", "s/s/old/made/f", "s/s/new/link"];
    expect(owners(...made)).toEqual(made.map((name) => [name, uid, gid]));
    expect(owners("s/later")).toEqual([["s/later", 1_000_000, 1_000_000]]);
    expect(await codeOf(session.setBase("none", { uid: 2 ** 32 - 1, gid: 0 }))).toBe("INVALID_ARGUMENT");
    shifted.close();
  });

  it("is unpacked for users by the accounts of the tree, in all the ways in which these are odd", async () => {
    expect([await session.findOwner("app"), await session.findOwner("7")]).toEqual([null, { uid: 7, gid: 0 }]);
    mkdirSync(at("etc"));
    writeFileSync(at("etc/passwd"), "# none\napp:x:no:1\napp:x:5:6::/:\nbig:x:65536:1\n8:x:9:10\nlast:x:11:12");
    writeFileSync(at("etc/group"), "g:x:20:app\n");
    for (const [text, found] of [
      ["app", [5, 6]],
      ["5", [5, 6]],
      ["8", [9, 10]],
      ["last", [11, 12]],
      ["app:g", [5, 20]],
      ["app:21", [5, 21]],
      ["1234:20", [1234, 20]],
      ["app:none", null],
      ["none:g", null],
      ["big", null],
      ["65536", null],
      ["", null],
      ["app:", null],
      ["../app", null],
    ] as const) {
      const owner = found === null ? null : { uid: found[0], gid: found[1] };
      expect([text, await session.findOwner(text)]).toEqual([text, owner]);
    }
    rmSync(at("etc/passwd"));
    symlinkSync("/../../../../../../../../../etc/passwd", at("etc/passwd"));
    expect(await session.findOwner("root")).toBe(null);
    rmSync(at("etc/passwd"));
    mkdirSync(at("etc/passwd"));
    expect(await session.findOwner("root")).toBe(null);
    rmSync(at("etc/passwd"), { recursive: true });
    writeFileSync(at("etc/passwd"), `${"\n".repeat(1024 * 1024 - 12)}late:x:1:2\n`);
    expect(await session.findOwner("late")).toEqual({ uid: 1, gid: 2 });
    writeFileSync(at("etc/passwd"), `late:x:1:2\n${"\n".repeat(1024 * 1024)}`);
    expect(await session.findOwner("late")).toBe(null);
  });

  it("replaces what has the names of its entries, also its own, and never a directory", async () => {
    mkdirSync(at("t/full/inner"), { recursive: true });
    writeFileSync(at("t/file"), "old");
    symlinkSync("nowhere", at("t/link"));
    execFileSync("mkfifo", [at("t/pipe")]);
    await unpack(
      archive(
        { name: "file", type: "directory" },
        { name: "file/inner", content: "new" },
        { name: "link", content: "a file" },
        { name: "pipe", content: "another" },
        { name: "full", type: "directory", mode: 0o700 },
        { name: "twice", content: "one" },
        { name: "twice", content: "two" },
        { name: "twice", type: "symlink", link: "file" },
        { name: "hard", type: "link", link: "pipe" },
        { name: "hard", type: "link", link: "hard" },
        { name: "hard", type: "link", link: "pipe" },
      ),
    );
    expect(readFileSync(at("t/file/inner"), "utf8")).toBe("new");
    expect(readFileSync(at("t/link"), "utf8")).toBe("a file");
    expect(readlinkSync(at("t/twice"))).toBe("file");
    expect(statSync(at("t/full")).mode & 0o777).toBe(0o700);
    expect(existsSync(at("t/full/inner"))).toBe(true);
    expect([statSync(at("t/hard")).ino, statSync(at("t/hard")).nlink]).toEqual([statSync(at("t/pipe")).ino, 2]);
    mkdirSync(at("t/empty"));
    for (const name of ["full", "empty"]) {
      expect(await refusalOf(unpack(archive({ name, content: "x" })))).toMatch(/^INVALID_ARGUMENT \w+: is a dir/);
    }
    expect(readdirSync(at("t")).filter((name) => name.startsWith("."))).toEqual([]);
  });

  it("that fails in the middle leaves what came before, and the session usable", async () => {
    const bytes = archive({ name: "first", content: "1" }, { name: "second", type: "link", link: "none" });
    expect(await refusalOf(unpack(bytes))).toMatch(/^INVALID_ARGUMENT archive entry second: no such/);
    expect(readdirSync(at("t"))).toEqual(["first"]);
    async function* gone() {
      yield archive({ name: "third", content: "x".repeat(200_000) }).subarray(0, 100_000);
      throw new TypeError("the client went away");
    }
    await expect(extract(session, gone(), { path: "t" })).rejects.toThrow("the client went away");
    await unpack(archive({ name: "fourth" }));
    expect(readdirSync(at("t")).sort()).toEqual(["first", "fourth"]);
  });

  it("that does not fit is refused as full, without waiting for the rest of it", async () => {
    mkdirSync(at("small"));
    await helper.launcher.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", at("small")], 5_000);
    let sent = 0;
    async function* endless() {
      yield tarHeader({ ...ENTRY, name: "endless", size: 2 ** 37 });
      for (; ; sent += MIB) yield Buffer.alloc(MIB);
    }
    const full = await helper.open(at("small"));
    expect(await refusalOf(extract(full, endless(), { path: "/" }))).toMatch(/^STORAGE_FULL/);
    expect(sent).toBeLessThan(64 * MIB);
    const many = Array.from({ length: 40 }, (_, i) => ({ name: `f${i}`, content: "x".repeat(50_000) }));
    expect(await refusalOf(extract(full, inPieces(archive(...many)), { path: "/" }))).toMatch(/^STORAGE_FULL/);
    full.close();
    await helper.launcher.run(["umount", "-l", at("small")], 5_000);
  });
});

describe("a tree", () => {
  it("is packed into what tar reads, and unpacks to the same, in gzip too", async () => {
    const tree = makeTree();
    execFileSync("mkfifo", [join(tree, "pipe")]);
    const source = await helper.open(tree);
    mkdirSync(at("by-tar"));
    const bytes = await buffer(pack(source, "/"));
    execFileSync("tar", ["-C", at("by-tar"), "-xpf", "-"], { input: bytes });
    const packed = await buffer(pack(source, "/", { isGzip: true }));
    expect(packed.subarray(0, 2)).toEqual(Buffer.from([0x1f, 0x8b]));
    await unpack(packed, { path: "by-us", preserve_owner: true });
    rmSync(join(tree, "pipe"));
    expect(shape(at("by-tar"))).toEqual(shape(tree));
    expect(shape(at("by-us"))).toEqual(shape(tree));
    source.close();
  });

  it("that lies in layers, as a container's root does, is walked, changed and removed like any other", async () => {
    const tree = makeTree();
    for (let i = 0; i < 2_000; i++) writeFileSync(join(tree, "a/b", `many-${i}`), "");
    for (const name of ["layers", "merged"]) mkdirSync(join(top, name));
    const [upper, work, merged] = ["layers/upper", "layers/work", "merged"].map((name) => join(top, name));
    const options = `lowerdir=${tree},upperdir=${upper},workdir=${work}`;
    const script = `mount -t tmpfs none ${top}/layers && mkdir ${upper} ${work} && mount -t overlay -o ${options} none ${merged}`;
    await helper.launcher.run(["sh", "-c", script], 5_000);
    const layered = await helper.open(join(top, "merged"));
    await layered.write("a/b/many-7", Buffer.from("changed"));
    await layered.rename("a/f", "a/moved");
    await layered.remove("a/b/many-8");
    await extract(layered, inPieces(archive({ name: "a/b/many-9", content: "new" }, { name: "large/in" })), {
      path: "/",
    });
    await unpack(await buffer(pack(layered, "/")), { path: "copy", preserve_owner: true });
    const names = readdirSync(at("copy/a/b"));
    expect([names.length, names.includes("many-8")]).toEqual([2_001, false]);
    const content = ["a/b/many-7", "a/b/many-9", "a/moved", "large/in"].map((name) =>
      readFileSync(at("copy", name), "utf8"),
    );
    expect(content).toEqual(["changed", "new", "content", ""]);
    expect(statSync(at("copy/tool")).mode & 0o7777).toBe(0o4755);
    expect(await layered.remove("a", true)).toBe(2_001 + 4);
    expect((await layered.list({ path: "/", page: 1, page_size: 100 })).entries.map(({ name }) => name)).not.toContain(
      "a",
    );
    layered.close();
    await helper.launcher.run(["umount", "-l", join(top, "merged"), join(top, "layers")], 5_000);
  });

  it("of one file is packed under its name, and an empty one is an archive too", async () => {
    mkdirSync(at("empty"));
    writeFileSync(at("file"), "x");
    await unpack(await buffer(pack(session, "file")), { path: "one" });
    await unpack(await buffer(pack(session, "empty")), { path: "none" });
    expect([readdirSync(at("one")), readdirSync(at("none"))]).toEqual([["file"], []]);
    expect(await refusalOf(buffer(pack(session, "missing")))).toMatch(/^NOT_FOUND/);
  });

  it("whose names are no text keeps them", async () => {
    execFileSync("python3", [
      "-c",
      "import os,sys; open(os.path.join(os.fsencode(sys.argv[1]), b'\\xff\\xfe'), 'w')",
      root,
    ]);
    await unpack(await buffer(pack(session, "/")), { path: "copy" });
    const names = readdirSync(Buffer.from(at("copy")), { encoding: "buffer" });
    expect(names).toEqual([Buffer.from([0xff, 0xfe])]);
  });

  it("ends its session when the reader leaves early", async () => {
    execFileSync("truncate", ["-s", "1G", at("sparse")]);
    for await (const _ of pack(session, "/")) break;
    expect(session.isOpen).toBe(false);
  });
});

describe("bytes that are no archive", () => {
  it("are refused, each with what is wrong", async () => {
    const header = tarHeader({ ...ENTRY, name: "f", size: 5000 });
    const lying = Buffer.from(header);
    lying.write("77777777777", 124);
    const pax = (text: string, size = text.length) =>
      Buffer.concat([typed("x", size), Buffer.from(text), tarPadding(text.length), archive({ name: "f" })]);
    const record = (text: string) => {
      let length = text.length + 2;
      while (`${length} ${text}\n`.length !== length) length++;
      return `${length} ${text}\n`;
    };
    const cases: [string, Buffer, RegExp][] = [
      ["nothing", Buffer.alloc(0), /truncated archive/],
      ["text", Buffer.from("hello ".repeat(1000)), /not tar or tar.gz/],
      ["damaged gzip", gzipSync(archive({ name: "f" })).fill(7, 30), /corrupt/],
      ["cut gzip", gzipSync(archive({ name: "f", content: "abc" })).subarray(0, -20), /truncated gzip data/],
      ["a cut header", header.subarray(0, 200), /truncated archive/],
      ["cut content", Buffer.concat([header, Buffer.alloc(100)]), /truncated archive/],
      ["no end", archive({ name: "f" }).subarray(0, 512), /truncated archive/],
      ["a size that lies", lying, /not tar or tar.gz/],
      ["a negative size", archive({ name: "f", size: -1 }), /no size/],
      [
        "a huge extended header",
        Buffer.concat([typed("x", 2 ** 33), Buffer.alloc(MIB)]),
        /extended tar header too large/,
      ],
      ["a huge long name", typed("L", LIMITS.archive_extension_bytes_max + 1), /extended tar header too large/],
      ["a damaged extended header", pax("99 path=x\n"), /corrupt extended tar header/],
      ["one without length", pax("path=x\n"), /corrupt extended tar header/],
      ["a size that is none", pax(record("size=1e9")), /invalid number/],
      ["a NUL in a name", pax(record("path=a\0b")), /NUL/],
      ["a sparse file of PAX", pax(record("GNU.sparse.major=1")), /sparse/],
      ["a sparse file of GNU", typed("S", 0), /sparse/],
      ["an unknown type", typed("Q", 0), /unknown/],
      ["more behind its end", Buffer.concat([archive({ name: "f" }), Buffer.alloc(2 * MIB)]), /data after the end/],
      ["no name that can be", archive({ name: "x".repeat(300) }), /name too long/],
      ["a name above the bound", archive({ name: "x/".repeat(2500) }), /deep|above/],
      ["a tree too deep", archive({ name: "x/".repeat(LIMITS.archive_depth_max + 1) }), /deep/],
    ];
    for (const [what, bytes, expected] of cases) {
      const refusal = await refusalOf(unpack(bytes));
      expect([what, refusal]).toEqual([what, expect.stringMatching(expected)]);
      expect([what, refusal.split(" ")[0]]).toEqual([what, "INVALID_ARGUMENT"]);
    }
    expect(session.isOpen).toBe(true);
  });

  it("that claim more than an archive may hold are refused before any of it is read", async () => {
    const size = LIMITS.archive_bytes_max + 1;
    expect(await refusalOf(unpack(tarHeader({ ...ENTRY, name: "f", size })))).toMatch(/exceeds the size of an archive/);
  });
});

/** A header of another type, of which no entry is made. */
function typed(type: string, size: number): Buffer {
  const header = tarHeader({ ...ENTRY, name: "f", size });
  header.write(type, 156);
  header.write("        ", 148);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

describe("size", () => {
  /** In a process of its own, so that what it takes is its own. */
  function measure(mode: string): Promise<{ growth_mb: number; seconds: number; bytes: number }> {
    const argv = [join(import.meta.dirname, "archive-load.ts"), helper.native.binary, top, mode];
    const child = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "inherit"] });
    let said = "";
    child.stdout.on("data", (chunk) => {
      said += chunk;
    });
    return new Promise((resolve, reject) => {
      child.once("exit", (code) => (code === 0 ? resolve(JSON.parse(said)) : reject(new Error(`${mode}: ${code}`))));
    });
  }

  // What is sent on is given back; a million small objects wait to be collected.
  const GROWTH_MB_MAX = { tar: 32, gzip: 32, pack: 64, entries: 192 };

  it("of a gigabyte is unpacked in less than 32 MB of memory, and packed in not much more", async () => {
    for (const mode of ["tar", "gzip", "pack"] as const) {
      const { growth_mb, seconds, bytes } = await measure(mode);
      process.stdout.write(`${mode}: ${(bytes / MIB / seconds).toFixed(0)} MiB/s, +${growth_mb.toFixed(0)} MB\n`);
      expect(bytes).toBe(1024 * MIB);
      expect([mode, growth_mb < GROWTH_MB_MAX[mode]]).toEqual([mode, true]);
    }
  });

  it("of many empty entries is bounded, and what is one too many refused", async () => {
    const { growth_mb, seconds, bytes } = await measure("entries");
    process.stdout.write(`entries: ${(bytes / seconds).toFixed(0)} a second, +${growth_mb.toFixed(0)} MB\n`);
    expect(bytes).toBe(100_000);
    expect(growth_mb).toBeLessThan(GROWTH_MB_MAX.entries);
    const header = tarHeader({ ...ENTRY, name: "same/name" });
    async function* endless() {
      const many = Buffer.concat(Array.from({ length: 100 }, () => header));
      for (;;) yield many;
    }
    // With everything stripped nothing is made, which is the quickest way to count.
    const refused = refusalOf(extract(session, endless(), { path: "/", strip_components: 2 }));
    expect(await refused).toMatch(/^INVALID_ARGUMENT .* exceeds the number of entries \(limit 1000000\)/);
  });
});
