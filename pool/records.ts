/**
 * The records of the pool: instances, their classes, calls that wait, groups, owners, and the reserve of cells. Only
 * the functions of states.ts change an instance's state; what the limits of an owner mean is `policy.ts`'s.
 *
 * O1. What is live of an owner equals the sum over the instances of its groups, those on their way out left aside; what is
 *     granted the sum over what its groups want.
 * O2. `nested` and `barred` hold exactly those of its groups that ask for more than they are granted, in the order of
 *     their turns: `nested` those in whose queue a nested call waits.
 * O3. What is taken, live or granted, grows within the limits only, or by one instance a level of a chain.
 * O4. `superseded` and `unneeded` hold the instances of its groups that are in the node's `unneeded`.
 */
import { machine } from "../src/base/state-machine.ts";
import { Places } from "./places.ts";
import {
  boundAt,
  type EffectivePolicy,
  effectivePolicy,
  memoryBoundAt,
  type Quota,
  quotaReason,
  quotaRoom,
} from "./policy.ts";
import type { DropReason, GroupPolicy, OwnerLimits, RemoveReason } from "./protocol.ts";
import { LevelQueue, Link, List } from "./queue.ts";
import { Arrivals } from "./tallies.ts";
import type { Timer } from "./timers.ts";
import { Turns } from "./turns.ts";

export type InstanceState =
  | "starting"
  | "cell"
  | "specialising"
  | "ready"
  | "busy"
  | "recycling"
  | "terminating"
  | "gone";

export type InstanceVerb = "rest" | "bind" | "settle" | "assign" | "finish" | "end" | "vanish";

/** An instance's life. `specialising` is a started instance being bound to a group before any call is there. */
export const INSTANCE_MACHINE = machine<InstanceState, InstanceVerb>("instance", "starting", {
  starting: { rest: "cell", bind: "specialising", assign: "busy", end: "terminating" },
  cell: { bind: "specialising", assign: "busy", end: "terminating" },
  specialising: { settle: "ready", assign: "busy", end: "terminating" },
  ready: { assign: "busy", end: "terminating" },
  busy: { finish: "recycling", end: "terminating" },
  recycling: { settle: "ready", assign: "busy", end: "terminating" },
  terminating: { vanish: "gone" },
  gone: {},
});

export class Instance {
  readonly kind = "instance";
  readonly id: string;
  readonly class: PoolClass;
  /** Changed by `move` only (S1). */
  state: InstanceState = "starting";
  group: Group | null;
  /** True once the instance has been ready for its group, or finished a call: from then on its calls are warm. */
  was_ready = false;
  /** True if it was a ready cell when its first call took it. */
  was_cell = false;
  /** Calls in flight, above 0 while busy alone. Changed by `takeCall`, `endCall` and `move` only (S6). */
  running_count = 0;
  /** Calls in cleanup while others are in flight, or were: the time of their end, oldest first. Null until there is one. */
  cleaning: Map<number, number> | null = null;
  /** The least depth of calls that may join while the bounds hold fewer instances than there are (F2). */
  level = 0;
  /** The reason for which it takes no more calls and is removed after its last one; null if it takes calls. */
  closing: RemoveReason | null = null;
  /** The time from which it takes none. */
  closing_ms = 0;
  /** Start of the present state. */
  since_ms: number;
  /** One timer for keep-alive, for a stuck clean-up and for the end of one that closes. It may fire early and is then set again, so that a call costs no timer. */
  timer: Timer<Subject> | null = null;
  /** In `group.idle` while ready, in `class.cells` while a cell. */
  readonly rest_link: Link<Instance> = new Link(this);
  /** In `group.places` while busy with a free place. */
  readonly place_link: Link<Instance> = new Link(this);
  /** In `state.unneeded`. */
  readonly unneeded_link: Link<Instance> = new Link(this);
  /** Beside it, in a list of the group's owner. */
  readonly owner_link: Link<Instance> = new Link(this);

