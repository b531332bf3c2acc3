/**
 * Every choice of the pool as a pure function: how many instances, how long they stay, who is refused and
 * with what. No state, no clock; the thresholds are in `base/limits.ts`. `scheduler.ts` obeys and decides nothing.
 */
import type { ErrorCode } from "../src/base/errors.ts";
import { LIMITS } from "../src/base/limits.ts";
import type { DropReason, GroupPolicy, RefuseEffect } from "./protocol.ts";

/** Buckets of the inter-arrival histogram: bucket i holds gaps below 2^i ms, the last one all from 4.6 hours. */
export const ARRIVAL_BUCKETS = 26;
const SAMPLES_MIN = 8;
/** Instances stay for the gap that covers this share of arrivals, and a quarter longer. */
const KEEP_ALIVE_SHARE = 0.99;
const KEEP_ALIVE_MARGIN = 1.25;
/** The demand of a class grows by this with each instance that is needed. Three halvings bring it to zero. */
export const DEMAND_PER_NEED = 4;
/** Share of the memory budget that is made free once it was used up. */
const MEMORY_SLACK = 0.1;
/** Weight of the newest sample in the smoothed service time. */
const SERVICE_WEIGHT = 1 / 8;

/** A policy in force. */
export interface EffectivePolicy extends GroupPolicy {
  readonly concurrency: number;
}

/** Returns the policy in force: the minimum never exceeds the maximum. */
export function effectivePolicy(policy: GroupPolicy): EffectivePolicy {
  const { concurrency = 1, min_instances, max_instances } = policy;
  return { ...policy, concurrency, min_instances: Math.min(min_instances, max_instances) };
}

/** True if an instance may serve so many calls at the same time. */
export function isConcurrency(count: number): boolean {
  return Number.isInteger(count) && count >= 1 && count <= LIMITS.resident_calls_max;
}

/**
 * Returns which instance of a group gets a call: the least loaded busy one, the idle one used last, or none. A load is
 * the calls in flight and in cleanup.
 *
 * Calls are packed up to half of the concurrency (rounded up), so that surplus instances stay idle, expire, and leave
 * their memory to others. Above half they are spread: calls of one instance share its event loop and its CPU limit, so
 * an idle instance serves faster. Only if none is idle, a busy one is filled. With a concurrency of 1, half is 1: an
 * instance takes its only call when it is idle.
 */
export function placement(group: {
  readonly concurrency: number;
  readonly idle_count: number;
  /** Infinity if no busy instance has a free place. */
  readonly least_load: number;
}): "busy" | "idle" | "none" {
  if (group.least_load < Math.ceil(group.concurrency / 2)) return "busy";
  if (group.idle_count > 0) return "idle";
  return group.least_load < group.concurrency ? "busy" : "none";
}

/**
 * Returns the bound on instances for a call at a depth of a chain. The calls above it may hold all others and wait for
 * it, so each level has one instance that no call above can take. The deepest level waits for nobody; its calls end, then
 * those of the level above, and so on: no chain waits for ever, in whatever circle it calls.
 */
export function boundAt(depth: number, bound: number): number {
  return bound + depth;
}

/** The limits of an owner, `Infinity` where none is set, and the largest memory that one instance of its groups ever had. */
export interface Quota {
  readonly instances_max: number;
  readonly memory_mb_max: number;
  readonly largest_mb: number;
}

/** Returns the bound on an owner's memory at a depth of a chain: `boundAt` with one of its largest instances per level. */
export function memoryBoundAt(depth: number, quota: Quota): number {
  return quota.memory_mb_max + depth * Math.min(quota.largest_mb, quota.memory_mb_max);
}

/** Returns how many more instances an owner has room for at a depth of a chain; negative above its limits. */
export function quotaRoom(
  quota: Quota,
  taken: { readonly count: number; readonly mb: number },
  of: { readonly memory_mb: number; readonly depth: number },
): number {
  const count = boundAt(of.depth, quota.instances_max) - taken.count;
  return Math.min(count, Math.floor((memoryBoundAt(of.depth, quota) - taken.mb) / of.memory_mb));
}

/** Returns the reason why an owner can never have `count` instances of this memory; null if it can. */
export function quotaReason(
  quota: Pick<Quota, "instances_max" | "memory_mb_max">,
  memory_mb: number,
  count: number,
): string | null {
  const { instances_max, memory_mb_max } = quota;
  if (count > instances_max) {
    return `instances_max of the tenant exceeded: this function needs ${countText(count)} (limit ${instances_max})`;
  }
  if (count * memory_mb <= memory_mb_max) return null;
  const what = count === 1 ? "one instance of this function needs" : `${count} instances of this function need`;
  return `memory_mb_max of the tenant exceeded: ${what} ${count * memory_mb} MiB (limit ${memory_mb_max} MiB)`;
}

