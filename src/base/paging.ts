/**
 * Lists page by page, the same on every list route. A page begins below the number of the last row of the page before
 * (a keyset), so rows that come or go meanwhile neither repeat nor hide others. Lists are newest first.
 * src/http/cursors.ts turns the number into the cursor that a client sees.
 */
import { LIMITS } from "./limits.ts";

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

/** The store, as far as a page needs it. */
interface Source<Row, Value> {
  read(sql: string, args: readonly Value[]): Promise<readonly Row[]>;
}

/**
 * Reads one page. `select` names the row's number `seq` and ends inside of its conditions; `number` is the column that
 * orders the rows.
 */
export async function readPage<Row extends { readonly seq?: unknown }, Value, Item>(
  source: Source<Row, Value | number>,
  select: string,
  args: readonly Value[],
  { limit, below }: Place,
  toItem: (row: Row) => Item,
  number = "seq",
): Promise<Listed<Item>> {
  const sql = `${select} AND ${number} < ? ORDER BY ${number} DESC LIMIT ?`;
  const rows = await source.read(sql, [...args, below, limit + 1]);
  return pageOf(rows, limit, ({ seq }) => Number(seq), toItem);
}

/** Cuts rows, newest first, to one page. One row more than `limit` tells that more follow. */
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