  constructor(id: string, of: PoolClass, group: Group | null, now_ms: number) {
    this.id = id;
    this.class = of;
    this.group = group;
    this.since_ms = now_ms;
  }

  /** True from the moment the instance is specialised for its group. */
  get isBound(): boolean {
    return this.state !== "starting" && this.state !== "cell";
  }

  /** Places that are taken, by calls in flight and in cleanup. */
  get load(): number {
    return this.running_count + (this.cleaning === null ? 0 : this.cleaning.size);
  }

  /** Places that are about to be free beside calls in flight. */
  get cleaning_count(): number {
    return this.cleaning === null || this.state !== "busy" || this.closing !== null ? 0 : this.cleaning.size;
  }
}

/** A call that waits. Calls that run are the driver's. */
export class Call {
  readonly kind = "call";
  readonly id: number;
  readonly group: Group;
  readonly arrived_ms: number;
  readonly deadline_ms: number;
  readonly depth: number;
  readonly link: Link<Call> = new Link(this);
  timer: Timer<Subject> | null = null;

  constructor(id: number, group: Group, arrived_ms: number, deadline_ms: number, depth: number) {
    this.id = id;
    this.group = group;
    this.arrived_ms = arrived_ms;
    this.deadline_ms = deadline_ms;
    this.depth = depth;
  }
}

export class Counts {
  warming = 0;
  ready = 0;
  busy = 0;
  recycling = 0;
  terminating = 0;
  /** Node only: cells, and starts without a group. */
  cell = 0;
  spare = 0;
}

/** Instances of one image, runtime and engine options. They serve groups of their own class only. */
export class PoolClass {
  readonly key: string;
  /** The one that came last at the end. */
  readonly cells = new List<Instance>();
  /** Starts that are meant for no group. */
  readonly spares = new Set<Instance>();
  /** Groups of the class that are in `state.hungry`, with turns of their own. */
  readonly hungry = new Turns<Group>();
  /** Groups of the class with waiting calls and earmarked starts. */
  readonly expecting = new Set<Group>();
  /** Owners that have idle instances to end for groups of the class in line, once there are starts for them. */
  readonly delayed = new Set<Owner>();
  /** Sum of `wanted_count` over its groups. */
  wanted_count = 0;
  /** Instances that the groups want beyond the cells and spare starts of the class. */
  unmet_count = 0;
  /** Groups and instances of the class. */
  member_count = 0;
  /** The cells that the class gets for the claims on it (`demand.ts`). */
  share = 0;
  taken_ms = Number.NEGATIVE_INFINITY;
  /** Failed starts of cells in a row. */
  failures = 0;
  retry_at_ms = 0;
  cell_hit_count = 0;
  cell_miss_count = 0;
  /** Devices that each instance holds. A class with devices has no cells. */
  devices = 0;

  constructor(key: string) {
    this.key = key;
  }

  /** Cells, and those that are being started. */
  get stock(): number {
    return this.cells.size + this.spares.size;
  }
}

export class Group {
  readonly kind = "group";
  readonly key: string;
  readonly class: PoolClass;
  policy: EffectivePolicy;
  dropped: DropReason | null = null;
  /** A superseded version. */
  is_retired = false;
  readonly counts = new Counts();
  readonly queue = new LevelQueue<Call>();
  readonly idle = new List<Instance>();
  /** Busy instances with a free place. */
  readonly places = new Places<Instance>();
  readonly members = new Set<Instance>();
  /** Earmarked starts. */
  readonly starting = new Set<Instance>();
  /** The owner whose limits the group counts for; null if the owner has no limits. */
  owner: Owner | null = null;
  asked_count = 0;
  wanted_count = 0;
  /** Idle instances that are not in `state.unneeded`. */
  needed_idle_count = 0;
  start_failures = 0;
  warm_failures = 0;
  warm_retry_at_ms = 0;
  warm_timer: Timer<Subject> | null = null;
  /** Set while the queue counts on instances in cleanup. It may fire early and is then set again. */
  patience_timer: Timer<Subject> | null = null;
  last_error: string | null = null;
  /** The group starts nothing until then: devices are missing (V3 in `devices.ts`). */
  lacking_until_ms = 0;
  lacking_timer: Timer<Subject> | null = null;
  /** Position among all settings of groups: the one that was set last has the highest. */
  order = 0;
  /** Calls in flight. */
  calls_running = 0;
  /** Sum of `cleaning_count` over its instances. */
  cleaning_count = 0;
  readonly arrivals = new Arrivals();
  service_ms = 0;
  /** A time that most calls take at least, for the prediction of waits. */
  least_service_ms = 0;