/** Returns the reason why an owner has no room for another instance: the limit that is reached. */
export function usedUpReason(quota: Quota, taken: { readonly count: number; readonly mb: number }): string {
  if (taken.count >= quota.instances_max) return `instances_max of the tenant reached (limit ${quota.instances_max})`;
  return `memory_mb_max of the tenant reached: ${taken.mb} MiB in use (limit ${quota.memory_mb_max} MiB)`;
}

function countText(count: number): string {
  return count === 1 ? "1 instance" : `${count} instances`;
}

/** Returns the least wait of a call behind `ahead_count` others, in milliseconds, in a group that cannot grow. */
export function predictedWaitMs(group: {
  readonly ahead_count: number;
  readonly live_count: number;
  readonly concurrency: number;
  readonly least_service_ms: number;
}): number {
  const places = Math.max(1, group.live_count) * group.concurrency;
  return Math.floor(group.ahead_count / places) * group.least_service_ms;
}

/**
 * True while instances use more memory than the budget: nothing is started then. It ends once a tenth of the budget is
 * free again. Memory in use without any instance does not count: no call that waits could free it.
 */
export function isPressed(memory: {
  readonly used_mb: number;
  readonly budget_mb: number;
  readonly instance_count: number;
  readonly was_pressed: boolean;
}): boolean {
  return memory.instance_count > 0 && memory.used_mb > memory.budget_mb * (memory.was_pressed ? 1 - MEMORY_SLACK : 1);
}

/** Returns how many idle instances to evict until a tenth of the budget is free, by the average use of an instance. */
export function evictionsForMemory(memory: {
  readonly used_mb: number;
  readonly budget_mb: number;
  readonly instance_count: number;
  readonly terminating_count: number;
}): number {
  const excess_mb = memory.used_mb - memory.budget_mb * (1 - MEMORY_SLACK);
  const each_mb = memory.used_mb / Math.max(1, memory.instance_count);
  return Math.max(0, Math.ceil(excess_mb / each_mb) - memory.terminating_count);
}

/**
 * Returns until when the first call of a queue counts on instances in cleanup. It costs no more than a start from a
 * cell, and a client that calls in sequence keeps its one instance.
 */
export function patienceEndsAt(arrived_ms: number): number {
  return arrived_ms + LIMITS.recycling_patience_ms;
}

/**
 * Returns how many more instances a group wants: places for the waiting calls beyond those of earmarked starts and
 * those in cleanup, `concurrency` of them per instance, or the number missing to its minimum, never above its maximum.
 */
export function wantedStarts(group: {
  readonly queued_count: number;
  readonly concurrency: number;
  readonly warming_count: number;
  /** Places in cleanup that the queue counts on: none once its first call has run out of patience. */
  readonly returning_count: number;
  readonly live_count: number;
  readonly min_instances: number;
  readonly max_instances: number;
  /** True while warming to the minimum pauses after a failed start. Waiting calls do not pause. */
  readonly is_backing_off: boolean;
}): number {
  const places = group.queued_count - group.warming_count * group.concurrency - group.returning_count;
  const forCalls = Math.ceil(places / group.concurrency);
  const forMinimum = group.is_backing_off ? 0 : group.min_instances - group.live_count;
  return Math.max(0, Math.min(Math.max(forCalls, forMinimum), group.max_instances - group.live_count));
}

/** Returns how many idle instances to evict to make room for starts. Instances that are ending count as room. */
export function evictionsNeeded(node: {
  readonly wanted_count: number;
  readonly starts_free: number;
  readonly room: number;
  readonly terminating_count: number;
}): number {
  return Math.max(0, Math.min(node.wanted_count, node.starts_free) - node.room - node.terminating_count);
}

/** True if a group needs its idle instances for its minimum: they neither expire nor are evicted. */
export function isNeeded(group: { readonly live_count: number; readonly min_instances: number }): boolean {
  return group.live_count <= group.min_instances;
}

/** An instance that is still being cleaned up after this long is removed. */
export const RECYCLING_MS_MAX = LIMITS.recycling_ms_max;
/** An instance that takes no more calls and still runs one after this long is removed. */
export const CLOSING_MS_MAX = LIMITS.closing_ms_max;

/** True if an instance serves again after its call. */
export function isKept(after: {
  readonly reuse: boolean;
  readonly is_dropped: boolean;
  readonly is_beyond: boolean;
}): boolean {
  return after.reuse && !after.is_dropped && !after.is_beyond;
}

/** The demand of a claim, halved. Demand beyond the whole budget of cells asks for nothing more. */
export function agedDemand(demand: number, budget: number): number {
  return Math.floor(Math.min(demand, budget * DEMAND_PER_NEED) / 2);
}

