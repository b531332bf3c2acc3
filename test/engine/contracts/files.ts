/** The promises of the `Files` port and of its sessions, on each kind of tree. */

import { execFileSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { LIMITS } from "../../../src/base/limits.ts";
import { TransferTurns } from "../../../src/base/transfer-turns.ts";
import { FileSessions } from "../../../src/engine/files/file-sessions.ts";
import type { FileSession, Files, OpenFiles } from "../../../src/engine/ports.ts";
import { engineHelper } from "../../support/helper.ts";
import { children, readText } from "../../support/native.ts";
import { Ground } from "../../support/storage-ground.ts";

/** A directory for trees. */
export interface TreeGround {
  readonly files: Files;
  /** As a session's helper finds it. */
  readonly path: string;
  /** As this process finds the same. */
  readonly seen: string;
  /** Runs a command where the helpers run. */
  run(argv: readonly string[]): Promise<unknown>;
  readonly turns: TransferTurns;
  /** Pid of the one helper that runs. */
  helper(): number;
  stop(): Promise<void>;
}

function treesIn(ground: Ground, path: string): TreeGround {
  const pid = ground.launcher?.pid ?? 0;
  const turns = new TransferTurns(systemClock);
  return {
    turns,
    files: new FileSessions({
      groups: null,
      withLauncher: (work) => work(ground.client),
      minit: engineHelper(),
      directory: ground.root,
      clock: systemClock,
      turns,
    }),
    path,
    seen: `/proc/${pid}/root${path}`,
    run: (argv) => ground.client.run(argv, 5_000),
    helper: () => children(pid).find((child) => readText(`/proc/${child}/cmdline`).includes("\0files\0")) ?? 0,
    stop: () => ground.stop(),
  };
}

/** A directory of this machine's disk. */
export async function plainTree(): Promise<TreeGround> {
  const ground = new Ground();
  await ground.start();
  return treesIn(ground, ground.data_dir);
}

/** A subvolume of the storage pool. */
export async function poolTree(): Promise<TreeGround> {
  const ground = new Ground();
  const pool = await ground.open();
  return treesIn(ground, await pool.create("volumes", "trees", null));
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error: { code: string }) => error.code,
  );

/** Gives each case a new tree and a session on it. */
function treePerCase(make: () => Promise<TreeGround>) {
  let ground: TreeGround;
  let opened: OpenFiles;
  let others: OpenFiles[] = [];
  let number = 0;
  const name = () => `tree-${number}`;
  const at = (...parts: string[]) => join(ground.seen, name(), ...parts);
  const below = (...parts: string[]) => join(ground.path, name(), ...parts);

  beforeAll(async () => {
    ground = await make();
  });
  afterAll(() => ground?.stop());
  beforeEach(async () => {
    number++;
    mkdirSync(at());
    opened = await ground.files.open("default", below(), 0);
  });
  afterEach(() => {
    for (const { close } of [opened, ...others]) close();
    others = [];
    rmSync(at(), { recursive: true, force: true });
  });

  return {
    /** A path in the tree, as this process finds it. */
    at,
    /** The same as a helper finds it. */
    below,
    /** A session of its own, on the tree or on another. */
    async open(root: string, uid_base = 0): Promise<FileSession> {
      const other = await ground.files.open("default", root, uid_base);
      others.push(other);
      return other.session;
    },
    close: () => opened.close(),
    get ground(): TreeGround {
      return ground;
    },
    get root(): string {
      return below();
    },
    get session(): FileSession {
      return opened.session;
    },
  };
}

