/** The tree that an archive of code becomes, and its digest. */
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { CodeTree, pathOf } from "../../src/code/tree.ts";

const sum = (text: string) => createHash("sha256").update(text).digest("binary");
const latin1 = (text: string) => Buffer.from(text).toString("latin1");

function file(tree: CodeTree, path: string, content = "", isExecutable = false): void {
  tree.checkPlace(path);
  tree.addFile(path, isExecutable, sum(content), content.length);
}

function link(tree: CodeTree, path: string, target: string): void {
  tree.checkPlace(path);
  tree.addLink(path, target);
}

async function digestOf(fill: (tree: CodeTree) => void): Promise<string> {
  const tree = new CodeTree();
  fill(tree);
  return tree.digest();
}

describe("the digest of a tree", () => {
  it("is the SHA-256 of a head and the sorted sums of the entries", async () => {
    const digest = await digestOf((tree) => {
      file(tree, "a/run", "#!", true);
      link(tree, "b", "a/run");
    });
    const sums = [`d a\0`, `x a/run\0${sum("#!")}`, "l b\0a/run"].map((text) =>
      createHash("sha256").update(text, "latin1").digest("binary"),
    );
    const expected = createHash("sha256")
      .update("hearth code 1\n")
      .update(sums.sort().join(""), "latin1")
      .digest("hex");
    expect(digest).toBe(expected);
  });

  it("does not depend on the order, nor on whether a directory is named", async () => {
    const one = await digestOf((tree) => {
      file(tree, "a/x", "1");
      file(tree, "b/y", "2");
    });
    const other = await digestOf((tree) => {
      tree.addDirectory("b");
      file(tree, "b/y", "2");
      file(tree, "a/x", "old");
      file(tree, "a/x", "1");
    });
    expect(other).toBe(one);
  });

  it("differs for each change of name, content, type and executable bit", async () => {
    const trees = [
      (tree: CodeTree) => file(tree, "a", "1"),
      (tree: CodeTree) => file(tree, "A", "1"),
      (tree: CodeTree) => file(tree, "a", "2"),
      (tree: CodeTree) => file(tree, "a", "1", true),
      (tree: CodeTree) => link(tree, "a", "1"),
      (tree: CodeTree) => tree.addDirectory("a"),
      (tree: CodeTree) => file(tree, "a/1"),
      (tree: CodeTree) => file(tree, latin1("\u00e4"), "1"),
      (tree: CodeTree) => file(tree, latin1("a\u0308"), "1"),
    ];
    const digests = await Promise.all(trees.map(digestOf));
    expect(new Set(digests).size).toBe(trees.length);
  });
});

describe("the path of a name", () => {
  const refused = (name: string) => expect(() => pathOf(name, name, 0));

  it("loses leading components and dots", () => {
    expect(pathOf("n", "./a//b/./c/", 0)).toBe("a/b/c");
    expect(pathOf("n", "top/a/b", 1)).toBe("a/b");
    expect(pathOf("n", "./top/a", 1)).toBe("top/a");
    expect(pathOf("n", "top", 1)).toBeNull();
    expect(pathOf("n", "./", 0)).toBeNull();
  });

  it("is refused if it leads out, is absolute, too long, too deep or not UTF-8", () => {
    for (const name of ["../a", "a/../../b", "a/..", ".."]) refused(name).toThrow(/leaves the archive/);
    refused("/etc/passwd").toThrow("archive entry /etc/passwd has an absolute name");
    refused("a\0b").toThrow(/NUL/);
    refused("a\xff").toThrow(/not UTF-8/);
    refused(latin1("\ud800")).not.toThrow();
    refused("x".repeat(256)).toThrow(/too long/);
    refused("a/".repeat(LIMITS.archive_depth_max + 1)).toThrow(/too deep/);
    refused(`${"x".repeat(200)}/`.repeat(30)).toThrow(/too long/);
  });
});

