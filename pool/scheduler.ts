/**
 * Hot path. The warm-pool scheduler: `step` takes one event and returns what is to be done. Synchronous; no I/O, log,
 * clock or random number: the time arrives in the event, a timer is an effect. Every event costs O(log n) or less in
 * the number of instances, groups and waiting calls; setting or dropping a group and draining visit its members.
 *
 * It owns who waits and who serves; `states.ts` owns the records and counts, `scaling.ts` starts and evicts,
 * `reserve.ts` keeps cells, `quotas.ts` keeps the limits of owners, `groups.ts` sets and drops, `policy.ts` decides,
 * `driver.ts` acts.
 *
 * P1. A call is answered once: by one assign, one refuse, or its cancellation.
 * P2. An instance has at most its group's concurrency of calls, all of the group that it is bound to.
 * P3. While a group's calls wait, none of its instances is ready, and none that takes calls has a free place, but for
 *     places that are kept for deeper calls (F2 in `places.ts`).
 * P4. No call waits past its deadline: what is due is handled before the event.
 * P5. A started instance is removed exactly once, and counts until it is gone.
 */

import { invariant } from "../src/base/errors.ts";
import type { Lack } from "../src/base/lacking.ts";
import { classOf } from "./classes.ts";
import { ageDemand, dropClass } from "./demand.ts";
import { devicesFreed, lackDevices, lackReason } from "./devices.ts";
import { dropGroup, forgetIfGone, retireGroup, setGroup, setOwner } from "./groups.ts";
import {
  CLOSING_MS_MAX,
  evictionsForMemory,
  isFailedStart,
  isKept,
  isNeeded,
  isPressed,
  keepAliveMs,
  leastServiceMs,
  predictedWaitMs,
  RECYCLING_MS_MAX,
  smoothServiceMs,
  timeoutCode,
} from "./policy.ts";
import type { PoolEffect, PoolEvent } from "./protocol.ts";
import { confine, isShareDue, shareOut } from "./quotas.ts";
import { Call, type Group, type Instance } from "./records.ts";
import { refuse, refuseDropped, refuseQueue, retryAfter } from "./refusals.ts";
import { adoptCell, backOffClass, closeReserve, keepAsCell, refill, setBudget } from "./reserve.ts";
import {
  assignFromQueue,
  backOffGroup,
  clearFailures,
  dequeue,
  dispatch,
  evict,
  fill,
  give,
  placeFor,
  rest,
  serveBlocked,
  serveNow,
  takerOf,
  terminate,
} from "./scaling.ts";
import {
  adoptInstance,
  armInstance,
  beginCleanup,
  close,
  earmark,
  endCall,
  endCleanup,
  move,
  type PoolState,
  retain,
  review,
} from "./states.ts";

/** One event in, what is to be done out. */
export function step(state: PoolState, event: PoolEvent): PoolEffect[] {
  if (event.now_ms > state.now_ms) state.now_ms = event.now_ms;
  const effects: PoolEffect[] = [];
  state.effects = effects;
  state.recent.note(event);
  if (event.type === "woken") state.wake_at_ms = Number.POSITIVE_INFINITY;
  fireDue(state);
  handle(state, event);
  if (!state.is_draining) {
    if (state.blocked.size > 0) serveBlocked(state);
    do {
      do {
        if (isShareDue(state)) shareOut(state);
        if (state.hungry.size > 0) dispatch(state);
        // A start or an eviction may have changed which group of an owner is next.
      } while (isShareDue(state));
      refill(state);
      // The end of an instance too many frees places for calls that waited beside them. Each turn serves one.
    } while (state.blocked.size > 0 && serveBlocked(state));
  }
  const due_ms = state.timers.nextDue();
  if (due_ms < state.wake_at_ms) {
    state.wake_at_ms = due_ms;
    effects.push({ type: "wake", at_ms: due_ms });
  }
  return effects;
}

