/** Packs and trees of git: those that git makes, whatever is in them, and those that only an attacker makes. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deflateSync } from "node:zlib";
import { afterAll, describe, expect, it } from "vitest";
import { AppError } from "../../../src/base/errors.ts";
import { LIMITS } from "../../../src/base/limits.ts";
import { gitSource } from "../../../src/oci/builds/git/source.ts";
import { makeTree } from "../../../src/oci/builds/git/tree-thread.ts";
import { git } from "../../support/git-host.ts";

const MIB = 1024 * 1024;
const root = mkdtempSync(join(tmpdir(), "hearth-packs-"));
afterAll(() => rmSync(root, { recursive: true }));

/** Makes the tar of a commit in a pack. Returns its path and the answer, or the message of the refusal. */
async function unpacked(pack: Buffer, commit: string, directory = "", bytes_max = 64 * MIB) {
  const own = mkdtempSync(join(root, "t-"));
  const [file, target] = [join(own, "pack"), join(own, "tar")];
  writeFileSync(file, pack);
  const answer = await makeTree({ pack: file, target, commit, directory, bytes_max });
  return { answer, target, message: "failure" in answer ? answer.failure.message : null };
}

type Made = { readonly kind: number; readonly content: Buffer; readonly size?: number; readonly base?: Buffer };

const NAMES = ["", "commit", "tree", "blob", "tag"];
const idOf = ({ kind, content }: Made): string =>
  createHash("sha1").update(`${NAMES[kind]} ${content.length}\0`).update(content).digest("hex");

/** `size`: what the header claims. */
function packOf(objects: readonly Made[], count = objects.length): Buffer {
  const head = Buffer.from("PACK\0\0\0\x02\0\0\0\0", "latin1");
  head.writeUInt32BE(count, 8);
  const parts = objects.map(({ kind, content, size = content.length, base = Buffer.alloc(0) }) => {
    const bytes = [(kind << 4) | (size & 15)];
    for (let left = Math.floor(size / 16); left > 0; left = Math.floor(left / 128)) {
      bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) | 128;
      bytes.push(left & 127);
    }
    return Buffer.concat([Buffer.from(bytes), base, deflateSync(content)]);
  });
  const body = Buffer.concat([head, ...parts]);
  return Buffer.concat([body, createHash("sha1").update(body).digest()]);
}

const blob = (text: string | Buffer): Made => ({ kind: 3, content: Buffer.from(text) });
const tree = (...entries: readonly (readonly [string, string, Made])[]): Made => ({
  kind: 2,
  content: Buffer.concat(
    entries.flatMap(([mode, name, of]) => [Buffer.from(`${mode} ${name}\0`, "latin1"), Buffer.from(idOf(of), "hex")]),
  ),
});
const commit = (of: Made): Made => ({
  kind: 1,
  content: Buffer.from(`tree ${idOf(of)}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1445412480 +0000\n\nx\n`),
});
/** What the thread answers to a tree, with the objects that it needs. */
async function refusal(top: Made, ...others: readonly Made[]): Promise<string | null> {
  const whole = commit(top);
  return (await unpacked(packOf([whole, top, ...others]), idOf(whole))).message;
}

it("is named by a URL with a ref and a directory, where the digits of a commit have one spelling", () => {
  const refuse = (why: string) => new AppError("INVALID_ARGUMENT", why);
  const read = (source: string) => Object.values(gitSource(source, refuse));
  expect(read("https://a/b.git")).toEqual(["https://a/b.git", null, ""]);
  expect(read("https://u:p@a/b.git#v1:/docs/./x/")).toEqual(["https://u:p@a/b.git", "v1", "docs/x"]);
  expect(read(`https://a/b.git#${"AB".repeat(20)}`)).toEqual(["https://a/b.git", "ab".repeat(20), ""]);
  expect(read("https://a/b.git#Main:")).toEqual(["https://a/b.git", "Main", ""]);
});