/** Returns the cells that a claim asks for: one per recently needed instance, at most the budget. */
export function askedCells(demand: number, budget: number): number {
  return Math.min(budget, Math.ceil(demand / DEMAND_PER_NEED));
}

/**
 * Cells that the fallback class keeps, whatever is asked for other classes: a quarter of the budget, at least one of two
 * or more. It is the class of owners who have not called yet: no demand tells of them. A budget of one cell goes where
 * it was needed last.
 */
export function cellFloor(budget: number): number {
  return budget < 2 ? 0 : Math.max(1, Math.floor(budget / 4));
}

/** Cells that one owner asks for of one class. */
interface CellClaim {
  readonly owner: string | null;
  readonly asked: number;
  /** True if the class is the fallback. */
  readonly is_fallback: boolean;
}

/**
 * Divides the budget of cells among claims, the one that was renewed last first: returns what each gets. The floor
 * serves claims on the fallback. The rest is divided evenly among owners, then among the claims of each (`cellShares`),
 * so that no owner gets more by asking for more classes.
 *
 * Source of the demand: OpenWhisk's reactive prewarming (`ContainerPool.increasePrewarms`). It keeps containers of
 * each kind by the cold starts of the last period, and ends them after a time without one. There each kind has a bound
 * of its own; here one budget bounds all classes.
 */
export function claimedCells(budget: number, claims: readonly CellClaim[]): number[] {
  const floor = cellFloor(budget);
  const asked = claims.map((claim) => claim.asked);
  const granted = claims.map(() => 0);
  const own = [...claims.keys()].filter((i) => claims[i]?.is_fallback === true);
  for (const [k, count] of evenShares(floor, valuesAt(asked, own)).entries()) {
    const i = own[k] ?? 0;
    granted[i] = count;
    asked[i] = (asked[i] ?? 0) - count;
  }
  const by_owner = new Map<string | null, { asked: number; claims: number[] }>();
  for (const [i, { owner }] of claims.entries()) {
    const known = by_owner.get(owner) ?? { asked: 0, claims: [] };
    if (known.claims.push(i) === 1) by_owner.set(owner, known);
    known.asked += asked[i] ?? 0;
  }
  const owners = [...by_owner.values()];
  const parts = evenShares(
    budget - floor,
    owners.map((owner) => owner.asked),
  );
  for (const [o, part] of parts.entries()) {
    const indexes = part === 0 ? [] : (owners[o]?.claims ?? []);
    for (const [k, count] of cellShares(part, valuesAt(asked, indexes)).entries()) {
      const i = indexes[k] ?? 0;
      granted[i] = (granted[i] ?? 0) + count;
    }
  }
  return granted;
}

function valuesAt(values: readonly number[], indexes: readonly number[]): number[] {
  return indexes.map((i) => values[i] ?? 0);
}

/**
 * Divides cells evenly (max-min fairness): what one does not ask for goes to those who ask for more. Cells that do not
 * go round go to the first of them.
 */
export function evenShares(count: number, asked: readonly number[]): number[] {
  let left = count;
  let level = Number.POSITIVE_INFINITY;
  for (const [i, least] of asked.toSorted((a, b) => a - b).entries()) {
    const part = Math.floor(left / (asked.length - i));
    if (least > part) {
      level = part;
      left -= part * (asked.length - i);
      break;
    }
    left -= least;
  }
  return asked.map((most) => {
    if (most <= level) return most;
    if (left === 0) return level;
    left -= 1;
    return level + 1;
  });
}

/**
 * Divides an owner's part among its claims by what they ask for, the one that was renewed last first. If the part
 * suffices, each gets what it asks for. Otherwise each gets one cell while the part lasts; the rest is divided in
 * proportion to what they ask for beyond that cell, by largest remainders (Hamilton's method).
 */
function cellShares(part: number, asked: readonly number[]): number[] {
  const total = asked.reduce((sum, count) => sum + count, 0);
  if (total <= part) return [...asked];
  let left = part;
  const shares: number[] = asked.map((count) => {
    if (count === 0 || left === 0) return 0;
    left -= 1;
    return 1;
  });
  if (left === 0) return shares;
  const rest = left;
  const beyond = total - (part - rest);
  const remainders = asked.map((count, i) => {
    const product = rest * Math.max(0, count - 1);
    const whole = Math.floor(product / beyond);
    shares[i] = (shares[i] ?? 0) + whole;
    left -= whole;
    return { i, remainder: product % beyond };
  });
  // Sorting is stable: among equals the claim that was renewed last is first.
  remainders.sort((a, b) => b.remainder - a.remainder);
  for (const { i } of remainders.slice(0, left)) shares[i] = (shares[i] ?? 0) + 1;
  return shares;
}