function handle(state: PoolState, event: PoolEvent): void {
  switch (event.type) {
    case "call_arrived":
      callArrived(state, event);
      break;
    case "finished":
      finished(state, event);
      break;
    case "idle":
      idle(state, event.instance, event.call);
      break;
    case "call_cancelled": {
      const call = state.calls.get(event.call);
      if (call !== undefined) {
        dequeue(state, call);
        forgetIfGone(state, call.group);
      }
      break;
    }
    case "adopted":
      adopted(state, event.instance, event.class, event.group);
      break;
    case "started":
      started(state, event.instance);
      break;
    case "specialised":
      specialised(state, event.instance);
      break;
    case "start_failed":
      startFailed(state, event.instance, event.reason, event.lack);
      break;
    case "crashed":
      crashed(state, event.instance, event.reason);
      break;
    case "removed":
      removed(state, event.instance);
      break;
    case "remove_failed":
      state.tally.remove_failed_count += 1;
      removed(state, event.instance);
      break;
    case "group_set":
      setGroup(state, event.group, event);
      break;
    case "group_retire":
      retireGroup(state, event.group);
      break;
    case "group_drop":
      dropGroup(state, event.group, event.reject, event.force === true);
      break;
    case "owner_set":
      setOwner(state, event.owner, event);
      break;
    case "cells_set":
      setBudget(state, event.target);
      break;
    case "class_drop":
      dropClass(state, event.class);
      break;
    case "memory_read":
      memoryRead(state, event.used_mb, event.budget_mb);
      break;
    case "drain":
      drain(state, event.force === true);
      break;
    case "woken":
      break;
  }
}

// Calls

function callArrived(state: PoolState, event: PoolEvent & { type: "call_arrived" }): void {
  const { call: id, group: key, deadline_ms, depth } = event;
  const group = state.groups.get(key);
  if (state.is_draining) {
    refuseDropped(state, id, "shutdown", key);
    return;
  }
  if (group === undefined) {
    refuse(state, id, "NOT_FOUND", `${key} has no instances here`);
    return;
  }
  if (group.dropped !== null) {
    refuseDropped(state, id, group.dropped, key);
    return;
  }
  if (deadline_ms <= state.now_ms) {
    refuse(state, id, "QUEUE_TIMEOUT", `deadline of the call to ${key} exceeded`, 1);
    return;
  }
  group.arrivals.note(state.now_ms);
  // Calls that wait beside a free place may not take it: a deeper one may.
  const instance = group.queue.size === 0 || depth > group.queue.depth ? placeFor(state, group, depth) : null;
  if (instance !== null) {
    serveNow(state, instance, group, id, depth);
    return;
  }
  const beyond = group.owner?.refusalOf(group) ?? null;
  if (beyond !== null) {
    refuse(state, id, "QUOTA_EXCEEDED", beyond);
    return;
  }
  if (group.queue.size >= group.policy.queue_max) {
    refuse(state, id, "QUEUE_FULL", `queue of ${key} full (limit ${group.queue.size} calls)`, retryAfter(group));
    return;
  }
  if (isHopeless(state, group, deadline_ms, depth)) {
    const what = `queue of ${key} too long for the deadline of the call`;
    refuse(state, id, "QUEUE_TIMEOUT", what, retryAfter(group));
    return;
  }
  invariant(!state.calls.has(id), `P1: call ${id} waits already`);
  const call = new Call(id, group, state.now_ms, deadline_ms, depth);
  state.calls.set(id, call);
  group.queue.push(call.link, depth);
  call.timer = state.timers.add(deadline_ms, call);
  review(state, group);
}

/** True if a group that cannot grow reaches the call only after its deadline. Nested calls go ahead of others. */
function isHopeless(state: PoolState, group: Group, deadline_ms: number, depth: number): boolean {
  if (depth > 0 || group.live_count < group.policy.max_instances) return false;
  const { live_count, concurrency, least_service_ms } = group;
  const wait_ms = predictedWaitMs({ ahead_count: group.queue.size, live_count, concurrency, least_service_ms });
  return wait_ms > deadline_ms - state.now_ms;
}

function expireCall(state: PoolState, call: Call): void {
  const { group } = call;
  const code = timeoutCode({ wanted_count: group.wanted_count, room: state.room });
  const seconds = retryAfter(group);
  const lack = lackReason(state, group);
  dequeue(state, call);
  const what = code === "CAPACITY_FULL" ? "no capacity on this node for" : "no instance free before the deadline of";
  if (lack !== null) refuse(state, call.id, "CAPACITY_FULL", lack);
  else refuse(state, call.id, code, `${what} a call to ${group.key}`, seconds);
  forgetIfGone(state, group);
}

// Instances

/** The instance, unless it is on its way out: then what is heard of it comes too late to matter. */
function find(state: PoolState, id: string): Instance | null {
  const instance = state.instances.get(id);
  return instance === undefined || instance.state === "terminating" ? null : instance;
}

