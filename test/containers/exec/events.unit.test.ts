/** Events of execs: a bound for each tenant, and a count of execs without events. */
import { expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { ExecEvents } from "../../../src/containers/exec/events.ts";
import { HandClock } from "../../pool/hand-clock.ts";

it("execs above the bound emit no events, and the next one that does says how many did not", async () => {
  const clock = new HandClock();
  const events = new ExecEvents(clock);
  for (let i = 0; i < LIMITS.exec_events_per_window_max; i++) expect(events.admit("a")).toBe(0);
  for (let i = 0; i < 7; i++) expect(events.admit("a")).toBeNull();
  expect(events.admit("b")).toBe(0);
  await clock.pass(LIMITS.exec_events_window_ms - 1);
  expect(events.admit("a")).toBeNull();
  await clock.pass(1);
  expect([events.admit("a"), events.admit("a"), events.admit("b")]).toEqual([8, 0, 0]);
});

it("keeps counts of execs without events for a bounded number of tenants", async () => {
  const clock = new HandClock();
  const events = new ExecEvents(clock);
  const tenants = Array.from({ length: LIMITS.exec_events_omitted_tenants_max + 1 }, (_, n) => `t${n}`);
  for (const tenant of tenants) {
    for (let i = 0; i <= LIMITS.exec_events_per_window_max; i++) events.admit(tenant);
  }
  await clock.pass(LIMITS.exec_events_window_ms);
  expect(tenants.map((tenant) => events.admit(tenant))).toEqual([0, ...tenants.slice(1).map(() => 1)]);
});
