/** Readers of logs: how many there may be, and whose. */
import { expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { UNBOUNDED_TURN } from "../../../src/base/transfer-turns.ts";
import { LogReaders, type Reader } from "../../../src/containers/exec/logs.ts";
import type { ContainerLog } from "../../../src/engine/ports.ts";

/** A log that has one line when `end` is resolved, and tells that it is read. */
function slow(begun: string[], name: string) {
  const end = Promise.withResolvers<void>();
  const log: Pick<ContainerLog, "tailPieces"> = {
    async *tailPieces() {
      begun.push(name);
      await end.promise;
      yield [{ seq: 1, at_ms: 0, stream: "stdout", message: name, partial: false }];
    },
  };
  return { log: log as ContainerLog, end };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

const readerOf = (tenant_id: string, more: Partial<Reader> = {}): Reader => ({
  tenant_id,
  turn: UNBOUNDED_TURN,
  signal: new AbortController().signal,
  ...more,
});

async function read(readers: LogReaders, reader: Reader, log: ContainerLog): Promise<string[]> {
  const lines: string[] = [];
  for await (const piece of readers.read(reader, log, { limit: 1 })) lines.push(...piece.map((line) => line.message));
  return lines;
}

it("looks at logs take turns, the longest waiting first, and a failure ends only its own", async () => {
  const readers = new LogReaders();
  const begun: string[] = [];
  const logs = Array.from({ length: LIMITS.log_reads_max + 2 }, (_, i) => slow(begun, String(i)));
  const reads = logs.map(({ log }, i) => read(readers, readerOf(`tenant-${i}`), log));
  await turn();
  expect(begun).toEqual(["0", "1", "2", "3"]);
  logs[1]?.end.reject(new Error("it broke"));
  await expect(reads[1]).rejects.toThrow("it broke");
  await turn();
  expect(begun).toEqual(["0", "1", "2", "3", "4"]);
  for (const { end } of logs) end.resolve();
  await Promise.allSettled(reads);
  expect(begun).toEqual(["0", "1", "2", "3", "4", "5"]);
  expect(await reads[5]).toEqual(["5"]);
});

it("one tenant looks at one log at a time, however many it asks for, and keeps no other waiting", async () => {
  const readers = new LogReaders();
  const begun: string[] = [];
  const own = Array.from({ length: 10 }, (_, i) => slow(begun, `own ${i}`));
  const other = slow(begun, "other");
  const reads = own.map(({ log }) => read(readers, readerOf("a"), log));
  const others = read(readers, readerOf("b"), other.log);
  await turn();
  expect(begun).toEqual(["own 0", "other"]);
  other.end.resolve();
  expect(await others).toEqual(["other"]);
  for (const { end } of own) end.resolve();
  expect((await Promise.all(reads)).flat()).toEqual(own.map((_, i) => `own ${i}`));
});

it("a reader that leaves gives its turn to the next", async () => {
  const readers = new LogReaders();
  const begun: string[] = [];
  const [first, second] = [slow(begun, "first"), slow(begun, "second")];
  first.end.resolve();
  for await (const _ of readers.read(readerOf("a"), first.log, { limit: 1 })) break;
  second.end.resolve();
  expect(await read(readers, readerOf("a"), second.log)).toEqual(["second"]);
});

it("a tenant that has not paid for what it moved takes no place, and keeps no other waiting", async () => {
  const readers = new LogReaders();
  const begun: string[] = [];
  const paid = Promise.withResolvers<void>();
  const turn = { ...UNBOUNDED_TURN, take: () => paid.promise };
  const owing = Array.from({ length: LIMITS.log_reads_max }, (_, i) => slow(begun, `owing ${i}`));
  const reads = owing.map(({ log }, i) => read(readers, readerOf(`owing ${i}`, { turn }), log));
  const other = slow(begun, "other");
  other.end.resolve();
  expect(await read(readers, readerOf("other"), other.log)).toEqual(["other"]);
  expect(begun).toEqual(["other"]);
  paid.resolve();
  for (const { end } of owing) end.resolve();
  expect((await Promise.all(reads)).flat()).toHaveLength(LIMITS.log_reads_max);
});

it("nothing is read for a reader that went while it waited", async () => {
  const readers = new LogReaders();
  const begun: string[] = [];
  const [first, second] = [slow(begun, "first"), slow(begun, "second")];
  const going = new AbortController();
  const reading = read(readers, readerOf("a"), first.log);
  const waiting = read(readers, readerOf("a", { signal: going.signal }), second.log);
  await turn();
  going.abort(new Error("gone"));
  first.end.resolve();
  await expect(waiting).rejects.toThrow("gone");
  expect(await reading).toEqual(["first"]);
  expect(begun).toEqual(["first"]);
});
