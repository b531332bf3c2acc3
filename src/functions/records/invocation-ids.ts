/**
 * Ids of invocations: `inv_<number>_<random>`. The number is the row's, which counts the calls of all tenants; in
 * the id it is masked, so that a tenant learns nothing of the others. The mask comes from the store's key and the random part.
 */
import { hash } from "node:crypto";

const HALF = 2 ** 24;
const HALF_BYTES = 3;

export interface InvocationPlace {
  readonly seq: number;
  readonly suffix: string;
}

export class InvocationIds {
  readonly #key: string;
  readonly #from: number;

  /** Numbers below `from` were given out as they are, before ids were masked. */
  constructor(key: string, from: number) {
    this.#key = key;
    this.#from = from;
  }

  id({ seq, suffix }: InvocationPlace): string {
    return `inv_${(seq < this.#from ? seq : this.#masked(seq, suffix)).toString(36)}_${suffix}`;
  }

  /**
   * Returns the places that an id may mean, mostly one; the suffix of the record there decides. Empty for an invalid id.
   */
  places(id: string): InvocationPlace[] {
    const [, number = "", suffix = ""] = /^inv_([0-9a-z]{1,10})_([0-9a-z]+)$/.exec(id) ?? [];
    if (number === "") return [];
    const shown = Number.parseInt(number, 36);
    const unmasked = { seq: this.#masked(shown, suffix), suffix };
    return shown < this.#from ? [{ seq: shown, suffix }, unmasked] : [unmasked];
  }

  /** Its own inverse. */
  #masked(number: number, suffix: string): number {
    const mask = hash("sha256", this.#key + suffix, "buffer");
    const high = Math.floor(number / HALF) ^ mask.readUIntBE(0, HALF_BYTES);
    const low = (number % HALF) ^ mask.readUIntBE(HALF_BYTES, HALF_BYTES);
    return high * HALF + low;
  }
}
