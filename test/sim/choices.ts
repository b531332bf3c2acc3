/**
 * The choices of the scheduler, held against the model: which call is next, which instance gets it, and why one is
 * refused (P2 of `pool/scheduler.ts`; M1, M2, M5, M8 and M10 of `model.ts`).
 */
import type { PoolEffect, PoolEvent, RefuseEffect } from "../../pool/protocol.ts";
import { ERRORS, invariant } from "../../src/base/errors.ts";
import { hasPlace, loadOf, type ModelCall, type ModelGroup, type ModelInstance } from "./records.ts";

type GaveUp = PoolEffect & { readonly type: "gave_up" };

/** M2. */
export function checkNext(group: ModelGroup | undefined, call: ModelCall): void {
  invariant(call.depth >= (group?.depth() ?? 0), `M2: call ${call.id} goes ahead of a deeper one`);
  for (const other of group?.waiting ?? []) {
    if (other === call) break;
    invariant(other.depth < call.depth, `M2: call ${call.id} goes ahead of call ${other.id}`);
  }
}

/** P3, of a waiting call that gets an instance of its own: no place was free for it beside others. */
export function checkNeed(id: string, instances: Iterable<ModelInstance>, call: ModelCall, group: ModelGroup): void {
  for (const other of instances) {
    const isUsed = other.group !== call.group || other.is_nested || !hasPlace(other, group);
    invariant(isUsed, `P3: call ${call.id} gets ${id}, and there is a free place`);
  }
}

/** P2 and M10, of an instance that runs calls already. */
export function checkJoin(id: string, instance: ModelInstance, group: ModelGroup | undefined): void {
  const { concurrency = 1 } = group ?? {};
  const load = loadOf(instance);
  invariant(instance.closing_ms === null, `M10: ${id} takes a call, and is to end`);
  invariant(load < concurrency, `P2: ${id} has ${load} calls and takes another (limit ${concurrency})`);
}

/**
 * M5, of a call that has just arrived. Where instances have nested calls, places may be kept for these: then the idle
 * one alone is looked at.
 */
export function checkPlace(
  instances: Iterable<ModelInstance>,
  id: string,
  instance: ModelInstance,
  group: ModelGroup,
): void {
  let least = Number.POSITIVE_INFINITY;
  let [isNested, isIdle] = [false, false];
  for (const other of instances) {
    if (other.group !== instance.group) continue;
    if (other.state === "ready") isIdle = true;
    if (other.state === "busy" && other.is_nested) isNested = true;
    if (hasPlace(other, group)) least = Math.min(least, loadOf(other));
    const isLater = other.state === "ready" && other.ready_step > instance.ready_step;
    invariant(instance.state !== "ready" || !isLater, `M5: ${id} serves, and another was used after it`);
  }
  if (isNested) return;
  const isLight = least < Math.ceil(group.concurrency / 2);
  if (instance.state === "ready") invariant(!isLight, `M5: idle ${id} serves beside a busy one with load ${least}`);
  if (instance.state !== "busy") return;
  const load = loadOf(instance);
  invariant(load === least, `M5: ${id} with load ${load} serves beside one with load ${least}`);
  invariant(isLight || !isIdle, `M5: ${id} with load ${load} serves beside an idle instance`);
}

/** M8, of an idle instance that goes for another group of its owner. */
export function checkYield(
  id: string,
  group: ModelGroup | undefined,
  instances: Iterable<ModelInstance>,
  groups: ReadonlyMap<string, ModelGroup>,
): void {
  if (group?.is_superseded === true) return;
  for (const other of instances) {
    const whose = groups.get(other.group ?? "");
    const isFirst = other.state === "ready" && whose?.is_superseded === true && whose.owner === group?.owner;
    invariant(!isFirst, `M8: ${id} goes, and an idle instance of a superseded version of its owner stays`);
  }
}

/** M1 and M6, of a new call that waits: it has a place in the queue and may be served in time. */
export function checkWelcome(
  { id, depth, deadline_ms, group: key }: ModelCall,
  group: ModelGroup,
  now_ms: number,
): void {
  const { size } = group.waiting;
  invariant(size <= group.queue_max, `M6: ${size} calls wait for ${key}, which has places for ${group.queue_max}`);
  invariant(depth > 0 || !group.isHopeless(size - 1, deadline_ms - now_ms), `M1: call ${id} waits in vain`);
}

/** P1. Calls may still wait for devices beside an instance that serves. */
export function checkSurrender({ group: key, code }: GaveUp, group: ModelGroup | undefined): void {
  invariant(code !== undefined || group?.waiting.size === 0, `P1: ${key} gave up but calls wait`);
}

/** M1. `isForDevices`: no time tells when devices are free. */
export function checkPromise({ code, retry_after }: RefuseEffect, isForDevices: boolean): void {
  const seconds = retry_after ?? null;
  const isPromise = seconds !== null && Number.isInteger(seconds) && seconds >= 1;
  const isRight = isForDevices ? isPromise || seconds === null : isPromise === ERRORS[code].retryable;
  invariant(isRight, `M1: ${code} says to try again after ${seconds} s`);
}

/** M7. */
export function checkExpiry(
  id: string,
  { since_ms }: ModelInstance,
  group: ModelGroup | undefined,
  now_ms: number,
): void {
  // The same sum as the scheduler's: the difference may be rounded down.
  invariant(now_ms >= since_ms + (group?.keep_alive_ms ?? 0), `M7: ${id} expires after ${now_ms - since_ms} ms`);
}

/** M1. */
export function isReason(
  effect: RefuseEffect,
  call: ModelCall,
  group: ModelGroup | undefined,
  at: {
    readonly now_ms: number;
    readonly is_draining: boolean;
    readonly is_beyond_quota: boolean;
    readonly event: PoolEvent;
  },
): boolean {
  const isNew = at.event.type === "call_arrived" && at.event.call === call.id;
  const dropped = group?.dropped ?? null;
  // Itself waits too, as the model sees it.
  const ahead_count = (group?.waiting.size ?? 0) - 1;
  const isOver = call.deadline_ms <= at.now_ms;
  switch (effect.code) {
    case "NOT_FOUND":
      return group === undefined || dropped === "deleted";
    case "WRONG_STATE":
      return dropped === "paused" || dropped === "failed";
    case "SHUTTING_DOWN":
      return at.is_draining || dropped === "shutdown";
    case "START_FAILED":
      return at.event.type === "start_failed" || at.event.type === "crashed";
    case "QUOTA_EXCEEDED":
      return at.is_beyond_quota;
    case "QUEUE_FULL":
      return group !== undefined && isNew && ahead_count >= group.queue_max;
    case "CAPACITY_FULL":
      return isOver;
    case "QUEUE_TIMEOUT":
      // Nested calls go ahead of others, so the wait of a nested call is unknown.
      if (isOver || group === undefined) return isOver;
      return isNew && call.depth === 0 && group.isHopeless(ahead_count, call.deadline_ms - at.now_ms);
    default:
      return false;
  }
}