/** True if class `a` lacks a greater part of its share of cells than class `b`. */
export function lacksMore(a: { stock: number; share: number }, b: { stock: number; share: number }): boolean {
  return a.stock * b.share < b.stock * a.share;
}

/** Returns when the cells of a class may be refilled: at once if none is left, else a delay after the last was taken. */
export function refillAt(reserve: {
  readonly cell_count: number;
  readonly taken_ms: number;
  readonly retry_at_ms: number;
}): number {
  const quiet = reserve.cell_count === 0 ? 0 : reserve.taken_ms + LIMITS.cell_refill_delay_ms;
  return Math.max(quiet, reserve.retry_at_ms);
}

/** True if the end of an idle instance counts as a failed start: it had been idle for less than `settled_ms`. */
export function isFailedStart(stood_ms: number): boolean {
  return stood_ms < LIMITS.settled_ms;
}

/** The pause after the n-th failed start in a row: 1 s, doubling, at most 60 s. */
export function backoffMs(failures: number): number {
  return Math.min(LIMITS.start_backoff_ms_max, LIMITS.start_backoff_ms_min * 2 ** Math.min(failures - 1, 30));
}

/** The code for a call whose deadline passed in the queue: the node's fault when it had no room, else the group's own bound. */
export function timeoutCode(at: { readonly wanted_count: number; readonly room: number }): ErrorCode {
  return at.wanted_count > 0 && at.room <= 0 ? "CAPACITY_FULL" : "QUEUE_TIMEOUT";
}

/** Returns the refusal of a call to a dropped group. */
export function dropRefusal(
  reason: DropReason,
  group: string,
): Pick<RefuseEffect, "code" | "reason" | "retry_after" | "state"> {
  if (reason === "paused") return { code: "WRONG_STATE", reason: `${group} is paused`, state: "paused" };
  if (reason === "failed") return { code: "WRONG_STATE", reason: `${group} failed to start`, state: "error" };
  if (reason === "deleted") return { code: "NOT_FOUND", reason: `${group} was deleted`, state: "deleted" };
  return { code: "SHUTTING_DOWN", reason: "the node is shutting down", retry_after: 1 };
}

/** Whole seconds until a place in the queue is likely: the calls ahead, at the group's pace, over all its places. */
export function retryAfterSeconds(group: {
  readonly queued_count: number;
  readonly service_ms: number;
  readonly max_instances: number;
  readonly concurrency: number;
}): number {
  const places = Math.max(1, group.max_instances) * group.concurrency;
  const wait_ms = (group.queued_count * group.service_ms) / places;
  return Math.max(1, Math.min(LIMITS.retry_after_seconds_max, Math.ceil(wait_ms / 1000)));
}

/**
 * A time that most calls take at least: it falls to the newest sample at once and rises slowly, from nothing, so that
 * neither the first call nor a slow one among quick ones makes a queue look longer than it is.
 */
export function leastServiceMs(previous_ms: number, sample_ms: number): number {
  return sample_ms <= previous_ms ? sample_ms : previous_ms + (sample_ms - previous_ms) * SERVICE_WEIGHT;
}

/** The smoothed time that a call takes a place of an instance. */
export function smoothServiceMs(previous_ms: number, sample_ms: number): number {
  return previous_ms === 0 ? sample_ms : previous_ms + (sample_ms - previous_ms) * SERVICE_WEIGHT;
}

/** The histogram bucket of a gap between two calls. */
export function arrivalBucket(gap_ms: number): number {
  return Math.min(ARRIVAL_BUCKETS - 1, 32 - Math.clz32(Math.min(gap_ms, 0x7fffffff)));
}

/** Returns how long an idle instance of a group is kept, in milliseconds. */
export function keepAliveMs(
  group: { readonly policy: Pick<GroupPolicy, "keep_alive_ms">; readonly is_retired: boolean },
  arrivals: { readonly buckets: ArrayLike<number>; readonly sample_count: number },
): number {
  if (group.is_retired) return LIMITS.retired_keep_alive_ms;
  if (group.policy.keep_alive_ms !== undefined) return group.policy.keep_alive_ms;
  if (arrivals.sample_count < SAMPLES_MIN) return LIMITS.keep_alive_ms_default;
  const covered = arrivals.sample_count * KEEP_ALIVE_SHARE;
  let seen = 0;
  let bucket = 0;
  while (bucket < ARRIVAL_BUCKETS - 1) {
    seen += arrivals.buckets[bucket] ?? 0;
    if (seen >= covered) break;
    bucket += 1;
  }
  const keep_ms = 2 ** bucket * KEEP_ALIVE_MARGIN;
  return Math.max(LIMITS.keep_alive_ms_min, Math.min(LIMITS.keep_alive_ms_max, keep_ms));
}
