/**
 * Hands out instances, starts them and makes room for starts. A call gets in this order: a place of the group's busy
 * instances or its ready instance (`placement` in `policy.ts`), a freed or just started one, a cell, a start under way
 * without a group, a start of its own. Instances and cells of another class serve a group by the room that they give up.
 *
 * A1. A group that wants an instance waits only for a free start or for room: never beside a cell or a spare start of
 *     its class.
 * A2. At most `starts_max` containers are being started, at most `instances_max` exist.
 * A3. Owners whose groups want instances take turns, one instance each; so do the groups of one owner (`turns.ts`).
 */
import { invariant } from "../src/base/errors.ts";
import { noteNeed } from "./demand.ts";
import { backoffMs, evictionsNeeded, isNeeded, placement } from "./policy.ts";
import type { RemoveReason } from "./protocol.ts";
import type { Call, Group, Instance, Owner, PoolClass } from "./records.ts";
import { addInstance, earmark, move, type PoolState, retain, review, takeCall, want } from "./states.ts";

function firstOf<T>(set: Set<T>): T | null {
  for (const member of set) return member;
  return null;
}

/** Returns the instance of a group that has a place for a call at a depth of a chain; null if the call has to wait. */
export function placeFor(state: PoolState, group: Group, depth: number): Instance | null {
  const idle = group.idle.last?.value ?? null;
  if (group.places.size === 0) return idle;
  const busy = state.isBeyondAt(group, depth) ? group.places.least(depth) : group.places.least();
  const { concurrency } = group;
  const least_load = busy?.load ?? Number.POSITIVE_INFINITY;
  const choice = placement({ concurrency, idle_count: group.idle.size, least_load });
  return choice === "busy" ? busy : choice === "idle" ? idle : null;
}

/** Gives a place to a call that has just arrived. */
export function serveNow(state: PoolState, instance: Instance, group: Group, call: number, depth: number): void {
  assign(state, instance, group, call, depth, 0, false);
}

function assign(
  state: PoolState,
  instance: Instance,
  group: Group,
  call: number,
  depth: number,
  waited_ms: number,
  is_cell: boolean,
): void {
  const specialise = !instance.isBound;
  const cold = !instance.was_ready;
  const isFirst = instance.running_count === 0;
  invariant(specialise || instance.group === group, `P2: ${instance.id} is bound to another group than ${group.key}`);
  takeCall(state, instance, group, depth);
  if (specialise) {
    instance.was_cell = is_cell;
    clearFailures(group);
    noteNeed(state, group.class, group.policy.owner ?? null);
  }
  const cell_hit = cold && instance.was_cell;
  if (cold && isFirst) {
    const count = cell_hit ? "cell_hit_count" : "cell_miss_count";
    state.tally[count] += 1;
    group.class[count] += 1;
  }
  state.effects.push({
    type: "assign",
    instance: instance.id,
    call,
    group: group.key,
    specialise,
    cold,
    cell_hit,
    waited_ms,
  });
}

/** Takes a call out of its queue. */
export function dequeue(state: PoolState, call: Call): void {
  state.calls.delete(call.id);
  call.group.queue.remove(call.link, call.depth);
  state.timers.cancel(call.timer);
  review(state, call.group);
}

/**
 * Gives an instance of a group to the first call that waits for it; false when none does. One that was there for a
 * nested call, and is beyond the bounds of whoever is next, goes instead.
 */
export function assignFromQueue(state: PoolState, instance: Instance): boolean {
  const { group } = instance;
  if (group !== null && state.isBeyond(group)) {
    terminate(state, instance, "surplus");
    return true;
  }
  const call = group?.queue.first?.value;
  if (group === null || call === undefined) return false;
  assignWaiting(state, instance, call, false);
  fill(state, instance);
  return true;
}

function assignWaiting(state: PoolState, instance: Instance, call: Call, is_cell: boolean): void {
  dequeue(state, call);
  assign(state, instance, call.group, call.id, call.depth, state.now_ms - call.arrived_ms, is_cell);
}

/** Gives the free places of a busy instance to the first calls that wait and may take them (F2). */
export function fill(state: PoolState, instance: Instance): void {
  const { group } = instance;
  if (group === null) return;
  // Bounded by its places: each turn takes one.
  while (instance.place_link.list !== null) {
    const call = group.queue.first?.value;
    if (call === undefined) return;
    if (call.depth < instance.level && state.isBeyondAt(group, call.depth)) return;
    assignWaiting(state, instance, call, false);
  }
}

/**
 * Gives free places to calls that waited beside them until an instance too many was gone, or a limit was raised. Returns
 * true if a call got one.
 */
export function serveBlocked(state: PoolState): boolean {
  let isServed = false;
  for (const group of state.blocked) {
    for (let call = group.queue.first?.value; call !== undefined; call = group.queue.first?.value) {
      const instance = placeFor(state, group, call.depth);
      if (instance === null) break;
      assignWaiting(state, instance, call, false);
      isServed = true;
    }
  }
  return isServed;
}

/** Lets an instance wait for the next call of its group. */
export function rest(state: PoolState, instance: Instance): void {
  instance.was_ready = true;
  move(state, instance, "settle");
}

