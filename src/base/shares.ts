/** Places of which each holder has at most a share, and all together a number. Who holds none takes no memory. */
import type { AppError } from "./errors.ts";

export interface ShareBounds {
  readonly each_max: number;
  readonly all_max: number;
}

export class Shares {
  readonly #bounds: ShareBounds;
  readonly #counts = new Map<string, number>();
  #count = 0;

  constructor(bounds: ShareBounds) {
    this.#bounds = bounds;
  }

  /**
   * Takes a place until what is returned is called, which is harmless when repeated. Throws what `refused` says of the bound
   * that is reached, the holder's own first.
   */
  take(holder: string, refused: (reached: keyof ShareBounds) => AppError): () => void {
    const { each_max, all_max } = this.#bounds;
    const count = this.#counts.get(holder) ?? 0;
    if (count >= each_max) throw refused("each_max");
    if (this.#count >= all_max) throw refused("all_max");
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
