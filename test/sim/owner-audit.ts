/**
 * Compares what the scheduler keeps of owners with limits (O1 to O4 of `pool/records.ts`, U1 and U3 of `pool/quotas.ts`)
 * with the model after a step, made again from the groups and instances as `audit.ts` counted them.
 */

import type { PoolEvent } from "../../pool/protocol.ts";
import type { Counts, Group, Owner } from "../../pool/records.ts";
import type { PoolState } from "../../pool/states.ts";
import { invariant } from "../../src/base/errors.ts";
import type { Coverage } from "./coverage.ts";
import type { Model } from "./model.ts";
import type { ModelOwner, Taken } from "./owners.ts";

function liveOf({ warming, ready, busy, recycling }: Counts): number {
  return warming + ready + busy + recycling;
}

/** The counts of the other audits. */
interface Counted {
  /** A group as its instances are. */
  readonly countsOf: (group: string) => Counts;
  readonly startsFree: (group: Group) => number;
  /** Instances that all groups want and no cell or spare start is there for. */
  readonly unmet: () => number;
}

export class OwnerAudit {
  readonly #state: PoolState;
  readonly #model: Model;
  readonly #coverage: Coverage;
  readonly #counted: Counted;

  constructor(state: PoolState, model: Model, coverage: Coverage, counted: Counted) {
    this.#state = state;
    this.#model = model;
    this.#coverage = coverage;
    this.#counted = counted;
  }

  compare(event: PoolEvent): void {
    const { owners } = this.#state;
    const model = this.#model.owners;
    invariant(owners.size === model.size, `O1: ${owners.size} owners have limits, not ${model.size}`);
    // Where nobody has limits, these alone change whom a group counts for.
    if (owners.size === 0 && event.type !== "owner_set" && event.type !== "group_set") return;
    for (const group of this.#state.groups.values()) this.#compareGroup(group);
    for (const [key, owner] of owners) {
      const expected = model.get(key);
      invariant(expected !== undefined, `O1: ${key} has no limits`);
      const taken = this.#compareCounts(owner, expected);
      this.#compareIdle(owner);
      this.#compareBound(owner, expected, taken, event);
      if (!this.#state.is_draining) this.#compareLine(owner, expected, taken);
      expected.taken = taken;
    }
  }

  /** O2, and whom a group counts for. */
  #compareGroup(group: Group): void {
    const name = this.#model.groups.get(group.key)?.owner ?? "";
    const expected = this.#state.owners.get(name) ?? null;
    invariant(group.owner === expected, `O1: ${group.key} counts for ${group.owner?.key}`);
    if (expected === null) return;
    const isShort = group.wanted_count < group.asked_count;
    const isNested = isShort && group.queue.depth > 0;
    invariant(expected.nested.has(group) === isNested, `O2: ${group.key} is in the wrong line`);
    invariant(expected.barred.has(group) === (isShort && !isNested), `O2: ${group.key} is in the wrong line`);
  }

  /** O1. Answers what is taken, live or granted. */
  #compareCounts(owner: Owner, model: ModelOwner): Taken {
    const { key } = owner;
    const isSame = owner.instances_max === model.instances_max && owner.memory_mb_max === model.memory_mb_max;
    invariant(isSame, `O1: the limits of ${key} differ`);
    const live = { count: 0, mb: 0 };
    const granted = { count: 0, mb: 0 };
    let groups = 0;
    let lined = 0;
    for (const [name, { owner: whose, memory_mb }] of this.#model.groups) {
      if (whose !== key) continue;
      const group = this.#state.groups.get(name);
      const count = liveOf(this.#counted.countsOf(name));
      const wanted = group?.wanted_count ?? 0;
      live.count += count;
      live.mb += count * memory_mb;
      granted.count += wanted;
      granted.mb += wanted * memory_mb;
      groups += 1;
      if (wanted < (group?.asked_count ?? 0)) lined += 1;
      invariant(owner.largest_mb >= memory_mb, `O3: the largest instance of ${key} is larger`);
    }
    invariant(owner.largest_mb <= model.largest_mb, `O3: the largest instance of ${key} is smaller`);
    invariant(owner.groups.size === groups, `O1: ${key} has ${owner.groups.size} groups, not ${groups}`);
    invariant(owner.nested.size + owner.barred.size === lined, `O2: a group that is gone stands in line for ${key}`);
    const isCounted = owner.live_count === live.count && owner.live_mb === live.mb;
    invariant(isCounted, `O1: ${key} has ${owner.live_count} instances of ${owner.live_mb} MB, not ${live.count}`);
    const isGranted = owner.granted_count === granted.count && owner.granted_mb === granted.mb;
    invariant(isGranted, `O1: ${key} is granted ${owner.granted_count} starts, not ${granted.count}`);
    return { count: live.count + granted.count, mb: live.mb + granted.mb };
  }

  /** O4. */
  #compareIdle(owner: Owner): void {
    let listed = 0;
    let mb = 0;
    for (const instance of this.#state.unneeded) {
      const group = this.#model.groups.get(instance.group?.key ?? "");
      if (group?.owner !== owner.key) continue;
      const list = group.is_superseded ? owner.superseded : owner.unneeded;
      invariant(instance.owner_link.list === list, `O4: ${instance.id} is not listed for ${owner.key}`);
      listed += 1;
      mb += group.memory_mb;
    }
    invariant(owner.idle_count === listed, `O4: ${owner.idle_count} idle instances are listed for ${owner.key}`);
    invariant(owner.idle_mb === mb, `O4: the idle memory of ${owner.key} is ${owner.idle_mb}, not ${mb}`);
  }

