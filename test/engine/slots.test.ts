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

describe("a reserved index", () => {
  it("has no slot but its holder's, also where the reserve held it, and is free again afterwards", async () => {
    const { slots, state, pass } = scene(10, 3, 10);
    await slots.fill();
    expect(slots.reserve(1, false)).toBe(true);
    await pass(1_000);
    expect(state.live.has(1)).toBe(false);
    expect(state.live.size).toBe(3);
    for (let n = 0; n < 9; n++) {
      expect((await slots.acquire()).index).not.toBe(1);
      await pass(0);
    }
    const own = await slots.acquireReserved(1);
    expect(own.index).toBe(1);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    for (let n = 0; n < 3; n++) {
      const slot = n === 0 ? own : await slots.acquireReserved(1);
      await slots.release(slot);
    }
    slots.unreserve(1);
    await pass(1_000);
    expect((await slots.acquire()).index).toBe(1);
  });

  it("is refused if another has it, unless that one asks", async () => {
    const { slots } = scene();
    const { index } = await slots.acquire();
    expect([slots.reserve(index, false), slots.reserve(index, true), slots.reserve(index, true)]).toEqual([
      false,
      true,
      false,
    ]);
    expect([slots.reserve(-1, false), slots.reserve(40, false)]).toEqual([false, false]);
  });

  it("takes the place of a ready slot where all slots exist", async () => {
    const { slots } = scene(3, 1, 8);
    expect(slots.reserve(7, false)).toBe(true);
    await slots.fill();
    await Promise.all([slots.acquire(), slots.acquire()]);
    expect((await slots.acquireReserved(7)).index).toBe(7);
    await expect(slots.acquire()).rejects.toMatchObject({ code: "CAPACITY_FULL" });
  });

  it("waits for the removal of its last slot, and is refused while that fails", async () => {
    const { slots, state, pass } = scene();
    const slot = await slots.acquire();
    slots.reserve(slot.index, true);
    await slots.release(slot);
    state.isStuck = true;
    await expect(slots.acquireReserved(slot.index)).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    state.isStuck = false;
    expect((await slots.acquireReserved(slot.index)).index).toBe(slot.index);
    await pass(1_000);
  });

  it("is adopted with its slot, or kept without one", async () => {
    const { slots } = scene(4, 2, 6);
    for (const index of [0, 3]) slots.reserve(index, true);
    slots.adopt({ index: 3, generation: 1 });
    await slots.fill();
    const taken = await Promise.all([slots.acquire(), slots.acquire()]);
    for (const { index } of taken) expect([0, 3]).not.toContain(index);
    expect((await slots.acquireReserved(0)).index).toBe(0);
    await expect(slots.acquireReserved(3)).rejects.toThrow();
  });

  it("is never in use twice, whatever happens in whichever order", async () => {
    for (let seed = 1; seed <= 30; seed++) {
      // A generator that is the same everywhere (minstd).
      let number = seed;
      const below = (max: number) => {
        number = (number * 48_271) % 2_147_483_647;
        return number % max;
      };
      const { slots, state, pass } = scene(6, 2, 10);
      const used = new Map<number, Slot>();
      const reserved = new Set<number>();
      for (let step = 0; step < 200; step++) {
        const index = below(10);
        const slot = used.get(index);
        state.isFailing = below(10) === 0;
        const what = below(6);
        if (what === 0 && slots.reserve(index, slot !== undefined)) reserved.add(index);
        if (what === 1) {
          slots.unreserve(index);
          reserved.delete(index);
        }
        if (what === 2 && reserved.has(index) && slot === undefined) {
          const taken = await slots.acquireReserved(index).catch(() => null);
          if (taken !== null) used.set(index, taken);
        }
        if (what === 3) {
          const taken = await slots.acquire().catch(() => null);
          if (taken !== null) {
            expect([seed, step, used.has(taken.index), reserved.has(taken.index)]).toEqual([seed, step, false, false]);
            used.set(taken.index, taken);
          }
        }
        if (what === 4 && slot !== undefined) {
          used.delete(index);
          await slots.release(slot);
        }
        if (what === 5) await pass(below(1_500));
        for (const held of used.keys()) expect(state.live.has(held)).toBe(true);
      }
      state.isFailing = false;
      await pass(10_000);
      for (const slot of used.values()) await slots.release(slot);
      for (const index of reserved) slots.unreserve(index);
      await pass(10_000);
      await slots.close();
      expect([seed, state.live.size]).toEqual([seed, 0]);
    }
  });
});
