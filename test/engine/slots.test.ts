/** The reserve of network slots, on a clock that the test moves. */
import { describe, expect, it } from "vitest";
import type { Clock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Slots } from "../../src/engine/network/slots.ts";

interface Slot {
  readonly index: number;
  readonly generation: number;
}

function scene(slots_max = 10, ready_count = 3, indexes_max = 4 * slots_max) {
  const timers: { at_ms: number; fn: () => void }[] = [];
  const state = {
    now_ms: 0,
    generation: 1,
    isFailing: false,
    isStuck: false,
    isUncut: false,
    /** Made and not removed. */
    live: new Set<number>(),
    cut: new Set<number>(),
    /** Indexes, in the order in which slots were made. */
    made: [] as number[],
    batches: [] as number[],
    failures_count: 0,
  };
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
    indexes_max,
    async make(index) {
      expect(state.live.has(index)).toBe(false);
      if (state.isFailing) throw new Error("no slot today");
      state.live.add(index);
      state.made.push(index);
      return { index, generation: state.generation };
    },
    remnant: (index) => ({ index, generation: 0 }),
    async cut({ index }) {
      if (state.isUncut) throw new Error("not cut today");
      expect(state.live.has(index)).toBe(true);
      state.cut.add(index);
    },
    async remove(removed) {
      state.batches.push(removed.length);
      if (state.isStuck) throw new Error("not removed today");
      for (const { index } of removed) {
        state.live.delete(index);
        state.cut.delete(index);
      }
    },
    onRemovalFailed: () => {
      state.failures_count++;
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
    expect(state.live.size).toBe(3);
    await pass(100);
    expect(state.live.size).toBe(4);
  });

  it("is refilled at once when less than half of it is left", async () => {
    const { slots, state, pass } = scene(20, 8);
    await slots.fill();
    for (let n = 0; n < 4; n++) await slots.acquire();
    await pass(0);
    expect(state.made.length).toBe(8);
    await slots.acquire();
    await pass(0);
    expect(state.made.length).toBe(13);
  });

  it("uses no slot twice, and no index before the slot is removed and all others were used", async () => {
    const { slots, state, pass } = scene(4, 1, 8);
    const seen = new Set<Slot>();
    for (let n = 0; n < 40; n++) {
      const slot = await slots.acquire();
      expect(seen.has(slot)).toBe(false);
      seen.add(slot);
      await slots.release(slot);
      expect([state.cut.has(slot.index), state.live.has(slot.index)]).toEqual([true, true]);
      await pass(1_000);
      expect(state.live.has(slot.index)).toBe(false);
    }
    // One slot waits in the reserve, so two neighbours may change places.
    for (let at = 6; at < state.made.length; at++) {
      expect(state.made.slice(at - 6, at)).not.toContain(state.made[at]);
    }
  });

  it("removes many together, soon, and a full batch at once", async () => {
    const { slots, state, pass } = scene(200, 1);
    const taken = await Promise.all([...Array(120).keys()].map(() => slots.acquire()));
    for (const slot of taken.slice(0, 30)) await slots.release(slot);
    await pass(LIMITS.network_removal_wait_ms - 1);
    expect(state.batches).toEqual([]);
    await pass(1);
    expect(state.batches).toEqual([30]);
    for (const slot of taken.slice(30)) await slots.release(slot);
    await pass(0);
    expect(state.batches).toEqual([30, 50]);
    await pass(LIMITS.network_removal_wait_ms);
    expect(state.batches).toEqual([30, 50, 40]);
  });

  it("keeps the index of a slot that cannot be removed, and tries again until it can", async () => {
    const { slots, state, pass } = scene(2, 1, 2);
    const first = await slots.acquire();
    state.isStuck = true;
    state.isUncut = true;
    await expect(slots.release(first)).rejects.toThrow("not cut today");
    await slots.acquire();
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    await pass(10_000);
    expect(state.batches.length).toBeGreaterThan(5);
    expect(state.batches.length).toBeLessThan(15);
    expect(state.failures_count).toBe(state.batches.length);
    state.isStuck = false;
    await pass(2_000);
    expect((await slots.acquire()).index).toBe(first.index);
  });

  it("waits for the removal when no index is left, instead of refusing", async () => {
    const { slots } = scene(2, 1, 2);
    for (let n = 0; n < 10; n++) await slots.release(await slots.acquire());
  });

  it("never has more in use than its bound, and reports when all are", async () => {
    const { slots, state, pass } = scene(4);
    const taken = await Promise.all([1, 2, 3, 4].map(() => slots.acquire()));
    expect(new Set(taken.map(({ index }) => index)).size).toBe(4);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    await pass(100);
    expect(state.live.size).toBe(4);
    for (const slot of taken) await slots.release(slot);
    await slots.acquire();
  });

  it("does not hand out a slot that is no longer usable", async () => {
    const { slots, state, pass } = scene();
    await slots.fill();
    const old = await slots.acquire();
    state.generation = 2;
    expect((await slots.acquire()).generation).toBe(2);
    await slots.release(old);
    await pass(1_000);
    expect(state.live.has(old.index)).toBe(false);
  });

  it("does not spin when none can be made, and recovers with the next one that is asked for", async () => {
    const { slots, state, pass } = scene();
    state.isFailing = true;
    await expect(slots.acquire()).rejects.toThrow("no slot today");
    await pass(10_000);
    // Leftovers of a slot that could not be made are removed like the slot.
    expect(state.batches).toEqual([3]);
    state.isFailing = false;
    await slots.acquire();
    await pass(100);
    expect(state.live.size).toBe(4);
  });

  it("removes everything at the end, slots in use when they come back", async () => {
    const { slots, state, pass } = scene();
    await slots.fill();
    const held = await slots.acquire();
    await slots.close();
    expect(state.live.size).toBe(1);
    await slots.release(held);
    await pass(0);
    expect(state.live.size).toBe(0);
  });

  it("reports at the end what could not be removed", async () => {
    const { slots, state } = scene();
    await slots.fill();
    state.isStuck = true;
    await expect(slots.close()).rejects.toThrow("3 network slots are left");
  });

  it("reserves the index of an adopted slot until it is removed, and counts it", async () => {
    const { slots, state, pass } = scene(6, 2, 6);
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
    await pass(1_000);
    expect([(await slots.acquire()).index, (await slots.acquire()).index].sort()).toEqual([1, 4]);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
  });

  it("is closed only when a slot that was being made for it is removed", async () => {
    const { slots, state, pass } = scene();
    slots.fillSoon();
    const filling = pass(0);
    const closing = filling.then(() => slots.close());
    await closing;
    expect(state.live.size).toBe(0);
  });
});
