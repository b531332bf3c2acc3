/**
 * Cursors of lists. A cursor stands for the number of the last row of a page: the next page begins below it
 * (base/paging.ts).
 *
 * P1. A cursor is encrypted and bound to tenant, route, path and filters: it tells nothing of the numbers of rows, which
 *     all tenants share, and another request cannot use it.
 * P2. The answer ends the list where `next_cursor` is null, and nowhere else.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import type { z } from "zod";
import { AppError } from "../base/errors.ts";
import type { Listed, Place } from "../base/paging.ts";
import type { pageQuery } from "../base/schema.ts";

const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const NUMBER_BYTES = 8;
const SEALED_BYTES = NONCE_BYTES + NUMBER_BYTES + TAG_BYTES;
/** base64url of `SEALED_BYTES`. */
const CURSOR_LENGTH = Math.ceil((SEALED_BYTES * 4) / 3);

/** Makes and reads cursors. Single writer: the secret is in one data directory; a second node could not read its cursors. */
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
    hint: "send next_cursor of the previous page with the same path and filters, or leave cursor out",
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

  /** Returns the answer of a list: its items by `name`, and the cursor of the next page. */
  answer<Name extends string, Item>(name: Name, { items, last }: Listed<Item>) {
    const next_cursor = last === null ? null : this.#cursors.seal(last, this.#scope);
    return { [name]: [...items], next_cursor } as { [Key in Name]: Item[] } & { next_cursor: string | null };
  }
}
