/**
 * Groups in turns: owners take turns, and so do the groups of each owner. An owner with many groups delays the others no
 * more than one with a single group.
 *
 * T1. `next` is the first group of the first owner. A turn moves both to the end.
 * T2. Groups without an owner count as groups of one.
 */
export interface Member {
  readonly policy: { readonly owner?: string | null };
}

export class Turns<Group extends Member> {
  readonly #owners = new Map<string | null, Set<Group>>();
  /** The owner that each group joined with: its policy may name another one since. */
  readonly #joined = new Map<Group, string | null>();

  get size(): number {
    return this.#joined.size;
  }

  get next(): Group | null {
    for (const groups of this.#owners.values()) {
      for (const group of groups) return group;
    }
    return null;
  }

  has(group: Group): boolean {
    return this.#joined.has(group);
  }

  /** Adds a group as the last of its owner. A group that is there keeps its place. */
  add(group: Group): void {
    if (this.#joined.has(group)) return;
    const owner = group.policy.owner ?? null;
    const groups = this.#owners.get(owner) ?? new Set();
    this.#owners.set(owner, groups.add(group));
    this.#joined.set(group, owner);
  }

  delete(group: Group): void {
    const owner = this.#joined.get(group);
    if (owner === undefined) return;
    this.#joined.delete(group);
    const groups = this.#owners.get(owner);
    groups?.delete(group);
    if (groups?.size === 0) this.#owners.delete(owner);
  }

  /** Ends the turn of a group, which may have left by then: its owner and the group go to the end. */
  pass(group: Group): void {
    const owner = this.#joined.get(group) ?? group.policy.owner ?? null;
    const groups = this.#owners.get(owner);
    if (groups === undefined) return;
    this.#owners.delete(owner);
    this.#owners.set(owner, groups);
    if (groups.delete(group)) groups.add(group);
  }

  [Symbol.iterator](): IterableIterator<Group> {
    return this.#joined.keys();
  }
}
