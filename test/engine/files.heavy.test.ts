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
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import type { HelperSession } from "../../src/engine/files/file-sessions.ts";
import { FileHelper } from "../support/file-helper.ts";
import { children, eventually } from "../support/native.ts";

let helper: FileHelper;
let root: string;
let session: HelperSession;

beforeAll(async () => {
  helper = await FileHelper.start();
});

afterAll(async () => {
  await helper?.stop();
});

beforeEach(async () => {
  root = mkdtempSync("/var/tmp/hearth-files-");
  session = await helper.open(root);
});

afterEach(() => {
  session.close();
  rmSync(root, { recursive: true, force: true });
});

const at = (...parts: string[]) => join(root, ...parts);
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error: { code: string }) => error.code,
  );

describe("a session", () => {
  it("ends its helper with the connection, and what was half-written goes", async () => {
    const before = children(helper.native.pid);
    const other = await helper.open(root);
    const [pid = 0] = children(helper.native.pid).filter((each) => !before.includes(each));
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
    const other = await helper.open(root);
    const pid = children(helper.native.pid).at(-1) ?? 0;
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
    const socket_path = helper.socketPath();
    const other = await helper.open(root, { clock, socket_path });
    expect(existsSync(socket_path)).toBe(false);
    await other.stat("/");
    const pid = children(helper.native.pid).at(-1) ?? 0;
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
    const { pid, wire } = await helper.native.init();
    const seen = await helper.open(`/proc/${pid}/root`);
    const path = join(root, "inner/f");
    expect((await buffer((await seen.read(path)).stream)).toString()).toBe("inside");
    expect(await codeOf(seen.read("/proc/1/environ"))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(seen.list({ path: "/proc", page: 1, page_size: 10 }))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(seen.write("/proc/sys/kernel/hostname", Buffer.from("x")))).toBe("INVALID_ARGUMENT");
    expect(readlinkSync(at("inner/l"))).toBe("/f");
    seen.close();
    wire.socket.destroy();
  });
});
