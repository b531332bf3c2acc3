/**
 * A reserve of slots that are each used once: made ahead, taken one at a time, cut off when they come back, and removed
 * in batches. The reserve follows what is spare, not what exists: with a hundred in use there are still some ready.
 *
 * R1. At most `slots_max` are in use, ready or being made. Each has an index of its own below `indexes_max`.
 * R2. Refilling waits until nothing was taken for a moment, unless less than half of the reserve is left: the caller is
 *     about to use the processor. At most `FILL_CONCURRENCY` slots are made at a time.
 * R3. A slot that is no longer usable is never handed out.
 * R4. An index is used again only after its slot was removed, the longest unused one first. A removal that fails is
 *     tried again, and keeps its indexes meanwhile; so does a slot that could not be made.
 * R5. A reserved index has no slot but while its holder uses it: `acquireReserved` alone hands it out.
 */
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { AppError, invariant } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

const FILL_CONCURRENCY = 2;
const FILL_DELAY_MS = 20;

export interface SlotsOptions<Slot> {
  readonly clock: Clock;
  readonly ready_count: number;
  readonly slots_max: number;
  readonly indexes_max: number;
  make(index: number): Promise<Slot>;
  /** The slot of an index of which `make` may have left a part. */
  remnant(index: number): Slot;
  /** Resolves when nothing gets in or out any more. */
  cut(slot: Slot): Promise<void>;
  /** Removes slots for good, also those whose cut failed. */
  remove(slots: readonly Slot[]): Promise<void>;
  onRemovalFailed(error: unknown): void;
  isUsable(slot: Slot): boolean;
}

export class Slots<Slot extends { readonly index: number }> {
  readonly #options: SlotsOptions<Slot>;
  readonly #ready: Slot[] = [];
  /** The longest unused first. */
  readonly #free: number[] = [];
  #next_index = 0;
  /** Indexes that were handed out and have not come back. */
  readonly #used = new Set<number>();
  /** Reserved indexes, and those of them that nothing is left of (R5). */
  readonly #reserved = new Set<number>();
  readonly #resting = new Set<number>();
  /** In use, ready or being made (R1). */
  #count = 0;
  /** To be removed. */
  #retired: Slot[] = [];
  /** The removal under way; resolves to whether it succeeded. */
  #removing: Promise<boolean> | null = null;
  /** Slots that are being made for the reserve. */
  readonly #filling = new Set<Promise<void>>();
  #isClosed = false;
  /** True if the reserve waits for an index. */
  #isStarved = false;
  #cancelFill: CancelTimer | null = null;
  #cancelRemoval: CancelTimer | null = null;

  constructor(options: SlotsOptions<Slot>) {
    this.#options = options;
  }

