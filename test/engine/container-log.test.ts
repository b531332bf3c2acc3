/** The log of a container's main command: written by minit, read on the host, over restarts, rotation and damage. */
import { execFileSync } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock as clock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { type TransferTurn, UNBOUNDED_TURN } from "../../src/base/transfer-turns.ts";
import { readExitRecord, SegmentedLog } from "../../src/engine/containers/log.ts";
import { shutdown, stopMain } from "../../src/engine/minit/container-client.ts";
import type { LogLine } from "../../src/engine/ports.ts";
import { eventually, Native } from "../support/native.ts";

const MIB = 1024 * 1024;
const KILL = 9;
const USR1 = 10;
const USR2 = 12;

let native: Native;

beforeAll(async () => {
  native = await Native.start();
});

afterAll(() => native?.stop());

type Container = Awaited<ReturnType<Native["container"]>>;

const start = (script: string, folder?: string) =>
  native.container(["sh", "-c", script], folder === undefined ? {} : { folder });
const logOf = (container: Container) => new SegmentedLog(async () => container.log_paths, clock);
const all = (container: Container) => logOf(container).tail({ limit: LIMITS.log_lines_max });
const messages = (lines: readonly LogLine[]) => lines.map((line) => line.message);

/** Runs a container to its end. */
async function ran(script: string, folder?: string): Promise<Container> {
  const container = await start(script, folder);
  await native.endSpawn(container.ended);
  return container;
}

/** Follows until `isEnough`, which every line is shown to. */
async function followed(log: SegmentedLog, after_seq: number, isEnough: (line: LogLine) => boolean) {
  const lines: LogLine[] = [];
  for await (const line of log.follow(after_seq, AbortSignal.timeout(30_000))) {
    lines.push(line);
    if (isEnough(line)) break;
  }
  return lines;
}

