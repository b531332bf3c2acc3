/** The resident process of an instance through the real minit: calls, their bounds, and what ends it. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { FRAME, strBytes, strsBytes } from "../../src/engine/minit/frames.ts";
import { MinitClient } from "../../src/engine/minit/instance-client.ts";
import type { CallListener, CallRequest, Resident, ServeRequest } from "../../src/engine/ports.ts";
import { isSanitized } from "../support/helper.ts";
import { children, ENVIRONMENT, eventually, InitWire, Native } from "../support/native.ts";
import { sendSignal } from "../support/signals.ts";

const PROGRAM = readFileSync(join(import.meta.dirname, "../support/resident.c"), "utf8");
const CONNECT_MS = 5_000;
const MIB = 1024 * 1024;
const SPOILED = 2;
const WAITING = 4;
const BUSY = 1;

let native: Native;
let program: string;
let init: Awaited<ReturnType<Native["init"]>>;
let minit: MinitClient;
let resident: Resident;
/** Output that belongs to no call, as text. */
let log: { stdout: string; stderr: string };

beforeAll(async () => {
  native = await Native.start();
  program = native.compile("resident", PROGRAM);
});
afterAll(() => native?.stop());

beforeEach(async () => {
  init = await native.init();
  init.wire.socket.destroy();
  await connect();
  log = { stdout: "", stderr: "" };
});
afterEach(async () => {
  minit.shutdown();
  await native.endSpawn(init.ended);
});

async function connect(): Promise<void> {
  minit = (await MinitClient.connect(init.path, CONNECT_MS, systemClock)).client;
}

/** Ends the connection of the process and takes it over on another one. */
async function takeOver(): Promise<void> {
  minit.close();
  await eventually("minit waits for another connection", async () => ((await flagsOfReady()) & WAITING) !== 0);
  await connect();
  resident = minit.take();
  await resident.opened;
}

async function flagsOfReady(): Promise<number> {
  const peer = new InitWire(init.path);
  const flags = (await peer.next(FRAME.READY, 0)).body.readUInt32LE(20);
  peer.socket.destroy();
  return flags;
}

async function serve(more: Partial<ServeRequest> = {}, ...mode: string[]): Promise<void> {
  const request = { environment: ENVIRONMENT, working_directory: "", concurrency: 1, open_timeout_ms: 10_000 };
  resident = minit.serve({ ...request, argv: [program, ...mode], ...more }, (stream, chunk) => {
    log[stream] += chunk.toString();
  });
  await resident.opened;
}

const request = (text: string | Uint8Array, more: Partial<CallRequest> = {}): CallRequest => ({
  payload: Buffer.from(text),
  timeout_ms: 60_000,
  result_bytes_max: MIB,
  log_bytes_max: MIB,
  ...more,
});
const call = (text: string | Uint8Array, more: Partial<CallRequest> = {}, listener: CallListener = {}) =>
  resident.call(request(text, more), listener);
