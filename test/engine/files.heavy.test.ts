/** Files of a tree through `minit files`: every call, its errors and bounds, on the real file system. */
import { execFileSync } from "node:child_process";
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
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { FileSessions, HelperSession } from "../../src/engine/files/file-sessions.ts";
import { LauncherClient } from "../../src/engine/host/launcher.ts";
import { children, eventually, Native } from "../support/native.ts";

let native: Native;
let launcher: LauncherClient;
let root: string;
let session: HelperSession;
let sockets = 0;

beforeAll(async () => {
  native = await Native.start();
  launcher = new LauncherClient(join(native.directory, "launcher.sock"), systemClock);
});

afterAll(async () => {
  launcher?.close();
  await native?.stop();
});

const open = (tree: string, uid_base = 0) =>
  HelperSession.open({
    launcher,
    minit: native.binary,
    root: tree,
    socket_path: join(native.directory, `f${sockets++}.sock`),
    clock: systemClock,
    uid_base,
  });

beforeEach(async () => {
  root = mkdtempSync("/var/tmp/hearth-files-");
  session = await open(root);
});

afterEach(() => {
  session.close();
  rmSync(root, { recursive: true, force: true });
});

const at = (...parts: string[]) => join(root, ...parts);
const bytesOf = async (stream: AsyncIterable<Uint8Array>) => {
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
};
const textOf = async (path: string, range = {}) => (await bytesOf((await session.read(path, range)).stream)).toString();
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error: { code: string }) => error.code,
  );

