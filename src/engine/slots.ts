/**
 * A reserve of things that take a moment to make: taken one at a time, given back and used again, refilled in the
 * background. The reserve follows what is spare, not what exists: with a hundred in use there are still some ready.
 *
 * R1. At most `slots_max` exist, in use or not; each has an index of its own below that.
 * R2. Refilling waits until nothing was taken for a moment, unless none is left: who takes one is about to use the
 *     processor. At most `FILL_CONCURRENCY` are made at a time.
 * R3. A slot that is no longer usable is never handed out.
 */
import type { CancelTimer, Clock } from "../base/clock.ts";
import { AppError, invariant } from "../base/errors.ts";

const FILL_CONCURRENCY = 2;
const FILL_DELAY_MS = 20;
/** Spare slots above the reserve end one by one, so often: what a burst needed is there a while longer. */
const SHRINK_INTERVAL_MS = 1_000;
const CLOSE_CONCURRENCY = 16;

export interface SlotsOptions<Slot> {
  readonly clock: Clock;
  readonly ready_count: number;
  readonly slots_max: number;
  make(index: number): Promise<Slot>;
  unmake(slot: Slot): Promise<void>;
  isUsable(slot: Slot): boolean;
}

export class Slots<Slot extends { readonly index: number }> {
  readonly #options: SlotsOptions<Slot>;
  readonly #ready: Slot[] = [];
  readonly #free: number[] = [];
  #next_index = 0;
  /** In use, ready or being made (R1). */
  #count = 0;
  /** What is being made for the reserve. */
  readonly #filling = new Set<Promise<void>>();
  #isClosed = false;
  #cancelFill: CancelTimer | null = null;
  #cancelShrink: CancelTimer | null = null;

  constructor(options: SlotsOptions<Slot>) {
    this.#options = options;
  }

  /** Makes the reserve. Rejects when a slot cannot be made. */
  async fill(): Promise<void> {
    while (this.#ready.length < this.#options.ready_count) this.#ready.push(await this.#make());
  }

  /** Fills the reserve in the background. */
  fillSoon(): void {
    this.#fillLater();
  }

  /** Counts a slot as in use that was not made here. Before its index could have been given to another. */
  adopt(slot: Slot): void {
    while (this.#next_index <= slot.index) this.#free.push(this.#next_index++);
    const at = this.#free.indexOf(slot.index);
    invariant(at >= 0, `slot ${slot.index} is free`);
    this.#free.splice(at, 1);
    this.#count++;
  }

  /** A ready slot, or one made now. Rejects with CAPACITY_FULL when all are in use, else with what making one threw. */
  async acquire(): Promise<Slot> {
    for (let slot = this.#ready.pop(); slot !== undefined; slot = this.#ready.pop()) {
      if (this.#options.isUsable(slot)) {
        this.#fillLater();
        return slot;
      }
      await this.#unmake(slot).catch(() => {});
    }
    this.#fillLater();
    return this.#make();
  }

  /** Takes a slot back. A slot that is not usable any more is unmade. */
  async release(slot: Slot): Promise<void> {
    if (this.#isClosed || !this.#options.isUsable(slot)) {
      await this.#unmake(slot);
      return;
    }
    this.#ready.push(slot);
    if (this.#ready.length > this.#options.ready_count) this.#shrinkLater();
  }

  /** Unmakes all that are ready or being made for that; those in use are unmade when they are given back. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelFill?.();
    this.#cancelShrink?.();
    await Promise.all(this.#filling);
    while (this.#ready.length > 0) {
      await Promise.all(this.#ready.splice(-CLOSE_CONCURRENCY).map((slot) => this.#unmake(slot)));
    }
  }

  async #make(): Promise<Slot> {
    const { slots_max, make } = this.#options;
    if (this.#count >= slots_max) {
      throw new AppError("CAPACITY_FULL", `all ${slots_max} network slots are in use`, { retry_after: 1 });
    }
    const index = this.#free.pop() ?? this.#next_index++;
    this.#count++;
    try {
      return await make(index);
    } catch (error) {
      this.#count--;
      // Last in line: what is wrong may be this index's.
      this.#free.unshift(index);
      throw error;
    }
  }

  async #unmake(slot: Slot): Promise<void> {
    try {
      await this.#options.unmake(slot);
    } finally {
      this.#count--;
      this.#free.push(slot.index);
    }
  }

  /** R2: begins again with every slot taken, so that a burst is over first. */
  #fillLater(): void {
    if (this.#isClosed) return;
    if (this.#ready.length > 0) this.#cancelFill?.();
    else if (this.#cancelFill !== null) return;
    this.#cancelFill = this.#options.clock.after(this.#ready.length > 0 ? FILL_DELAY_MS : 0, () => {
      this.#cancelFill = null;
      this.#fillNow();
    });
  }

  #fillNow(): void {
    const { ready_count, slots_max } = this.#options;
    while (
      !this.#isClosed &&
      this.#filling.size < FILL_CONCURRENCY &&
      this.#ready.length + this.#filling.size < ready_count &&
      this.#count < slots_max
    ) {
      const filling: Promise<void> = this.#make()
        .then((slot) => this.release(slot))
        .then(
          () => {
            this.#filling.delete(filling);
            if (this.#cancelFill === null) this.#fillNow();
          },
          // Not tried again by itself: the next slot that is taken tries, and tells its caller.
          () => {
            this.#filling.delete(filling);
          },
        );
      this.#filling.add(filling);
    }
  }

  #shrinkLater(): void {
    if (this.#cancelShrink !== null || this.#isClosed) return;
    this.#cancelShrink = this.#options.clock.after(SHRINK_INTERVAL_MS, () => {
      this.#cancelShrink = null;
      if (this.#ready.length <= this.#options.ready_count) return;
      const [slot] = this.#ready.splice(0, 1);
      if (slot !== undefined) this.#unmake(slot).catch(() => {});
      this.#shrinkLater();
    });
  }
}
