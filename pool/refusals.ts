/** Refusals of calls: of one on its arrival, and of all that wait for a group. */
import type { ErrorCode } from "../src/base/errors.ts";
import { dropRefusal, retryAfterSeconds } from "./policy.ts";
import type { DropReason } from "./protocol.ts";
import type { Group } from "./records.ts";
import { dequeue } from "./scaling.ts";
import type { PoolState } from "./states.ts";

export function refuse(state: PoolState, call: number, code: ErrorCode, reason: string, retry_after?: number): void {
  const effect = { type: "refuse", call, code, reason } as const;
  state.effects.push(retry_after === undefined ? effect : { ...effect, retry_after });
}

export function refuseDropped(state: PoolState, call: number, dropped: DropReason, key: string): void {
  state.effects.push({ type: "refuse", call, ...dropRefusal(dropped, key) });
}

/** Seconds after which a place of the group may be free. */
export function retryAfter(group: Group): number {
  return retryAfterSeconds({
    queued_count: group.queue.size,
    service_ms: group.service_ms,
    max_instances: group.policy.max_instances,
    concurrency: group.concurrency,
  });
}

/** Refuses all waiting calls of a group. */
export function refuseQueue(state: PoolState, group: Group, answer: (call: number) => void): void {
  for (const call of group.queue) {
    dequeue(state, call);
    answer(call.id);
  }
}

/** Refuses the waiting calls of a group that can never have an instance within its owner's limits. */
export function refuseBeyondQuota(state: PoolState, group: Group): void {
  const reason = group.owner?.refusalOf(group) ?? null;
  if (reason !== null) refuseQueue(state, group, (call) => refuse(state, call, "QUOTA_EXCEEDED", reason));
}