describe("a file", () => {
  it("is written with its directories, mode and time, and read back with them", async () => {
    await session.write("a/b/c.txt", Buffer.from("hello"), { mode: 0o4751, mtime_ms: 1_234_567_890_123 });
    expect(readFileSync(at("a/b/c.txt"), "utf8")).toBe("hello");
    const { mode, uid, mtimeMs } = statSync(at("a/b/c.txt"));
    expect([mode & 0o7777, uid, mtimeMs]).toEqual([0o4751, 0, 1_234_567_890_123]);
    const found = await session.read("/a/b/c.txt");
    expect(found).toMatchObject({ type: "file", size: 5, mode: 0o4751, mtime_ms: 1_234_567_890_123, uid: 0, gid: 0 });
    expect((await bytesOf(found.stream)).toString()).toBe("hello");
    expect(statSync(at("a/b")).mode & 0o777).toBe(0o755);
    expect(readdirSync(at("a/b"))).toEqual(["c.txt"]);
  });

  it("is read in parts, as far as it goes", async () => {
    writeFileSync(at("f"), "0123456789");
    expect(await textOf("f", { start: 2, end: 5 })).toBe("234");
    expect(await textOf("f", { start: 8 })).toBe("89");
    expect(await textOf("f", { start: 8, end: 100 })).toBe("89");
    expect(await textOf("f", { start: 100 })).toBe("");
    expect(await textOf("f", { start: 5, end: 5 })).toBe("");
  });

  it("of many megabytes goes both ways unharmed, written in uneven pieces", async () => {
    const bytes = Buffer.alloc(20_000_000);
    for (let i = 0; i < bytes.length; i += 4) bytes.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, i);
    async function* uneven() {
      for (let i = 0, n = 1; i < bytes.length; i += n, n = (n * 7 + 1) % 700_001) {
        yield bytes.subarray(i, i + n);
      }
    }
    await session.write("large", uneven());
    expect(readFileSync(at("large")).equals(bytes)).toBe(true);
    expect((await bytesOf((await session.read("large")).stream)).equals(bytes)).toBe(true);
  });

  it("waits for a slow reader, who holds up neither memory nor the helper of another", async () => {
    execFileSync("truncate", ["-s", "2G", at("sparse")]);
    const other = await open(root);
    const { stream } = await session.read("sparse");
    const reader = stream[Symbol.asyncIterator]();
    await reader.next();
    const before = process.memoryUsage().arrayBuffers;
    expect((await other.stat("sparse")).size).toBe(2 ** 31);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * 2 ** 20);
    await reader.return?.();
    expect(session.isOpen).toBe(false);
    other.close();
  });

  it("keeps its old content until the new one is complete, and when the source fails", async () => {
    writeFileSync(at("f"), "old");
    async function* broken() {
      yield Buffer.from("half");
      await session.stat("/");
      expect(readFileSync(at("f"), "utf8")).toBe("old");
      throw new TypeError("the client is gone");
    }
    await expect(session.write("f", broken())).rejects.toThrow("the client is gone");
    await session.stat("/");
    expect(readdirSync(root)).toEqual(["f"]);
    expect(readFileSync(at("f"), "utf8")).toBe("old");
    await session.write("f", Buffer.from("new"));
    expect(await textOf("f")).toBe("new");
  });

  it("is one at a time: beginning another gives up the first", async () => {
    const first = session.beginWrite("first");
    first.add(Buffer.from("x"));
    const second = session.beginWrite("second");
    expect(await codeOf(first.done)).toBe("INTERNAL");
    second.end();
    await second.done;
    expect(readdirSync(root)).toEqual(["second"]);
  });

  it("takes the place of a link, and is read through one, never beyond the root", async () => {
    writeFileSync(at("target"), "target");
    symlinkSync("/target", at("link"));
    symlinkSync("../../../../../etc/hostname", at("out"));
    expect(await textOf("link")).toBe("target");
    expect(await codeOf(session.read("out"))).toBe("NOT_FOUND");
    await session.write("link", Buffer.from("mine"));
    expect(lstatSync(at("link")).isFile()).toBe(true);
    expect(readFileSync(at("target"), "utf8")).toBe("target");
  });

  it("belongs to a shifted owner where the tree has one", async () => {
    const shifted = await open(root, 1_000_000);
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
    shifted.close();
  });

  it("that is none of the usual answers at once what is wrong", async () => {
    execFileSync("mkfifo", [at("pipe")]);
    execFileSync("mknod", [at("device"), "c", "1", "5"]);
    mkdirSync(at("dir/inner"), { recursive: true });
    symlinkSync("loop", at("loop"));
    writeFileSync(at("f"), "");
    expect(await codeOf(session.read("pipe"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.read("device"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.read("dir"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.read("loop"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.read("none"))).toBe("NOT_FOUND");
    expect(await codeOf(session.read("f/below"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.write("f/below", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.write("dir", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.write("..", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.write("", Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.write("x".repeat(256), Buffer.alloc(0)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.stat("x/".repeat(3000)))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.stat("a\0b"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.remove("dir"))).toBe("NOT_EMPTY");
    expect(await codeOf(session.remove("/"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(session.symlink("f", "x"))).toBe("NAME_TAKEN");
    expect(await codeOf(session.link("g", "pipe"))).toBe("INVALID_ARGUMENT");
    expect((await session.stat("pipe")).type).toBe("fifo");
    expect((await session.stat("device")).type).toBe("character_device");
    await session.write("pipe", Buffer.from("a file now"));
    expect(await textOf("pipe")).toBe("a file now");
    expect(session.isOpen).toBe(true);
  });

  it("for which there is no room is refused and leaves nothing", async () => {
    mkdirSync(at("small"));
    // As the storage pool is: mounted where only the launcher and what it starts see it.
    await launcher.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", at("small")], 5_000);
    const full = await open(at("small"));
    expect(await codeOf(full.write("f", Buffer.alloc(2 ** 21)))).toBe("STORAGE_FULL");
    expect(await full.list({ path: "/", page: 1, page_size: 10 })).toEqual({ entries: [], total_count: 0 });
    full.close();
    await launcher.run(["umount", "-l", at("small")], 5_000);
  });
});

describe("entries", () => {
  it("are made, moved, linked, changed and removed", async () => {
    await session.mkdir("a/b", { mode: 0o2770 });
    expect(statSync(at("a/b")).mode & 0o7777).toBe(0o2770);
    await session.write("a/b/f", Buffer.from("x"));
    await session.rename("a/b/f", "c/d/g");
    await session.symlink("c/l", "d/g");
    await session.link("c/h", "c/d/g");
    expect(statSync(at("c/h")).ino).toBe(statSync(at("c/d/g")).ino);
    expect(await session.stat("c/l")).toMatchObject({ type: "symlink", target: "d/g", name: "l" });
    expect(await session.stat("c/l", true)).toMatchObject({ type: "file", size: 1 });
    await session.setAttributes("c", { mode: 0o700, mtime_ms: 1000, uid: 5, gid: 6 });
    expect(await session.stat("c")).toMatchObject({ mode: 0o700, mtime_ms: 1000, uid: 5, gid: 6 });
    expect(await session.remove("c/l")).toBe(1);
    expect(await session.remove("c", true)).toBe(4);
    expect(readdirSync(root)).toEqual(["a"]);
  });

  it("of a directory come page by page, each once, in the order of their bytes", async () => {
    mkdirSync(at("d"));
    const names = ["B", "a", "ä", "b", "Z", "z.txt", "0", ...Array.from({ length: 300 }, (_, i) => `n${i}`)];
    for (const name of names) writeFileSync(at("d", name), name);
    symlinkSync("somewhere", at("d/link"));
    mkdirSync(at("d/sub"));
    const all = [...names, "link", "sub"].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    const seen: string[] = [];
    for (let page = 1; ; page++) {
      const { entries, total_count } = await session.list({ path: "d", page, page_size: 50 });
      expect(total_count).toBe(all.length);
      if (entries.length === 0) break;
      seen.push(...entries.map(({ name }) => name));
      const link = entries.find(({ name }) => name === "link");
      if (link !== undefined) expect(link).toMatchObject({ type: "symlink", target: "somewhere" });
    }
    expect(seen).toEqual(all);
    expect(await session.list({ path: "/", page: 1, page_size: 10 })).toMatchObject({
      entries: [{ name: "d", type: "directory" }],
      total_count: 1,
    });
    expect(await codeOf(session.list({ path: "d/a", page: 1, page_size: 10 }))).toBe("INVALID_ARGUMENT");
  });

  it("of a directory with 100,000 of them too, in memory that does not grow with it", async () => {
    mkdirSync(at("many"));
    execFileSync("sh", ["-c", `seq -f "$0/entry-%06.0f-with-a-name" 100000 | xargs touch`, at("many")]);
    const [helper = 0] = children(native.pid);
    const seen = new Set<string>();
    let previous = "";
    const page_size = LIMITS.file_page_size_max;
    for (let page = 1; page <= 11; page++) {
      const { entries, total_count } = await session.list({ path: "many", page, page_size });
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
    expect(await session.remove("many", true)).toBe(100_001);
  });

  it("of a very deep tree are all removed, and a walk of it says that names are too long", async () => {
    const deep = `
      import os, sys
      os.chdir(sys.argv[1]); os.mkdir("deep"); os.chdir("deep")
      for i in range(3000):
          os.mkdir("d" * 20); os.chdir("d" * 20)
          if i % 100 == 0: open("f", "w").close()
    `.replace(/^ {6}/gm, "");
    execFileSync("python3", ["-c", deep, root]);
    const walk = async () => {
      for await (const _ of session.walk("/"));
    };
    expect(await codeOf(walk())).toBe("INVALID_ARGUMENT");
    expect(await session.remove("deep", true)).toBe(3031);
    expect(existsSync(at("deep"))).toBe(false);
  });

  it("are walked with their content, each directory before what is in it, several names of a file once", async () => {
    mkdirSync(at("t/a/b"), { recursive: true });
    mkdirSync(at("t/empty"));
    writeFileSync(at("t/a/f"), "content of f");
    linkSync(at("t/a/f"), at("t/a/again"));
    writeFileSync(at("t/a/b/none"), "");
    symlinkSync("/etc", at("t/out"));
    execFileSync("mkfifo", [at("t/pipe")]);
    const seen = new Map<string, string>();
    for await (const { entry, content } of session.walk("t")) {
      const parent = entry.name.split("/").slice(0, -1).join("/");
      expect(parent === "" || seen.has(parent)).toBe(true);
      const text = content === null ? (entry.target ?? "") : (await bytesOf(content)).toString();
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
});

describe("a session", () => {
  it("is refused where there is no tree", async () => {
    expect(await codeOf(open(at("none")))).toBe("NOT_FOUND");
    writeFileSync(at("f"), "");
    expect(await codeOf(open(at("f")))).toBe("INTERNAL");
  });

  it("ends its helper with the connection, and what was half-written goes", async () => {
    const before = children(native.pid);
    const other = await open(root);
    const [pid = 0] = children(native.pid).filter((each) => !before.includes(each));
    const writer = other.beginWrite("half", {});
    writer.add(Buffer.from("x"));
    await eventually("the temporary file", () => readdirSync(root).length === 1);
    other.close();
    await eventually("the helper to end", () => !existsSync(`/proc/${pid}`));
    expect(readdirSync(root)).toEqual([]);
    expect(await codeOf(writer.done)).toBe("INTERNAL");
    expect(await codeOf(other.stat("/"))).toBe("INTERNAL");
  });

  it("rejects what waits when its helper is killed", async () => {
    const other = await open(root);
    const pid = children(native.pid).at(-1) ?? 0;
    process.kill(pid, "SIGSTOP");
    const waits = other.stat("/");
    process.kill(pid, "SIGKILL");
    expect(await codeOf(waits)).toBe("INTERNAL");
  });

  it("gives up on a helper that does nothing, but not while it is the source that is slow", async () => {
    const fired: (() => void)[] = [];
    let now_ms = 0;
    const clock = {
      epochMs: () => now_ms,
      monotonicMs: () => now_ms,
      after: (_: number, fn: () => void) => {
        fired.push(fn);
        return () => {};
      },
    };
    const socket_path = join(native.directory, `f${sockets++}.sock`);
    const other = await HelperSession.open({ launcher, minit: native.binary, root, socket_path, clock });
    expect(existsSync(socket_path)).toBe(false);
    await other.stat("/");
    const pid = children(native.pid).at(-1) ?? 0;
    const later = (delay_ms: number) => {
      now_ms += delay_ms;
      for (const fn of fired.splice(0)) fn();
    };
    const writer = other.beginWrite("slow");
    writer.add(Buffer.from("half"));
    // Nothing is left to be sent.
    await eventually("the temporary file", () => readdirSync(root).some((name) => statSync(at(name)).size === 4));
    later(LIMITS.file_stall_ms);
    expect(other.isOpen).toBe(true);
    process.kill(pid, "SIGSTOP");
    writer.end();
    later(LIMITS.file_stall_ms - 1);
    expect(other.isOpen).toBe(true);
    later(1);
    expect(await codeOf(writer.done)).toBe("INTERNAL");
    process.kill(pid, "SIGCONT");
    await eventually("the helper to end", () => !existsSync(`/proc/${pid}`));
  });

  it("is one of a bounded number, and its place is free when it is closed", async () => {
    const sessions = new FileSessions({
      withLauncher: (work) => work(launcher),
      minit: native.binary,
      directory: native.directory,
      clock: systemClock,
    });
    const { file_sessions_per_tenant_max: share } = LIMITS;
    const open = (tenant_id: string) => sessions.open(tenant_id, root, 0);
    const all = await Promise.all(Array.from({ length: share }, () => open("one")));
    expect(await codeOf(open("one"))).toBe("CONCURRENCY_LIMIT");
    all.push(...(await Promise.all(Array.from({ length: LIMITS.file_sessions_max - share }, () => open("other")))));
    expect(await codeOf(open("third"))).toBe("CAPACITY_FULL");
    all[0]?.close();
    all[0]?.close();
    expect(await sessions.with("one", root, 0, (one) => one.stat("/"))).toMatchObject({ type: "directory" });
    expect(await codeOf(sessions.with("one", at("none"), 0, () => Promise.resolve()))).toBe("NOT_FOUND");
    expect(await sessions.with("one", root, 0, (one) => one.stat("/"))).toMatchObject({ type: "directory" });
    expect(await codeOf(sessions.with("other", root, 0, () => Promise.resolve()))).toBe("CONCURRENCY_LIMIT");
    for (const { close } of all) close();
  });

  it("sees a container's tree by its process, as the container does", async () => {
    mkdirSync(at("inner"));
    writeFileSync(at("inner/f"), "inside");
    chmodSync(at("inner"), 0o755);
    utimesSync(at("inner/f"), 1, 1);
    symlinkSync("/f", at("inner/l"));
    const { pid, wire } = await native.init();
    const seen = await open(`/proc/${pid}/root`);
    const path = join(root, "inner/f");
    expect((await bytesOf((await seen.read(path)).stream)).toString()).toBe("inside");
    expect(await codeOf(seen.read("/proc/1/environ"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(seen.list({ path: "/proc", page: 1, page_size: 10 }))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(seen.write("/proc/sys/kernel/hostname", Buffer.from("x")))).toBe("INVALID_ARGUMENT");
    expect(readlinkSync(at("inner/l"))).toBe("/f");
    seen.close();
    wire.socket.destroy();
  });
});
