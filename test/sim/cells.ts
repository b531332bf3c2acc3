/**
 * The classes in the model of the pool, from the events and effects alone: the need of each owner for each class, and
 * the cells that a class has to get for it.
 */
import { invariant } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";

/** A demand grows by this with each need. Halving rounds it down. */
const NEED = 4;

interface Claim {
  readonly class: string;
  /** Null if the cell was adopted, or its group has no owner. */
  readonly owner: string | null;
  demand: number;
}

/** Cells that an owner asks for beyond the floor, its latest claim first. */
interface Asking {
  readonly owner: string | null;
  readonly classes: { readonly key: string; readonly asked: number; readonly covered: number }[];
}

/** Deals out cells one by one: each to who has the fewest so far and asks for more, the first of them. */
function deal(count: number, asked: readonly number[]): number[] {
  const dealt = asked.map(() => 0);
  for (let left = count; left > 0; left--) {
    let next = -1;
    for (const [i, most] of asked.entries()) {
      const has = dealt[i] ?? 0;
      if (has < most && (next < 0 || has < (dealt[next] ?? 0))) next = i;
    }
    if (next < 0) break;
    dealt[next] = (dealt[next] ?? 0) + 1;
  }
  return dealt;
}

export class ModelCells {
  /** The class with a floor, which also gets the cells that no claim asks for. */
  readonly fallback: string;
  /** Until it is set, adopted cells are kept and none is started. */
  target: number | null = null;
  /** Raised by every change of what is asked for. */
  version = 0;
  /** By class and owner, the one that was renewed last at the end. */
  readonly #claims = new Map<string, Claim>();
  #halved_ms = Number.POSITIVE_INFINITY;
  /** Cells that the claims of `#asked_version` ask for, by class. */
  #asked = new Map<string, number>();
  #asked_sum = 0;
  #asked_version = -1;

  constructor(fallback: string) {
    this.fallback = fallback;
  }

