import { describe, expect, test } from "vitest";
import { seededRandom } from "../../bench/stats.ts";
import { Gate } from "../../pool/gate.ts";
import { Link, List } from "../../pool/queue.ts";
import { Timers } from "../../pool/timers.ts";
import { HandClock } from "./hand-clock.ts";

describe("a list", () => {
  const filled = (count: number): [List<number>, Link<number>[]] => {
    const list = new List<number>();
    const links = Array.from({ length: count }, (_, i) => new Link(i));
    for (const link of links) list.push(link);
    return [list, links];
  };

  test("lets members leave from both ends and from the middle", () => {
    const [list, links] = filled(5);
    for (const i of [0, 2, 4]) {
      const link = links[i];
      expect(link !== undefined && list.remove(link)).toBe(true);
      expect(link !== undefined && list.remove(link)).toBe(false);
    }
    expect([...list]).toEqual([1, 3]);
    expect([list.first?.value, list.last?.value, list.size]).toEqual([1, 3, 2]);
  });

  test("lets members leave while it is walked", () => {
    const [list, links] = filled(4);
    const seen: number[] = [];
    for (const value of list) {
      seen.push(value);
      const link = links[value];
      if (link !== undefined) list.remove(link);
    }
    expect(seen).toEqual([0, 1, 2, 3]);
    expect([list.size, list.first, list.last]).toEqual([0, null, null]);
  });

  test("takes members at the front, and nobody twice", () => {
    const [list] = filled(1);
    const link = new Link(9);
    list.unshift(link);
    expect([...list]).toEqual([9, 0]);
    expect(() => list.push(link)).toThrow("Q1");
  });
});

describe("timers", () => {
  test("come due in order, whatever was added and cancelled in between", () => {
    const random = seededRandom(1);
    const timers = new Timers<number>();
    const expected: number[] = [];
    for (let i = 0; i < 2_000; i++) {
      const due_ms = Math.floor(random() * 1_000);
      const timer = timers.add(due_ms, due_ms);
      if (random() < 0.6) timers.cancel(timer);
      else expected.push(due_ms);
    }
    const taken: number[] = [];
    for (let timer = timers.takeDue(1_000); timer !== null; timer = timers.takeDue(1_000)) taken.push(timer.subject);
    expect(taken).toEqual(expected.sort((a, b) => a - b));
    expect(timers.nextDue()).toBe(Number.POSITIVE_INFINITY);
  });

  test("that are not due stay", () => {
    const timers = new Timers<string>();
    timers.add(10, "a");
    expect(timers.takeDue(9)).toBeNull();
    expect(timers.takeDue(10)?.subject).toBe("a");
  });

  test("that are cancelled do not pile up", () => {
    const timers = new Timers<number>();
    for (let i = 0; i < 10; i++) timers.add(1e9, i);
    for (let i = 0; i < 100_000; i++) timers.cancel(timers.add(30_000 + i, i));
    expect(timers.live_count).toBe(10);
    expect(timers.held_count).toBeLessThanOrEqual(65);
  });
});

describe("the gate", () => {
  test("admits in the order of arrival, as many as it has places, and needs no timer while nobody waits", async () => {
    const clock = new HandClock();
    const gate = new Gate(clock, 2, 5);
    const order: number[] = [];
    const enter = (i: number) => gate.enter(clock.now_ms, () => order.push(i));
    const first = enter(1);
    enter(2);
    expect(clock.timer_count).toBe(0);
    enter(3);
    const fourth = enter(4);
    enter(5);
    expect(order).toEqual([1, 2]);
    expect(gate.leave(first, clock.now_ms)).toBe(false);
    expect(order).toEqual([1, 2, 3]);
    expect(gate.leave(fourth, clock.now_ms)).toBe(true);
    await clock.pass(5);
    expect(order).toEqual([1, 2, 3, 5]);
    expect([gate.waiting_count, clock.timer_count]).toEqual([0, 0]);
    expect(gate.leave(first, clock.now_ms)).toBe(false);
  });
});
