/**
 * Hot path, for the groups of tenants with limits alone. The record of an owner: what the instances of its groups take
 * together, which of its groups stand in line for room, and which of its idle instances goes first. What is done about
 * it is `quotas.ts`'s, what the limits mean `policy.ts`'s.
 *
 * O1. What is live equals the sum over the instances of its groups, those on their way out left aside; what is granted
 *     the sum over what its groups want.
 * O2. `nested` and `barred` hold exactly those of its groups that ask for more than they are granted, in the order of
 *     their turns: `nested` those in whose queue a nested call waits.
 * O3. What is taken, live or granted, grows within the limits only, or by one instance a level of a chain.
 * O4. `superseded` and `unneeded` hold the instances of its groups that are in the node's `unneeded`.
 */
import { boundAt, memoryBoundAt, type Quota, quotaReason, quotaRoom } from "./policy.ts";
import type { OwnerLimits } from "./protocol.ts";
import { List } from "./queue.ts";
import type { Group, Instance } from "./states.ts";

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

  // What is taken

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

  /** For how many more instances of the group there is room, for a call so deep in a chain. */
  roomFor(group: Group, depth: number): number {
    return quotaRoom(this, this.taken, { memory_mb: group.memory_mb, depth });
  }

  /** … once so many idle instances with so much memory are gone. */
  roomWithout(group: Group, idle: { readonly count: number; readonly mb: number }): number {
    const { count, mb } = this.taken;
    return quotaRoom(this, { count: count - idle.count, mb: mb - idle.mb }, { memory_mb: group.memory_mb, depth: 0 });
  }

  /** Whether there is an instance too many for a call so deep in a chain. */
  isBeyond(depth: number): boolean {
    return this.live_count > boundAt(depth, this.instances_max) || this.live_mb > memoryBoundAt(depth, this);
  }

  /** Why not one instance of the group can ever be had; null where it can. */
  refusalOf(group: Group): string | null {
    return quotaReason(this, group.memory_mb, 1);
  }

  // Who stands in line

  get isAwaited(): boolean {
    return this.nested.size > 0 || this.barred.size > 0;
  }

  /** Whether another group than this stands in line. */
  isAwaitedBeside(group: Group): boolean {
    const own_count = this.nested.has(group) || this.barred.has(group) ? 1 : 0;
    return this.nested.size + this.barred.size > own_count;
  }

  /** What a group keeps of what it was granted: what it still asks for, and what its present depth still allows. */
  keptOf(group: Group): number {
    const held = group.wanted_count;
    if (held === 0) return 0;
    return Math.max(0, Math.min(group.asked_count, held, held + this.roomFor(group, group.queue.depth)));
  }

  /** Lets a group stand in line, at the end where it has not stood before, or not. */
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

  // Who goes first

  get idle_count(): number {
    return this.superseded.size + this.unneeded.size;
  }

  /** In the order in which they go. */
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
