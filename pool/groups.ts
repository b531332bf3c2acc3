/**
 * Groups are set, superseded, dropped and forgotten, and owners get and lose their limits: what that does to instances
 * and waiting calls. Rare, so it may visit all members of a group, and all groups.
 */

import { invariant } from "../src/base/errors.ts";
import { classOf, forgetClass } from "./classes.ts";
import { effectivePolicy, isConcurrency, keepAliveMs } from "./policy.ts";
import type { DropReason, GroupPolicy, OwnerLimits } from "./protocol.ts";
import { attach, confine, count, detach } from "./quotas.ts";
import { Group, type Instance, Owner } from "./records.ts";
import { refuseBeyondQuota, refuseDropped, refuseQueue } from "./refusals.ts";
import { serveBlocked, terminate } from "./scaling.ts";
import { armInstance, earmark, list, type PoolState, review } from "./states.ts";

export function setGroup(state: PoolState, key: string, policy: GroupPolicy): void {
  const { concurrency = 1 } = policy;
  invariant(isConcurrency(concurrency), `P2: ${key} cannot have a concurrency of ${concurrency}`);
  let group = state.groups.get(key);
  if (group === undefined) {
    const of = classOf(state, policy.class);
    of.member_count += 1;
    of.devices = policy.devices ?? 0;
    group = new Group(key, of, policy);
    state.groups.set(key, group);
    attach(state, group);
  } else {
    changeGroup(state, group, policy);
  }
  state.group_set_count += 1;
  group.order = state.group_set_count;
  review(state, group);
}

function changeGroup(state: PoolState, group: Group, policy: GroupPolicy): void {
  const { owner, memory_mb } = group;
  invariant(policy.class === group.class.key, `S5: ${group.key} is of class ${group.class.key}, not ${policy.class}`);
  detach(state, group);
  group.dropped = null;
  group.is_retired = false;
  group.policy = effectivePolicy(policy);
  group.warm_retry_at_ms = 0;
  group.lacking_until_ms = 0;
  attach(state, group);
  for (const instance of group.members) list(state, instance);
  // First: the bounds are wider while a nested call waits.
  refuseBeyondQuota(state, group);
  serveBlocked(state);
  for (const instance of group.starting) {
    if (group.live_count <= group.live_max) break;
    earmark(state, instance, null);
  }
  for (const instance of group.idle) {
    if (group.live_count > group.live_max) terminate(state, instance, "surplus");
    else if (instance.unneeded_link.list !== null) keepFromNow(state, group, instance);
  }
  if (group.owner === null || (group.owner === owner && group.memory_mb === memory_mb)) return;
  confine(state, group.owner);
}

export function retireGroup(state: PoolState, key: string): void {
  const group = state.groups.get(key);
  if (group === undefined || group.dropped !== null) return;
  detach(state, group);
  group.is_retired = true;
  group.policy = { ...group.policy, min_instances: 0 };
  attach(state, group);
  for (const instance of group.idle) {
    if (instance.unneeded_link.list !== null) keepFromNow(state, group, instance);
  }
  review(state, group);
  forgetIfGone(state, group);
}

/** A new policy counts from now: a version that was superseded keeps its instances for the whole grace period. */
function keepFromNow(state: PoolState, group: Group, instance: Instance): void {
  instance.since_ms = state.now_ms;
  armInstance(state, instance, state.now_ms + keepAliveMs(group, group.arrivals));
}

export function dropGroup(state: PoolState, key: string, reason: DropReason, isForced: boolean): void {
  const group = state.groups.get(key);
  if (group === undefined) {
    state.effects.push({ type: "group_gone", group: key });
    return;
  }
  group.dropped = reason;
  refuseQueue(state, group, (call) => refuseDropped(state, call, reason, key));
  for (const instance of [...group.members]) {
    if (instance.state === "starting") earmark(state, instance, null);
    else if (instance.state !== "terminating" && (instance.state !== "busy" || isForced)) {
      terminate(state, instance, "dropped");
    }
  }
  review(state, group);
  forgetIfGone(state, group);
}

/** A dropped or superseded group goes with its last instance and call. */
export function forgetIfGone(state: PoolState, group: Group): void {
  if (group.dropped === null && !group.is_retired) return;
  if (group.members.size > 0 || group.queue.size > 0) return;
  state.timers.cancel(group.warm_timer);
  state.timers.cancel(group.patience_timer);
  state.timers.cancel(group.lacking_timer);
  state.lacking.delete(group);
  detach(state, group);
  state.groups.delete(group.key);
  group.class.member_count -= 1;
  forgetClass(state, group.class);
  state.effects.push({ type: "group_gone", group: group.key });
}

// Owners

/** Sets the limits of an owner; without any it is forgotten. */
export function setOwner(state: PoolState, key: string, limits: OwnerLimits): void {
  const known = state.owners.get(key);
  if (limits.instances_max === null && limits.memory_mb_max === null) {
    if (known !== undefined) lift(state, known);
    return;
  }
  const owner = known ?? open(state, key);
  owner.limit(limits);
  for (const group of owner.groups) refuseBeyondQuota(state, group);
  confine(state, owner);
  for (const group of owner.groups) forgetIfGone(state, group);
}

function open(state: PoolState, key: string): Owner {
  const owner = new Owner(key);
  state.owners.set(key, owner);
  for (const group of state.groups.values()) if (group.policy.owner === key) count(owner, group);
  // In the node's order, which is theirs.
  for (const instance of state.unneeded) {
    if (instance.group?.owner === owner) owner.enlist(instance.group, instance, true);
  }
  return owner;
}

function lift(state: PoolState, owner: Owner): void {
  state.owners.delete(owner.key);
  for (const group of owner.groups) {
    detach(state, group);
    review(state, group);
  }
  state.stirred.delete(owner);
  for (const { delayed } of state.delaying) delayed.delete(owner);
}