describe("the log of a container", () => {
  it("has the lines of both outputs in their order, numbered, with their time", async () => {
    const before_ms = clock.epochMs();
    const container = await ran("echo one; sleep 0.05; echo two >&2; sleep 0.05; echo; printf 'three\\r\\n'");
    const lines = await all(container);
    expect(lines.map(({ seq, stream, message, partial }) => [seq, stream, message, partial])).toEqual([
      [1, "stdout", "one", false],
      [2, "stderr", "two", false],
      [3, "stdout", "", false],
      [4, "stdout", "three\r", false],
    ]);
    const times = lines.map((line) => line.at_ms);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(times[0]).toBeGreaterThanOrEqual(before_ms - 1);
    expect(times.at(-1)).toBeLessThanOrEqual(clock.epochMs());
    const [, second] = lines;
    const log = logOf(container);
    expect(messages(await log.tail({ limit: 2 }))).toEqual(["", "three\r"]);
    expect(messages(await log.tail({ limit: 1, after_seq: 4 }))).toEqual([]);
    expect(messages(await log.tail({ limit: 10, after_seq: 2 }))).toEqual(["", "three\r"]);
    expect(messages(await log.tail({ limit: 10, since_ms: second?.at_ms ?? 0 }))).toEqual(["two", "", "three\r"]);
    expect(await log.tail({ limit: 0 })).toEqual([]);
  });

  it("cuts long lines, and says which go on", async () => {
    const container = await ran(
      "head -c 40000 /dev/zero | tr '\\0' x; echo; head -c 16384 /dev/zero | tr '\\0' y; sleep 0.05; echo; printf end",
    );
    const lines = await all(container);
    expect(lines.map(({ message, partial }) => [message.length, message[0], partial])).toEqual([
      [16_384, "x", true],
      [16_384, "x", true],
      [7_232, "x", false],
      [16_384, "y", false],
      [3, "e", true],
    ]);
  });

  it("shows a line that has begun and does not go on", async () => {
    const container = await start("printf 'your name? '; sleep 1000");
    const [line] = await followed(logOf(container), 0, () => true);
    expect(line).toMatchObject({ message: "your name? ", partial: true, seq: 1 });
    await stopMain(container.path, KILL, clock);
    await native.endSpawn(container.ended);
  });

  it("goes on with its numbers when the container is started again, also after a torn end", async () => {
    const { folder, log_paths } = await ran("seq 3");
    const [path = ""] = log_paths;
    const whole = readFileSync(path);
    const again = async (message: string) => ran(`echo ${message}`, folder).then(all);
    expect(messages(await again("four"))).toEqual(["1", "2", "3", "four"]);
    const tears: (() => void)[] = [
      () => appendFileSync(path, whole.subarray(16, 40)),
      () => appendFileSync(path, Buffer.alloc(5_000)),
      () => appendFileSync(path, whole.subarray(16)),
      () => truncateSync(path, statSync(path).size - 2),
    ];
    let expected = ["1", "2", "3", "four"];
    for (const [i, tear] of tears.entries()) {
      tear();
      if (i === 3) expected = expected.slice(0, -1);
      const log = new SegmentedLog(async () => log_paths, clock);
      expect(messages(await log.tail({ limit: 100 }))).toEqual(expected);
      expected = [...expected, `after ${i}`];
      const lines = await again(`after ${i}`);
      expect(messages(lines)).toEqual(expected);
      expect(lines.map((line) => line.seq)).toEqual(expected.map((_, at) => at + 1));
    }
  });

  it("starts anew where its files make no sense", async () => {
    const { folder, log_paths } = await ran("seq 3");
    for (const path of log_paths) writeFileSync(path, "no segment of a log, but something else");
    expect(messages(await new SegmentedLog(async () => log_paths, clock).tail({ limit: 10 }))).toEqual([]);
    expect(messages(await ran("echo new", folder).then(all))).toEqual(["new"]);
  });

  it("keeps the newest lines in a ring of bounded files, over a restart in the middle of it", async () => {
    // Every line is its own number; in the second run they go on where the first ended.
    const count = 700_000;
    const container = await ran(`seq ${count}`);
    const sizes = () => container.log_paths.map((path) => statSync(path).size);
    for (const size of sizes()) expect(size).toBeLessThanOrEqual(4 * MIB);
    const check = async (last: number) => {
      const lines = await all(container);
      expect(lines).toHaveLength(LIMITS.log_lines_max);
      expect(lines.at(-1)?.seq).toBe(last);
      expect(lines.every((line, i) => line.message === String(line.seq) && line.seq === last - 9_999 + i)).toBe(true);
    };
    await check(count);
    // More than one segment, and the oldest that is left.
    const old = await followed(logOf(container), 0, (line) => line.seq === count);
    expect(old.length).toBeGreaterThan(300_000);
    const [first] = old;
    expect(old.every((line, i) => line.seq === (first?.seq ?? 0) + i && line.message === String(line.seq))).toBe(true);
    await ran(`seq ${count + 1} ${count + 200_000}`, container.folder);
    await check(count + 200_000);
    for (const size of sizes()) expect(size).toBeLessThanOrEqual(4 * MIB);
  });

  it("is followed while it is written, faster than it is read, and nothing wrong is told", async () => {
    const count = 1_500_000;
    const before_ms = clock.epochMs();
    const container = await start(`seq ${count}; sleep 1000`);
    const reading = { isOver: false };
    const tails = (async () => {
      while (!reading.isOver) {
        const lines = await logOf(container).tail({ limit: 5_000 });
        const [first] = lines;
        expect(lines.every((line, i) => line.seq === (first?.seq ?? 0) + i && line.message === String(line.seq))).toBe(
          true,
        );
      }
    })();
    let previous = 0;
    const lines = await followed(logOf(container), 0, (line) => {
      if (line.seq <= previous || line.message !== String(line.seq)) throw new Error(`${line.seq} after ${previous}`);
      previous = line.seq;
      return line.seq === count;
    });
    reading.isOver = true;
    await tails;
    expect(lines.at(-1)?.seq).toBe(count);
    // 28 bytes and the digits a line, of which the ring's size goes at once and the rest at 32 MB/s: never sooner.
    expect((lines.at(-1)?.at_ms ?? 0) - before_ms).toBeGreaterThan(1_000);
    await shutdown(container.path, 5_000, clock);
    await native.endSpawn(container.ended);
  });

  it("is followed from a number on, over a restart, until its reader leaves", async () => {
    const container = await ran("seq 5");
    const leave = new AbortController();
    const lines: LogLine[] = [];
    const following = (async () => {
      for await (const line of logOf(container).follow(3, leave.signal)) lines.push(line);
    })();
    await eventually("what is there", () => lines.length === 2);
    await ran("seq 6 8", container.folder);
    await eventually("what came", () => lines.length === 5);
    leave.abort();
    await following;
    expect(messages(lines)).toEqual(["4", "5", "6", "7", "8"]);
  });

  /** A turn that tells what passes in it. */
  const told = (pass: (bytes: number) => void): TransferTurn => ({
    ...UNBOUNDED_TURN,
    pass: async (bytes) => pass(bytes),
  });

  it("is read in the turns of a tenant: each byte that is looked at counts, and each line", async () => {
    const container = await ran("seq 60000");
    let bytes = 0;
    const turn = told((more) => {
      bytes += more;
    });
    const log = logOf(container);
    const pieces: (readonly LogLine[])[] = [];
    for await (const piece of log.tailPieces({ limit: 1_000, turn })) pieces.push(piece);
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(LIMITS.turn_items);
    expect(messages(pieces.flat())).toEqual(Array.from({ length: 1_000 }, (_, i) => String(59_001 + i)));
    expect(await log.firstSeq({ limit: 1_000, turn })).toBe(59_001);
    expect(await log.firstSeq({ limit: 1_000, after_seq: 59_500 })).toBe(59_501);
    expect(await log.firstSeq({ limit: 1_000, after_seq: 60_000 })).toBeNull();
    const size = statSync(container.log_paths[0] ?? "").size;
    expect(bytes).toBeGreaterThanOrEqual(2 * size + 800 * LIMITS.turn_item_bytes);
    expect(bytes).toBeLessThan(4 * size);
  });

  it("is read a few long lines at a time", async () => {
    const container = await ran("for i in $(seq 50); do head -c 16000 /dev/zero | tr '\\0' '\\1'; echo; done");
    const pieces: number[] = [];
    for await (const piece of logOf(container).tailPieces({ limit: 50 })) {
      pieces.push(piece.reduce((sum, { message }) => sum + message.length, 0));
    }
    expect(pieces.reduce((sum, bytes) => sum + bytes)).toBe(50 * 16_000);
    expect(Math.max(...pieces)).toBeLessThan(LIMITS.turn_piece_bytes + 16_000);
  });

  it("has the lines that are still whole where its file shrinks while it is read", async () => {
    const container = await ran("seq 100");
    const [path = ""] = container.log_paths;
    const size = statSync(path).size;
    const shrinking = told(() => truncateSync(path, size - 10));
    const lines = await logOf(container).tail({ limit: 100, turn: shrinking });
    expect(messages(lines)).toEqual(Array.from({ length: 99 }, (_, i) => String(i + 1)));
  });

  it("is followed in the turns of a tenant", async () => {
    const container = await ran("seq 60000");
    let bytes = 0;
    const turn: TransferTurn = {
      ...UNBOUNDED_TURN,
      take: async (more) => {
        bytes += more;
      },
    };
    const { log_paths } = container;
    for await (const { seq } of logOf(container).follow(0, AbortSignal.timeout(30_000), turn))
      if (seq === 60_000) break;
    expect(bytes).toBeGreaterThanOrEqual(statSync(log_paths[0] ?? "").size - LIMITS.log_read_bytes);
  });

  it("is none where there are no files", async () => {
    const log = new SegmentedLog(async () => [join(native.directory, "nothing")], clock);
    expect(await log.tail({ limit: 10 })).toEqual([]);
    expect(await followed(log, 0, () => true)).toEqual([]);
    expect(await readExitRecord(join(native.directory, "nothing"))).toBeNull();
  });

  it("counts lines that the disk does not take, does not hold the command up, and goes on", async () => {
    const folder = mkdtempSync(join(native.directory, "full-"));
    const script = "trap 'seq 50000; touch done' USR1; trap 'echo later' USR2; echo up; while :; do sleep 0.01; done";
    const container = await native.container(["sh", "-c", script], { folder, cwd: folder });
    await eventually("it is up", async () => (await all(container)).length === 1);
    // A limit on the size of files fails a write as a full disk does, in the middle of what is written.
    execFileSync("prlimit", ["--pid", String(container.pid), "--fsize=100000:unlimited"]);
    await stopMain(container.path, USR1, clock);
    await eventually("the command to have written all", () => existsSync(join(folder, "done")));
    const kept = (await all(container)).length;
    execFileSync("prlimit", ["--pid", String(container.pid), "--fsize=unlimited:unlimited"]);
    await stopMain(container.path, USR2, clock);
    const lines = await followed(logOf(container), 0, (line) => line.message === "later");
    const note = lines.find((line) => line.stream === "minit");
    expect([kept > 1_000, note?.seq]).toEqual([true, kept + 1]);
    const lost = Number(/^minit: (\d+) log lines were lost: File too large$/.exec(note?.message ?? "")?.[1]);
    expect(lost + lines.length - 1).toBe(50_002);
    expect(lines.map((line) => line.seq)).toEqual(lines.map((_, i) => i + 1));
    await shutdown(container.path, 5_000, clock);
    await native.endSpawn(container.ended);
  });
});