describe("an entry of a tree", () => {
  it("replaces an earlier file or link, never a directory, and lies below directories alone", () => {
    const tree = new CodeTree();
    file(tree, "d/f", "12345");
    link(tree, "d/l", "f");
    file(tree, "d/l", "1");
    file(tree, "d/f", "1");
    expect([tree.size_bytes, tree.entry_count]).toEqual([2, 3]);
    expect(tree.addDirectory("d")).toBe(false);
    expect(() => file(tree, "d")).toThrow("archive entry d is a directory earlier in the archive");
    expect(() => tree.addDirectory("d/f")).toThrow(/is no directory earlier/);
    expect(() => file(tree, "d/f/x")).toThrow("archive entry d/f/x lies below the file d/f");
    link(tree, "link", "d");
    expect(() => file(tree, "link/x")).toThrow("archive entry link/x lies below the link link");
    expect(() => tree.addDirectory("link/x")).toThrow(/lies below the link/);
  });

  it("may be another name of a file, which counts once more", () => {
    const tree = new CodeTree();
    file(tree, "a", "12345", true);
    tree.checkPlace("b");
    tree.addName("b", "a");
    expect(tree.size_bytes).toBe(10);
    link(tree, "l", "a");
    for (const existing of ["l", "none", "", "b/x"]) expect(() => tree.addName("c", existing)).toThrow(/hard link/);
  });

  it("is refused above the bounds of size, number and names", () => {
    const half = LIMITS.code_bytes_max / 2;
    const tree = new CodeTree();
    for (const path of ["a", "b"]) tree.addFile(path, false, "", half);
    expect(() => tree.addName("c", "a")).toThrow(/archive entry c exceeds the size of code/);
    const many = new CodeTree();
    expect(() => {
      for (let i = 0; i <= LIMITS.code_entries_max; i++) many.addFile(`f${i}`, false, "", 0);
    }).toThrow(/archive entry f100000 exceeds the number of entries/);
    const long = new CodeTree();
    const names = Array.from({ length: 20 }, (_, i) => `${i}${"x".repeat(198)}`).join("/");
    expect(() => {
      for (let i = 0; i < LIMITS.code_entries_max; i++) long.addFile(`${names.slice(0, -6)}${i}`, false, "", 0);
    }).toThrow(/exceeds the bytes of all names/);
  });
});

describe("links of a tree", () => {
  const check = async (...links: readonly (readonly [string, string])[]) => {
    const tree = new CodeTree();
    for (const path of ["d/e/f", "top"]) file(tree, path);
    for (const [path, target] of links) link(tree, path, target);
    await tree.checkLinks();
  };

  it("may lead anywhere in it, also to nothing and in circles", async () => {
    await check(["a", "top"], ["d/up", "../top"], ["d/e/root", "../.."], ["none", "x/y"], ["self", "self"], ["p", "q"]);
    await check(["one", "two"], ["two", "one"], ["here", "."], ["d/e/far", "../../d/./e//f"]);
  });

  it("may not lead out, whatever other links they pass", async () => {
    const out = /archive entry \S+ is a link that leads out of the archive: /;
    await expect(check(["a", "/etc/passwd"])).rejects.toThrow(out);
    await expect(check(["a", ".."])).rejects.toThrow(out);
    await expect(check(["d/a", "../../x"])).rejects.toThrow(out);
    await expect(check(["a", "none/../../x"])).rejects.toThrow(out);
    // By itself `d/e/s/../..` stays inside; `s` leads to the root.
    await expect(check(["d/e/s", "../.."], ["d/e/t", "s/../.."])).rejects.toThrow(/archive entry d\/e\/t is/);
    await expect(check(["a", "b"], ["b", "c"], ["c", "/x"])).rejects.toThrow(out);
  });

  it("are not followed without end", async () => {
    const many = Array.from({ length: 3_000 }, (_, i) => [`l${i}`, `${"d/../".repeat(800)}l${i + 1}`] as const);
    await expect(check(...many)).rejects.toThrow(/passes too many others/);
  });

  it("are gone when a file has replaced them", async () => {
    const tree = new CodeTree();
    link(tree, "a", "..");
    file(tree, "a", "1");
    await tree.checkLinks();
    for (const target of ["", "a\0b", "\xff", "x".repeat(LIMITS.path_bytes_max + 1)])
      expect(() => link(tree, "b", target)).toThrow(/without a valid target/);
  });
});
