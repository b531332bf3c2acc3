/** What expires at times that come in any order, on a clock that moves by hand. */
import { expect, it } from "vitest";
import { Expiries } from "../../src/base/expiries.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { HandClock, settled } from "../pool/hand-clock.ts";
import { quietLog } from "../store/scratch.ts";

const SECOND_MS = 1_000;

function expiring(of: { failing?: boolean } = {}) {
  const clock = new HandClock();
  const times = new Set<number>();
  const log: number[] = [];
  const now = () => clock.epochMs() / SECOND_MS;
  const expiries = new Expiries({
    ...{ clock, log: quietLog, what: "thing" },
    expire: async () => {
      log.push(now());
      if (of.failing === true) throw new Error("the disk is full");
      for (const at of times) if (at <= now()) times.delete(at);
    },
    next: async () => (times.size === 0 ? null : Math.min(...times)),
  });
  const add = (in_seconds: number) => {
    const at = Math.floor(now()) + in_seconds;
    times.add(at);
    expiries.note(at);
  };
  return { clock, times, log, expiries, add, of };
}

it("each is removed at its time, whatever was noted before it", async () => {
  const { clock, times, add } = expiring();
  for (const seconds of [40, 2, 3, 1]) add(seconds);
  for (const left of [3, 2, 1]) {
    await clock.pass(SECOND_MS);
    expect(times.size).toBe(left);
  }
  await clock.pass(37 * SECOND_MS);
  expect(times.size).toBe(0);
});

it("what is there at the start is found, and a time of many days waits in pieces that a timer holds", async () => {
  const { clock, times, log, expiries } = expiring();
  const days = 40 * 24 * 3_600;
  times.add(Math.floor(clock.epochMs() / SECOND_MS) + days);
  await expiries.begin();
  await clock.pass(LIMITS.expiry_look_ms_max);
  await settled();
  expect([log.length, times.size]).toEqual([1, 1]);
});

it("what cannot be removed is tried again after a pause, and no more once it is closed", async () => {
  const { clock, times, log, expiries, add, of } = expiring({ failing: true });
  add(1);
  await clock.pass(SECOND_MS);
  await clock.pass(3 * LIMITS.expiry_retry_ms);
  expect(log.length).toBe(4);
  of.failing = false;
  await clock.pass(LIMITS.expiry_retry_ms);
  expect(times.size).toBe(0);
  add(1);
  expiries.close();
  await clock.pass(10 * SECOND_MS);
  expect(times.size).toBe(1);
});
