/**
 * The limits of owners: hands their room to the groups that stand in line for it, ends idle instances of one group for
 * another, and those that are too many. Runs for the groups of tenants with limits alone.
 *
 * U1. No group stands in line while its owner has room for it, or idle instances that no minimum needs and that would
 *     make room, unless there are no starts for it and it has its turn or no group waits for one.
 * U2. Groups of an owner take turns, one instance each; those with nested calls go ahead.
 * U3. Idle instances go for a group only when that makes room, and only when a start can follow at once. While groups wait
 *     for starts, an owner that is granted nothing ends what makes room for one, and so takes its turn among them.
 *
 * An event of an owner that has room costs a look at each group that stands in line for it, another one a look at those
 * with nested calls.
 */

import { isNeeded } from "./policy.ts";
import type { Group, Instance, Owner, PoolClass } from "./records.ts";
import { terminate } from "./scaling.ts";
import { type PoolState, retain, review, want } from "./states.ts";

/** True if an owner's room may have grown, or starts have become free in place of its idle instances. */
export function isShareDue(state: PoolState): boolean {
  if (state.stirred.size > 0) return true;
  for (const of of state.delaying) if (startsFree(state, of) > 0) return true;
  return false;
}

/** Hands out what room owners have. */
export function shareOut(state: PoolState): void {
  for (const of of state.delaying) {
    if (startsFree(state, of) <= 0) continue;
    for (const owner of of.delayed) state.stirred.add(owner);
    of.delayed.clear();
    state.delaying.delete(of);
  }
  // An owner whose idle instances go is stirred again, and looked at until nothing changes.
  for (const owner of state.stirred) {
    state.stirred.delete(owner);
    serveLine(state, owner, owner.nested);
    const { count, mb } = owner.taken;
    const isRoom = count < owner.instances_max && mb < owner.memory_mb_max;
    if (isRoom || owner.idle_count > 0) serveLine(state, owner, owner.barred);
  }
}

/** A set that grows while it is walked is walked to its new end: each turn lowers the sum of what is asked for. */
function serveLine(state: PoolState, owner: Owner, line: ReadonlySet<Group>): void {
  for (const group of line) {
    if (!hasRoom(state, owner, group)) continue;
    want(state, group, group.wanted_count + 1);
    owner.leaveLine(group);
    owner.queueUp(group);
  }
}

/** Nested calls have room beyond the limits too: those above them in their chains may hold all within. */
function hasRoom(state: PoolState, owner: Owner, group: Group): boolean {
  if (owner.roomFor(group, 0) > 0) return true;
  if (owner.idle_count > 0) {
    const hasStart = startsFree(state, group.class) > 0 || isPassedOver(state, owner);
    if (!hasStart) delay(state, owner, group.class);
    else if (makeRoomFor(state, owner, group)) return true;
  }
  const { depth } = group.queue;
  return depth > 0 && owner.roomFor(group, depth) > 0;
}

/**
 * True for an owner that is granted nothing while the groups of others wait for starts. None is ever free for it then: it
 * must wait in line with them.
 */
function isPassedOver(state: PoolState, owner: Owner): boolean {
  return state.unmet_count > 0 && owner.granted_count === 0;
}

/** Looks at the owner again once there are containers for its groups of the class. */
function delay(state: PoolState, owner: Owner, of: PoolClass): void {
  of.delayed.add(owner);
  state.delaying.add(of);
}

/** Containers of a class that could be had now, beyond those that groups want already. */
function startsFree(state: PoolState, of: PoolClass): number {
  const starts = state.is_pressed ? 0 : state.settings.starts_max - state.starting_count;
  return Math.max(0, starts - state.unmet_count) + Math.max(0, of.stock - of.wanted_count);
}

/** Ends idle instances that no minimum needs, if they make room for one of the group. */
function makeRoomFor(state: PoolState, owner: Owner, group: Group): boolean {
  if (owner.roomWithout(group, { count: owner.idle_count, mb: owner.idle_mb }) <= 0) return false;
  const victims: Instance[] = [];
  const going = new Map<Group, number>();
  let mb = 0;
  for (const instance of owner.idle()) {
    if (instance.group === null) continue;
    const { live_count, min_instances, memory_mb } = instance.group;
    const going_count = going.get(instance.group) ?? 0;
    if (isNeeded({ live_count: live_count - going_count, min_instances })) {
      if (going_count === 0) retain(state, instance);
      continue;
    }
    going.set(instance.group, going_count + 1);
    victims.push(instance);
    mb += memory_mb;
    if (owner.roomWithout(group, { count: victims.length, mb }) <= 0) continue;
    for (const victim of victims) terminate(state, victim, "yielded");
    state.tally.evicted_count += victims.length;
    return true;
  }
  return false;
}

/** Counts a group for an owner, without its idle instances. */
export function count(owner: Owner, group: Group): void {
  group.owner = owner;
  owner.groups.add(group);
  owner.noteLive(group, group.live_count);
  owner.noteGranted(group, group.wanted_count);
  owner.largest_mb = Math.max(owner.largest_mb, group.memory_mb);
}

/** Counts a group for the owner that its policy names, if that has limits. */
export function attach(state: PoolState, group: Group): void {
  const owner = state.owners.get(group.policy.owner ?? "");
  if (owner === undefined) return;
  count(owner, group);
  for (const instance of group.idle) {
    if (instance.unneeded_link.list !== null) owner.enlist(group, instance, true);
  }
}

/** A group counts for nobody from now on: before its policy changes, or when it is forgotten. */
export function detach(state: PoolState, group: Group): void {
  const { owner } = group;
  if (owner === null) return;
  owner.noteLive(group, -group.live_count);
  owner.noteGranted(group, -group.wanted_count);
  owner.groups.delete(group);
  owner.leaveLine(group);
  for (const instance of group.idle) owner.delist(group, instance);
  group.owner = null;
  if (owner.isAwaited) state.stirred.add(owner);
}

/**
 * Brings an owner within limits that were lowered, or that more counts for now: takes back what was granted beyond them
 * and ends idle instances, the one that was used longest ago first, at last those that minimums need.
 */
export function confine(state: PoolState, owner: Owner): void {
  const end = (instance: Instance): void => {
    if (owner.isBeyond(0)) terminate(state, instance, "surplus");
  };
  for (const instance of [...owner.idle()]) {
    if (instance.group !== null && !isNeeded(instance.group)) end(instance);
  }
  const needed = [...owner.groups].flatMap((group) => [...group.idle]);
  needed.sort((a, b) => a.since_ms - b.since_ms);
  for (const instance of needed) end(instance);
  for (const group of owner.groups) review(state, group);
}
