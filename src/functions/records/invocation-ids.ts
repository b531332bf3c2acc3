/**
 * Ids of invocations: `inv_<number>_<suffix>`. The number is the row's, which counts the calls of all tenants; in
 * the id it is masked, so that a tenant learns nothing of the others. The mask comes from the store's key and the random
 * suffix. One call of a block cipher makes the masks of many ids: a hash for each took 3 % of a call.
 */
import { type Cipheriv, createCipheriv, hash } from "node:crypto";
import type { Ids } from "../../base/ids.ts";

const KEY_DIGITS = 32;
const BLOCK_BYTES = 16;
/** Ids that are prepared at once. */
const DRAWN_COUNT = 256;
const SUFFIX_LENGTH = 9;
/** Length of the suffixes of earlier versions, whose mask is a hash. */
const HASHED_SUFFIX_LENGTH = 8;
const HALF = 2 ** 24;
const HALF_BYTES = 3;

export interface InvocationPlace {
  readonly seq: number;
  readonly suffix: string;
}

export interface InvocationNumber extends InvocationPlace {
  readonly id: string;
}

export class InvocationIds {
  readonly #ids: Ids;
  readonly #key: string;
  readonly #from: number;
  /** Whole blocks leave nothing in it. */
  #cipher: Cipheriv | null = null;
  #suffixes: readonly string[] = [];
  #masks: Buffer = Buffer.alloc(0);
  #used_count = 0;

  /** `key`: from `newKey`. Numbers below `from` were given out as they are, before ids were masked. */
  constructor(ids: Ids, key: string, from: number) {
    this.#ids = ids;
    this.#key = key;
    this.#from = from;
  }

  static newKey(ids: Ids): string {
    return ids.hex(KEY_DIGITS);
  }

  /** Gives the row of that number its id. */
  next(seq: number): InvocationNumber {
    if (this.#used_count === this.#suffixes.length) this.#draw();
    const at = this.#used_count++;
    const suffix = this.#suffixes[at] ?? "";
    return { seq, suffix, id: idText(masked(seq, this.#masks, at * BLOCK_BYTES), suffix) };
  }

  /** The id of a row. */
  id({ seq, suffix }: InvocationPlace): string {
    return idText(seq < this.#from ? seq : masked(seq, this.#mask(suffix), 0), suffix);
  }

  /**
   * Returns the places that an id may mean, mostly one; the suffix of the record there decides. Empty for an invalid id.
   */
  places(id: string): InvocationPlace[] {
    const [, number = "", suffix = ""] = /^inv_([0-9a-z]{1,10})_([0-9a-z]{1,16})$/.exec(id) ?? [];
    if (number === "") return [];
    const shown = Number.parseInt(number, 36);
    const unmasked = { seq: masked(shown, this.#mask(suffix), 0), suffix };
    return shown < this.#from ? [{ seq: shown, suffix }, unmasked] : [unmasked];
  }

  #draw(): void {
    this.#suffixes = Array.from({ length: DRAWN_COUNT }, () => this.#ids.random(SUFFIX_LENGTH));
    this.#masks = this.#encrypted(this.#suffixes);
    this.#used_count = 0;
  }

  #mask(suffix: string): Buffer {
    if (suffix.length === HASHED_SUFFIX_LENGTH) return hash("sha256", this.#key + suffix, "buffer");
    return this.#encrypted([suffix]);
  }

  /** Returns one block for each suffix. Suffixes are unique and as long as a block at most, so ECB hides all it must. */
  #encrypted(suffixes: readonly string[]): Buffer {
    const blocks = Buffer.alloc(suffixes.length * BLOCK_BYTES);
    for (const [i, suffix] of suffixes.entries()) blocks.write(suffix, i * BLOCK_BYTES, "latin1");
    this.#cipher ??= createCipheriv("aes-128-ecb", Buffer.from(this.#key, "hex"), null).setAutoPadding(false);
    return this.#cipher.update(blocks);
  }
}

function idText(number: number, suffix: string): string {
  return `inv_${number.toString(36)}_${suffix}`;
}

/** The number under the mask that begins at `at`. Its own inverse. */
function masked(number: number, mask: Buffer, at: number): number {
  const high = Math.floor(number / HALF) ^ mask.readUIntBE(at, HALF_BYTES);
  const low = (number % HALF) ^ mask.readUIntBE(at + HALF_BYTES, HALF_BYTES);
  return high * HALF + low;
}