function adopted(state: PoolState, id: string, class_key: string, key: string | null): void {
  invariant(!state.instances.has(id), `${id} is known already`);
  const of = classOf(state, class_key);
  const known = key === null ? undefined : state.groups.get(key);
  const group = known?.class === of ? known : null;
  const instance = adoptInstance(state, id, of, group);
  if (of.devices > 0) state.holders.add(instance);
  if (state.is_draining || (key !== null && (group === null || group.dropped !== null))) {
    terminate(state, instance, "surplus");
    return;
  }
  if (group === null) {
    if (of.devices > 0) terminate(state, instance, "surplus");
    else adoptCell(state, instance);
    return;
  }
  move(state, instance, "bind");
  instance.was_ready = true;
  if (!assignFromQueue(state, instance)) rest(state, instance);
  // It takes room that may have been granted to others.
  if (group.owner !== null && group.owner.roomFor(group, 0) < 0) confine(state, group.owner);
}

function started(state: PoolState, id: string): void {
  const instance = find(state, id);
  if (instance === null) return;
  invariant(instance.state === "starting", `${id} started while ${instance.state}`);
  state.tally.started_count += 1;
  if (instance.class.devices > 0) state.holders.add(instance);
  const meant = instance.group;
  placeStarted(state, instance);
  // It may have been the last of a superseded version, and went to another group.
  if (meant !== null) forgetIfGone(state, meant);
}

/** Gives what has just started to whom it serves best. */
function placeStarted(state: PoolState, instance: Instance): void {
  // The nested call that it was started for, beyond the maximum, may have been served by another.
  if (instance.group?.isBeyond === true) {
    earmark(state, instance, null);
    if (isShareDue(state)) shareOut(state);
  }
  const own = instance.group;
  if (own === null) instance.class.failures = 0;
  if (state.is_draining) {
    terminate(state, instance, "drained");
    return;
  }
  const taker = takerOf(instance);
  if (taker !== null && !state.isBeyond(taker)) {
    give(state, instance, taker, false);
    return;
  }
  if (taker !== null || !keepAsCell(state, instance)) terminate(state, instance, "surplus");
}

function specialised(state: PoolState, id: string): void {
  const instance = find(state, id);
  if (instance === null) return;
  invariant(instance.state === "specialising", `${id} specialised while ${instance.state}`);
  if (instance.group !== null) clearFailures(instance.group);
  if (!assignFromQueue(state, instance)) rest(state, instance);
}

function startFailed(state: PoolState, id: string, reason: string, lack?: Lack): void {
  const instance = find(state, id);
  if (instance === null) return;
  invariant(
    instance.state === "starting" || instance.state === "specialising",
    `the start of ${id} failed while ${instance.state}`,
  );
  if (lack !== undefined) {
    lackDevices(state, instance, reason, lack);
    return;
  }
  state.tally.start_failed_count += 1;
  const { group } = instance;
  terminate(state, instance, "start_failed");
  if (group === null) {
    backOffClass(state, instance.class);
    return;
  }
  group.last_error = reason;
  group.start_failures += 1;
  backOffGroup(state, group);
  if (group.start_failures < state.settings.start_attempts_max) return;
  group.start_failures = 0;
  refuseQueue(state, group, (call) => {
    refuse(state, call, "START_FAILED", `cannot start an instance of ${group.key}: ${reason}`, 1);
  });
  state.effects.push({ type: "gave_up", group: group.key, reason });
}

function finished(state: PoolState, event: PoolEvent & { type: "finished" }): void {
  const { instance: id, call, assigned_ms, reuse } = event;
  const instance = find(state, id);
  const group = instance?.group ?? null;
  if (instance === null || group === null) return;
  invariant(instance.state === "busy", `${id} finished while ${instance.state}`);
  const sample_ms = state.now_ms - assigned_ms;
  group.service_ms = smoothServiceMs(group.service_ms, sample_ms);
  group.least_service_ms = leastServiceMs(group.least_service_ms, sample_ms);
  endCall(state, instance);
  instance.was_ready = true;
  const isLast = instance.running_count === 0;
  const { closing } = instance;
  if (isLast) {
    const isOpen = reuse && closing === null;
    if (!isKept({ reuse: isOpen, is_dropped: group.dropped !== null, is_beyond: state.isBeyond(group) })) {
      terminate(state, instance, closing ?? "used_up");
      return;
    }
  } else if (!reuse) {
    close(state, instance, "used_up");
  }
  if (instance.closing !== null) return;
  // Usually it was the only call. Then the state `recycling` stands for its cleanup.
  if (!isLast || instance.load > 0) beginCleanup(state, instance, call);
  if (isLast) move(state, instance, "finish");
  // The timer that it may have from its rest is later, once; from then on it fires early, and calls set none.
  const due_ms = state.now_ms + RECYCLING_MS_MAX;
  if (instance.timer === null || instance.timer.due_ms > due_ms) armInstance(state, instance, due_ms);
}

