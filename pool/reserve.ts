/**
 * The reserve: cells that are kept ready for each class, by its share of one budget (`demand.ts`). A class that lacks
 * cells takes the place of one above its share. Cells go where no share calls for them only when another class lacks
 * them, so that a share that falls and rises again costs nothing.
 *
 * R1. Once the budget is set, no more cells stand ready than it allows.
 * R2. A class is refilled after everyone who wants has been served: who still wants lacks a start or room too.
 * R3. While a class lacks cells, room or starts are missing, or a timer is set.
 */

import { invariant } from "../src/base/errors.ts";
import { forgetClass } from "./classes.ts";
import { divideShares, noteNeed } from "./demand.ts";
import { backoffMs, lacksMore, refillAt } from "./policy.ts";
import type { Instance, PoolClass } from "./records.ts";
import { start, terminate } from "./scaling.ts";
import { move, type PoolState } from "./states.ts";

/** Sets the budget. */
export function setBudget(state: PoolState, target: number): void {
  const { reserve } = state;
  reserve.target = target;
  reserve.is_open = true;
  reserve.is_stale = true;
}

/** Starts cells up to the shares, those first that lack the greatest part of theirs. */
export function refill(state: PoolState): void {
  const { counts, reserve, settings } = state;
  if (!reserve.is_open) return;
  if (reserve.is_stale) follow(state);
  if (reserve.is_full) return;
  for (let next = nextLacking(state); next !== null; next = nextLacking(state)) {
    if (state.starting_count >= settings.starts_max) return;
    if (state.room <= 0) {
      // Instances that are ending make room in a later step.
      if (!state.is_pressed && counts.terminating === 0) trim(state);
      return;
    }
    const count = counts.cell + counts.spare;
    // Above the budget with starts that have lost their calls: those end, or are cells, once they have started.
    if (count > reserve.target || (count === reserve.target && !trim(state))) return;
    start(state, next, null);
  }
}

/** Makes a cell of a started instance that no group wants. Returns false if its class has its share. */
export function keepAsCell(state: PoolState, instance: Instance): boolean {
  const { reserve } = state;
  if (!reserve.is_open || instance.class.devices > 0) return false;
  if (reserve.is_stale) follow(state);
  const { cells, share } = instance.class;
  if (cells.size >= share || state.isBeyond(null)) return false;
  if (state.counts.cell >= reserve.target) trim(state);
  move(state, instance, "rest");
  return true;
}

/** Makes a cell of an adopted instance. Until the budget is set, it bounds no adopted cells. */
export function adoptCell(state: PoolState, instance: Instance): void {
  move(state, instance, "rest");
  // The demand of the earlier process is unknown. Without any demand the cell would end.
  noteNeed(state, instance.class, null);
  state.reserve.is_stale = true;
}

/** Pauses the refilling of a class after a failure. All failures within one pause count as one: they have one cause. */
export function backOffClass(state: PoolState, of: PoolClass): void {
  if (state.now_ms < of.retry_at_ms) return;
  of.failures += 1;
  of.retry_at_ms = state.now_ms + backoffMs(of.failures);
}

/** Ends all cells and timers. */
export function closeReserve(state: PoolState): void {
  const { reserve, timers } = state;
  for (const { cells } of state.classes.values()) for (const cell of cells) terminate(state, cell, "drained");
  timers.cancel(reserve.timer);
  timers.cancel(reserve.age_timer);
  reserve.timer = null;
  reserve.age_timer = null;
}

/** Lets the shares follow the demand and the budget: cells of classes without demand go, and those above the budget. */
function follow(state: PoolState): void {
  const { reserve } = state;
  reserve.is_full = false;
  for (const of of divideShares(state)) {
    for (const cell of of.cells) terminate(state, cell, "surplus");
    forgetClass(state, of);
  }
  while (state.counts.cell > reserve.target) {
    const isTrimmed = trim(state);
    invariant(isTrimmed, "R1: cells above the budget are above the share of a class");
  }
}

/** Ends the oldest cell above a share, of the class that was needed longest ago; false where there is none. */
function trim(state: PoolState): boolean {
  for (const { cells, share } of state.reserve.classes) {
    if (cells.size <= share || cells.first === null) continue;
    terminate(state, cells.first.value, "surplus");
    return true;
  }
  return false;
}

/** Returns the class to refill now; null where none lacks cells, or all pause. The timer is set for the end of a pause. */
function nextLacking(state: PoolState): PoolClass | null {
  const { reserve } = state;
  let next: PoolClass | null = null;
  let due_ms = Number.POSITIVE_INFINITY;
  reserve.is_full = true;
  for (const of of reserve.classes) {
    if (of.stock >= of.share) continue;
    reserve.is_full = false;
    const { taken_ms, retry_at_ms } = of;
    const at_ms = refillAt({ cell_count: of.cells.size, taken_ms, retry_at_ms });
    if (at_ms > state.now_ms) due_ms = Math.min(due_ms, at_ms);
    else if (next === null || lacksMore(of, next)) next = of;
  }
  // Only ever moved to an earlier time: a later one is looked at again when this one fires.
  if (due_ms < (reserve.timer?.due_ms ?? Number.POSITIVE_INFINITY)) {
    state.timers.cancel(reserve.timer);
    reserve.timer = state.timers.add(due_ms, reserve);
  }
  return next;
}
