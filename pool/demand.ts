/**
 * The demand for cells, and the share of the budget that each class has by it. A class is needed whenever an instance is
 * bound to one of its groups. A *claim* is the demand of one owner for one class: it grows by each need and is halved
 * every `cell_demand_ms`. `policy.ts` divides the budget by the claims; `reserve.ts` keeps cells by the shares.
 *
 * K1. The shares add up to the budget. The fallback class has what no claim gets, and never less than its floor.
 * K2. `reserve.classes` holds the fallback and the classes with claims, in the order of their last needs. Others have
 *     neither share nor cells after a step.
 * K3. While claims are short of cells, an owner has at most an even part of the budget above the floor, or what others
 *     leave of theirs.
 * K4. There are at most `cell_claims_max` claims. For a new one the owner with the most loses its oldest.
 */
import { LIMITS } from "../src/base/limits.ts";
import { agedDemand, askedCells, claimedCells, DEMAND_PER_NEED } from "./policy.ts";
import type { Claim, PoolClass, Reserve } from "./records.ts";
import type { PoolState } from "./states.ts";

/** Notes that a group of the owner needed an instance of the class. The owner null stands for an adopted cell. */
export function noteNeed(state: PoolState, of: PoolClass, owner: string | null): void {
  const { reserve } = state;
  // Cells would hold devices.
  if (of.devices > 0) return;
  renewClaim(reserve, of, owner);
  if (reserve.age_timer === null) armAging(state);
  // The usual case: one class alone has the whole budget, whatever its demand.
  if (reserve.classes.size === 1 && of === reserve.fallback) return;
  reserve.classes.delete(of);
  reserve.classes.add(of);
  reserve.is_stale = true;
}

function renewClaim({ claims }: Reserve, of: PoolClass, owner: string | null): void {
  const key = `${of.key} ${owner ?? ""}`;
  const claim = claims.get(key) ?? { class: of, owner, demand: 0 };
  claim.demand += DEMAND_PER_NEED;
  claims.delete(key);
  claims.set(key, claim);
  if (claims.size > LIMITS.cell_claims_max) dropClaim(claims);
}

/** K4. Of owners with as many claims, the one that has the oldest. */
function dropClaim(claims: Map<string, Claim>): void {
  const oldest = new Map<string | null, { key: string; count: number }>();
  for (const [key, { owner }] of claims) {
    const known = oldest.get(owner);
    if (known === undefined) oldest.set(owner, { key, count: 1 });
    else known.count += 1;
  }
  let most = { key: "", count: 0 };
  for (const candidate of oldest.values()) if (candidate.count > most.count) most = candidate;
  claims.delete(most.key);
}

/** Ends the claims on a class that no group has: its cells end with the next division of the budget (K2). */
export function dropClass({ classes, groups, reserve }: PoolState, key: string): void {
  const of = classes.get(key);
  if (of === undefined || of === reserve.fallback) return;
  for (const group of groups.values()) if (group.class === of) return;
  for (const [name, claim] of reserve.claims) if (claim.class === of) reserve.claims.delete(name);
  reserve.is_stale = true;
}

/** Halves all claims, when their timer fires. */
export function ageDemand(state: PoolState): void {
  const { reserve } = state;
  for (const [key, claim] of reserve.claims) {
    claim.demand = agedDemand(claim.demand, reserve.target);
    if (claim.demand === 0) reserve.claims.delete(key);
  }
  reserve.is_stale = true;
  if (reserve.claims.size > 0) armAging(state);
}

function armAging(state: PoolState): void {
  state.reserve.age_timer = state.timers.add(state.now_ms + LIMITS.cell_demand_ms, state.reserve);
}

/** Divides the budget among the claims. Returns the classes that have lost their last claim (K2). */
export function divideShares({ reserve }: PoolState): PoolClass[] {
  const { classes, fallback, target } = reserve;
  const latest = [...reserve.claims.values()].reverse();
  const claims = latest.map(({ class: of, owner, demand }) => {
    return { owner, asked: askedCells(demand, target), is_fallback: of === fallback };
  });
  const granted = claimedCells(target, claims);
  for (const of of classes) of.share = 0;
  let left = target;
  const claimed = new Set<PoolClass>([fallback]);
  for (const [i, { class: of }] of latest.entries()) {
    const count = granted[i] ?? 0;
    of.share += count;
    left -= count;
    claimed.add(of);
  }
  fallback.share += left;
  const dropped = [...classes].filter((of) => !claimed.has(of));
  for (const of of dropped) classes.delete(of);
  reserve.is_stale = false;
  return dropped;
}
