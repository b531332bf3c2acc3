/**
 * Attacks on file access: a process in the tree that swaps what lies on a path as fast as it can while every operation
 * runs, archives made to get out, and what the helper itself could do if someone took it over.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { extract, pack } from "../../src/engine/files/archive.ts";
import type { HelperSession } from "../../src/engine/files/file-sessions.ts";
import { tarEnd, tarHeader } from "../../src/engine/files/tar.ts";
import { archive, ENTRY, FileHelper, inPieces } from "../support/file-helper.ts";
import { children, eventually } from "../support/native.ts";

const JAIL = join(import.meta.dirname, "../../runtimes/minit/jail.c");
const SECRET = "what lies outside";
const ROUNDS = 200;

/** Exchanges two names until it is killed. */
const SWAPPER = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  if (argc != 3) return 2;
  for (;;) {
    if (renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) != 0) usleep(10);
  }
}`;

/** Enters the jail and does one thing in it. Killed by the filter: what it asked for never began. */
const PRISONER = `
#include "${JAIL}"
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
int main(int argc, char **argv) {
  if (argc != 3 || !jail_enter(argv[1], 0)) return 3;
  const char *act = argv[2];
  if (strcmp(act, "chroot without a filter") == 0) return chroot(".") == 0 || errno != EPERM;
  if (strcmp(act, "mknod without a filter") == 0) return mknod("/device", S_IFBLK | 0600, makedev(254, 0)) == 0 || errno != EPERM;
  if (strcmp(act, "mount without a filter") == 0) return mount("none", "/", "tmpfs", 0, "") == 0 || errno != EPERM;
  if (!jail_seal()) return 4;
  if (strcmp(act, "nothing") == 0) _exit(0);
  if (strcmp(act, "proc") == 0) _exit(openat(AT_FDCWD, "/proc/1/root", O_RDONLY) >= 0 || errno != ENOENT);
  if (strcmp(act, "dots") == 0) _exit(openat(AT_FDCWD, "../../../../etc/hostname", O_RDONLY) >= 0 || errno != ENOENT);
  if (strcmp(act, "mount") == 0) mount("none", "/", "tmpfs", 0, "");
  if (strcmp(act, "chroot") == 0) (void)!chroot(".");
  if (strcmp(act, "mknod") == 0) mknod("/device", S_IFBLK | 0600, makedev(254, 0));
  if (strcmp(act, "fifo") == 0) mkfifo("/fifo", 0600);
  if (strcmp(act, "ptrace") == 0) ptrace(PTRACE_TRACEME, 0, 0, 0);
  if (strcmp(act, "socket") == 0) socket(AF_UNIX, SOCK_STREAM, 0);
  if (strcmp(act, "exec") == 0) execl("/sh", "sh", (char *)0);
  if (strcmp(act, "fork") == 0) fork();
  if (strcmp(act, "setuid") == 0) (void)!setuid(0);
  if (strcmp(act, "unshare") == 0) syscall(SYS_unshare, 0x10000000);
  if (strcmp(act, "kill") == 0) syscall(SYS_kill, 1, 0);
  if (strcmp(act, "x32") == 0) syscall(SYS_getpid | 0x40000000);
  _exit(0);
}`;

let helper: FileHelper;
let swapper: string;
let top: string;
let root: string;
let session: HelperSession;
const swapping: ChildProcess[] = [];
const outcomes = new Set<string>();

beforeAll(async () => {
  helper = await FileHelper.start();
  swapper = helper.native.compile("swapper", SWAPPER);
});

afterAll(async () => {
  await helper?.stop();
});

beforeEach(async () => {
  top = mkdtempSync("/var/tmp/hearth-attack-");
  root = join(top, "root");
  mkdirSync(join(root, "t/dir"), { recursive: true });
  for (const directory of [join(top, "outside"), join(root, "elsewhere")]) {
    mkdirSync(join(directory, "sub"), { recursive: true });
    writeFileSync(join(directory, "f"), SECRET);
    writeFileSync(join(directory, "sub/f"), SECRET);
  }
  session = await helper.open(root);
});

afterEach(async () => {
  for (const child of swapping.splice(0)) {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  }
  session.close();
  rmSync(top, { recursive: true, force: true });
});

const at = (...parts: string[]) => join(root, ...parts);

/** Exchanges two paths of the tree from now to the end of the test. */
const swap = (one: string, two: string) => swapping.push(spawn(swapper, [at(one), at(two)], { stdio: "ignore" }));

/** A directory, everything in it and when it was changed: equal before and after, or it was touched. */
function state(directory: string): string[] {
  const names = readdirSync(directory, { recursive: true, encoding: "utf8" }).sort();
  return ["", ...names].map((name) => {
    const path = join(directory, name);
    const { mode, uid, nlink, ctimeMs } = lstatSync(path);
    return `${name} ${mode} ${uid} ${nlink} ${ctimeMs} ${statSync(path).isFile() ? readFileSync(path) : ""}`;
  });
}

/** The error's code, or what came of it. */
const outcome = (promise: Promise<unknown>) =>
  promise.then(
    () => "done",
    (error: { code: string }) => error.code,
  );

describe("a tree whose owner swaps a directory for a link out of it", () => {
  /** Runs an operation often, and gives what came of it. */
  async function attack(name: string, operation: (i: number) => Promise<unknown>): Promise<void> {
    for (let i = 0; i < ROUNDS; i++) {
      const end = await outcome(operation(i));
      expect([name, end]).not.toEqual([name, "INTERNAL"]);
      outcomes.add(`${name}: ${end}`);
    }
    expect([name, session.isOpen]).toEqual([name, true]);
  }

  it("gives nothing from outside away, and nothing outside is changed", async () => {
    const outside = join(top, "outside");
    const before = state(outside);
    symlinkSync(outside, at("absolute"));
    symlinkSync(`${"../".repeat(20)}${outside}`, at("relative"));
    mkdirSync(at("one"));
    mkdirSync(at("two"));
    swap("one", "absolute");
    swap("two", "relative");
    const read = async (path: string) => {
      expect((await buffer((await session.read(path)).stream)).toString()).not.toContain(SECRET);
    };
    for (const dir of ["one", "two"]) {
      await attack("write", (i) => session.write(`${dir}/w${i % 9}`, Buffer.from("w")));
      await attack("read", () => read(`${dir}/f`));
      await attack("read what was written", (i) => read(`${dir}/w${i % 9}`));
      await attack("list", async () => {
        const { entries } = await session.list({ path: dir, page: 1, page_size: 100 });
        expect(entries.map(({ name }) => name)).not.toContain("sub");
      });
      await attack("mkdir", (i) => session.mkdir(`${dir}/d${i % 9}/e`, { mode: 0o700 }));
      await attack("stat", () => session.stat(`${dir}/sub`));
      await attack("symlink", (i) => session.symlink(`${dir}/l${i}`, "f"));
      await attack("link", (i) => session.link(`${dir}/h${i}`, `${dir}/w1`));
      await attack("link to what is outside", (i) => session.link(`h${i}`, `${dir}/f`));
      await attack("attributes", () => session.setAttributes(`${dir}/f`, { mode: 0o777, uid: 9, gid: 9, mtime_ms: 1 }));
      await attack("rename", (i) => session.rename(`${dir}/w${i % 9}`, `${dir}/r${i}`));
      await attack("rename out", (i) => session.rename(`${dir}/f`, `got${i}`));
      await attack("walk", async () => {
        for await (const { entry, content } of session.walk(dir)) {
          expect(entry.name).not.toBe("sub");
          if (content !== null) expect((await buffer(content)).toString()).not.toContain(SECRET);
        }
      });
      await attack("pack", async () => expect((await buffer(pack(session, dir))).includes(SECRET)).toBe(false));
      await attack("extract", (i) =>
        extract(session, inPieces(archive({ name: `x${i}/f`, content: "x" })), { path: `${dir}/in` }),
      );
      await attack("remove", (i) => session.remove(`${dir}/${i % 2 === 0 ? "f" : "sub"}`, true));
      await attack("remove all", () => session.remove(dir, true).then(() => session.mkdir(dir)));
    }
    expect(state(outside)).toEqual(before);
    // Both sides of the swap were met, or nothing was attacked.
    for (const met of [
      "read: NOT_FOUND",
      "write: done",
      "list: done",
      "list: NOT_FOUND",
      "read what was written: done",
    ]) {
      expect(outcomes).toContain(met);
    }
  });

  it("keeps an archive below its path, whatever lies on the way", async () => {
    const before = state(at("elsewhere"));
    symlinkSync("../elsewhere", at("t/relative"));
    symlinkSync("/elsewhere", at("t/absolute"));
    mkdirSync(at("t/other"));
    swap("t/dir", "t/relative");
    swap("t/other", "t/absolute");
    for (let i = 0; i < ROUNDS; i++) {
      const done = extract(
        session,
        inPieces(
          archive(
            { name: "dir/f", content: "x" },
            { name: "dir/sub", type: "directory", mode: 0o777 },
            { name: "dir/sub/g", content: "x" },
            { name: "other/l", type: "symlink", link: "f" },
            { name: "other/f", content: "x" },
            { name: "other/h", type: "link", link: "other/f" },
            { name: "other/sub/f", content: "x" },
          ),
        ),
        { path: "t" },
      );
      expect(["done", "INVALID_ARGUMENT"]).toContain(await outcome(done));
      // Extraction makes directories of the links that it meets: here they come again.
      if (i % 20 === 0) {
        await session.remove("t/relative", true).catch(() => {});
        await session.symlink("t/relative", "../elsewhere").catch(() => {});
        await session.remove("t/absolute", true).catch(() => {});
        await session.symlink("t/absolute", "/elsewhere").catch(() => {});
      }
    }
    expect(state(at("elsewhere"))).toEqual(before);
    expect(session.isOpen).toBe(true);
  });

  it("cannot hold up a reader with a pipe in the place of a file", async () => {
    writeFileSync(at("file"), "content");
    await helper.launcher.run(["mkfifo", at("pipe")], 5_000);
    swap("file", "pipe");
    const seen = new Set<string>();
    for (let i = 0; i < ROUNDS * 5 && seen.size < 2; i++) {
      seen.add(await outcome(session.read("file").then(({ stream }) => buffer(stream))));
      for await (const { content } of session.walk("/")) if (content !== null) await buffer(content);
    }
    expect([...seen].sort()).toEqual(["INVALID_ARGUMENT", "done"]);
  });

  it("cannot keep a removal busy by putting back what goes", async () => {
    mkdirSync(at("busy/a"), { recursive: true });
    const script = 'cd "$0"; while :; do mkdir -p busy/a; : > busy/a/f; done 2> /dev/null';
    const child = spawn("sh", ["-c", script, root], { stdio: "ignore" });
    swapping.push(child);
    for (let i = 0; i < 50; i++) {
      expect(["done", "NOT_EMPTY", "NOT_FOUND"]).toContain(await outcome(session.remove("busy", true)));
    }
  });
});

describe("an archive", () => {
  const refused = async (...entries: Parameters<typeof archive>) => {
    const error = await extract(session, inPieces(archive(...entries)), { path: "t" }).then(
      () => null,
      (thrown: { code: string; message: string }) => thrown,
    );
    return error === null ? "done" : `${error.code}: ${error.message}`;
  };

  it("with a name that leads out is refused, with an absolute one put below its path", async () => {
    const before = [state(at("elsewhere")), state(join(top, "outside"))];
    for (const name of ["../elsewhere/f", "a/../../elsewhere/f", "..", "a/..", "./../f", "//../f"]) {
      expect(await refused({ name, content: "x" })).toMatch(/^INVALID_ARGUMENT: .*leaves the target/);
    }
    expect(await refused({ name: "/elsewhere/f", content: "x" }, { name: "///deep//./f" })).toBe("done");
    expect(readFileSync(at("t/elsewhere/f"), "utf8")).toBe("x");
    expect(existsSync(at("t/deep/f"))).toBe(true);
    expect([state(at("elsewhere")), state(join(top, "outside"))]).toEqual(before);
  });

  it("makes no hard link to what it may not reach", async () => {
    writeFileSync(at("secret"), SECRET);
    symlinkSync("../elsewhere", at("t/way"));
    for (const link of ["../secret", "../../outside/f", "a/../../secret"]) {
      expect(await refused({ name: "h", type: "link", link })).toMatch(/^INVALID_ARGUMENT: .*leaves the target/);
    }
    for (const link of ["/secret", "/etc/passwd", "way/f", "dir", "."]) {
      expect(await refused({ name: "h", type: "link", link })).toMatch(/^INVALID_ARGUMENT/);
    }
    expect(existsSync(at("t/h"))).toBe(false);
    expect([statSync(at("secret")).nlink, statSync(at("elsewhere/f")).nlink]).toEqual([1, 1]);
  });

  it("writes through none of its own links, nor through those that were there, to what is not below its path", async () => {
    const before = [state(at("elsewhere")), state(join(top, "outside"))];
    symlinkSync("../elsewhere", at("t/before"));
    const links = ["/elsewhere", "../elsewhere", "../../outside", "/", "..", "../..", "dir/../../elsewhere"];
    for (const link of links) {
      rmSync(at("t/x"), { recursive: true, force: true });
      const through = [
        { name: "x", type: "symlink", link },
        { name: "x/f", content: "new" },
        { name: "x/sub/f", content: "new" },
        { name: "x/sub", type: "directory", mode: 0o777 },
        { name: "before/f", content: "new" },
        { name: "chain", type: "symlink", link: "x" },
        { name: "chain/g", content: "new" },
      ] as const;
      expect(await refused(...through)).toBe("done");
      expect(lstatSync(at("t/x")).isDirectory()).toBe(true);
      expect(readFileSync(at("t/before/f"), "utf8")).toBe("new");
    }
    expect([state(at("elsewhere")), state(join(top, "outside"))]).toEqual(before);
  });

  it("makes no devices and no pipes", async () => {
    for (const type of ["3", "4", "6"]) {
      const header = tarHeader({ ...ENTRY, name: "node" });
      header.write(`${type}`, 156);
      header.write("        ", 148);
      const sum = header.reduce((total, byte) => total + byte, 0);
      header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
      async function* source() {
        yield Buffer.concat([header, tarEnd()]);
      }
      expect(await outcome(extract(session, source(), { path: "t" }))).toBe("INVALID_ARGUMENT");
    }
    expect(readdirSync(at("t"))).toEqual(["dir"]);
  });
});

describe("the helper", () => {
  it("has nothing but its tree: four capabilities, a filter, no file of the machine's", async () => {
    // It answers nothing before all of this holds.
    await session.stat("/");
    const pid = children(helper.native.pid).find((each) => readlinkSync(`/proc/${each}/root`) === root) ?? 0;
    const status = Object.fromEntries(
      readFileSync(`/proc/${pid}/status`, "utf8")
        .split("\n")
        .map((line) => line.split(/:\s+/) as [string, string]),
    );
    const four = "000000000000001b";
    expect(status).toMatchObject({ Name: "hearth-files", NoNewPrivs: "1", Seccomp: "2", Threads: "1" });
    expect([status.CapEff, status.CapPrm, status.CapBnd, status.CapInh, status.CapAmb]).toEqual([
      four,
      four,
      four,
      "0".repeat(16),
      "0".repeat(16),
    ]);
    expect([readlinkSync(`/proc/${pid}/root`), readlinkSync(`/proc/${pid}/cwd`)]).toEqual([root, root]);
    const open = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
    expect(open.filter((path) => path !== root && !path.startsWith("socket:"))).toEqual([]);
    const limits = readFileSync(`/proc/${pid}/limits`, "utf8");
    expect(limits).toMatch(/Max core file size +0 +0/);
    expect(limits).toMatch(/Max address space +134217728 +134217728/);
  });

  it("cannot mount, make devices, trace, connect, start anything or leave, were it taken over", async () => {
    const prisoner = helper.native.compile("prisoner", PRISONER);
    const SIGSYS = 31;
    const run = async (act: string) =>
      (await helper.native.spawn({ argv: [prisoner, root, act], timeout_ms: 5_000 })).signal;
    const acts = "mount chroot mknod fifo ptrace socket exec fork setuid unshare kill".split(" ");
    if (process.arch === "x64") acts.push("x32");
    for (const act of acts) expect([act, await run(act)]).toEqual([act, SIGSYS]);
    for (const act of ["nothing", "proc", "dots", "chroot", "mknod", "mount"]) {
      const name = ["chroot", "mknod", "mount"].includes(act) ? `${act} without a filter` : act;
      const { exit_code, signal } = await helper.native.spawn({ argv: [prisoner, root, name], timeout_ms: 5_000 });
      expect([name, exit_code, signal]).toEqual([name, 0, 0]);
    }
    expect(readdirSync(root).sort()).toEqual(["elsewhere", "t"]);
  });

  it("listens to root alone, and to nobody for long", async () => {
    const path = join(helper.native.directory, "listening.sock");
    const argv = [helper.native.binary, "files", root, "0"];
    const before = children(helper.native.pid);
    expect((await helper.native.spawn({ argv, listen: [path] })).exit_code).toBe(0);
    const [pid = 0] = children(helper.native.pid).filter((each) => !before.includes(each));
    const script = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    const user = ["setpriv", "--reuid", "65534", "--clear-groups", "python3", "-c", script, path];
    const { exit_code, stderr } = await helper.native.spawn({ argv: user });
    expect([exit_code, stderr]).toEqual([1, expect.stringContaining("PermissionError")]);
    await eventually("the helper to end", () => !existsSync(`/proc/${pid}`));
  });
});