const resultOf = async (text: string) => (await call(text)).result.toString();
const insiders = () => {
  const all = (pid: number): number[] => children(pid).flatMap((child) => [child, ...all(child)]);
  return all(init.pid);
};
const anonymousKb = () => Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${init.pid}/status`, "utf8"))?.[1]);

/** Expects the state after each end: no process is left, and the spoiled instance accepts no other one. */
async function expectSpoiled(): Promise<void> {
  await resident.ended;
  expect(insiders()).toEqual([]);
  await expect(resident.call(request("echo"))).rejects.toMatchObject({ code: "INTERNAL" });
  minit.close();
  await eventually("nobody is connected but us, and it is spoiled", async () => (await flagsOfReady()) === SPOILED);
  await connect();
  await expect(serve()).rejects.toThrow("the container is in use");
}

describe("a resident process", () => {
  it("serves a thousand calls one after the other, and leaves no memory or descriptor of them in minit", async () => {
    await serve();
    const descriptors = () => readdirSync(`/proc/${init.pid}/fd`).length;
    await call("echo first");
    const before = [descriptors(), anonymousKb()] as const;
    for (let n = 0; n < 1_000; n++) expect(await resultOf(`echo ${n}`)).toBe(String(n));
    expect(descriptors()).toBe(before[0]);
    expect(anonymousKb()).toBeLessThanOrEqual(before[1] + (isSanitized ? 1_024 : 96));
    expect(await call("echo x")).toMatchObject({ status: 0, timed_out: false, cancelled: false, log_truncated: false });
  });

  it("serves a thousand calls four at a time, each with its own result", async () => {
    await serve({ concurrency: 4 });
    let next = 0;
    const lane = async () => {
      for (let n = next++; n < 1_000; n = next++) expect(await resultOf(`echo ${n}`)).toBe(String(n));
    };
    await Promise.all([lane(), lane(), lane(), lane()]);
  });

  it("has several calls in flight, up to its concurrency", async () => {
    await serve({ concurrency: 4 });
    const held = [call("hold"), call("hold"), call("hold")];
    expect(await resultOf("release")).toBe("3");
    for (const one of await Promise.all(held)) expect(one.result.toString()).toBe("held");
    const four = Array.from({ length: 4 }, () => call("hold"));
    await expect(call("echo fifth")).rejects.toThrow("too many calls");
    resident.kill();
    for (const one of await Promise.all(four)) expect(one.cancelled).toBe(true);
  });

  it("takes requests and gives results of megabytes in chunks", async () => {
    await serve({ concurrency: 2 });
    const large = Buffer.alloc(5 * MIB + 17, "x");
    large.write("size ");
    expect((await call(large)).result.toString()).toBe(String(large.length));
    const whole = await call("chunks 100", { result_bytes_max: 16 * MIB });
    expect([whole.result.length, whole.result_truncated]).toEqual([100 * 65_536 + 3, false]);
    const pieces: number[] = [];
    const streamed = await call("chunks 3", {}, { onChunk: (chunk) => pieces.push(chunk.length) });
    expect([pieces, streamed.result.length]).toEqual([[65_536, 65_536, 65_536, 3], 0]);
    const cut = await call("chunks 3", { result_bytes_max: 100_000 });
    expect([cut.result.length, cut.result_truncated]).toEqual([100_000, true]);
  });

  it("tells a handler's failure from a result", async () => {
    await serve();
    expect(await call("fail because")).toMatchObject({ status: 1, cancelled: false, timed_out: false });
    expect(await resultOf("echo next")).toBe("next");
  });

  it("gives log lines to their call, within its cap, and others to the instance", async () => {
    await serve({ concurrency: 2 });
    const own = { stdout: "", stderr: "" };
    const listener = {
      onLog: (stream: "stdout" | "stderr", chunk: Buffer) => {
        own[stream] += chunk.toString();
      },
    };
    expect(await call("log hello", {}, listener)).toMatchObject({ log_truncated: false });
    expect(own).toEqual({ stdout: "hello", stderr: "error" });
    expect(await call("log world", { log_bytes_max: 2 }, listener)).toMatchObject({ log_truncated: true });
    expect(own.stdout).toBe("hellowo");
    await call("note all");
    expect(log).toEqual({ stdout: "", stderr: "all" });
  });

  it("gives what it prints to the only call in flight, and to the instance while several are", async () => {
    await serve({ concurrency: 100 });
    let own = "";
    for (let n = 0; n < 50; n++)
      await call(`print <${n}>`, {}, { onLog: (_stream, chunk) => (own += chunk.toString()) });
    expect(own).toBe(Array.from({ length: 50 }, (_, n) => `<${n}>`).join(""));
    expect([log.stdout, resident.tail]).toEqual(["", ""]);
    own = "";
    const held = call("hold", {}, { onLog: (_stream, chunk) => (own += chunk.toString()) });
    await call("print while two are in flight", {}, { onLog: () => expect.fail("it is the log of no call") });
    await call("release");
    await held;
    await eventually("the instance has it", () => log.stdout === "while two are in flight");
    expect([own, resident.tail]).toEqual(["", "while two are in flight"]);
  });

  it("gives what it prints between two calls to the instance", async () => {
    await serve({ concurrency: 100 });
    await call("echo first");
    const [pid = 0] = insiders();
    process.kill(pid, "SIGUSR1");
    await eventually("the instance has it", () => log.stdout === "background");
    let own = "";
    await call("print own", {}, { onLog: (_stream, chunk) => (own += chunk.toString()) });
    expect([own, resident.tail]).toEqual(["own", "background"]);
  });

  it("serves a hundred calls at the same time, and no process more", async () => {
    await expect(serve({ concurrency: 101 })).rejects.toThrow("no such concurrency");
    await serve({ concurrency: 100 });
    const held = Array.from({ length: 99 }, () => call("hold"));
    expect(await resultOf("release")).toBe("99");
    for (const one of await Promise.all(held)) expect(one.result.toString()).toBe("held");
    const large = Buffer.alloc(MIB, "x");
    large.write("size ");
    const sizes = await Promise.all(Array.from({ length: 100 }, () => call(large)));
    expect(new Set(sizes.map(({ result }) => result.toString()))).toEqual(new Set([String(MIB)]));
    expect(anonymousKb()).toBeLessThan(isSanitized ? 8_192 : 4_096);
  });

  it("keeps the container to itself", async () => {
    await serve();
    const sole = { argv: ["true"], environment: ENVIRONMENT, working_directory: "", timeout_ms: 0, payload: "" };
    await expect(minit.execSole({ ...sole, stdout_bytes_max: 0, stderr_bytes_max: 0, wipe: false })).rejects.toThrow(
      "errno 16",
    );
    const second = minit.serve(
      { argv: [program], environment: [], working_directory: "", concurrency: 1, open_timeout_ms: 0 },
      () => {},
    );
    await expect(second.opened).rejects.toThrow("the container is in use");
  });
});

describe("a resident process whose connection ends while no call is in flight", () => {
  it("lives on, and serves the next connection", async () => {
    await serve({ concurrency: 4 });
    const { pid, open_ms } = await resident.opened;
    expect(await resultOf("echo first")).toBe("first");
    for (let n = 0; n < 3; n++) {
      await takeOver();
      expect(await resident.opened).toEqual({ pid, open_ms });
      const calls = Array.from({ length: 4 }, (_, i) => resultOf(`echo ${i}`));
      expect(await Promise.all(calls)).toEqual(["0", "1", "2", "3"]);
    }
    resident.kill();
    expect(await resident.ended).toMatchObject({ cancelled: true, signal: 9 });
    await expectSpoiled();
  });

  it("belongs to one connection at a time", async () => {
    await serve();
    const other = (await MinitClient.connect(init.path, CONNECT_MS, systemClock)).client;
    await expect(other.take().opened).rejects.toThrow("another connection has the process");
    await takeOver();
    await expect(other.take().opened).rejects.toThrow("another connection has the process");
    expect(await resultOf("echo mine")).toBe("mine");
    minit.close();
    const taken = await eventually("the other connection has it", () =>
      other
        .take()
        .opened.then(() => true)
        .catch(() => false),
    );
    expect(taken).toBe(true);
    await connect();
    await expect(minit.take().opened).rejects.toThrow("another connection has the process");
    other.close();
    await eventually("minit waits", async () => (await flagsOfReady()) === (WAITING | BUSY));
  });

  it("keeps commands and other processes out of the container", async () => {
    await serve();
    await takeOver();
    minit.close();
    await connect();
    await eventually("minit waits", async () => ((await flagsOfReady()) & WAITING) !== 0);
    await expect(serve()).rejects.toThrow("the container is in use");
  });

  it("gives the next connection what it printed meanwhile", async () => {
    await serve();
    minit.close();
    await eventually("minit waits", async () => (await flagsOfReady()) === WAITING);
    for (const pid of insiders()) sendSignal(pid, "SIGUSR1");
    await connect();
    resident = minit.take();
    await eventually("it is there", () => resident.tail === "background");
  });

  it("blocks on what it says, and holds no memory of minit", async () => {
    await serve();
    await call("babble");
    minit.close();
    await eventually("minit waits", async () => (await flagsOfReady()) === WAITING);
    const [pid = 0] = insiders();
    await eventually("it blocks", () => readFileSync(`/proc/${pid}/wchan`, "utf8") === "sock_alloc_send_pskb");
    expect(anonymousKb()).toBeLessThan(isSanitized ? 8_192 : 2_048);
    await connect();
    resident = minit.take();
    await resident.opened;
    await eventually("its words come", () => resident.tail.includes("babble\nbabble\n"));
    expect(await call("echo", { timeout_ms: 100 })).toMatchObject({ timed_out: true });
    await expectSpoiled();
  });

  it.each(["SIGKILL", "SIGUSR2"] as const)(
    "spoils the instance when it dies or closes its socket (%s)",
    async (signal) => {
      await serve();
      minit.close();
      await eventually("minit waits", async () => (await flagsOfReady()) === WAITING);
      for (const pid of insiders()) sendSignal(pid, signal);
      await eventually("it is spoiled", async () => (await flagsOfReady()) === SPOILED);
      expect(insiders()).toEqual([]);
      await connect();
      await expect(minit.take().opened).rejects.toThrow("no process serves");
    },
  );
});

describe("a resident process ends with all its calls", () => {
  it("when it is killed in the middle of them", async () => {
    await serve({ concurrency: 4 });
    const calls = [call("hold"), call("hold"), call("die")];
    for (const one of await Promise.all(calls)) expect(one).toMatchObject({ cancelled: true, timed_out: false });
    expect(await resident.ended).toMatchObject({ exit_code: 137, signal: 9, is_broken: false });
    expect(log.stdout).toBe("last words");
    await expectSpoiled();
  });

  it("when it exits, after the results that it sent before", async () => {
    await serve({ concurrency: 2 });
    const held = call("hold");
    expect((await call("exit 3")).result.toString()).toBe("last");
    expect((await held).cancelled).toBe(true);
    expect(await resident.ended).toMatchObject({ exit_code: 3, signal: 0, is_broken: false });
    await expectSpoiled();
  });

  it("when a call passes its deadline: that one timed out, the others are cancelled", async () => {
    await serve({ concurrency: 3 });
    const [other, late] = [call("hold"), call("hold", { timeout_ms: 100 })];
    expect(await late).toMatchObject({ timed_out: true, cancelled: false });
    expect(await other).toMatchObject({ timed_out: false, cancelled: true });
    expect(await resident.ended).toMatchObject({ timed_out: true, signal: 9 });
    await expectSpoiled();
  });

  it("with a child that has its socket", async () => {
    await serve();
    expect((await call("orphan")).cancelled).toBe(true);
    expect(await resident.ended).toMatchObject({ exit_code: 5 });
    await expectSpoiled();
  });

  it("when its connection ends during a call", async () => {
    await serve({ concurrency: 2 });
    const held = call("hold");
    await call("echo after it");
    minit.close();
    await expect(held).rejects.toMatchObject({ code: "INTERNAL" });
    await expect(resident.ended).rejects.toMatchObject({ code: "INTERNAL" });
    await eventually("it is spoiled", async () => (await flagsOfReady()) === SPOILED);
    expect(insiders()).toEqual([]);
    await connect();
  });

  it("when its connection ends while a call is sent", async () => {
    minit.close();
    const wire = new InitWire(init.path);
    const argv = [program];
    wire.send(FRAME.SERVE, 1, 10 + strBytes("") + strsBytes(argv), (frame) => {
      frame.u32(0).u16(1).u16(1).u16(0).str("").strs(argv);
    });
    await wire.next(FRAME.CALL_OPEN, 1);
    const FLAG_MORE = 1;
    wire.send(FRAME.CALL_BEGIN, 2, 16, (frame) => frame.u32(FLAG_MORE).u32(0).u32(MIB).u32(MIB));
    wire.socket.end();
    await eventually("it is spoiled", async () => (await flagsOfReady()) === SPOILED);
    await connect();
  });

  it("when it is not open in time", async () => {
    await expect(serve({ open_timeout_ms: 100 }, "mute")).rejects.toMatchObject({ code: "INTERNAL" });
    expect(await resident.ended).toMatchObject({ timed_out: true });
    await expectSpoiled();
  });

  it("when it cannot be started, and says why", async () => {
    await expect(serve({ argv: ["/no/such"] })).rejects.toMatchObject({ code: "INTERNAL" });
    expect(await resident.ended).toMatchObject({ exit_code: 127, spawn_failed: true });
    expect(log.stderr).toBe("minit: /no/such: No such file or directory\n");
  });
});

describe("a hostile handler", () => {
  it.each(["early", "version"])("that opens with the wrong frame (%s) is ended", async (mode) => {
    await expect(serve({}, mode)).rejects.toMatchObject({ code: "INTERNAL" });
    expect(await resident.ended).toMatchObject({ is_broken: true, signal: 9 });
    await expectSpoiled();
  });

  it.each([..."forge 0,forge 4294967295,stream,open,type,begin,statusless,huge,above,short,close".split(",")])(
    "that sends a frame that is not allowed (%s) is ended, and its calls are cancelled",
    async (how) => {
      await serve({ concurrency: 2 });
      const [other, attack] = [call("hold"), call(`attack ${how}`)];
      expect(await attack).toMatchObject({ cancelled: true });
      expect(await other).toMatchObject({ cancelled: true });
      expect(await resident.ended).toMatchObject({ is_broken: true, signal: 9, timed_out: false });
      await expectSpoiled();
    },
  );

  it.each(["twice", "late"])("that goes on after a result (%s) is ended", async (how) => {
    await serve();
    expect((await call(`attack ${how}`)).result.toString()).toBe("1");
    expect(await resident.ended).toMatchObject({ is_broken: true });
  });

  it("that sends half a frame, or answers never, is ended by the deadline", async () => {
    await serve();
    expect(await call("attack half", { timeout_ms: 100 })).toMatchObject({ timed_out: true });
    await expectSpoiled();
  });

  it("that never reads holds bounded memory, leaves minit at work, and is ended by the deadline", async () => {
    await serve({ concurrency: 8 });
    const deaf = call("deaf", { timeout_ms: 1_500 });
    const large = Buffer.alloc(8 * MIB, "x");
    const calls = Array.from({ length: 7 }, () => call(large));
    await eventually("minit has taken what it takes", () => anonymousKb() > 1_000);
    expect(anonymousKb()).toBeLessThan(isSanitized ? 8_192 : 4_096);
    const second = await MinitClient.connect(init.path, CONNECT_MS, systemClock);
    await second.client.ping(CONNECT_MS, systemClock);
    second.client.close();
    expect(await deaf).toMatchObject({ timed_out: true });
    const ends = await Promise.allSettled(calls);
    expect(ends.every((end) => end.status === "rejected" || end.value.cancelled)).toBe(true);
    await expectSpoiled();
  });

  it("that sends a result in single bytes is slowed down, and none is lost", async () => {
    await serve({ concurrency: 2 });
    const { result, handler_ms } = await call("crumbs 20000");
    expect(result.length).toBe(20_000 + 3);
    // At most 256 pieces in 8 milliseconds.
    expect(handler_ms).toBeGreaterThan(500);
    await expect(call("exit 0")).resolves.toMatchObject({ status: 0 });
  });

  it("that floods the log of its instance is slowed down, and none is lost", async () => {
    await serve({ concurrency: 2 });
    const { handler_ms } = await call("pour 4096");
    expect([log.stdout.length, resident.tail]).toEqual([4 * MIB, "p".repeat(4_096)]);
    // At most 64 KiB in 8 milliseconds.
    expect(handler_ms).toBeGreaterThan(400);
  });

  it.each(["flood", "shout"])("that floods its log (%s) fills no memory, and is ended by the deadline", async (how) => {
    await serve({ concurrency: how === "flood" ? 1 : 2 });
    let bytes = 0;
    const flooding = call(
      how,
      { timeout_ms: 500, log_bytes_max: 10_000 },
      { onLog: (_stream, chunk) => (bytes += chunk.length) },
    );
    expect(await flooding).toMatchObject({ timed_out: true });
    expect(bytes).toBeLessThanOrEqual(10_000);
    expect(anonymousKb()).toBeLessThan(isSanitized ? 8_192 : 4_096);
    await expectSpoiled();
  });
});
