import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
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
import { HelperSession } from "../../src/engine/files/file-sessions.ts";
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
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error: { code: string }) => error.code,
  );

describe("a session", () => {
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
