/**
 * Free places of a group's busy instances: intrusive lists by level and load. Joining, leaving and the choice of an
 * instance cost a constant; its bound is the number of levels and of loads, never the number of instances.
 *
 * F1. An instance is listed while it is busy, takes calls, and has fewer than its group's concurrency.
 * F2. A call joins instances of its own level and above it (a depth that is not greater than its own). Others only while
 *     no bound has an instance too many for it. So each level of a chain keeps an instance that calls above it cannot
 *     fill, and no chain waits for itself (`boundAt` in `policy.ts`).
 */
import { LIMITS } from "../src/base/limits.ts";
import { type Link, List } from "./queue.ts";

/** Instances of one level, by load. */
class Loads<T> {
  readonly lists: List<T>[] = [];
  /** All lists below it are empty. */
  least = 0;
}

export class Places<T> {
  /** Instances with a free place. */
  size = 0;
  readonly #levels: Loads<T>[] = [];

  add(link: Link<T>, level: number, load: number): void {
    while (this.#levels.length <= level) this.#levels.push(new Loads());
    const loads = this.#levels[level];
    if (loads === undefined) return;
    while (loads.lists.length <= load) loads.lists.push(new List());
    loads.lists[load]?.push(link);
    loads.least = Math.min(loads.least, load);
    this.size += 1;
  }

  /** Removes an instance if it is listed. */
  remove(link: Link<T>): void {
    if (link.list?.remove(link) === true) this.size -= 1;
  }

  /**
   * Returns the least loaded instance of the lowest level that has one, up to a level; of equal loads the one that was
   * listed last. Instances above the bounds thus take calls only while the others are full, so that they empty.
   */
  least(level_max: number = LIMITS.chain_depth_max): T | null {
    if (this.size === 0) return null;
    for (let level = 0; level <= level_max; level++) {
      const loads = this.#levels[level];
      if (loads === undefined) return null;
      while (loads.least < loads.lists.length) {
        const last = loads.lists[loads.least]?.last ?? null;
        if (last !== null) return last.value;
        loads.least += 1;
      }
    }
    return null;
  }
}
