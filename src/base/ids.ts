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
}

/** Ids from the kernel's random source, drawn in blocks: one system call per 8,192 characters. */
export function randomIds(draw: (size: number) => Buffer = randomBytes): Ids {
  let pool: Buffer = Buffer.alloc(0);
  let used = 0;
  const random = (length: number): string => {
    if (used + length > pool.length) {
      pool = draw(Math.max(POOL_BYTES, length));
      used = 0;
    }
    let text = "";
    for (let i = 0; i < length; i++) text += ALPHABET[(pool[used + i] ?? 0) & 31];
    used += length;
    return text;
  };
  return { random, next: (prefix) => `${prefix}_${random(16)}` };
}
