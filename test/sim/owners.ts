/** What the model of the pool (`model.ts`) keeps of owners: those with limits, and what these mean. */
import type { PoolEvent } from "../../pool/protocol.ts";
import type { ModelGroup } from "./records.ts";

export interface Taken {
  readonly count: number;
  readonly mb: number;
}

/** What the groups of an owner may be together; `Infinity` where nothing is set. */
export class ModelOwner {
  instances_max = Number.POSITIVE_INFINITY;
  memory_mb_max = Number.POSITIVE_INFINITY;
  /** The most that an instance of its groups has ever counted, since it has limits. */
  largest_mb = 0;
  /** Before the step, as `owner-audit.ts` counted it. */
  taken: Taken = { count: 0, mb: 0 };
  /** The deepest call that waited for a group of it when the step began, or came in it. */
  deepest = 0;
  /** Of the step: idle instances that went for the room of another group. */
  yielded_count = 0;

  /** For how many instances of so much memory it has room, beside so many with so much, for a call so deep. */
  room(memory_mb: number, depth: number, taken: Taken): number {
    const beyond_mb = depth * Math.min(this.largest_mb, this.memory_mb_max);
    const free_mb = this.memory_mb_max + beyond_mb - taken.mb;
    return Math.min(this.instances_max + depth - taken.count, Math.floor(free_mb / memory_mb));
  }
}

export class ModelOwners extends Map<string, ModelOwner> {
  of(group: ModelGroup | undefined): ModelOwner | null {
    return this.get(group?.owner ?? "") ?? null;
  }

  /** Whether not one instance of the group is within its owner's limits. */
  isBeyondQuota(group: ModelGroup): boolean {
    const owner = this.of(group);
    return owner !== null && owner.room(group.memory_mb, 0, { count: 0, mb: 0 }) < 1;
  }

  /** Before a step. */
  begin(groups: Iterable<ModelGroup>): void {
    for (const owner of this.values()) {
      owner.deepest = 0;
      owner.yielded_count = 0;
    }
    for (const group of groups) this.note(group);
  }

  /** After a group, or who waits for it, has changed. */
  note(group: ModelGroup): void {
    const owner = this.of(group);
    if (owner === null) return;
    owner.deepest = Math.max(owner.deepest, group.deepest);
    owner.largest_mb = Math.max(owner.largest_mb, group.memory_mb);
  }

  limit(event: PoolEvent & { type: "owner_set" }, groups: Iterable<ModelGroup>): void {
    const { owner: key, instances_max, memory_mb_max } = event;
    if (instances_max === null && memory_mb_max === null) {
      this.delete(key);
      return;
    }
    const owner = this.get(key) ?? new ModelOwner();
    owner.instances_max = instances_max ?? Number.POSITIVE_INFINITY;
    owner.memory_mb_max = memory_mb_max ?? Number.POSITIVE_INFINITY;
    this.set(key, owner);
    for (const group of groups) if (group.owner === key) this.note(group);
  }
}
