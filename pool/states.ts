/**
 * The state of the pool and the one function that changes an instance's state. Which change happens when
 * is `scheduler.ts`'s, whether is `policy.ts`'s.
 *
 * S1. `move` alone changes `instance.state` and `instance.group`, and all counts, lists and sets with them.
 * S2. Counts of a group and of the node equal the sums over their instances.
 * S3. Ready instances are in their group's `idle` stack (last used on top). While a group has more than its minimum all
 *     its ready ones are also in the node's `unneeded` list, least recently used first, and have a timer. One that the
 *     minimum came to need again stays there until it is met (`retain`).
 * S4. `hungry` holds exactly the groups with `wanted_count` > 0, `nested` those of them for whose first call the bounds
 *     are wider, `expecting` the groups with waiting calls and earmarked starts. A group asks for what its own bounds
 *     allow (`asked_count`) and wants what its owner's limits grant it of that: all of it where there are none. It asks
 *     for nothing in place of an instance in cleanup while its first call is patient (`patienceEndsAt`).
 *     Counted in places: `concurrency` of them per instance that starts or is in cleanup. It asks for nothing while it lacks
 *     devices (V3 in `devices.ts`).
 * S5. A class is known while it has a group or an instance, or demand for cells. An instance and its group are of one
 *     class.
 * S6. `takeCall`, `endCall` and the end of an instance alone change `running_count` and the sums of it. Calls in cleanup
 *     beside others take their places until `endCleanup`. Free places are listed by `list` (`places.ts`); `blocked` holds
 *     the groups with waiting calls beside free places, which F2 keeps for deeper ones.
 */
import { invariant } from "../src/base/errors.ts";
import { classOf, forgetClass, recount } from "./classes.ts";
import { boundAt, CLOSING_MS_MAX, isNeeded, keepAliveMs, patienceEndsAt, wantedStarts } from "./policy.ts";
import type { PoolEffect, PoolSettings, RemoveReason } from "./protocol.ts";
import { List } from "./queue.ts";
import {
  type Call,
  Counts,
  type Group,
  INSTANCE_MACHINE,
  Instance,
  type InstanceState,
  type InstanceVerb,
  type Owner,
  type PoolClass,
  Reserve,
  type Subject,
} from "./records.ts";
import { Recent, Tally } from "./tallies.ts";
import { Timers } from "./timers.ts";
import { Turns } from "./turns.ts";

export class PoolState {
  readonly settings: PoolSettings;
  now_ms = 0;
  is_draining = false;
  /** The memory budget is used up. */
  is_pressed = false;
  effects: PoolEffect[] = [];
  wake_at_ms = Number.POSITIVE_INFINITY;
  next_instance = 1;
  readonly instances = new Map<string, Instance>();
  readonly classes = new Map<string, PoolClass>();
  readonly groups = new Map<string, Group>();
  /** Calls that wait. */
  readonly calls = new Map<number, Call>();
  readonly counts = new Counts();
  /** Calls in flight. */
  calls_running = 0;
  /** Containers being started now, earmarked or not. */
  starting_count = 0;
  readonly unneeded = new List<Instance>();
  readonly hungry = new Turns<Group>();
  readonly nested = new Set<Group>();
  readonly blocked = new Set<Group>();
  /** Sum of `wanted_count` over all groups. */
  wanted_count = 0;
  /** Sum of what groups want beyond the cells and spare starts of their classes. */
  unmet_count = 0;
  /** Classes whose groups want instances and that have cells or spare starts. */
  readonly servable = new Set<PoolClass>();
  /** Owners with limits, by tenant. */
  readonly owners = new Map<string, Owner>();
  /** Owners whose groups stand in line, and whose room may have grown. */
  readonly stirred = new Set<Owner>();
  /** Started instances with devices, and the groups that lack some (`devices.ts`). */
  readonly holders = new Set<Instance>();
  readonly lacking = new Set<Group>();
  group_set_count = 0;
  /** Classes with `delayed` owners. */
  readonly delaying = new Set<PoolClass>();
  readonly reserve: Reserve;
  readonly timers = new Timers<Subject>();
  readonly tally = new Tally();
  readonly recent = new Recent();

  constructor(settings: PoolSettings) {
    this.settings = settings;
    this.reserve = new Reserve(classOf(this, settings.default_class));
  }

  /**
   * True if the group, its owner or the node has an instance too many for the group's next call; without a group, for a
   * call from outside. An instance that was started for a nested call ends then: a call from a higher level that took it
   * could wait for the very level that the instance belongs to.
   */
  isBeyond(group: Group | null): boolean {
    return this.isBeyondAt(group, group?.queue.depth ?? 0);
  }