  constructor(key: string, of: PoolClass, policy: GroupPolicy) {
    this.key = key;
    this.class = of;
    this.policy = effectivePolicy(policy);
  }

  /** Instances that count toward the maximum. */
  get live_count(): number {
    return this.counts.warming + this.counts.ready + this.counts.busy + this.counts.recycling;
  }

  get min_instances(): number {
    return this.policy.min_instances;
  }

  /** Calls that one instance serves at the same time. */
  get concurrency(): number {
    return this.policy.concurrency;
  }

  /** Memory of one instance that counts for the owner. At least 1, so that an owner without memory left has no room. */
  get memory_mb(): number {
    return Math.max(1, this.policy.memory_mb ?? 0);
  }

  /** Bound on `live_count`: above the policy's maximum while a nested call waits. */
  get live_max(): number {
    return boundAt(this.queue.depth, this.policy.max_instances);
  }

  /** True if the group or its owner has an instance too many for a call at a depth of a chain. */
  isBeyondAt(depth: number): boolean {
    return this.live_count > boundAt(depth, this.policy.max_instances) || this.owner?.isBeyond(depth) === true;
  }

  /** True if the group or its owner has an instance too many for the next call. */
  get isBeyond(): boolean {
    return this.isBeyondAt(this.queue.depth);
  }
}

/** The recent need of the groups of one owner for one class. Adopted cells count for the owner null. */
export interface Claim {
  readonly class: PoolClass;
  readonly owner: string | null;
  demand: number;
}

/** The reserve of cells, which classes share (`reserve.ts`). */
export class Reserve {
  readonly kind = "reserve";
  /** The budget: how many cells all classes share. Until it is set, adopted cells are kept and none is started. */
  target = 0;
  is_open = false;
  /** The class with a floor, which also gets the cells that no claim asks for. */
  readonly fallback: PoolClass;
  /** The fallback and the classes with claims, the one that was needed last at the end. */
  readonly classes = new Set<PoolClass>();
  /** By class and owner, the one that was renewed last at the end. */
  readonly claims = new Map<string, Claim>();
  /** Shares do not follow the demand yet. */
  is_stale = false;
  /** Each class has its share, as far as is known. */
  is_full = true;
  /** Set while a class waits to be refilled. */
  timer: Timer<Subject> | null = null;
  /** Set while there is demand: it is halved then. */
  age_timer: Timer<Subject> | null = null;

  constructor(fallback: PoolClass) {
    this.fallback = fallback;
    this.classes.add(fallback);
  }
}

/** The record that a timer belongs to. */
export type Subject = Instance | Call | Group | Reserve;

/** The share of one tenant: the instances of its groups together, and the groups that wait for room. */
export class Owner implements Quota {
  readonly key: string;
  instances_max = Number.POSITIVE_INFINITY;
  memory_mb_max = Number.POSITIVE_INFINITY;
  /** Never falls: what a level of a chain has beyond the limit must not shrink under the calls that run by it. */
  largest_mb = 0;
  readonly groups = new Set<Group>();
  live_count = 0;
  live_mb = 0;
  granted_count = 0;
  granted_mb = 0;
  readonly nested = new Set<Group>();
  readonly barred = new Set<Group>();
  /** Idle instances of superseded versions, the first to go, and of others; least recently used first. */
  readonly superseded = new List<Instance>();
  readonly unneeded = new List<Instance>();
  /** Memory of the idle instances in the two. */
  idle_mb = 0;