/** Ends the cleanup after a call: its place is free, and after the last cleanup the whole instance. */
function idle(state: PoolState, id: string, call: number): void {
  const instance = find(state, id);
  if (instance === null || instance.closing !== null) return;
  if (instance.load > 0) endCleanup(state, instance, call);
  if (instance.state === "busy") {
    fill(state, instance);
    return;
  }
  invariant(instance.state === "recycling", `${id} is idle while ${instance.state}`);
  if (instance.load > 0) return;
  if (!assignFromQueue(state, instance)) rest(state, instance);
}

function crashed(state: PoolState, id: string, reason: string): void {
  const instance = find(state, id);
  if (instance === null) return;
  if (instance.state === "starting" || instance.state === "specialising") {
    startFailed(state, id, reason);
    return;
  }
  state.tally.crashed_count += 1;
  const { group, state: was } = instance;
  // Nothing else paces the replacement of instances that die young without a call; calls pace that of busy ones.
  const isFailure = was !== "busy" && isFailedStart(state.now_ms - instance.since_ms);
  terminate(state, instance, "crashed");
  if (group !== null) group.last_error = reason;
  if (!isFailure) return;
  if (group === null) backOffClass(state, instance.class);
  else backOffGroup(state, group);
}

function removed(state: PoolState, id: string): void {
  const instance = state.instances.get(id);
  if (instance === undefined) return;
  invariant(instance.state === "terminating", `P5: ${id} was removed while ${instance.state}`);
  const { group } = instance;
  move(state, instance, "vanish");
  devicesFreed(state, instance);
  if (group !== null) forgetIfGone(state, group);
}

// The node

/** Least recently used idle instances go while the budget is used up, and nothing is started but for nested calls. */
function memoryRead(state: PoolState, used_mb: number, budget_mb: number): void {
  const { size: instance_count } = state.instances;
  state.is_pressed = isPressed({ used_mb, budget_mb, instance_count, was_pressed: state.is_pressed });
  if (!state.is_pressed) return;
  const { terminating: terminating_count } = state.counts;
  evict(state, evictionsForMemory({ used_mb, budget_mb, instance_count, terminating_count }));
}

function drain(state: PoolState, isForced: boolean): void {
  state.is_draining = true;
  for (const key of [...state.groups.keys()]) dropGroup(state, key, "shutdown", isForced);
  closeReserve(state);
}

// Timers

function fireDue(state: PoolState): void {
  for (let timer = state.timers.takeDue(state.now_ms); timer !== null; timer = state.timers.takeDue(state.now_ms)) {
    const { subject } = timer;
    if (subject.kind === "instance") fireInstance(state, subject);
    else if (subject.kind === "call") expireCall(state, subject);
    else if (subject.kind === "reserve") {
      if (subject.timer === timer) {
        subject.timer = null;
      } else {
        subject.age_timer = null;
        ageDemand(state);
      }
    } else {
      if (subject.warm_timer === timer) subject.warm_timer = null;
      else if (subject.lacking_timer === timer) subject.lacking_timer = null;
      else subject.patience_timer = null;
      review(state, subject);
    }
  }
}

/** Returns when the oldest cleanup of an instance began; null if there is none. */
function cleaningSince(instance: Instance): number | null {
  for (const since_ms of instance.cleaning?.values() ?? []) return since_ms;
  return instance.state === "recycling" ? instance.since_ms : null;
}

/** The timer of an instance may be older than its present state: what is not yet due is set again. */
function fireInstance(state: PoolState, instance: Instance): void {
  instance.timer = null;
  const { group } = instance;
  if (group === null) return;
  if (instance.closing !== null) {
    const due_ms = instance.closing_ms + CLOSING_MS_MAX;
    if (due_ms > state.now_ms) armInstance(state, instance, due_ms);
    else terminate(state, instance, "stuck");
    return;
  }
  const since_ms = cleaningSince(instance);
  if (since_ms !== null) {
    const due_ms = since_ms + RECYCLING_MS_MAX;
    if (due_ms > state.now_ms) armInstance(state, instance, due_ms);
    else if (instance.running_count > 0) close(state, instance, "stuck");
    else terminate(state, instance, "stuck");
  } else if (instance.state === "ready" && instance.unneeded_link.list !== null) {
    if (isNeeded(group)) {
      retain(state, instance);
      return;
    }
    const due_ms = instance.since_ms + keepAliveMs(group, group.arrivals);
    if (due_ms > state.now_ms) {
      armInstance(state, instance, due_ms);
      return;
    }
    state.tally.expired_count += 1;
    terminate(state, instance, "expired");
  }
}
