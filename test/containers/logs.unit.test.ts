/** Followers of logs: how many there may be. */
import { expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Followers } from "../../src/containers/logs.ts";

it("followers of logs are as many as may be, of one tenant and of all, and who leaves makes room", () => {
  const followers = new Followers();
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
