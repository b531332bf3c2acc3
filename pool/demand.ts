/**
 * The demand of each class for cells, and its share of the budget. A class is needed whenever an instance is bound to
 * one of its groups. Its demand grows by each need and is halved every `cell_demand_ms`. `policy.ts` divides the budget
 * by it; `reserve.ts` keeps cells by the shares.
 *
 * K1. The shares add up to the budget. The fallback class has what no other class asks for.
 * K2. `reserve.classes` holds the fallback and the classes with demand, at most `cell_classes_max`, in the order of
 *     their last needs. Others have neither share nor cells after a step.
 */
import { LIMITS } from "../src/base/limits.ts";
import { agedDemand, askedCells, cellShares, DEMAND_PER_NEED } from "./policy.ts";
import type { PoolClass } from "./records.ts";
import type { PoolState } from "./states.ts";

/** Notes that a group of the class has just needed an instance, or that one of its cells was adopted. */
export function noteNeed(state: PoolState, of: PoolClass): void {
  const { reserve } = state;
  of.demand += DEMAND_PER_NEED;
  if (reserve.age_timer === null) armAging(state);
  // The usual case: one class alone has the whole budget, whatever its demand.
  if (reserve.classes.size === 1 && of === reserve.fallback) return;
  reserve.classes.delete(of);
  reserve.classes.add(of);
  reserve.is_stale = true;
}

/** Halves the demand of all classes, when their timer fires. */
export function ageDemand(state: PoolState): void {
  const { reserve } = state;
  let isLeft = false;
  for (const of of reserve.classes) {
    of.demand = agedDemand(of.demand, reserve.target);
    if (of.demand > 0) isLeft = true;
  }
  reserve.is_stale = true;
  if (isLeft) armAging(state);
}

function armAging(state: PoolState): void {
  state.reserve.age_timer = state.timers.add(state.now_ms + LIMITS.cell_demand_ms, state.reserve);
}

/** Divides the budget anew. Returns the classes that have no demand any more, or are dropped for newer ones (K2). */
export function divideShares({ reserve }: PoolState): PoolClass[] {
  const { classes, fallback, target } = reserve;
  const dropped: PoolClass[] = [];
  for (const of of classes) {
    if (of === fallback || (of.demand > 0 && classes.size <= LIMITS.cell_classes_max)) continue;
    classes.delete(of);
    of.demand = 0;
    of.share = 0;
    dropped.push(of);
  }
  const latest = [...classes].reverse();
  const shares = cellShares(
    target,
    latest.map(({ demand }) => askedCells(demand, target)),
  );
  let left = target;
  for (const [i, of] of latest.entries()) {
    of.share = shares[i] ?? 0;
    left -= of.share;
  }
  fallback.share += left;
  reserve.is_stale = false;
  return dropped;
}
