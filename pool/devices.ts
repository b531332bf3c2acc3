/**
 * Groups whose instances hold devices of the node. The launcher gives devices and knows which are free; the pool learns at a
 * failed start that some are missing. Their classes have no cells, and no start for the reserve.
 *
 * V1. `holders` are the started instances with devices that are not gone. A visit to them is bounded by the devices there are.
 * V2. Idle instances that no minimum needs end for a group that lacks devices, if that makes enough of them free: superseded
 *     ones first, then those used longest ago. For the group of a family that was set last, idle ones of its other groups
 *     end also if their minimum needs them, so that a version can take over from the one that holds the devices.
 * V3. A group that lacks devices starts nothing until an instance with devices is gone, or for `devices_retry_ms`. Its calls wait if
 *     devices are about to be free, or an instance of the group serves; if not, they are refused.
 */
import type { Lack } from "../src/base/lacking.ts";
import { LIMITS } from "../src/base/limits.ts";
import { isNeeded } from "./policy.ts";
import type { Group, Instance } from "./records.ts";
import { refuse, refuseQueue } from "./refusals.ts";
import { backOffGroup, terminate } from "./scaling.ts";
import { type PoolState, review } from "./states.ts";

/** A start has failed because devices are missing. */
export function lackDevices(state: PoolState, instance: Instance, reason: string, lack: Lack): void {
  const { group } = instance;
  terminate(state, instance, "start_failed");
  if (group === null || group.dropped !== null) return;
  group.last_error = reason;
  const isHelped = makeFree(state, group, lack);
  if (isHelped || group.live_count > 0) pause(state, group);
  if (isHelped) return;
  backOffGroup(state, group);
  if (group.live_count === 0) refuseQueue(state, group, (call) => refuse(state, call, lack.code, reason));
  state.effects.push({ type: "gave_up", group: group.key, reason, code: lack.code });
}

/** An instance with devices is gone: the groups that lack some try again. */
export function devicesFreed(state: PoolState, instance: Instance): void {
  if (!state.holders.delete(instance)) return;
  for (const group of state.lacking) {
    state.lacking.delete(group);
    group.lacking_until_ms = 0;
    review(state, group);
  }
}

/** The refusal of a call that waited for devices until its deadline; null for a call that waited for something else. */
export function lackReason(state: PoolState, group: Group): string | null {
  return state.now_ms < group.lacking_until_ms && group.live_count === 0 ? group.last_error : null;
}

function pause(state: PoolState, group: Group): void {
  group.lacking_until_ms = state.now_ms + LIMITS.devices_retry_ms;
  state.timers.cancel(group.lacking_timer);
  group.lacking_timer = state.timers.add(group.lacking_until_ms, group);
  state.lacking.add(group);
  review(state, group);
}

/** V2. Returns true if as many devices as are missing are about to be free. */
function makeFree(state: PoolState, group: Group, { code, missing_count }: Lack): boolean {
  if (missing_count === null) return false;
  let missing = missing_count;
  const victims: Instance[] = [];
  for (const holder of state.holders) {
    const of = holder.group;
    if (code === "QUOTA_EXCEEDED" && of?.policy.owner !== group.policy.owner) continue;
    if (holder.state === "terminating" || holder.state === "recycling") missing -= holder.class.devices;
    else if (of === null || of === group) continue;
    else if (holder.state === "ready") {
      if (isReplaced(of, group) || !isNeeded(of)) victims.push(holder);
    } else if (isReplaced(of, group)) missing -= holder.class.devices;
  }
  const rank = ({ group: of, since_ms }: Instance) => (of?.is_retired === true ? -1 : since_ms);
  victims.sort((a, b) => rank(a) - rank(b));
  const chosen = new Map<Instance, Group>();
  const going = new Map<Group, number>();
  for (const victim of victims) {
    if (missing <= 0) break;
    const { group: of } = victim;
    if (of === null) continue;
    const going_count = going.get(of) ?? 0;
    // An earlier one may be the last that its group can spare.
    const { min_instances } = of;
    if (!isReplaced(of, group) && isNeeded({ live_count: of.live_count - going_count, min_instances })) continue;
    going.set(of, going_count + 1);
    chosen.set(victim, of);
    missing -= victim.class.devices;
  }
  if (missing > 0) return false;
  for (const [victim, of] of chosen) {
    // Its minimum comes after the group that takes over.
    if (isReplaced(of, group)) backOffGroup(state, of);
    state.tally.evicted_count += 1;
    terminate(state, victim, "evicted");
  }
  return true;
}

/** True for a group that another one of its family takes over from. */
function isReplaced(of: Group, by: Group): boolean {
  return of !== by && of.policy.family !== undefined && of.policy.family === by.policy.family && of.order < by.order;
}
