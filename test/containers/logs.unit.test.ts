/** Readers of logs: how many there may be. */
import { expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { LogReaders } from "../../src/containers/logs.ts";

it("followers of logs are as many as may be, of one tenant and of all, and who leaves makes room", () => {
  const followers = new LogReaders();
  const enter = (tenant_id: string, count: number) => Array.from({ length: count }, () => followers.enter(tenant_id));
  const [first] = enter("a", LIMITS.log_followers_per_tenant_max);
  expect(() => followers.enter("a")).toThrow(expect.objectContaining({ code: "CONCURRENCY_LIMIT" }));
  first?.();
  first?.();
  enter("a", 1);
  expect(() => followers.enter("a")).toThrow(expect.objectContaining({ code: "CONCURRENCY_LIMIT" }));
  for (let i = 1; i < LIMITS.log_followers_max / LIMITS.log_followers_per_tenant_max; i++) {
    enter(`b${i}`, LIMITS.log_followers_per_tenant_max);
  }
  expect(() => followers.enter("c")).toThrow(expect.objectContaining({ code: "CAPACITY_FULL" }));
});

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
