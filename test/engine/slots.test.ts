/** The reserve of network slots, on a clock that the test moves. */
import { describe, expect, it } from "vitest";
import type { Clock } from "../../src/base/clock.ts";
import { Slots } from "../../src/engine/slots.ts";

interface Slot {
  readonly index: number;
  readonly generation: number;
}

function scene(slots_max = 10, ready_count = 3) {
  const timers: { at_ms: number; fn: () => void }[] = [];
  const state = { now_ms: 0, generation: 1, isFailing: false, live: new Set<number>(), made_count: 0 };
  const clock: Clock = {
    epochMs: () => state.now_ms,
    monotonicMs: () => state.now_ms,
    after(delay_ms, fn) {
      const timer = { at_ms: state.now_ms + delay_ms, fn };
      timers.push(timer);
      return () => {
        if (timers.includes(timer)) timers.splice(timers.indexOf(timer), 1);
      };
    },
  };
  const slots = new Slots<Slot>({
    clock,
    ready_count,
    slots_max,
    async make(index) {
      if (state.isFailing) throw new Error("no slot today");
      expect(state.live.has(index)).toBe(false);
      state.live.add(index);
      state.made_count++;
      return { index, generation: state.generation };
    },
    async unmake({ index }) {
      expect(state.live.delete(index)).toBe(true);
    },
    isUsable: ({ generation }) => generation === state.generation,
  });
  /** Moves the clock and lets everything due run. */
  const pass = async (by_ms: number): Promise<void> => {
    const end_ms = state.now_ms + by_ms;
    for (;;) {
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      const due = timers.filter(({ at_ms }) => at_ms <= end_ms).sort((a, b) => a.at_ms - b.at_ms)[0];
      if (due === undefined) break;
      timers.splice(timers.indexOf(due), 1);
      state.now_ms = Math.max(state.now_ms, due.at_ms);
      due.fn();
    }
    state.now_ms = end_ms;
  };
  return { slots, state, pass };
}

describe("a reserve of slots", () => {
  it("is refilled after one was taken, although it is still in use", async () => {
    const { slots, state, pass } = scene();
    await slots.fill();
    await slots.acquire();
    await slots.acquire();
    expect(state.live.size).toBe(3);
    await pass(100);
    expect(state.live.size).toBe(5);
  });

  it("gives out what came back before it makes another", async () => {
    const { slots, state } = scene();
    const first = await slots.acquire();
    await slots.release(first);
    expect(await slots.acquire()).toBe(first);
    expect(state.made_count).toBe(1);
  });

  it("never has more than its bound, and says when all are in use", async () => {
    const { slots, state, pass } = scene(4);
    const taken = await Promise.all([1, 2, 3, 4].map(() => slots.acquire()));
    expect(new Set(taken.map(({ index }) => index)).size).toBe(4);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    await pass(100);
    expect(state.live.size).toBe(4);
    for (const slot of taken) await slots.release(slot);
    expect((await slots.acquire()).index).toBeLessThan(4);
  });

  it("does not hand out what is no longer usable", async () => {
    const { slots, state } = scene();
    await slots.fill();
    const old = await slots.acquire();
    state.generation = 2;
    expect((await slots.acquire()).generation).toBe(2);
    await slots.release(old);
    expect([...state.live].length).toBe(1);
  });

  it("does not spin when none can be made, and recovers with the next one that is asked for", async () => {
    const { slots, state, pass } = scene();
    state.isFailing = true;
    await expect(slots.acquire()).rejects.toThrow("no slot today");
    await pass(10_000);
    state.isFailing = false;
    await slots.acquire();
    await pass(100);
    expect(state.live.size).toBe(4);
  });

  it("gives up, one by one, what a burst had needed", async () => {
    const { slots, state, pass } = scene();
    const burst = await Promise.all([...Array(8).keys()].map(() => slots.acquire()));
    for (const slot of burst) await slots.release(slot);
    expect(state.live.size).toBe(8);
    await pass(2_000);
    expect(state.live.size).toBe(6);
    await pass(20_000);
    expect(state.live.size).toBe(3);
  });

  it("unmakes everything at the end, what is in use when it comes back", async () => {
    const { slots, state, pass } = scene();
    await slots.fill();
    const held = await slots.acquire();
    await slots.close();
    expect(state.live.size).toBe(1);
    await slots.release(held);
    await pass(10_000);
    expect(state.live.size).toBe(0);
  });

  it("gives an adopted one's index to nobody until it is given back, and counts it", async () => {
    const { slots, state, pass } = scene(6, 2);
    const adopted = [4, 1].map((index) => ({ index, generation: 0 }));
    for (const slot of adopted) {
      state.live.add(slot.index);
      slots.adopt(slot);
    }
    slots.fillSoon();
    await pass(1_000);
    expect(state.live.size).toBe(4);
    const taken = [];
    for (let n = 0; n < 4; n++) taken.push(await slots.acquire());
    expect(taken.map(({ index }) => index).sort()).toEqual([0, 2, 3, 5]);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    for (const slot of adopted) await slots.release(slot);
    expect(state.live.has(4) || state.live.has(1)).toBe(false);
    expect([(await slots.acquire()).index, (await slots.acquire()).index].sort()).toEqual([1, 4]);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
  });

  it("is closed only when what was being made for it is unmade", async () => {
    const { slots, state, pass } = scene();
    slots.fillSoon();
    const filling = pass(0);
    const closing = filling.then(() => slots.close());
    await closing;
    expect(state.live.size).toBe(0);
  });
});
