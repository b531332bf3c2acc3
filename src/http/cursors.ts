/**
 * Lists page by page, the same on every list route. A page begins below the number of the last row of the page before
 * (a keyset), so rows that come or go meanwhile neither repeat nor hide others. Lists are newest first.
 *
 * P1. A cursor is encrypted and bound to tenant, route, path and filters: it tells nothing of the numbers of rows, which
 *     all tenants share, and another request cannot use it.
 * P2. The answer ends the list where `next_cursor` is null, and nowhere else.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { z } from "zod";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Row, Store, Value } from "../store/store.ts";
import { queryLimit } from "./input.ts";

/** The part of a list that is asked for. */
export interface Place {
  /** Rows at most. */
  readonly limit: number;
  /** Rows with smaller numbers than this. */
  readonly below: number;
}

/** The beginning of a list. */
export const firstPage = (limit: number = LIMITS.list_limit_max): Place => ({ limit, below: Number.MAX_SAFE_INTEGER });

/** One page of a list. */
export interface Listed<Item> {
  readonly items: readonly Item[];
  /** The number of the last row, where rows follow it; else null. */
  readonly last: number | null;
}

const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const NUMBER_BYTES = 8;
const SEALED_BYTES = NONCE_BYTES + NUMBER_BYTES + TAG_BYTES;
/** base64url of `SEALED_BYTES`. */
const CURSOR_LENGTH = Math.ceil((SEALED_BYTES * 4) / 3);

const cursor = z
  .string()
  .max(LIMITS.cursor_length_max)
  .optional()
  .describe("Continues the list: `next_cursor` of the page before, with the same path and filters.");

/** The query of a list route; filters go beside it. */
export const pageQuery = z.object({ limit: queryLimit(), cursor });

/** A field of every list answer. */
export const nextCursor = z
  .string()
  .nullable()
  .describe("The query `cursor` of the next page; null at the end of the list.");

/** Makes and reads cursors. */
export class Cursors {
  readonly #key: Buffer;

  /** Cursors of one secret are good in every process that has it. */
  constructor(secret: Uint8Array) {
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "cursors", KEY_BYTES));
  }

  seal(number: number, scope: string): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(Buffer.from(scope));
    const plain = Buffer.alloc(NUMBER_BYTES);
    plain.writeBigUInt64BE(BigInt(number));
    return Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]).toString("base64url");
  }

  /** Throws INVALID_ARGUMENT for what `seal` has not made for this scope. */
  open(text: string, scope: string): number {
    const sealed = Buffer.from(text, "base64url");
    // Several texts stand for the same bytes; one of them is the cursor.
    if (text.length !== CURSOR_LENGTH || sealed.toString("base64url") !== text) throw badCursor();
    const decipher = createDecipheriv(CIPHER, this.#key, sealed.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(scope));
    decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
    try {
      const plain = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES));
      decipher.final();
      return Number(plain.readBigUInt64BE());
    } catch (cause) {
      throw badCursor(cause);
    }
  }
}

function badCursor(cause?: unknown): AppError {
  return new AppError("INVALID_ARGUMENT", "cursor: not a cursor of this list", {
    hint: "send next_cursor of the page before with the same path and filters, or leave cursor out",
    ...(cause === undefined ? {} : { cause }),
  });
}

/** The place that a request asks for, and the cursor of the place behind. */
export class Page implements Place {
  readonly limit: number;
  readonly below: number;
  readonly #cursors: Cursors;
  readonly #scope: string;

  /** `scope`: all but `limit` and `cursor` that decides which rows the list has. Throws INVALID_ARGUMENT. */
  constructor(cursors: Cursors, scope: string, { limit, cursor }: z.output<typeof pageQuery>) {
    this.limit = limit;
    this.below = cursor === undefined ? Number.MAX_SAFE_INTEGER : cursors.open(cursor, scope);
    this.#cursors = cursors;
    this.#scope = scope;
  }

  /** Fields of the answer beside the items. */
  next({ last }: Pick<Listed<unknown>, "last">): { next_cursor: string | null } {
    return { next_cursor: last === null ? null : this.#cursors.seal(last, this.#scope) };
  }
}

/**
 * Reads one page. `select` names the row's number `seq` and ends inside of its conditions; `number` is what it is
 * compared by.
 */
export async function readPage<Item>(
  store: Store,
  select: string,
  args: readonly Value[],
  { limit, below }: Place,
  toItem: (row: Row) => Item,
  number = "seq",
): Promise<Listed<Item>> {
  const sql = `${select} AND ${number} < ? ORDER BY ${number} DESC LIMIT ?`;
  const rows = await store.read(sql, [...args, below, limit + 1]);
  return pageOf(rows, limit, ({ seq }) => Number(seq), toItem);
}

/** One page of rows that are there already, newest first; one more than `limit` tells that more follow. */
export function pageOf<Entry, Item>(
  rows: readonly Entry[],
  limit: number,
  numberOf: (entry: Entry) => number,
  toItem: (entry: Entry) => Item,
): Listed<Item> {
  const kept = rows.slice(0, limit);
  const end = kept.at(-1);
  return { items: kept.map(toItem), last: rows.length > limit && end !== undefined ? numberOf(end) : null };
}
