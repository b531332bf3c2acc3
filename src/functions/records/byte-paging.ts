/**
 * Records taken by bytes, not only by number: each may hold megabytes of output, and what is read or deleted at once is
 * held in memory and holds up the main thread. Lengths are looked at first; SQLite knows them without the contents.
 */
import type { EpochSeconds } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Row, Store } from "../../store/store.ts";

/** Rows whose lengths are looked at together: even a length costs a way through the row, 0.2 ms per megabyte. */
const PAGE_ROWS = 32;

/** What one record takes in the store, in bytes: its texts, and a fixed sum for all else. */
export const RECORD_BYTES = `500 + octet_length(stdout) + octet_length(stderr) + octet_length(timings)
  + coalesce(octet_length(error_message), 0) + coalesce(octet_length(result), 0)`;

export interface BytePage {
  readonly row_count: number;
  /** Number of its last row; 0 when there is none. */
  readonly last_seq: number;
  /** True if rows follow it. */
  readonly is_cut: boolean;
}

/** Reads `seq` and `bytes` of at most `row_count` rows that follow row `after` (null: the first ones). */
export type ReadLengths = (after: number | null, row_count: number) => Promise<readonly Row[]>;

/** The next rows that fit into `bytes_max` together, at least one if there is one, at most `rows_max`. */
export async function nextBytePage(read: ReadLengths, rows_max: number, bytes_max: number): Promise<BytePage> {
  let row_count = 0;
  let last_seq: number | null = null;
  let bytes = 0;
  for (;;) {
    // One more than may be taken tells whether rows follow.
    const wanted = Math.min(PAGE_ROWS, rows_max + 1 - row_count);
    const rows = await read(last_seq, wanted);
    for (const row of rows) {
      bytes += Number(row.bytes);
      if (last_seq !== null && (row_count === rows_max || bytes > bytes_max)) {
        return { row_count, last_seq, is_cut: true };
      }
      row_count += 1;
      last_seq = Number(row.seq);
    }
    if (rows.length < wanted) return { row_count, last_seq: last_seq ?? 0, is_cut: false };
  }
}

/** Which records go: those up to a number, and those that ended before a time. */
export interface Expired {
  readonly seq_max: number;
  readonly ended_before: EpochSeconds;
}

export const ALL_RECORDS: Expired = { seq_max: Number.MAX_SAFE_INTEGER, ended_before: 0 };

/**
 * Deletes what has expired of a function's records, oldest first, one page of bytes per statement; between two statements
 * everything else has its turn. Ends after a page in which nothing had expired, or when `isLate`.
 */
export async function deleteExpired(
  store: Store,
  function_seq: number,
  expired: Expired,
  isLate: () => boolean = () => false,
): Promise<void> {
  const lengths = `SELECT seq, ${RECORD_BYTES} AS bytes FROM invocations
    WHERE function_seq = ? AND seq > ? ORDER BY seq LIMIT ?`;
  let done = 0;
  do {
    const { row_count, last_seq } = await nextBytePage(
      (after, count) => store.read(lengths, [function_seq, after ?? done, count]),
      LIMITS.delete_rows_per_pass,
      LIMITS.delete_bytes_per_pass,
    );
    if (row_count === 0) return;
    const { changes } = await store.write([
      {
        sql: `DELETE FROM invocations WHERE function_seq = ? AND seq > ? AND seq <= ? AND (seq <= ? OR ended_at < ?)`,
        args: [function_seq, done, last_seq, expired.seq_max, expired.ended_before],
      },
    ]);
    if ((changes[0] ?? 0) === 0) return;
    done = last_seq;
  } while (!isLate());
}

/** Deletes the oldest records of a function, one page of about `bytes` or less. Returns the bytes that it freed. */
export async function deleteOldest(store: Store, function_seq: number, bytes: number): Promise<number> {
  const { last_seq } = await nextBytePage(
    (after, count) => {
      const lengths = `SELECT seq, ${RECORD_BYTES} AS bytes FROM invocations
        WHERE function_seq = ? AND seq > ? ORDER BY seq LIMIT ?`;
      return store.read(lengths, [function_seq, after ?? 0, count]);
    },
    LIMITS.delete_rows_per_pass,
    Math.min(bytes, LIMITS.delete_bytes_per_pass),
  );
  const stored = async () =>
    Number(
      (await store.readOne("SELECT stored_bytes FROM functions WHERE seq = ?", [function_seq]))?.stored_bytes ?? 0,
    );
  const before = await stored();
  await store.write([
    { sql: "DELETE FROM invocations WHERE function_seq = ? AND seq <= ?", args: [function_seq, last_seq] },
  ]);
  return before - (await stored());
}