  /** True if there is an instance too many for a call of the group at a depth of a chain. */
  isBeyondAt(group: Group | null, depth: number): boolean {
    const live_count = this.instances.size - this.counts.terminating;
    if (live_count > boundAt(depth, this.settings.instances_max)) return true;
    return group?.isBeyondAt(depth) === true;
  }

  /** Instances that the node has room for. */
  get room(): number {
    return this.roomAt(0);
  }

  /** Instances that the node has room for, for a call at a depth of a chain. */
  roomAt(depth: number): number {
    const bound = this.is_pressed
      ? Math.min(this.instances.size, this.settings.instances_max)
      : this.settings.instances_max;
    return boundAt(depth, bound) - this.instances.size;
  }
}

function column(instance: Instance): keyof Counts | null {
  switch (instance.state) {
    case "starting":
      return instance.group === null ? "spare" : "warming";
    case "specialising":
      return "warming";
    case "gone":
      return null;
    default:
      return instance.state;
  }
}

function place(state: PoolState, instance: Instance): void {
  const { group } = instance;
  const name = column(instance);
  if (name !== null) {
    state.counts[name] += 1;
    if (group !== null) {
      group.counts[name] += 1;
      if (group.owner !== null && name !== "terminating") group.owner.noteLive(group, 1);
    }
  }
  switch (instance.state) {
    case "starting":
      state.starting_count += 1;
      if (group !== null) {
        group.starting.add(instance);
        break;
      }
      instance.class.spares.add(instance);
      recount(state, instance.class);
      break;
    case "cell":
      instance.class.cells.push(instance.rest_link);
      recount(state, instance.class);
      break;
    case "ready":
      invariant(group !== null, "S3: a ready instance has a group");
      group.idle.push(instance.rest_link);
      group.needed_idle_count += 1;
      break;
    case "gone":
      state.instances.delete(instance.id);
      group?.members.delete(instance);
      instance.class.member_count -= 1;
      forgetClass(state, instance.class);
      break;
  }
}

function lift(state: PoolState, instance: Instance): void {
  const { group } = instance;
  const name = column(instance);
  if (name !== null) {
    state.counts[name] -= 1;
    if (group !== null) {
      group.counts[name] -= 1;
      if (group.owner !== null && name !== "terminating") group.owner.noteLive(group, -1);
    }
  }
  switch (instance.state) {
    case "starting":
      state.starting_count -= 1;
      if (group !== null) {
        group.starting.delete(instance);
        break;
      }
      instance.class.spares.delete(instance);
      recount(state, instance.class);
      state.reserve.is_full = false;
      break;
    case "cell":
      instance.class.cells.remove(instance.rest_link);
      recount(state, instance.class);
      state.reserve.is_full = false;
      break;
    case "ready":
      invariant(group !== null, "S3: a ready instance has a group");
      group.idle.remove(instance.rest_link);
      if (!delist(state, group, instance)) group.needed_idle_count -= 1;
      break;
    case "busy":
      if (group === null) break;
      group.places.remove(instance.place_link);
      if (instance.cleaning !== null) group.cleaning_count -= instance.cleaning_count;
      break;
  }
}

/** True if the change affects neither the size of a group nor the instances that it wants. */
function isRoutine(from: InstanceState, to: InstanceState, group: Group | null): boolean {
  if (group !== null && group.queue.size > 0 && (from === "recycling" || to === "recycling")) return false;
  return (from === "ready" || from === "recycling" || from === "busy") && to !== "terminating";
}

/** Adds a new instance, in `starting`. */
export function addInstance(state: PoolState, of: PoolClass, group: Group | null): Instance {
  const instance = adoptInstance(state, `${state.settings.instance_prefix}${state.next_instance++}`, of, group);
  if (group !== null) review(state, group);
  return instance;
}

/** Adds an instance that an earlier process had started, in `starting`: where it goes from there is the caller's. */
export function adoptInstance(state: PoolState, id: string, of: PoolClass, group: Group | null): Instance {
  const instance = new Instance(id, of, group, state.now_ms);
  state.instances.set(id, instance);
  of.member_count += 1;
  group?.members.add(instance);
  place(state, instance);
  return instance;
}

/** The one place where an instance changes its state (S1). `group` is whom it belongs to from now on. */
export function move(state: PoolState, instance: Instance, verb: InstanceVerb, group = instance.group): void {
  const from = instance.state;
  transfer(state, instance, INSTANCE_MACHINE.next(from, verb), group);
}

