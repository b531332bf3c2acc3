/**
 * What the model of the pool keeps of classes, from the events and effects alone: the demand of each, and by that the
 * cells that it has to get.
 */
import { invariant } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";

/** What one need adds to a demand, which is halved without its remainder. */
const NEED = 4;

export class ModelCells {
  /** The class that gets what no other one asks for. */
  readonly fallback: string;
  /** Until it is set, adopted cells stand and none is started. */
  target: number | null = null;
  /** Those with demand, the one that was needed last at the end. */
  readonly demand = new Map<string, number>();
  /** Raised by every change of what classes ask for. */
  version = 0;
  #halved_ms = Number.POSITIVE_INFINITY;

  constructor(fallback: string) {
    this.fallback = fallback;
  }

  /** Before a step. */
  begin(now_ms: number): void {
    if (now_ms < this.#halved_ms) return;
    this.version += 1;
    for (const [key, demand] of this.demand) {
      const left = Math.floor(Math.min(demand, NEED * (this.target ?? 0)) / 2);
      if (left === 0) this.demand.delete(key);
      else this.demand.set(key, left);
    }
    this.#halved_ms = this.demand.size === 0 ? Number.POSITIVE_INFINITY : now_ms + LIMITS.cell_demand_ms;
  }

  setTarget(target: number): void {
    this.version += 1;
    this.target = target;
  }

  /** An instance is bound to a group of the class, or a cell of it adopted. */
  need(key: string, now_ms: number): void {
    this.version += 1;
    const demand = this.demand.get(key) ?? 0;
    this.demand.delete(key);
    this.demand.set(key, demand + NEED);
    if (this.#halved_ms === Number.POSITIVE_INFINITY) this.#halved_ms = now_ms + LIMITS.cell_demand_ms;
  }

  asked(key: string): number {
    return Math.min(this.target ?? 0, Math.ceil((this.demand.get(key) ?? 0) / NEED));
  }

  /** K1: holds shares that are not zero against what they have to be, whatever the way in which they were found. */
  check(shares: ReadonlyMap<string, number>): void {
    const target = this.target ?? 0;
    const latest = [...this.demand.keys()].reverse();
    const isEnough = latest.reduce((sum, key) => sum + this.asked(key), 0) <= target;
    for (const key of shares.keys()) {
      const isKnown = this.demand.has(key) || key === this.fallback;
      invariant(isKnown, `K2: ${key} has a share and no demand`);
    }
    for (const [i, key] of latest.entries()) {
      const share = shares.get(key) ?? 0;
      const asked = this.asked(key);
      const isRight =
        isEnough && key !== this.fallback ? share === asked : share >= Math.min(asked, i < target ? 1 : 0);
      invariant(isRight, `K1: ${key} gets ${share} cells, and asks for ${asked}`);
      invariant(share <= asked || (isEnough && key === this.fallback), `K1: ${key} gets ${share} cells for ${asked}`);
      if (isEnough) continue;
      const greedy = latest.find((other) => this.asked(other) < asked && (shares.get(other) ?? 0) > Math.max(1, share));
      invariant(greedy === undefined, `K1: ${greedy} gets more cells than ${key}, and asks for less`);
    }
  }
}
