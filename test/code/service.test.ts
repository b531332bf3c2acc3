/** Functions' code on a real storage pool: uploads, attacks, collection. */
import { randomBytes } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { buffer } from "node:stream/consumers";
import { gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { temporaryFiles } from "../../src/base/reservations.ts";
import { TENANT_LIMITS } from "../../src/base/tenant-limits.ts";
import { CodeArchives } from "../../src/code/archive.ts";
import { CODE_MTIME_MS } from "../../src/code/unpack.ts";
import { type TarEntry, tarEnd, tarHeader, tarPadding } from "../../src/engine/files/tar.ts";
import { archive, ENTRY, inPieces } from "../support/file-helper.ts";
import { eventually } from "../support/native.ts";
import { zip } from "../support/zip.ts";
import { CodeGround } from "./code-ground.ts";

const MIB = 1024 * 1024;

const held = new CodeGround();
const state = { number: 0 };

beforeAll(async () => {
  await held.open();
  for (const id of ["t", "other"]) await held.tenant(id);
});
afterAll(() => held.stop());

/** An archive that no other test has. */
function anArchive(more: readonly (Partial<TarEntry> & { content?: string })[] = []): Buffer {
  return archive({ name: "index.mjs", content: `export const number = ${state.number++};\n` }, ...more);
}

const put = (bytes: Buffer, tenant_id = "t", strip_components = 0) =>
  held.code.put(tenant_id, inPieces(bytes, 65_536), { strip_components });

/** Uploads, and expects a refusal that leaves nothing. An earlier upload may still be removed meanwhile. */
async function refused(source: Buffer | AsyncIterable<Uint8Array>, strip_components = 0) {
  const rows = await held.rows();
  const trees = new Set(await held.trees());
  const pieces = Buffer.isBuffer(source) ? inPieces(source, 65_536) : source;
  const error = await held.code.put("t", pieces, { strip_components }).then(
    () => null,
    (error: { code: string; message: string }) => error,
  );
  await eventually("the refused upload to go", async () =>
    (await held.trees()).every((id) => trees.has(id) && !id.startsWith("new-")),
  );
  await eventually("the helper to go", () => held.helpers() === 0);
  expect(await held.rows()).toEqual(rows);
  return `${error?.code}: ${error?.message}`;
}

describe("an upload", () => {
  const content = "x".repeat(100_000);
  const files: (Partial<TarEntry> & { content?: string })[] = [
    { name: "d/", type: "directory", mode: 0o1777 },
    { name: "d/run", content: "#!/bin/sh\n", mode: 0o6755, uid: 33, gid: 33 },
    { name: "d/large", content, mode: 0o600 },
    { name: "link", type: "symlink", link: "d/run" },
    { name: "A", content: "upper" },
    { name: "a", content: "lower" },
    { name: Buffer.from("übung").toString("latin1"), content: "text" },
  ];

  it("becomes a tree of root's with plain modes and one time", async () => {
    const { digest, size_bytes, entry_count } = await put(archive(...files));
    expect(digest).toMatch(/^[0-9a-f]{64}$/);
    expect([size_bytes, entry_count]).toEqual([100_024, 7]);
    const at = (path: string) => lstatSync(held.seen(digest, path));
    for (const path of ["", "d", "d/run", "d/large", "link", "A", "übung"]) {
      const { uid, gid, mtimeMs } = at(path);
      expect([path, uid, gid, mtimeMs]).toEqual([path, 0, 0, CODE_MTIME_MS]);
    }
    const modes = ["", "d", "d/run", "d/large", "A"].map((path) => (at(path).mode & 0o7777).toString(8));
    expect(modes).toEqual(["755", "755", "755", "644", "644"]);
    expect(readFileSync(held.seen(digest, "d/large"), "utf8")).toBe(content);
    expect(readlinkSync(held.seen(digest, "link"))).toBe("d/run");
    expect(readdirSync(held.seen(digest)).toSorted()).toEqual(["A", "a", "d", "link", "übung"]);
    expect(await held.code.get("t", digest)).toMatchObject({ digest, size_bytes, entry_count });
    expect(held.helpers()).toBe(0);
  });

  it("has one digest as tar, tar.gz and zip, in any order, with any times, owners and leading folder", async () => {
    const tar = archive(...files);
    const { digest } = await put(tar);
    const reordered = files.toReversed().map((file) => ({ ...file, mtime_ms: 5_000, uid: 1, gid: 2 }));
    const types: Record<string, number> = { directory: 0o040000, symlink: 0o120000 };
    const zipped = zip(
      ...files.map(({ name = "", type = "", content = "", link, mode = 0o644 }) => ({
        name: Buffer.from(name, "latin1"),
        content: link ?? content,
        mode: (types[type] ?? 0o100000) | mode,
      })),
    );
    const nested = archive(...files.map((file) => ({ ...file, name: `package/${file.name}` })));
    expect((await put(gzipSync(tar))).digest).toBe(digest);
    expect((await put(archive(...reordered))).digest).toBe(digest);
    expect((await put(zipped)).digest).toBe(digest);
    expect((await put(gzipSync(nested), "t", 1)).digest).toBe(digest);
    expect((await held.code.put("t", inPieces(zipped, 1))).digest).toBe(digest);
    await eventually("the other trees to go", async () => (await held.trees()).every((id) => !id.startsWith("new-")));
  });

  it("is read from a zip that does not fit the memory", async () => {
    const large = Buffer.alloc(3 * MIB, "random");
    for (let i = 0; i < large.length; i += 4) large.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, i);
    const { digest } = await put(zip({ name: "large", content: large }, { name: "small", content: "1" }));
    expect(readFileSync(held.seen(digest, "large")).equals(large)).toBe(true);
    expect(readdirSync(`${held.ground.data_dir}/code-uploads`)).toEqual([]);
  });

  it("is read from zips that are held, as many at once as the tenant's temporary files have room for", async () => {
    // A quarter of the disk: 4 MiB.
    const temporary = temporaryFiles(held.quotas, 16);
    const files = () => {
      throw new AppError("INTERNAL", "a zip needs no files");
    };
    const directory = `${held.ground.data_dir}/held-zips`;
    const archives = new CodeArchives({ directory, temporary, ids: randomIds(), clock: systemClock, files });
    await archives.begin();
    const open = (mib: number) => {
      return archives.open("t", inPieces(zip({ name: "large", content: randomBytes(mib * MIB) }), 65_536));
    };
    const first = await open(3);
    await expect(open(2)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    await first.close();
    expect(temporary.reservedBytes("t")).toBe(0);
    await expect(open(5)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    await (await open(2)).close();
    expect(temporary.reservedBytes("t")).toBe(0);
  });

  it("keeps the last of two entries of a name, and a hard link as a file", async () => {
    const one = await put(archive({ name: "a", content: "1" }, { name: "b", content: "2" }));
    const other = await put(
      archive(
        { name: "a", content: "old" },
        { name: "b", type: "symlink", link: "a" },
        { name: "b", content: "2" },
        { name: "a", content: "1" },
      ),
    );
    expect(other.digest).toBe(one.digest);
    const linked = await put(archive({ name: "a", content: "1" }, { name: "b", type: "link", link: "a" }));
    const copied = await put(archive({ name: "a", content: "1" }, { name: "b", content: "1" }));
    expect(linked.digest).toBe(copied.digest);
  });

  it("makes a file that begins with #! executable, also if the archive has no modes", async () => {
    const script = "#!/bin/sh\necho 1\n";
    const large = `#!/bin/sh\n${"# filler\n".repeat(10_000)}`;
    const marked = archive(
      { name: "run", content: script, mode: 0o755 },
      { name: "large", content: large, mode: 0o755 },
    );
    const { digest } = await put(marked);
    const bare = archive({ name: "run", content: script, mode: 0o644 }, { name: "large", content: large, mode: 0o600 });
    const of_windows = [
      { name: "run", content: script },
      { name: "large", content: large },
    ].map((entry) => ({ ...entry, system: 0, mode: 0 }));
    expect((await put(bare)).digest).toBe(digest);
    expect((await held.code.put("t", inPieces(bare, 1))).digest).toBe(digest);
    expect((await put(zip(...of_windows))).digest).toBe(digest);
    const modes = ["run", "large"].map((path) => (lstatSync(held.seen(digest, path)).mode & 0o777).toString(8));
    expect(modes).toEqual(["755", "755"]);
    expect(lstatSync(held.seen(digest, "large")).mtimeMs).toBe(CODE_MTIME_MS);
    const others = await put(
      archive({ name: "a", content: " #!" }, { name: "b", content: "#" }, { name: "c", content: "" }),
    );
    expect(["a", "b", "c"].map((path) => lstatSync(held.seen(others.digest, path)).mode & 0o111)).toEqual([0, 0, 0]);
  });

  it("is given back by `pack` as an archive with the same digest", async () => {
    const { digest } = await put(archive(...files, { name: "e/", type: "directory" }));
    const packed = await buffer(await held.code.pack("t", digest));
    expect(gunzipSync(packed).length).toBeGreaterThan(100_000);
    expect((await put(packed)).digest).toBe(digest);
    await eventually("the helper to go", () => held.helpers() === 0);
  });

  it("of a quarter of a thousand empty files takes the same way", async () => {
    const names = Array.from({ length: 250 }, (_, i) => ({ name: `n/${i % 7}/${i}` }));
    const { digest, entry_count } = await put(archive(...names));
    expect(entry_count).toBe(250 + 8);
    expect(readdirSync(held.seen(digest, "n")).length).toBe(7);
  });
});

describe("a path of the code", () => {
  it("has type and mode, by way of links inside alone", async () => {
    const { digest } = await put(
      anArchive([
        { name: "bin/run", content: "#!/usr/bin/node\n...", mode: 0o755 },
        { name: "data", content: "x", mode: 0o600 },
        { name: "run", type: "symlink", link: "bin/run" },
        { name: "none", type: "symlink", link: "missing" },
        { name: "loop", type: "symlink", link: "loop" },
      ]),
    );
    const expected: Readonly<Record<string, number | null>> = {
      ...{ "bin/run": 0o100755, "./run": 0o100755, "/bin/../../../bin/run": 0o100755, data: 0o100644 },
      ...{ bin: 0o040755, "": 0o040755 },
      ...{ none: null, loop: null, missing: null, "bin/run/x": null, "../../etc/hostname": null, "a\0b": null },
    };
    for (const [path, mode] of Object.entries(expected)) {
      expect([path, await held.code.modeOf("t", digest, path)]).toEqual([path, mode]);
    }
    await eventually("the helper to go", () => held.helpers() === 0);
  });
});

describe("a refused upload leaves nothing and names the entry:", () => {
  it("names and links that lead out", async () => {
    const cases: [Partial<TarEntry>[], RegExp][] = [
      [[{ name: "../evil" }], /archive entry \.\.\/evil leaves/],
      [[{ name: "a/../../evil" }], /evil leaves/],
      [[{ name: "/etc/evil" }], /\/etc\/evil has an absolute name/],
      [[{ name: "l", type: "symlink", link: "/etc" }], /entry l is a link that leads out of the archive: \/etc/],
      [[{ name: "l", type: "symlink", link: "../x" }], /entry l is a link that leads out/],
      [[{ name: "l", type: "symlink", link: "." }, { name: "l/x" }], /l\/x lies below the link l/],
      [[{ name: "l", type: "link", link: "../../etc/passwd" }], /entry l leaves/],
      [[{ name: "l", type: "link", link: "/etc/passwd" }], /entry l has an absolute name/],
      [[{ name: "l", type: "link", link: "none" }], /entry l is a hard link to something that is not a file/],
    ];
    for (const [entries, expected] of cases) {
      expect(await refused(archive({ name: "ok", content: "1" }, ...entries))).toMatch(expected);
    }
    expect(await refused(zip({ name: "../evil" }))).toMatch(/INVALID_ARGUMENT: archive entry \.\.\/evil leaves/);
    expect(await refused(zip({ name: "l", content: "/etc", mode: 0o120777 }))).toMatch(/leads out/);
  });

  it("devices, pipes, clashes, names that are no text, and archives that are none", async () => {
    const typed = (type: string) => {
      const header = tarHeader({ ...ENTRY, name: "odd" });
      header.write(type, 156, "latin1");
      header.write("        ", 148, "latin1");
      const sum = header.reduce((total, byte) => total + byte, 0);
      header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
      return Buffer.concat([header, tarEnd()]);
    };
    for (const type of ["3", "4", "6"])
      expect(await refused(typed(type))).toMatch(/INVALID_ARGUMENT: archive entry odd is a/);
    expect(await refused(archive({ name: "a" }, { name: "a/b" }))).toMatch(/a\/b lies below the file a/);
    expect(await refused(archive({ name: "a/b" }, { name: "a" }))).toMatch(/entry a is a directory/);
    expect(await refused(archive({ name: "a" }, { name: "a/", type: "directory" }))).toMatch(/entry a is no directory/);
    expect(await refused(archive({ name: "a\xff" }))).toMatch(/not UTF-8/);
    expect(await refused(archive({ name: "x".repeat(256) }))).toMatch(/too long/);
    expect(await refused(Buffer.alloc(0))).toMatch(/INVALID_ARGUMENT: the archive is empty/);
    expect(await refused(archive())).toMatch(/the archive has no entries/);
    expect(await refused(zip())).toMatch(/the archive has no entries/);
    expect(await refused(archive({ name: "./", type: "directory" }))).toMatch(/the archive has no entries/);
    expect(await refused(archive({ name: "a" }), 1)).toMatch(/strip_components leaves no entry/);
    expect(await refused(Buffer.from("plain text"))).toMatch(/INVALID_ARGUMENT/);
    expect(await refused(Buffer.alloc(2_000, "text"))).toMatch(/INVALID_ARGUMENT: invalid archive/);
    expect(await refused(anArchive().subarray(0, 700))).toMatch(/INVALID_ARGUMENT: truncated/);
    expect(await refused(gzipSync(anArchive()).subarray(0, 60))).toMatch(/INVALID_ARGUMENT: corrupt or truncated/);
    expect(await refused(zip({ name: "a", content: "1", sum: 7 }))).toMatch(
      /INVALID_ARGUMENT: archive entry a is damaged/,
    );
  });

  it("10 GB of zeros, refused by the announcement, and more than a gigabyte of files", async () => {
    async function* zeros(name: string, size: number, count: number) {
      for (let i = 0; i < count; i++) {
        yield tarHeader({ ...ENTRY, name: `${name}${i}`, size });
        for (let left = size; left > 0; left -= MIB) yield Buffer.alloc(Math.min(left, MIB));
        yield tarPadding(size);
      }
      yield tarEnd();
    }
    expect(await refused(zeros("huge", 10_000 * MIB, 1))).toMatch(
      /INVALID_ARGUMENT: archive entry huge0 of 10485760000 bytes/,
    );
    const packed = gzipSync(Buffer.alloc(64 * MIB));
    const header = gzipSync(tarHeader({ ...ENTRY, name: "bomb", size: 10 * 1024 * MIB }));
    expect(await refused(Buffer.concat([header, packed]))).toMatch(
      /archive entry bomb of \d+ bytes exceeds the size of code/,
    );
    expect(await refused(zip({ name: "bomb", content: "x", size: 2 ** 31 }))).toMatch(/bomb of 2147483648 bytes/);
  });

  it("an archive that is larger than it may be", async () => {
    async function* endless() {
      yield tarHeader({ ...ENTRY, name: "f", size: LIMITS.code_bytes_max - MIB });
      for (;;) yield Buffer.alloc(MIB);
    }
    expect(await refused(endless())).toMatch(/BODY_TOO_LARGE: archive too large \(limit 268435456 bytes\)/);
  });

  it("a client that goes, and one that is too slow", async () => {
    async function* leaves() {
      yield anArchive().subarray(0, 600);
      throw new TypeError("the client is gone");
    }
    expect(await refused(leaves())).toBe("undefined: the client is gone");
    async function* slow() {
      yield tarHeader({ ...ENTRY, name: "f", size: 1_000_000 });
      for (;;) {
        held.pass(LIMITS.upload_stall_ms / 1_000 - 1);
        yield Buffer.alloc(1_000);
      }
    }
    expect(await refused(slow())).toMatch(/REQUEST_TIMEOUT: upload too slow: 2\d{3} bytes/);
  });

  it("one above the tenant's storage, whose entries count too", async () => {
    await held.tenant("small", { storage_mb_max: 2 });
    const content = "x".repeat(1.5 * MIB);
    const quota = (error: { code: string }) => error.code;
    const first = await put(archive({ name: "f", content }), "small");
    expect(await put(anArchive([{ name: "f", content }]), "small").catch(quota)).toBe("QUOTA_EXCEEDED");
    const names = Array.from({ length: 500 }, (_, i) => ({ name: `${i}` }));
    expect(await put(anArchive(names), "small").catch(quota)).toBe("QUOTA_EXCEEDED");
    expect((await put(archive({ name: "f", content }), "small")).digest).toBe(first.digest);
    expect((await held.rows()).filter((row) => row.startsWith("small "))).toEqual([`small ${first.digest}`]);
    const { sql } = TENANT_LIMITS.storage_mb_max.used;
    const used = await held.store.readOne(`SELECT ${sql} AS bytes FROM tenants WHERE id = 'small'`);
    expect(used?.bytes).toBe(content.length + LIMITS.code_entry_bytes + LIMITS.code_tree_bytes);
    await eventually("the refused tree to go", async () => {
      const known = new Set((await held.rows()).map((row) => row.split(" ")[1]));
      return (await held.trees()).every((digest) => known.has(digest));
    });
  });

  it("one beyond the uploads of the tenant and of all", async () => {
    const gate = Promise.withResolvers<void>();
    async function* waiting() {
      const bytes = anArchive();
      yield bytes.subarray(0, 600);
      await gate.promise;
      yield bytes.subarray(600);
    }
    const tenants = ["t", "other", "third", "fourth"];
    for (const id of tenants) await held.tenant(id);
    const begun = tenants.flatMap((id) => [1, 2].map(() => held.code.put(id, waiting())));
    const code = (error: { code: string }) => error.code;
    expect(await put(anArchive()).catch(code)).toBe("CONCURRENCY_LIMIT");
    await held.tenant("fifth");
    expect(await put(anArchive(), "fifth").catch(code)).toBe("CAPACITY_FULL");
    gate.resolve();
    expect(new Set((await Promise.all(begun)).map(({ digest }) => digest)).size).toBe(begun.length);
    await put(anArchive());
  });

  it("one of a tenant that is being deleted", async () => {
    await held.tenant("leaving");
    await held.store.write([{ sql: "UPDATE tenants SET state = 'deleting' WHERE id = 'leaving'" }]);
    const before = (await held.trees()).length;
    expect(await put(anArchive(), "leaving").catch(({ code }) => code)).toBe("UNAUTHORIZED");
    await eventually("the tree to go", async () => (await held.trees()).length === before);
  });
});

describe("two tenants with the same code", () => {
  it("share one tree, and each reaches it only after an upload of its own", async () => {
    const bytes = anArchive();
    const { digest } = await put(bytes, "t");
    const code = (error: { code: string }) => error.code;
    expect(await held.code.get("other", digest).catch(code)).toBe("NOT_FOUND");
    expect(await held.code.pack("other", digest).catch(code)).toBe("NOT_FOUND");
    expect(await held.code.modeOf("other", digest, "index.mjs").catch(code)).toBe("NOT_FOUND");
    expect(await held.code.renew("other", digest).catch(code)).toBe("NOT_FOUND");
    await expect(held.version(900, "other", digest)).rejects.toMatchObject({ code: "NOT_FOUND" });
    const { ino } = lstatSync(held.seen(digest, "index.mjs"));
    expect((await put(bytes, "other")).digest).toBe(digest);
    expect(lstatSync(held.seen(digest, "index.mjs")).ino).toBe(ino);
    await held.prune();
    await eventually("the tree to go", async () => !(await held.trees()).includes(digest));
  });

  it("keep it until the last of them has no version of it", async () => {
    const bytes = anArchive();
    const { digest } = await put(bytes, "t");
    await put(bytes, "other");
    await held.version(1, "t", digest);
    await held.prune();
    expect((await held.rows()).filter((row) => row.includes(digest))).toEqual([`t ${digest}`]);
    expect(await held.trees()).toContain(digest);
    await held.deleteFunction(1);
    await held.prune();
    expect((await held.rows()).filter((row) => row.includes(digest))).toEqual([]);
    expect(await held.trees()).not.toContain(digest);
  });
});

describe("code that no version names", () => {
  it("stays for an hour after its latest upload", async () => {
    const bytes = anArchive();
    const { digest } = await put(bytes);
    held.pass(LIMITS.code_unused_seconds - 60);
    await held.code.prune();
    await put(bytes);
    held.pass(LIMITS.code_unused_seconds - 60);
    await held.code.prune();
    // Named by a client that would upload the same again.
    expect(await held.code.renew("t", digest)).toMatchObject({ digest, entry_count: 1 });
    held.pass(120);
    await held.code.prune();
    expect(await held.trees()).toContain(digest);
    await held.prune();
    expect(await held.trees()).not.toContain(digest);
  });

  it("goes soon after its last version, unless it was uploaded a moment ago", async () => {
    const bytes = anArchive();
    const { digest } = await put(bytes);
    held.code.collectSoon("t", [digest]);
    await held.version(2, "t", digest);
    held.pass(LIMITS.code_reuse_seconds + 2);
    held.code.collectSoon("t", [digest, digest]);
    await held.version(3, "t", digest);
    await held.deleteFunction(2);
    expect(await held.trees()).toContain(digest);
    await held.deleteFunction(3);
    held.code.collectSoon("t", [digest]);
    await eventually("the tree to go", async () => !(await held.trees()).includes(digest));
    expect((await held.rows()).filter((row) => row.includes(digest))).toEqual([]);
  });

  it("stays on the disk while it is held, and goes with the last hold", async () => {
    const { digest } = await put(anArchive());
    const [one, other] = [held.code.hold(digest), held.code.hold(digest)];
    await held.prune();
    expect((await held.rows()).filter((row) => row.includes(digest))).toEqual([]);
    one();
    one();
    expect(await held.trees()).toContain(digest);
    other();
    await eventually("the tree to go", async () => !(await held.trees()).includes(digest));
  });

  it("is there after a hold if it was uploaded again meanwhile", async () => {
    const bytes = anArchive();
    const { digest } = await put(bytes);
    const release = held.code.hold(digest);
    await held.prune();
    await put(bytes);
    release();
    await put(anArchive());
    expect(await held.trees()).toContain(digest);
    expect(readFileSync(held.seen(digest, "index.mjs"), "utf8")).toMatch(/^export/);
  });

  it("never has a row without a tree, however uploads and collections meet", async () => {
    const bytes = anArchive();
    const { digest } = await put(bytes);
    for (let round = 0; round < 30; round++) {
      held.pass(LIMITS.code_unused_seconds + 2);
      const [, , record] = await Promise.all([held.code.prune(), held.code.prune(), put(bytes), put(bytes, "other")]);
      expect(record.digest).toBe(digest);
      const isThere = (await held.trees()).includes(digest);
      const rows = (await held.rows()).filter((row) => row.includes(digest));
      if (rows.length > 0) expect(isThere).toBe(true);
    }
  });

  it("goes with its tenant", async () => {
    await held.tenant("gone");
    const { digest } = await put(anArchive(), "gone");
    await put(anArchive(), "gone");
    await held.code.eraseAll("gone");
    await held.code.eraseAll("gone");
    expect((await held.rows()).filter((row) => row.startsWith("gone"))).toEqual([]);
    expect(await held.trees()).not.toContain(digest);
  });
});