  constructor(key: string) {
    this.key = key;
  }

  limit(limits: OwnerLimits): void {
    this.instances_max = limits.instances_max ?? Number.POSITIVE_INFINITY;
    this.memory_mb_max = limits.memory_mb_max ?? Number.POSITIVE_INFINITY;
  }

  // Instances and memory in use

  noteLive(group: Group, count: number): void {
    this.live_count += count;
    this.live_mb += count * group.memory_mb;
  }

  noteGranted(group: Group, count: number): void {
    this.granted_count += count;
    this.granted_mb += count * group.memory_mb;
  }

  get taken(): { readonly count: number; readonly mb: number } {
    return { count: this.live_count + this.granted_count, mb: this.live_mb + this.granted_mb };
  }

  /** Returns how many more instances of the group there is room for, for a call at a depth of a chain. */
  roomFor(group: Group, depth: number): number {
    return quotaRoom(this, this.taken, { memory_mb: group.memory_mb, depth });
  }

  /** Returns the same for a call from outside, once these idle instances have ended. */
  roomWithout(group: Group, idle: { readonly count: number; readonly mb: number }): number {
    const { count, mb } = this.taken;
    return quotaRoom(this, { count: count - idle.count, mb: mb - idle.mb }, { memory_mb: group.memory_mb, depth: 0 });
  }

  /** True if there is an instance too many for a call at a depth of a chain. */
  isBeyond(depth: number): boolean {
    return this.live_count > boundAt(depth, this.instances_max) || this.live_mb > memoryBoundAt(depth, this);
  }

  /** Returns the reason why the group can never have one instance; null if it can. */
  refusalOf(group: Group): string | null {
    return quotaReason(this, group.memory_mb, 1);
  }

  // Groups that wait for room

  get isAwaited(): boolean {
    return this.nested.size > 0 || this.barred.size > 0;
  }

  /** True if a group other than this one waits for room. */
  isAwaitedBeside(group: Group): boolean {
    const own_count = this.nested.has(group) || this.barred.has(group) ? 1 : 0;
    return this.nested.size + this.barred.size > own_count;
  }

  /** Returns how much of its grant a group keeps: as much as it still asks for and its present depth allows. */
  keptOf(group: Group): number {
    const held = group.wanted_count;
    if (held === 0) return 0;
    return Math.max(0, Math.min(group.asked_count, held, held + this.roomFor(group, group.queue.depth)));
  }

  /** Makes a group that is short of instances wait for room, at the end of the queue if it is new there. Others leave. */
  queueUp(group: Group): void {
    const isShort = group.wanted_count < group.asked_count;
    const isNested = isShort && group.queue.depth > 0;
    if (isNested) this.nested.add(group);
    else this.nested.delete(group);
    if (isShort && !isNested) this.barred.add(group);
    else this.barred.delete(group);
  }

  leaveLine(group: Group): void {
    this.nested.delete(group);
    this.barred.delete(group);
  }

  // Order of eviction

  get idle_count(): number {
    return this.superseded.size + this.unneeded.size;
  }

  /** Idle instances in the order of their eviction. */
  *idle(): Generator<Instance> {
    yield* this.superseded;
    yield* this.unneeded;
  }

  enlist(group: Group, instance: Instance, isNewest: boolean): void {
    const list = group.is_retired ? this.superseded : this.unneeded;
    if (isNewest) list.push(instance.owner_link);
    else list.unshift(instance.owner_link);
    this.idle_mb += group.memory_mb;
  }

  delist(group: Group, instance: Instance): void {
    if (instance.owner_link.list?.remove(instance.owner_link) === true) this.idle_mb -= group.memory_mb;
  }
}