/** Earmarks a start for another group, or for nobody. */
export function earmark(state: PoolState, instance: Instance, group: Group | null): void {
  invariant(instance.state === "starting", `${instance.id} is ${instance.state}, only a start is earmarked`);
  transfer(state, instance, "starting", group);
}

function transfer(state: PoolState, instance: Instance, to: InstanceState, group: Group | null): void {
  const from = instance.state;
  const before = instance.group;
  lift(state, instance);
  instance.state = to;
  if (from !== to) instance.since_ms = state.now_ms;
  if (before !== group) {
    invariant(group === null || group.class === instance.class, `S5: ${instance.id} is of another class`);
    before?.members.delete(instance);
    instance.group = group;
    group?.members.add(instance);
  }
  place(state, instance);
  if (to === "terminating" || to === "gone") {
    state.timers.cancel(instance.timer);
    instance.timer = null;
    if (instance.running_count > 0) countCalls(state, instance, -instance.running_count);
  }
  if (before === group && isRoutine(from, to, group)) {
    if (to === "ready" && group !== null) releaseIdle(state, group);
    return;
  }
  if (before !== null && before !== group) review(state, before);
  if (group !== null) review(state, group);
}

// Calls

function countCalls(state: PoolState, instance: Instance, count: number): void {
  instance.running_count += count;
  state.calls_running += count;
  if (instance.group !== null) instance.group.calls_running += count;
}

/** Gives an instance one more call, of a depth of a chain. */
export function takeCall(state: PoolState, instance: Instance, group: Group, depth: number): void {
  const { state: from, load } = instance;
  const isJoining = from === "busy";
  if (isJoining) {
    invariant(load < group.concurrency && instance.closing === null, `P2: ${instance.id} has no place for a call`);
  } else {
    move(state, instance, "assign", group);
  }
  countCalls(state, instance, 1);
  // It came to rest while no bound had an instance too many: it counts with those that every call may join.
  if (from === "ready") instance.level = 0;
  else if (!isJoining || depth < instance.level) instance.level = levelAt(state, group, depth);
  if (group.concurrency > 1) list(state, instance);
}

/** F2. The least depth for which there is no instance too many, at most that of the call. */
function levelAt(state: PoolState, group: Group, depth: number): number {
  let level = 0;
  while (level < depth && state.isBeyondAt(group, level)) level += 1;
  return level;
}

/** Ends a call of an instance. */
export function endCall(state: PoolState, instance: Instance): void {
  invariant(instance.running_count > 0, `S6: ${instance.id} runs no call that could finish`);
  countCalls(state, instance, -1);
}

/** A call that has finished beside others keeps its place until it is cleaned up. */
export function beginCleanup(state: PoolState, instance: Instance, call: number): void {
  instance.cleaning ??= new Map();
  invariant(!instance.cleaning.has(call), `S6: call ${call} has finished twice`);
  instance.cleaning.set(call, state.now_ms);
  noteCleaning(state, instance, 1);
}

/** Frees the place of a call after its cleanup. */
export function endCleanup(state: PoolState, instance: Instance, call: number): void {
  const isKnown = instance.cleaning?.delete(call) === true;
  invariant(isKnown, `S6: call ${call} on ${instance.id} is not being cleaned up`);
  noteCleaning(state, instance, -1);
  list(state, instance);
}

function noteCleaning(state: PoolState, instance: Instance, count: number): void {
  const { group } = instance;
  if (group === null || instance.state !== "busy" || instance.closing !== null) return;
  group.cleaning_count += count;
  if (group.queue.size > 0) review(state, group);
}

/** Lets a busy instance take no more calls: it ends with its last one. */
export function close(state: PoolState, instance: Instance, reason: RemoveReason): void {
  const { group } = instance;
  if (group === null || instance.closing !== null) return;
  group.cleaning_count -= instance.cleaning_count;
  instance.closing = reason;
  instance.closing_ms = state.now_ms;
  list(state, instance);
  armInstance(state, instance, state.now_ms + CLOSING_MS_MAX);
  review(state, group);
}

/** Updates the entry of an instance in the free places, after a change of its load or of its bound (F1). */
export function list(state: PoolState, instance: Instance): void {
  const { group, load, level } = instance;
  if (group === null) return;
  group.places.remove(instance.place_link);
  if (instance.state === "busy" && instance.closing === null && load < group.concurrency) {
    group.places.add(instance.place_link, level, load);
  }
  noteBlocked(state, group);
}

function noteBlocked(state: PoolState, group: Group): void {
  if (group.places.size > 0 && group.queue.size > 0) state.blocked.add(group);
  else if (state.blocked.size > 0) state.blocked.delete(group);
}

