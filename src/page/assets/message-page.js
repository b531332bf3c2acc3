/**
 * Pages of what is numbered from 1 upwards and read upwards, as messages and dead letters are: the newest first. Pure but for
 * the requests.
 *
 * N1. A page shows the newest items up to a number. The API cuts an answer that is too large at its end, where the newest are:
 *     the page then asks again for fewer, so it never lacks the newest.
 * N2. A page makes at most three requests, and holds at most one answer.
 */

/** Items that a page asks for, then those after an answer that was cut. */
const SIZES = [25, 4, 1];
/** An answer has at most 4 MiB of envelopes, and an envelope at most 1 MiB. An answer below the difference is whole. */
const WHOLE_BYTES = 3_000_000;

/** @typedef {{ readonly stream_seq: number, readonly envelope_b64: string }} Numbered */

/**
 * @template Item
 * @typedef {object} NumberedPage
 * @property {readonly Item[]} items newest first
 * @property {number} from_seq the lowest number that was asked for
 * @property {number} to_seq the highest
 */

/** @param {readonly Numbered[]} items @param {number} to_seq */
function isCut(items, to_seq) {
  const last = items.at(-1);
  if (last === undefined || last.stream_seq >= to_seq) return false;
  return items.reduce((sum, { envelope_b64 }) => sum + (envelope_b64.length / 4) * 3, 0) > WHOLE_BYTES;
}

/**
 * Reads the page that ends with a number.
 * @template {Numbered} Item
 * @param {(from_seq: number, to_seq: number) => Promise<readonly Item[]>} ask in the order of the numbers
 * @param {number} to_seq
 * @returns {Promise<NumberedPage<Item>>}
 */
export async function pageUpTo(ask, to_seq) {
  if (to_seq < 1) return { items: [], from_seq: 1, to_seq: 0 };
  /** @type {NumberedPage<Item>} */
  let page = { items: [], from_seq: to_seq, to_seq };
  for (const size of SIZES) {
    const from_seq = Math.max(1, to_seq - size + 1);
    const items = await ask(from_seq, to_seq);
    page = { items: [...items].reverse(), from_seq, to_seq };
    if (!isCut(items, to_seq)) break;
  }
  return page;
}

/**
 * Returns true if a page before this one may have items. Numbers below the first kept one are deleted.
 * @param {NumberedPage<unknown>} page
 * @param {number | null} kept_count items that are kept, if the page ends with the newest; null: unknown
 */
export function hasOlder({ items, from_seq }, kept_count) {
  if (from_seq === 1) return false;
  return kept_count === null ? items.length > 0 : items.length < kept_count;
}

/** The place of a reader among the pages: the newest, or the page that ends with a number. */
export class PagePlace {
  /** The ends of the pages from the newest on, each above the next. @type {number[]} */
  #ends = [];

  /** The last number of the page; null: the newest that there is. */
  get to_seq() {
    return this.#ends.at(-1) ?? null;
  }

  /** Stays at the page that ends with a number while newer items come. @param {number} to_seq */
  hold(to_seq) {
    if (this.#ends.length === 0) this.#ends.push(to_seq);
  }

  /** Goes to the page before the one that begins with a number. @param {number} from_seq */
  older(from_seq) {
    this.#ends.push(Math.max(1, from_seq - 1));
  }

  newer() {
    this.#ends.pop();
  }
}
