/**
 * A doubly linked list whose links belong to the members: joining, leaving from the middle and both ends
 * cost the same small constant. Used for the calls that wait for a group, for idle instances (a stack per group, and
 * their order of last use on the node) and for the dispatch gate. Bounds are kept by whoever adds.
 *
 * Q1. A link is in at most one list at a time.
 */

import { invariant } from "../src/base/errors.ts";
import { LIMITS } from "../src/base/limits.ts";

export class Link<T> {
  readonly value: T;
  list: List<T> | null = null;
  prev: Link<T> | null = null;
  next: Link<T> | null = null;

  constructor(value: T) {
    this.value = value;
  }
}

export class List<T> {
  size = 0;
  first: Link<T> | null = null;
  last: Link<T> | null = null;

  /** Adds at the end. */
  push(link: Link<T>): void {
    invariant(link.list === null, "Q1: a link is already in a list");
    link.list = this;
    link.prev = this.last;
    if (this.last === null) this.first = link;
    else this.last.next = link;
    this.last = link;
    this.size += 1;
  }

  /** Adds at the front. */
  unshift(link: Link<T>): void {
    invariant(link.list === null, "Q1: a link is already in a list");
    link.list = this;
    link.next = this.first;
    if (this.first === null) this.last = link;
    else this.first.prev = link;
    this.first = link;
    this.size += 1;
  }

  /** Takes the link out. A link that is not in this list is left alone. */
  remove(link: Link<T>): boolean {
    if (link.list !== this) return false;
    if (link.prev === null) this.first = link.next;
    else link.prev.next = link.next;
    if (link.next === null) this.last = link.prev;
    else link.next.prev = link.prev;
    link.list = null;
    link.prev = null;
    link.next = null;
    this.size -= 1;
    return true;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let link = this.first; link !== null; ) {
      // Read before the yield: the receiver may take this link out.
      const next: Link<T> | null = link.next;
      yield link.value;
      link = next;
    }
  }
}

/** A queue with levels: the deepest level first, first in first out within one. */
export class LevelQueue<T> {
  size = 0;
  readonly #levels: List<T>[] = [new List()];

  /** The link that is next; null when the queue is empty. */
  get first(): Link<T> | null {
    for (let level = this.#levels.length - 1; level >= 0; level--) {
      const first = this.#levels[level]?.first ?? null;
      if (first !== null) return first;
    }
    return null;
  }

  /** The deepest level on which somebody waits; 0 for an empty queue. */
  get depth(): number {
    for (let level = this.#levels.length - 1; level > 0; level--) {
      if ((this.#levels[level]?.size ?? 0) > 0) return level;
    }
    return 0;
  }

  push(link: Link<T>, level: number): void {
    invariant(level >= 0 && level <= LIMITS.chain_depth_max, `no level ${level} in a queue`);
    while (this.#levels.length <= level) this.#levels.push(new List());
    this.#levels[level]?.push(link);
    this.size += 1;
  }

  remove(link: Link<T>, level: number): void {
    if (this.#levels[level]?.remove(link) === true) this.size -= 1;
  }

  *[Symbol.iterator](): Generator<T> {
    for (const level of [...this.#levels].reverse()) yield* level;
  }
}