export function filesContract(make: () => Promise<TreeGround>): void {
  const tree = treePerCase(make);
  const { at, below, open } = tree;
  const textOf = async (path: string, range = {}) =>
    (await buffer((await tree.session.read(path, range)).stream)).toString();

  it("writes on while other transfers of its tenant stand in its turn all the time, beside another tenant", async () => {
    const { turns } = tree.ground;
    const writing = { isOver: false };
    const others = Array.from({ length: 32 }, async () => {
      while (!writing.isOver) {
        turns.seen("another", systemClock.monotonicMs());
        await turns.of("default").take(64 * 1024);
      }
    });
    await tree.session.write("f", Buffer.alloc(2 ** 21));
    writing.isOver = true;
    await Promise.all(others);
    expect(statSync(at("f")).size).toBe(2 ** 21);
  });

  it("writes a file with its directories, mode and time, and read back with them", async () => {
    await tree.session.write("a/b/c.txt", Buffer.from("hello"), { mode: 0o4751, mtime_ms: 1_234_567_890_123 });
    expect(readFileSync(at("a/b/c.txt"), "utf8")).toBe("hello");
    const { mode, uid, mtimeMs } = statSync(at("a/b/c.txt"));
    expect([mode & 0o7777, uid, mtimeMs]).toEqual([0o4751, 0, 1_234_567_890_123]);
    const found = await tree.session.read("/a/b/c.txt");
    expect(found).toMatchObject({ type: "file", size: 5, mode: 0o4751, mtime_ms: 1_234_567_890_123, uid: 0, gid: 0 });
    expect((await buffer(found.stream)).toString()).toBe("hello");
    expect(statSync(at("a/b")).mode & 0o777).toBe(0o755);
    expect(readdirSync(at("a/b"))).toEqual(["c.txt"]);
  });

  it("reads a file in parts, as far as it goes", async () => {
    writeFileSync(at("f"), "0123456789");
    expect(await textOf("f", { start: 2, end: 5 })).toBe("234");
    expect(await textOf("f", { start: 8 })).toBe("89");
    expect(await textOf("f", { start: 8, end: 100 })).toBe("89");
    expect(await textOf("f", { start: 100 })).toBe("");
    expect(await textOf("f", { start: 5, end: 5 })).toBe("");
  });

  it("writes many megabytes in uneven pieces, and reads the same", async () => {
    const bytes = Buffer.alloc(20_000_000);
    for (let i = 0; i < bytes.length; i += 4) bytes.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, i);
    async function* uneven() {
      for (let i = 0, n = 1; i < bytes.length; i += n, n = (n * 7 + 1) % 700_001) {
        yield bytes.subarray(i, i + n);
      }
    }
    await tree.session.write("large", uneven());
    expect(readFileSync(at("large")).equals(bytes)).toBe(true);
    expect((await buffer((await tree.session.read("large")).stream)).equals(bytes)).toBe(true);
  });

  it("waits for a slow reader, who holds up neither memory nor the helper of another", async () => {
    execFileSync("truncate", ["-s", "2G", at("sparse")]);
    const other = await open(tree.root);
    const { stream } = await tree.session.read("sparse");
    const reader = stream[Symbol.asyncIterator]();
    await reader.next();
    const before = process.memoryUsage().arrayBuffers;
    expect((await other.stat("sparse")).size).toBe(2 ** 31);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * 2 ** 20);
    await reader.return?.();
    expect(tree.session.isOpen).toBe(false);
  });

  it("keeps the old content of a file until the new one is complete, and when the source fails", async () => {
    writeFileSync(at("f"), "old");
    async function* broken() {
      yield Buffer.from("half");
      await tree.session.stat("/");
      expect(readFileSync(at("f"), "utf8")).toBe("old");
      throw new TypeError("the client is gone");
    }
    await expect(tree.session.write("f", broken())).rejects.toThrow("the client is gone");
    await tree.session.stat("/");
    expect(readdirSync(at())).toEqual(["f"]);
    expect(readFileSync(at("f"), "utf8")).toBe("old");
    await tree.session.write("f", Buffer.from("new"));
    expect(await textOf("f")).toBe("new");
  });

  it("writes one file at a time: beginning another gives up the first", async () => {
    const first = tree.session.beginWrite("first");
    first.add(Buffer.from("x"));
    const second = tree.session.beginWrite("second");
    expect(await codeOf(first.done)).toBe("INTERNAL");
    second.end();
    await second.done;
    expect(readdirSync(at())).toEqual(["second"]);
  });

  it("replaces a link with a file, and reads through one, never beyond the root", async () => {
    writeFileSync(at("target"), "target");
    symlinkSync("/target", at("link"));
    symlinkSync("../../../../../etc/hostname", at("out"));
    expect(await textOf("link")).toBe("target");
    expect(await codeOf(tree.session.read("out"))).toBe("NOT_FOUND");
    await tree.session.write("link", Buffer.from("mine"));
    expect(lstatSync(at("link")).isFile()).toBe(true);
    expect(readFileSync(at("target"), "utf8")).toBe("target");
  });

  it("shifts owners where the tree asks for it", async () => {
    const shifted = await open(tree.root, 1_000_000);
    await shifted.write("d/f", Buffer.from("x"));
    await shifted.write("g", Buffer.from("x"), { uid: 33, gid: 44 });
    await shifted.symlink("l", "f");
    const owners = ["d", "d/f", "g", "l"].map((name) => [lstatSync(at(name)).uid, lstatSync(at(name)).gid]);
    expect(owners).toEqual([
      [1e6, 1e6],
      [1e6, 1e6],
      [1_000_033, 1_000_044],
      [1e6, 1e6],
    ]);
    expect(await shifted.stat("g")).toMatchObject({ uid: 33, gid: 44 });
    writeFileSync(at("outside"), "");
    expect(await shifted.stat("outside")).toMatchObject({ uid: 65534 });
    // There are 65,536 of them, and what belongs to the next container's is nobody's either.
    await shifted.setAttributes("g", { uid: 65_535, gid: 65_535 });
    expect(lstatSync(at("g"))).toMatchObject({ uid: 1_065_535, gid: 1_065_535 });
    for (const ids of [{ uid: 65_536 }, { gid: 65_536 }, { uid: 0xffff_ffff }]) {
      expect(await codeOf(shifted.setAttributes("g", ids))).toBe("INVALID_ARGUMENT");
      expect(await codeOf(shifted.symlink("m", "f", ids))).toBe("INVALID_ARGUMENT");
    }
    execFileSync("chown", ["1065536:999999", at("g")]);
    expect(await shifted.stat("g")).toMatchObject({ uid: 65534, gid: 65534 });
  });

  it("answers at once what is wrong with an entry that is no file", async () => {
    execFileSync("mkfifo", [at("pipe")]);
    execFileSync("mknod", [at("device"), "c", "1", "5"]);
    mkdirSync(at("dir/inner"), { recursive: true });
    symlinkSync("loop", at("loop"));
    writeFileSync(at("f"), "");
    expect(await codeOf(tree.session.read("pipe"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.read("device"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.read("dir"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.read("loop"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.read("none"))).toBe("NOT_FOUND");
    expect(await codeOf(tree.session.read("f/below"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.write("f/below", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.write("dir", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.write("..", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.write("", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.write("x".repeat(256), Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.stat("x/".repeat(3000)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.stat("a\0b"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.remove("dir"))).toBe("NOT_EMPTY");
    expect(await codeOf(tree.session.remove("/"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(tree.session.symlink("f", "x"))).toBe("NAME_TAKEN");
    expect(await codeOf(tree.session.link("g", "pipe"))).toBe("INVALID_ARGUMENT");
    expect((await tree.session.stat("pipe")).type).toBe("fifo");
    expect((await tree.session.stat("device")).type).toBe("character_device");
    await tree.session.write("pipe", Buffer.from("a file now"));
    expect(await textOf("pipe")).toBe("a file now");
    expect(tree.session.isOpen).toBe(true);
  });

  it("refuses a file without room with STORAGE_FULL and leaves nothing", async () => {
    mkdirSync(at("small"));
    // As the storage pool is: mounted where only the launcher and what it starts see it.
    await tree.ground.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", below("small")]);
    const full = await open(below("small"));
    expect(await codeOf(full.write("f", Buffer.alloc(2 ** 21)))).toBe("STORAGE_FULL");
    expect(await full.list({ path: "/", page: 1, page_size: 10 })).toEqual({ entries: [], total_count: 0 });
    await tree.ground.run(["umount", "-l", below("small")]);
  });

  it("makes, moves, links, changes and removes entries", async () => {
    await tree.session.mkdir("a/b", { mode: 0o2770 });
    expect(statSync(at("a/b")).mode & 0o7777).toBe(0o2770);
    await tree.session.write("a/b/f", Buffer.from("x"));
    await tree.session.rename("a/b/f", "c/d/g");
    await tree.session.symlink("c/l", "d/g");
    await tree.session.link("c/h", "c/d/g");
    expect(statSync(at("c/h")).ino).toBe(statSync(at("c/d/g")).ino);
    expect(await tree.session.stat("c/l")).toMatchObject({ type: "symlink", target: "d/g", name: "l" });
    expect(await tree.session.stat("c/l", true)).toMatchObject({ type: "file", size: 1 });
    await tree.session.setAttributes("c", { mode: 0o700, mtime_ms: 1000, uid: 5, gid: 6 });
    expect(await tree.session.stat("c")).toMatchObject({ mode: 0o700, mtime_ms: 1000, uid: 5, gid: 6 });
    expect(await tree.session.remove("c/l")).toBe(1);
    expect(await tree.session.remove("c", true)).toBe(4);
    expect(readdirSync(at())).toEqual(["a"]);
  });

  it("lists a directory page by page, each entry once, in the order of their bytes", async () => {
    mkdirSync(at("d"));
    const names = ["B", "a", "ä", "b", "Z", "z.txt", "0", ...Array.from({ length: 300 }, (_, i) => `n${i}`)];
    for (const name of names) writeFileSync(at("d", name), name);
    symlinkSync("somewhere", at("d/link"));
    mkdirSync(at("d/sub"));
    const all = [...names, "link", "sub"].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    const seen: string[] = [];
    for (let page = 1; ; page++) {
      const { entries, total_count } = await tree.session.list({ path: "d", page, page_size: 50 });
      expect(total_count).toBe(all.length);
      if (entries.length === 0) break;
      seen.push(...entries.map(({ name }) => name));
      const link = entries.find(({ name }) => name === "link");
      if (link !== undefined) expect(link).toMatchObject({ type: "symlink", target: "somewhere" });
    }
    expect(seen).toEqual(all);
    expect(await tree.session.list({ path: "/", page: 1, page_size: 10 })).toMatchObject({
      entries: [{ name: "d", type: "directory" }],
      total_count: 1,
    });
    expect(await codeOf(tree.session.list({ path: "d/a", page: 1, page_size: 10 }))).toBe("INVALID_ARGUMENT");
  });

  it("walks a tree with its content, each directory before its entries, several names of a file once", async () => {
    mkdirSync(at("t/a/b"), { recursive: true });
    mkdirSync(at("t/empty"));
    writeFileSync(at("t/a/f"), "content of f");
    linkSync(at("t/a/f"), at("t/a/again"));
    writeFileSync(at("t/a/b/none"), "");
    symlinkSync("/etc", at("t/out"));
    execFileSync("mkfifo", [at("t/pipe")]);
    const seen = new Map<string, string>();
    for await (const { entry, content } of tree.session.walk("t")) {
      const parent = entry.name.split("/").slice(0, -1).join("/");
      expect(parent === "" || seen.has(parent)).toBe(true);
      const text = content === null ? (entry.target ?? "") : (await buffer(content)).toString();
      seen.set(entry.name, `${entry.type}${entry.isLater ? " again" : ""} ${text}`);
    }
    const [first, later] = ["a/f", "a/again"].map((name) => seen.get(name)).sort();
    expect([first, later]).toEqual(["file again ", "file content of f"]);
    seen.delete("a/f");
    seen.delete("a/again");
    expect(Object.fromEntries(seen)).toEqual({
      a: "directory ",
      "a/b": "directory ",
      "a/b/none": "file ",
      empty: "directory ",
      out: "symlink /etc",
    });
  });

  it("refuses a tree that is not there", async () => {
    expect(await codeOf(open(below("none")))).toBe("NOT_FOUND");
    writeFileSync(at("f"), "");
    expect(await codeOf(open(below("f")))).toBe("INTERNAL");
  });

  it("bounds open sessions, of a tenant and of all, and frees a place at a close", async () => {
    tree.close();
    const { file_sessions_per_tenant_max: share } = LIMITS;
    const openFor = (tenant_id: string) => tree.ground.files.open(tenant_id, tree.root, 0);
    const all = await Promise.all(Array.from({ length: share }, () => openFor("one")));
    expect(await codeOf(openFor("one"))).toBe("CONCURRENCY_LIMIT");
    const left = LIMITS.file_sessions_max - share;
    const others = Array.from({ length: left }, (_, i) =>
      openFor(i < share ? "other" : `other-${Math.floor(i / share)}`),
    );
    all.push(...(await Promise.all(others)));
    expect(await codeOf(openFor("third"))).toBe("CAPACITY_FULL");
    all[0]?.close();
    all[0]?.close();
    expect(await tree.ground.files.with("one", tree.root, 0, (one) => one.stat("/"))).toMatchObject({
      type: "directory",
    });
    expect(await codeOf(tree.ground.files.with("one", below("none"), 0, () => Promise.resolve()))).toBe("NOT_FOUND");
    expect(await tree.ground.files.with("one", tree.root, 0, (one) => one.stat("/"))).toMatchObject({
      type: "directory",
    });
    expect(await codeOf(tree.ground.files.with("other", tree.root, 0, () => Promise.resolve()))).toBe(
      "CONCURRENCY_LIMIT",
    );
    for (const { close } of all) close();
  });
}

/** Large and deep trees. */
export function slowFilesContract(make: () => Promise<TreeGround>): void {
  const tree = treePerCase(make);
  const { at } = tree;

  it("lists a directory of 100,000 entries, in memory that does not grow with it", async () => {
    mkdirSync(at("many"));
    execFileSync("sh", ["-c", `seq -f "$0/entry-%06.0f-with-a-name" 100000 | xargs touch`, at("many")]);
    const helper = tree.ground.helper();
    const seen = new Set<string>();
    let previous = "";
    const page_size = LIMITS.file_page_size_max;
    for (let page = 1; page <= 11; page++) {
      const { entries, total_count } = await tree.session.list({ path: "many", page, page_size });
      expect([total_count, entries.length]).toEqual([100_000, page <= 10 ? page_size : 0]);
      for (const { name } of entries) {
        expect(name > previous).toBe(true);
        previous = name;
        seen.add(name);
      }
    }
    expect(seen.size).toBe(100_000);
    const peak_kb = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${helper}/status`, "utf8"))?.[1]);
    expect(peak_kb).toBeLessThan(24 * 1024);
    expect(await tree.session.remove("many", true)).toBe(100_001);
  });

  it("removes a very deep tree, and refuses to walk one whose names are too long", async () => {
    const deep = `
      import os, sys
      os.chdir(sys.argv[1]); os.mkdir("deep"); os.chdir("deep")
      for i in range(3000):
          os.mkdir("d" * 20); os.chdir("d" * 20)
          if i % 100 == 0: open("f", "w").close()
    `.replace(/^ {6}/gm, "");
    execFileSync("python3", ["-c", deep, at()]);
    const walk = async () => {
      for await (const _ of tree.session.walk("/"));
    };
    expect(await codeOf(walk())).toBe("INVALID_ARGUMENT");
    expect(await tree.session.remove("deep", true)).toBe(3031);
    expect(existsSync(at("deep"))).toBe(false);
  });
}
