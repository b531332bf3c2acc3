/** Readers of logs: how many there may be, and whose. */
import { expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { LogReaders } from "../../../src/containers/exec/logs.ts";
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

async function read(readers: LogReaders, tenant_id: string, log: ContainerLog): Promise<string[]> {
  const lines: string[] = [];
  for await (const piece of readers.read(tenant_id, log, { limit: 1 }))
    lines.push(...piece.map((line) => line.message));
  return lines;
}

it("looks at logs take turns, the longest waiting first, and a failure ends only its own", async () => {
  const readers = new LogReaders();
  const begun: string[] = [];
  const logs = Array.from({ length: LIMITS.log_reads_max + 2 }, (_, i) => slow(begun, String(i)));
  const reads = logs.map(({ log }, i) => read(readers, `tenant-${i}`, log));
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
  const reads = own.map(({ log }) => read(readers, "a", log));
  const others = read(readers, "b", other.log);
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
  for await (const _ of readers.read("a", first.log, { limit: 1 })) break;
  second.end.resolve();
  expect(await read(readers, "a", second.log)).toEqual(["second"]);
});
