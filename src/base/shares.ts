/** Places of which each holder has at most a share, and all together a number. Who holds none takes no memory. */
import type { AppError } from "./errors.ts";

export interface ShareBounds {
  /** Of each holder alike, or of one; null: no bound but that of all. */
  readonly each_max: number | ((holder: string) => number | null);
  readonly all_max: number;
  /** Places that a holder gets even if all are taken, within its own bound. 0 unless given. */
  readonly always_max?: number;
}

/** Bound that a refusal names. */
export type ReachedBound = "each_max" | "all_max";

export class Shares {
  readonly #bounds: ShareBounds;
  readonly #counts = new Map<string, number>();
  #count = 0;

  constructor(bounds: ShareBounds) {
    this.#bounds = bounds;
  }

  /** Places that are taken. */
  get count(): number {
    return this.#count;
  }

  /** Places that a holder has. */
  countOf(holder: string): number {
    return this.#counts.get(holder) ?? 0;
  }

  /**
   * Takes a place until what is returned is called, which is harmless when repeated. Throws what `refused` says of the bound
   * that is reached and its value, the holder's own first.
   */
  take(holder: string, refused: (reached: ReachedBound, max: number) => AppError): () => void {
    const { each_max, all_max, always_max = 0 } = this.#bounds;
    const count = this.countOf(holder);
    const own_max = (typeof each_max === "number" ? each_max : each_max(holder)) ?? Number.POSITIVE_INFINITY;
    if (count >= own_max) throw refused("each_max", own_max);
    if (this.#count >= all_max && count >= always_max) throw refused("all_max", all_max);
    this.#counts.set(holder, count + 1);
    this.#count++;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#counts.get(holder) ?? 1) - 1;
      if (left > 0) this.#counts.set(holder, left);
      else this.#counts.delete(holder);
      this.#count--;
    };
  }
}