  /** Before a step. */
  begin(now_ms: number): void {
    if (now_ms < this.#halved_ms) return;
    this.version += 1;
    for (const [key, claim] of this.#claims) {
      claim.demand = Math.floor(Math.min(claim.demand, NEED * (this.target ?? 0)) / 2);
      if (claim.demand === 0) this.#claims.delete(key);
    }
    this.#halved_ms = this.#claims.size === 0 ? Number.POSITIVE_INFINITY : now_ms + LIMITS.cell_demand_ms;
  }

  setTarget(target: number): void {
    this.version += 1;
    this.target = target;
  }

  /** An instance is bound to a group of the class, or a cell of it adopted. */
  need(of: string, owner: string | null, now_ms: number, devices = 0): void {
    // Cells would hold devices.
    if (devices > 0) return;
    this.version += 1;
    const key = `${of}/${owner}`;
    const claim = this.#claims.get(key) ?? { class: of, owner, demand: 0 };
    claim.demand += NEED;
    this.#claims.delete(key);
    this.#claims.set(key, claim);
    if (this.#halved_ms === Number.POSITIVE_INFINITY) this.#halved_ms = now_ms + LIMITS.cell_demand_ms;
  }

  /** Nobody has a group of the class. */
  drop(of: string): void {
    if (of === this.fallback) return;
    this.version += 1;
    for (const [key, claim] of this.#claims) if (claim.class === of) this.#claims.delete(key);
  }

  /** By class, what all owners ask for; classes without claims are left out. */
  get asked(): ReadonlyMap<string, number> {
    if (this.#asked_version === this.version) return this.#asked;
    this.#asked_version = this.version;
    this.#asked = new Map();
    this.#asked_sum = 0;
    for (const claim of this.#claims.values()) {
      const count = this.#askedOf(claim);
      this.#asked_sum += count;
      this.#asked.set(claim.class, (this.#asked.get(claim.class) ?? 0) + count);
    }
    return this.#asked;
  }

  #askedOf({ demand }: Claim): number {
    return Math.min(this.target ?? 0, Math.ceil(demand / NEED));
  }

  /**
   * K1 and K3: holds shares that are not zero against what they have to be, whatever the way in which they were found.
   * Answers whether owners were short of cells beside each other.
   */
  check(shares: ReadonlyMap<string, number>): boolean {
    const target = this.target ?? 0;
    const floor = target < 2 ? 0 : Math.max(1, Math.floor(target / 4));
    const share_of = (key: string): number => shares.get(key) ?? 0;
    for (const key of shares.keys()) {
      invariant(this.asked.has(key) || key === this.fallback, `K2: ${key} has a share and no demand`);
    }
    for (const [key, asked] of this.asked) {
      if (key === this.fallback) continue;
      invariant(share_of(key) <= asked, `K1: ${key} gets ${share_of(key)} cells for ${asked}`);
    }
    const own = share_of(this.fallback);
    invariant(own >= floor, `K1: the default class gets ${own} cells, and its floor is ${floor}`);
    const own_asked = this.asked.get(this.fallback) ?? 0;
    const beyond = this.#asked_sum - Math.min(own_asked, floor);
    if (beyond > target - floor) return this.#checkShort(floor, share_of);
    for (const [key, asked] of this.asked) {
      const isRight = key === this.fallback || share_of(key) === asked;
      invariant(isRight, `K1: ${key} gets ${share_of(key)} cells, and asks for ${asked}`);
    }
    return false;
  }

  #checkShort(floor: number, share_of: (key: string) => number): boolean {
    const owners = this.#owners(floor);
    const sums = owners.map(({ classes }) => classes.reduce((sum, { asked }) => sum + asked, 0));
    const parts = deal((this.target ?? 0) - floor, sums);
    for (const [i, asking] of owners.entries()) this.#checkOwner(asking, parts[i] ?? 0, share_of);
    return owners.length > 1;
  }

  #owners(floor: number): Asking[] {
    const latest = [...this.#claims.values()].reverse();
    const covered = deal(
      floor,
      latest.map((claim) => (claim.class === this.fallback ? this.#askedOf(claim) : 0)),
    );
    const owners = new Map<string | null, Asking>();
    for (const [i, claim] of latest.entries()) {
      const asking = owners.get(claim.owner) ?? { owner: claim.owner, classes: [] };
      owners.set(claim.owner, asking);
      const count = covered[i] ?? 0;
      asking.classes.push({ key: claim.class, asked: this.#askedOf(claim) - count, covered: count });
    }
    return [...owners.values()];
  }

  /** Checks one owner. Other owners may claim the same classes; cells there cannot be attributed to one of them. */
  #checkOwner({ owner, classes }: Asking, part: number, share_of: (key: string) => number): void {
    const isAlone = (key: string): boolean => {
      if (key === this.fallback) return false;
      for (const claim of this.#claims.values()) if (claim.class === key && claim.owner !== owner) return false;
      return true;
    };
    const needed = classes.filter(({ asked }) => asked > 0);
    const had = needed.reduce((sum, { key }) => sum + share_of(key), 0);
    invariant(had >= part, `K3: classes of ${owner} get ${had} cells, and its part is ${part}`);
    const alone = needed.filter(({ key }) => isAlone(key));
    const taken = alone.reduce((sum, { key }) => sum + share_of(key), 0);
    invariant(taken <= part, `K3: ${owner} gets ${taken} cells, and its part is ${part}`);
    for (const { key, covered } of needed.slice(0, part)) {
      invariant(share_of(key) > covered, `K1: ${key} gets no cell beyond ${covered}, and was needed last`);
    }
    for (const { key, asked } of alone) {
      const share = share_of(key);
      const greedy = alone.find((other) => other.asked < asked && share_of(other.key) > Math.max(1, share));
      invariant(greedy === undefined, `K1: ${greedy?.key} gets more cells than ${key}, and asks for less`);
    }
  }
}