  /** O3: nothing is above the limits but for the depth of the deepest call, and what was there before. */
  #compareBound(owner: Owner, model: ModelOwner, taken: Taken, event: PoolEvent): void {
    const { key } = owner;
    const { deepest } = model;
    const beyond_mb = deepest * Math.min(owner.largest_mb, model.memory_mb_max);
    const bound = { count: model.instances_max + deepest, mb: model.memory_mb_max + beyond_mb };
    const isLowered = taken.count > bound.count || taken.mb > bound.mb;
    if (event.type === "owner_set" && event.owner === key && isLowered) {
      for (const group of owner.groups) {
        invariant(
          this.#counted.countsOf(group.key).ready === 0,
          `O3: ${key} has more than it may, and ${group.key} stands idle`,
        );
      }
      this.#coverage.note("owner", "lowered below what is there");
    }
    // Instances may have come to the owner with their group, or with its limits.
    if (event.type === "group_set" || event.type === "owner_set") return;
    const count_max = Math.max(model.taken.count, bound.count);
    const mb_max = Math.max(model.taken.mb, bound.mb);
    invariant(taken.count <= count_max, `O3: ${key} has ${taken.count} instances and may have ${count_max}`);
    invariant(taken.mb <= mb_max, `O3: ${key} has ${taken.mb} MB and may have ${mb_max}`);
    const isAbove = taken.count > model.instances_max || taken.mb > model.memory_mb_max;
    if (isAbove && taken.count > model.taken.count) this.#coverage.note("nested", "beyond the owner's limits");
  }

  /** U1 and U3. */
  #compareLine(owner: Owner, model: ModelOwner, taken: Taken): void {
    const isPlain = model.memory_mb_max === Number.POSITIVE_INFINITY && model.deepest === 0;
    if (model.yielded_count > 0 && isPlain && this.#model.evicted_count === 0) {
      invariant(taken.count >= model.instances_max, `U3: instances of ${owner.key} go and nobody gets their room`);
    }
    if (!owner.isAwaited) return;
    this.#coverage.note("owner", "full");
    const idle = this.#evictable(owner);
    const without = { count: taken.count - idle.count, mb: taken.mb - idle.mb };
    for (const group of [...owner.nested, ...owner.barred]) {
      const { memory_mb = 1 } = this.#model.groups.get(group.key) ?? {};
      const depth = this.#model.groups.get(group.key)?.depth() ?? 0;
      invariant(model.room(memory_mb, 0, taken) <= 0, `U1: ${group.key} waits while ${owner.key} has room`);
      invariant(model.room(memory_mb, depth, taken) <= 0, `U1: a nested call of ${group.key} gets no level`);
      const canYield = model.room(memory_mb, 0, without) > 0;
      const isPassedOver = this.#counted.unmet() > 0 && owner.granted_count === 0;
      invariant(
        !canYield || (this.#counted.startsFree(group) <= 0 && !isPassedOver),
        `U1: ${group.key} waits beside idle instances of ${owner.key}`,
      );
    }
  }

  /** Idle instances of an owner that no minimum needs. */
  #evictable(owner: Owner): Taken {
    const idle = { count: 0, mb: 0 };
    for (const [name, { owner: whose, min_instances, memory_mb }] of this.#model.groups) {
      if (whose !== owner.key) continue;
      const counts = this.#counted.countsOf(name);
      const count = Math.max(0, Math.min(counts.ready, liveOf(counts) - min_instances));
      idle.count += count;
      idle.mb += count * memory_mb;
    }
    return idle;
  }

  /** Everything is quiet: no owner has more than it may. Answers those whose limits hold the minimums of all their groups. */
  compareRest(): Set<string> {
    const holding = new Set<string>();
    for (const [key, owner] of this.#model.owners) {
      const needed = { count: 0, mb: 0 };
      for (const group of this.#model.groups.values()) {
        if (group.owner !== key || group.dropped !== null) continue;
        needed.count += group.min_instances;
        needed.mb += group.min_instances * group.memory_mb;
      }
      invariant(owner.taken.count <= owner.instances_max, `O3: ${key} stays above its instances`);
      invariant(owner.taken.mb <= owner.memory_mb_max, `O3: ${key} stays above its memory`);
      if (needed.count <= owner.instances_max && needed.mb <= owner.memory_mb_max) holding.add(key);
    }
    return holding;
  }
}
