/** Random identifiers. The generator is an input, so that a test or the simulator can make ids repeatable. */
import { randomBytes } from "node:crypto";

/** Crockford's base 32 in lower case: no `i l o u`, so an id survives being read aloud. */
const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const POOL_BYTES = 8192;

export interface Ids {
  /** `length` random characters of the id alphabet, 5 bits each. */
  random(length: number): string;
  /** `<prefix>_<16 random characters>`: 80 bits, enough that ids are never guessed and never collide. */
  next(prefix: string): string;
  /** `length` (even) random hexadecimal digits: the ids of traces. */
  hex(length: number): string;
}

/** Ids from the kernel's random source, drawn in blocks: one system call per 8,192 characters. */
export function randomIds(draw: (size: number) => Buffer = randomBytes): Ids {
  let pool: Buffer = Buffer.alloc(0);
  let used = 0;
  /** Where `length` fresh bytes begin in the pool. */
  const take = (length: number): number => {
    if (used + length > pool.length) {
      pool = draw(Math.max(POOL_BYTES, length));
      used = 0;
    }
    used += length;
    return used - length;
  };
  const random = (length: number): string => {
    const from = take(length);
    let text = "";
    for (let i = from; i < from + length; i++) text += ALPHABET[(pool[i] ?? 0) & 31];
    return text;
  };
  const hex = (length: number): string => {
    const from = take(length / 2);
    return pool.toString("hex", from, from + length / 2);
  };
  return { random, next: (prefix) => `${prefix}_${random(16)}`, hex };
}
