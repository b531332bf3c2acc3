/**
 * Numbers of invocations, given out without a write each: the store reserves them in blocks. A crash skips what is left
 * of a block.
 *
 * N1. No number is given twice, also after a crash: a block is durable before its first number is given.
 * N2. Blocks come by compare-and-set, so that several nodes may reserve them from one store.
 */
import { AppError, invariant } from "../../base/errors.ts";
import type { Store } from "../../store/store.ts";

const BLOCK = 1_000_000;
/** Key of the last number that is reserved. */
const HIGH_KEY = "invocation_number_high";
/** Each failed attempt is another node's success. */
const ATTEMPTS_MAX = 100;

interface Block {
  next: number;
  readonly last: number;
}

/** The port of the source of invocation numbers. */
export interface NumberSource {
  /** Once, before all else. Resolves to the number that is given first. */
  boot(): Promise<number>;
  /** A number above all that this process gave. Synchronous. Throws INTERNAL if none is reserved. */
  next(): number;
}

export class NumberBlocks implements NumberSource {
  readonly #store: Store;
  #block: Block = { next: 0, last: -1 };
  /** Follows `#block`; reserved ahead of its need. */
  #following: Block | null = null;
  #isReserving = false;

  constructor(store: Store) {
    this.#store = store;
  }

  async boot(): Promise<number> {
    this.#block = await this.#reserve();
    return this.#block.next;
  }

  next(): number {
    if (this.#block.next > this.#block.last) {
      if (this.#following === null) {
        throw new AppError("INTERNAL", "cannot reserve invocation numbers: the store does not respond");
      }
      this.#block = this.#following;
      this.#following = null;
    }
    const { next, last } = this.#block;
    this.#block.next++;
    if (last - next < BLOCK / 2 && this.#following === null && !this.#isReserving) this.#prepare();
    return next;
  }

  /** A failure is repeated with the next number. */
  #prepare(): void {
    this.#isReserving = true;
    this.#reserve()
      .then((block) => {
        this.#following = block;
      })
      .catch(() => {})
      .finally(() => {
        this.#isReserving = false;
      });
  }

  async #reserve(): Promise<Block> {
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
      const row = await this.#store.readOne("SELECT value FROM meta WHERE key = ?", [HIGH_KEY]);
      const reserved = Number(row?.value ?? 0);
      const last = String(reserved + BLOCK);
      const statement =
        row === null
          ? { sql: "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING", args: [HIGH_KEY, last] }
          : { sql: "UPDATE meta SET value = ? WHERE key = ? AND value = ?", args: [last, HIGH_KEY, String(row.value)] };
      const { conflict } = await this.#store.write([{ ...statement, expect_changes: 1 }], { durable: true });
      if (conflict === null) return { next: reserved + 1, last: reserved + BLOCK };
    }
    invariant(false, `N2: no block of invocation numbers after ${ATTEMPTS_MAX} attempts`);
  }
}