describe("a pack of git", () => {
  it("gives the very files of its commit, with differences, empty and large ones, links and odd names", async () => {
    const folder = mkdtempSync(join(root, "r-"));
    git(folder, ["init", "--quiet"]);
    const long = Array.from(
      { length: 5_000 },
      (_, i) => `line ${i} ${createHash("sha1").update(`${i}`).digest("hex")}`,
    );
    mkdirSync(join(folder, "d/e"), { recursive: true });
    for (let i = 0; i < 20; i++)
      writeFileSync(join(folder, `d/like-${i}`), long.with(i * 100, `other ${i}`).join("\n"));
    for (const size of [0, 1, 63, 64, 65, 1023, 1024, 65_536, MIB - 1, MIB, MIB + 1]) {
      writeFileSync(join(folder, `d/e/zeros-${size}`), Buffer.alloc(size));
    }
    writeFileSync(join(folder, "run"), "#!/bin/sh\n", { mode: 0o755 });
    writeFileSync(join(folder, `${"n".repeat(150)} \xe4`), "long");
    symlinkSync("/etc/passwd", join(folder, "link"));
    git(folder, ["add", "-A"]);
    git(folder, ["commit", "--quiet", "-m", "x"]);
    git(folder, ["tag", "-a", "-m", "t", "v1"]);
    const id = git(folder, ["rev-parse", "HEAD"]);
    const tag = git(folder, ["rev-parse", "v1"]);
    const listed = git(folder, ["rev-list", "--objects", "--no-object-names", "v1"]);
    for (const [i, option] of ["--delta-base-offset", "--no-reuse-delta"].entries()) {
      const prefix = join(folder, `.git/own-${i}`);
      const made = git(folder, ["pack-objects", option, "--window=50", prefix], `${listed}\n`);
      const pack = readFileSync(`${prefix}-${made}.pack`);
      expect(pack.length).toBeLessThan(2 * MIB);
      for (const wanted of [id, tag]) {
        const { target, message } = await unpacked(pack, wanted, "", 512 * MIB);
        expect(message).toBe(null);
        const out = mkdtempSync(join(root, "o-"));
        execFileSync("tar", ["-xf", target, "-C", out]);
        git(out, ["init", "--quiet"]);
        git(out, ["add", "-A"]);
        expect(git(out, ["write-tree"])).toBe(git(folder, ["rev-parse", "HEAD^{tree}"]));
      }
      expect((await unpacked(pack, id, "d/e")).message).toBe(null);
      expect((await unpacked(pack, id, "run")).message).toBe("the commit has no directory 'run'");
      expect((await unpacked(pack, id, "", MIB)).message).toContain("files of the commit too large");
      for (let at = 0; at < pack.length; at += Math.ceil(pack.length / 7)) {
        expect((await unpacked(pack.subarray(0, at), id)).message).toMatch(/corrupt pack/);
      }
    }
  });

  it("refuses names that are none of a file, and two files of one name", async () => {
    const file = blob("x");
    for (const name of ["", ".", "..", ".git", ".GIT", "a/b", "/etc", "n".repeat(256)]) {
      expect(await refusal(tree(["100644", name, file]), file)).toContain("name not allowed");
      const below = tree(["100644", name, file]);
      expect(await refusal(tree(["40000", "d", below]), below, file)).toContain("name not allowed");
    }
    const link = blob("/etc");
    const below = tree(["100644", "passwd", file]);
    expect(await refusal(tree(["120000", "d", link], ["40000", "d", below]), link, below, file)).toContain(
      "one name: 'd'",
    );
    expect(await refusal(tree(["120000", "l", blob("a\0b")]), blob("a\0b"))).toContain("target of a link");
    expect(await refusal(tree(["120000", "l", blob("")]), blob(""))).toContain("target of a link");
    expect(await refusal(tree(["60644", "device", file]), file)).toMatch(/kind of a file|corrupt tree/);
    expect(await refusal(tree(["40000", "d", file]), file)).toContain("is no tree");
    expect(await refusal(tree(["100644", "gone", file]))).toContain("no object");
  });

  it("ends at its bounds: trees that hold one another again and again, sizes that lie, bases without end", async () => {
    let top = tree(["100644", "f", blob("x")]);
    const all = [blob("x"), top];
    for (let depth = 0; depth < 40; depth++) {
      top = tree(["40000", "a", top], ["40000", "b", top]);
      all.push(top);
    }
    const whole = commit(top);
    expect((await unpacked(packOf([whole, ...all]), idOf(whole), "", 512 * MIB)).message).toContain("too many files");
    let deep = tree();
    const line = [deep];
    for (let depth = 0; depth < 300; depth++) {
      deep = tree(["40000", "a", deep]);
      line.push(deep);
    }
    const far = commit(deep);
    expect((await unpacked(packOf([far, ...line]), idOf(far))).message).toContain("too deep");

    const zeros = blob(Buffer.alloc(MIB));
    const some = "0".repeat(40);
    expect((await unpacked(packOf([{ ...zeros, size: 10 }]), some)).message).toContain("as long as it claims");
    expect((await unpacked(packOf([{ ...blob("x"), size: 50 }]), some)).message).toContain("shorter than it claims");
    const size = LIMITS.build_git_object_mb_max * MIB + 1;
    expect((await unpacked(packOf([{ ...zeros, size }]), some)).message).toContain(
      "a file of the repository too large",
    );
    expect((await unpacked(packOf([], LIMITS.build_git_objects_max + 1), some)).message).toContain("too large");
    expect((await unpacked(packOf([], 3), some)).message).toContain("corrupt pack");

    const difference = (content: number[], base: Buffer): Made => ({ kind: 6, content: Buffer.from(content), base });
    const wrong = async (content: number[]) => {
      const first = blob("base");
      const pack = packOf([first]).length - 20 - 12;
      return (await unpacked(packOf([first, difference(content, Buffer.from([pack]))]), some)).message;
    };
    expect(await wrong([4, 4, 0x90, 4])).toContain("no object");
    expect(await wrong([4, 200, 1, 0x90, 4])).toContain("shorter than it claims");
    expect(await wrong([4, 4, 0x91, 2, 4])).toContain("leads out of its base");
    expect(await wrong([4, 2, 0x90, 4])).toContain("leads out of its base");
    expect(await wrong([9, 4, 0x90, 4])).toContain("another base");
    expect(await wrong([4, 4, 0])).toContain("unknown command");
    expect((await unpacked(packOf([difference([4, 4], Buffer.from([0]))]), some)).message).toContain("its own base");
    expect((await unpacked(packOf([difference([4, 4], Buffer.from([127]))]), some)).message).toContain(
      "base is missing",
    );
    const lost: Made = { kind: 7, content: Buffer.from([4, 4]), base: Buffer.alloc(20, 1) };
    expect((await unpacked(packOf([lost]), some)).message).toContain("a base is missing");
  });
});