/** Recomputes what a group wants (S4) and which of its idle instances may go (S3), after its size, queue or policy changed. */
export function review(state: PoolState, group: Group): void {
  const isClosed = state.is_draining || group.dropped !== null || state.now_ms < group.lacking_until_ms;
  group.asked_count = isClosed
    ? 0
    : wantedStarts({
        queued_count: group.queue.size,
        concurrency: group.concurrency,
        warming_count: group.counts.warming,
        returning_count: returningCount(state, group),
        live_count: group.live_count,
        min_instances: group.policy.min_instances,
        max_instances: group.live_max,
        is_backing_off: state.now_ms < group.warm_retry_at_ms,
      });
  want(state, group, group.owner === null ? group.asked_count : group.owner.keptOf(group));
  if (group.owner !== null) {
    group.owner.queueUp(group);
    if (group.owner.isAwaited) state.stirred.add(group.owner);
  }
  if (group.queue.size > 0 && group.starting.size > 0) group.class.expecting.add(group);
  else group.class.expecting.delete(group);
  noteBlocked(state, group);
  releaseIdle(state, group);
}

/** Returns how many places in cleanup the queue counts on, and sets the timer for the end of that. */
function returningCount(state: PoolState, group: Group): number {
  const returning = group.counts.recycling * group.concurrency + group.cleaning_count;
  const first = returning === 0 ? null : group.queue.first;
  if (first === null) return 0;
  const due_ms = patienceEndsAt(first.value.arrived_ms);
  if (due_ms <= state.now_ms) return 0;
  if (group.patience_timer === null || group.patience_timer.due_ms > due_ms) {
    state.timers.cancel(group.patience_timer);
    group.patience_timer = state.timers.add(due_ms, group);
  }
  return returning;
}

/** Sets how many instances a group wants of the node. */
export function want(state: PoolState, group: Group, wanted: number): void {
  const more = wanted - group.wanted_count;
  if (more !== 0) {
    state.wanted_count += more;
    group.class.wanted_count += more;
    recount(state, group.class);
    group.owner?.noteGranted(group, more);
    group.wanted_count = wanted;
    setHungry(state, group);
  }
  if (wanted > 0 && group.queue.depth > 0) state.nested.add(group);
  else state.nested.delete(group);
}

/** Lets a group wait for its turn on the node and in its class, or in neither. */
function setHungry(state: PoolState, group: Group): void {
  const { hungry } = group.class;
  if (group.wanted_count > 0) {
    state.hungry.add(group);
    hungry.add(group);
  } else {
    state.hungry.delete(group);
    hungry.delete(group);
  }
}

/** Enters the idle instances that the minimum does not need into the node's order of eviction and sets their timers. */
function releaseIdle(state: PoolState, group: Group): void {
  if (group.needed_idle_count === 0 || isNeeded(group)) return;
  if (group.needed_idle_count === 1 && group.idle.last?.value.unneeded_link.list === null) {
    // The usual case: the one that has just become ready.
    release(state, group, group.idle.last.value, true);
    return;
  }
  // From the newest to the oldest, each to the front, so that the oldest goes first. Only after a change of the
  // group's size or minimum, never per call.
  for (let link = group.idle.last; link !== null; link = link.prev) {
    if (delist(state, group, link.value)) enlist(state, group, link.value, false);
    else release(state, group, link.value, false);
  }
}

function release(state: PoolState, group: Group, instance: Instance, isNewest: boolean): void {
  enlist(state, group, instance, isNewest);
  group.needed_idle_count -= 1;
  const due_ms = state.now_ms + keepAliveMs(group, group.arrivals);
  if (instance.timer === null || instance.timer.due_ms > due_ms) armInstance(state, instance, due_ms);
}

function enlist(state: PoolState, group: Group, instance: Instance, isNewest: boolean): void {
  if (isNewest) state.unneeded.push(instance.unneeded_link);
  else state.unneeded.unshift(instance.unneeded_link);
  if (group.owner === null) return;
  group.owner.enlist(group, instance, isNewest);
  if (group.owner.isAwaited) state.stirred.add(group.owner);
}

function delist(state: PoolState, group: Group, instance: Instance): boolean {
  if (!state.unneeded.remove(instance.unneeded_link)) return false;
  group.owner?.delist(group, instance);
  return true;
}

/** Takes an idle instance out of the order of eviction: the minimum needs it. */
export function retain(state: PoolState, instance: Instance): void {
  const { group } = instance;
  if (group !== null && delist(state, group, instance)) group.needed_idle_count += 1;
}

export function armInstance(state: PoolState, instance: Instance, due_ms: number): void {
  state.timers.cancel(instance.timer);
  instance.timer = state.timers.add(due_ms, instance);
}