/** Binds a started instance to a group, with the first waiting calls if there are any. */
export function give(state: PoolState, instance: Instance, group: Group, is_cell: boolean): void {
  // A start that was earmarked for this group is replaced by the one that came first.
  if (instance.group !== group && group.wanted_count === 0) {
    const replaced = firstOf(group.starting);
    if (replaced !== null) earmark(state, replaced, null);
  }
  const call = group.queue.first?.value;
  if (call === undefined) {
    move(state, instance, "bind", group);
    noteNeed(state, group.class, group.policy.owner ?? null);
    state.effects.push({ type: "specialise", instance: instance.id, group: group.key });
    return;
  }
  assignWaiting(state, instance, call, is_cell);
  fill(state, instance);
}

/**
 * Returns the group that gets an instance that has just started: its own group if that needs it, else one of its class
 * that waits, else its own group.
 */
export function takerOf({ class: of, group: own }: Instance): Group | null {
  if (own !== null && (own.queue.size > 0 || isNeeded(own))) return own;
  return of.hungry.next ?? firstOf(of.expecting) ?? own;
}

/** Ends an instance in any state but its last two. */
export function terminate(state: PoolState, instance: Instance, reason: RemoveReason): void {
  move(state, instance, "end");
  state.effects.push({ type: "remove", instance: instance.id, reason });
}

/** Starts an instance of a class, for a group or, without one, as a cell. */
export function start(state: PoolState, of: PoolClass, group: Group | null): void {
  const instance = addInstance(state, of, group);
  state.effects.push({ type: "start", instance: instance.id, class: of.key, group: group?.key ?? null });
}

/**
 * Serves the groups that want instances, in turns (A3): those of each class from its cells and spare starts, then all
 * by starts of their own, until starts or room run out.
 */
export function dispatch(state: PoolState): void {
  // Each turn lowers the sum of what is wanted by one, so this ends.
  if (state.servable.size > 0) for (const of of state.servable) serveFromStock(state, of);
  for (let group = state.hungry.next; group !== null; group = state.hungry.next) {
    if (state.starting_count >= state.settings.starts_max || state.room <= 0) break;
    start(state, group.class, group);
    endTurn(state, group);
  }
  if (state.nested.size > 0) serveNested(state);
  if (state.hungry.size > 0) makeRoom(state);
}

function serveFromStock(state: PoolState, of: PoolClass): void {
  for (let group = of.hungry.next; group !== null; group = of.hungry.next) {
    const cell = of.cells.last?.value;
    const spare = cell === undefined ? firstOf(of.spares) : null;
    if (cell !== undefined) {
      of.taken_ms = state.now_ms;
      give(state, cell, group, true);
    } else if (spare !== null) {
      earmark(state, spare, group);
    } else {
      break;
    }
    endTurn(state, group);
  }
}

function endTurn(state: PoolState, group: Group): void {
  state.hungry.pass(group);
  group.class.hungry.pass(group);
  if (group.owner !== null) passOn(state, group, group.owner);
}

/** Moves a group that had its turn to the end of its owner's queue, without its other grants, if others wait there. */
function passOn(state: PoolState, group: Group, owner: Owner): void {
  if (group.wanted_count === 0 || !owner.isAwaitedBeside(group)) return;
  want(state, group, 0);
  owner.leaveLine(group);
  owner.queueUp(group);
  state.stirred.add(owner);
}

/** Starts instances for nested calls beyond the node's bound: those above them in their chains may hold all others. */
function serveNested(state: PoolState): void {
  for (const group of state.nested) {
    if (state.room > 0) return;
    const isFree = state.starting_count < state.settings.starts_max;
    if (isFree && state.roomAt(group.queue.depth) > 0 && group.starting.size === 0) start(state, group.class, group);
  }
}

/**
 * Evicts cells of other classes, those of the class that was needed longest ago first, then least recently used idle
 * instances, until the starts that could be made now have room.
 */
function makeRoom(state: PoolState): void {
  // Memory is made free when it is next read: how much an eviction brought is known only then.
  if (state.is_pressed) return;
  let needed = evictionsNeeded({
    wanted_count: state.wanted_count,
    starts_free: state.settings.starts_max - state.starting_count,
    room: state.room,
    terminating_count: state.counts.terminating,
  });
  if (needed > 0 && state.counts.cell > 0) {
    for (const { cells } of state.reserve.classes) {
      for (; needed > 0 && cells.first !== null; needed--) {
        state.tally.evicted_count += 1;
        terminate(state, cells.first.value, "evicted");
      }
    }
  }
  evict(state, needed);
}

/** Ends so many idle instances, least recently used first, of those that no minimum needs. */
export function evict(state: PoolState, count: number): void {
  let needed = count;
  while (needed > 0 && state.unneeded.first !== null) {
    const victim = state.unneeded.first.value;
    if (victim.group !== null && isNeeded(victim.group)) {
      retain(state, victim);
      continue;
    }
    state.tally.evicted_count += 1;
    terminate(state, victim, "evicted");
    needed -= 1;
  }
}

/** An instance was started for the group: failures are counted in a row. */
export function clearFailures(group: Group): void {
  group.start_failures = 0;
  group.warm_failures = 0;
}

/** Pauses the warming of a group to its minimum after a failure, as for cells. Waiting calls do not pause. */
export function backOffGroup(state: PoolState, group: Group): void {
  if (state.now_ms < group.warm_retry_at_ms) return;
  group.warm_failures += 1;
  group.warm_retry_at_ms = state.now_ms + backoffMs(group.warm_failures);
  state.timers.cancel(group.warm_timer);
  group.warm_timer = state.timers.add(group.warm_retry_at_ms, group);
  review(state, group);
}
