/** Readers of logs: how many there may be. */
import { expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { LogReaders } from "../../../src/containers/exec/logs.ts";

it("looks at logs take turns, the longest waiting first, and a failure ends only its own", async () => {
  const readers = new LogReaders();
  const begun: number[] = [];
  const ends: PromiseWithResolvers<void>[] = [];
  const reads = Array.from({ length: LIMITS.log_reads_max + 2 }, (_, i) => {
    const end = Promise.withResolvers<void>();
    ends.push(end);
    return readers.read(() => {
      begun.push(i);
      return end.promise;
    });
  });
  await Promise.resolve();
  expect(begun).toEqual([0, 1, 2, 3]);
  ends[1]?.reject(new Error("it broke"));
  await expect(reads[1]).rejects.toThrow("it broke");
  expect(begun).toEqual([0, 1, 2, 3, 4]);
  for (const end of ends) end.resolve();
  await Promise.allSettled(reads);
  expect(begun).toEqual([0, 1, 2, 3, 4, 5]);
});