  /** Makes the reserve. Rejects when a slot cannot be made. */
  async fill(): Promise<void> {
    while (this.#ready.length < this.#options.ready_count) this.#ready.push(await this.#make(false));
  }

  /** Fills the reserve in the background. */
  fillSoon(): void {
    this.#fillLater();
  }

  /** Counts a slot as in use that was not made here. Before its index could have been given to another. */
  adopt(slot: Slot): void {
    const isFree = this.#resting.delete(slot.index) || this.#takeFree(slot.index);
    invariant(isFree, `slot ${slot.index} is free`);
    this.#used.add(slot.index);
    this.#count++;
  }

  /**
   * Reserves an index, one in use only if its holder asks (`isHolder`). A ready slot with the index is removed. Returns
   * false if another has the index.
   */
  reserve(index: number, isHolder: boolean): boolean {
    if (index < 0 || index >= this.#options.indexes_max || this.#reserved.has(index)) return false;
    if (this.#used.has(index) && !isHolder) return false;
    this.#reserved.add(index);
    if (this.#used.has(index)) return true;
    if (this.#takeFree(index)) this.#resting.add(index);
    const at = this.#ready.findIndex((slot) => slot.index === index);
    for (const slot of at < 0 ? [] : this.#ready.splice(at, 1)) {
      this.#count--;
      this.#retire(slot);
      this.#fillLater();
    }
    return true;
  }

  /** Ends a reservation. A slot in use with the index stays so until its release. Safe to repeat. */
  unreserve(index: number): void {
    this.#reserved.delete(index);
    if (this.#resting.delete(index)) this.#free.push(index);
  }

  /**
   * Makes the slot with a reserved index; waits until nothing is left of its last use. Rejects with CAPACITY_FULL when all
   * slots are in use, else with the failure to remove or make it.
   */
  async acquireReserved(index: number): Promise<Slot> {
    const { slots_max } = this.#options;
    invariant(this.#reserved.has(index) && !this.#used.has(index), `slot ${index} is reserved and not in use`);
    while (!this.#resting.has(index) || this.#count >= slots_max) {
      invariant(this.#reserved.has(index), `slot ${index} stays reserved`);
      if (!this.#resting.has(index)) await this.#untilRemoved();
      else if (this.#ready.length === 0 && this.#filling.size > 0) await Promise.race(this.#filling);
      else this.#giveUpReady();
    }
    this.#resting.delete(index);
    this.#used.add(index);
    this.#count++;
    return this.#makeAt(index);
  }

  /** Waits for the removal of slots, or for those that are being made for the reserve. Rejects if the removal fails. */
  async #untilRemoved(): Promise<void> {
    const isRemoving = this.#retired.length > 0 || this.#removing !== null;
    invariant(isRemoving || this.#filling.size > 0, "a slot comes back");
    if (!isRemoving) await Promise.race(this.#filling);
    else if (!(await this.#removeNow())) throw full(this.#options.slots_max);
  }

  /** Removes a ready slot, so that another one can be made. Throws CAPACITY_FULL if there is none. */
  #giveUpReady(): void {
    const spare = this.#ready.pop();
    if (spare === undefined) throw full(this.#options.slots_max);
    this.#count--;
    this.#retire(spare);
  }

  /** Takes an index out of those that are free. */
  #takeFree(index: number): boolean {
    while (this.#next_index <= index) this.#free.push(this.#next_index++);
    const at = this.#free.indexOf(index);
    if (at >= 0) this.#free.splice(at, 1);
    return at >= 0;
  }

  /** A ready slot, or one made now. Rejects with CAPACITY_FULL when all are in use, else with the failure to make one. */
  async acquire(): Promise<Slot> {
    for (;;) {
      for (let slot = this.#ready.shift(); slot !== undefined; slot = this.#ready.shift()) {
        if (this.#options.isUsable(slot)) {
          this.#used.add(slot.index);
          this.#fillLater();
          return slot;
        }
        this.#count--;
        this.#retire(slot);
      }
      this.#fillLater();
      if (this.#count < this.#options.slots_max || this.#filling.size === 0) return this.#make(true);
      await Promise.race(this.#filling);
    }
  }

  /** Ends a slot. Resolves when it is cut off; where that failed it rejects, and the removal tries again (R4). */
  async release(slot: Slot): Promise<void> {
    try {
      await this.#options.cut(slot);
    } finally {
      this.#count--;
      this.#used.delete(slot.index);
      this.#retire(slot);
    }
  }

  /** Removes all slots but those in use; these are removed when they come back. Rejects when a removal fails. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelFill?.();
    await Promise.all(this.#filling);
    this.#count -= this.#ready.length;
    this.#retired.push(...this.#ready.splice(0));
    await this.#removing;
    this.#cancelRemoval?.();
    while (this.#retired.length > 0) {
      if (!(await this.#removeNow())) throw new AppError("INTERNAL", `${this.#retired.length} network slots are left`);
    }
  }

  /** `isUsed`: for somebody who asks, and not for the reserve. */
  async #make(isUsed: boolean): Promise<Slot> {
    const { slots_max } = this.#options;
    if (this.#count >= slots_max) throw full(slots_max);
    this.#count++;
    const index = await this.#takeIndex().catch((error) => {
      this.#count--;
      throw error;
    });
    if (isUsed) this.#used.add(index);
    return this.#makeAt(index);
  }

  /** Makes the slot of an index that was taken and counted. */
  async #makeAt(index: number): Promise<Slot> {
    const { make, remnant } = this.#options;
    try {
      return await make(index);
    } catch (error) {
      this.#count--;
      this.#used.delete(index);
      this.#retire(remnant(index));
      throw error;
    }
  }

  /** Waits for removals where every index is in use or rests. */
  async #takeIndex(): Promise<number> {
    const { indexes_max, slots_max } = this.#options;
    for (;;) {
      if (this.#next_index < indexes_max) return this.#next_index++;
      const index = this.#free.shift();
      if (index !== undefined) return index;
      if (this.#retired.length === 0 && this.#removing === null) throw full(slots_max);
      if (!(await this.#removeNow())) throw full(slots_max);
    }
  }

  get #hasIndex(): boolean {
    return this.#next_index < this.#options.indexes_max || this.#free.length > 0;
  }

  /** Adds a slot to the reserve, unless its index was reserved while it was made (R5). */
  #keepReady(slot: Slot): void {
    if (!this.#reserved.has(slot.index)) {
      this.#ready.push(slot);
      return;
    }
    this.#count--;
    this.#retire(slot);
  }

  #retire(slot: Slot): void {
    this.#retired.push(slot);
    this.#removeSoon();
  }

  /** A batch is removed when it is full or has waited: one removal costs the kernel about as much as fifty. */
  #removeSoon(): void {
    if (this.#removing !== null || this.#retired.length === 0) return;
    if (this.#isClosed || this.#retired.length >= LIMITS.network_removal_slots_max) void this.#removeNow();
    else this.#cancelRemoval ??= this.#removeAfter(LIMITS.network_removal_wait_ms);
  }

  #removeAfter(delay_ms: number): CancelTimer {
    return this.#options.clock.after(delay_ms, () => {
      this.#cancelRemoval = null;
      void this.#removeNow();
    });
  }

  /** Removes one batch, or waits for the one that is being removed. Resolves to whether that succeeded. */
  #removeNow(): Promise<boolean> {
    this.#cancelRemoval?.();
    this.#cancelRemoval = null;
    this.#removing ??= this.#removeBatch();
    return this.#removing;
  }

  async #removeBatch(): Promise<boolean> {
    const { remove, onRemovalFailed } = this.#options;
    const batch = this.#retired.slice(0, LIMITS.network_removal_slots_max);
    try {
      await remove(batch);
    } catch (error) {
      this.#removing = null;
      onRemovalFailed(error);
      this.#cancelRemoval ??= this.#removeAfter(LIMITS.network_removal_retry_ms);
      return false;
    }
    this.#removing = null;
    this.#retired = this.#retired.slice(batch.length);
    for (const { index } of batch) {
      if (this.#reserved.has(index)) this.#resting.add(index);
      else this.#free.push(index);
    }
    this.#removeSoon();
    if (this.#isStarved) this.#fillLater();
    return true;
  }

  /** R2: the delay begins again with every slot taken, so that a burst is over first. */
  #fillLater(): void {
    if (this.#isClosed) return;
    this.#cancelFill?.();
    this.#cancelFill = null;
    if (this.#ready.length < this.#options.ready_count / 2) {
      this.#fillNow();
      return;
    }
    this.#cancelFill = this.#options.clock.after(FILL_DELAY_MS, () => {
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
      this.#isStarved = !this.#hasIndex;
      if (this.#isStarved) return;
      const filling: Promise<void> = this.#make(false).then(
        (slot) => {
          this.#filling.delete(filling);
          this.#keepReady(slot);
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
}

function full(slots_max: number): AppError {
  return new AppError("CAPACITY_FULL", `all ${slots_max} network slots are in use`, { retry_after: 1 });
}
