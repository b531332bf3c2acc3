/**
 * The store port: what every concern may ask of durable state. It takes whole batches and compare-and-set in SQL,
 * never an interactive transaction, so that the same code runs on an embedded file and on a server.
 *
 * Rules of every implementation, which the one contract suite (test/store) checks:
 * S1. A batch is atomic: all of its statements or none.
 * S2. A batch that fails or misses an expectation rolls back alone; what is committed beside it stays.
 * S3. A promise of `write` or of an appender resolves after the commit, so the data survives a crash of this process;
 *     with `durable` it survives a power cut too. On a server every commit is as durable as the server's settings make it.
 * S4. `read` sees every write whose promise has resolved.
 * S5. Batches commit in the order of their calls. Rows of an appender keep their order among themselves only.
 */
import { AppError } from "../base/errors.ts";

/**
 * Numbers are bound as they are; a column declared INTEGER keeps whole ones exactly up to 2^53. Booleans are written
 * as 0 and 1 by the caller. A string may hold any character, U+0000 too, in a column declared TEXT.
 */
export type Value = string | number | bigint | null | Uint8Array;

export type Row = Readonly<Record<string, Value>>;

/** A node as the store knows it. Rows of what it ran or holds have its number in `node_seq`. */
export interface StoredNode {
  readonly id: string;
  readonly seq: number;
}

/** Refuses work that only the node that holds a resource can do: its processes and files are on that node's machine. */
export function heldElsewhere(what: string): AppError {
  return new AppError("WRONG_STATE", `${what} is held by another node`, {
    hint: "send the request to the node that holds it",
  });
}

/** The column `node_id` of a row with `node_seq`: the node that ran or holds it, whichever node reads. */
export const NODE_ID = "(SELECT nodes.id FROM nodes WHERE nodes.seq = node_seq) AS node_id";

/** Reads a column of text that may be NULL. */
export function textOrNull(value: Value | undefined): string | null {
  return value === null || value === undefined ? null : String(value);
}

/** Reads a column of numbers that may be NULL. */
export function numberOrNull(value: Value | undefined): number | null {
  return value === null || value === undefined ? null : Number(value);
}

export interface Statement {
  /** One statement. Parameters are plain `?`, exactly as many as `args`. */
  readonly sql: string;
  readonly args?: readonly Value[];
  /** Compare-and-set: unless exactly this many rows change, the whole batch is rolled back and reported as a conflict. */
  readonly expect_changes?: number;
}

/** Never changes a row. A batch that ends with it is rolled back, whatever else it holds: it only tells which statement misses. */
export const ROLLBACK: Statement = { sql: "UPDATE tenants SET state = state WHERE 0 = 1", expect_changes: 1 };

/** A statement of a batch that expects a change, and the refusal where it misses it. */
export interface Guard {
  readonly statement: Statement;
  readonly refusal: () => AppError;
}

/** A request that runs once: a request with the same Idempotency-Key gets the recorded answer. */
export interface Once {
  /** Makes the record of this answer, for the end of a handler's batch: no crash then separates work and record. */
  record(status: number, body: unknown): Statement;
}

export interface WriteOptions {
  /** Wait until the data is on the disk. For keys, operations, messages; an invocation record does without. */
  readonly durable?: boolean;
  /**
   * True for data from users, which may be large: the store refuses it with CAPACITY_FULL before it uses the disk's reserve, as
   * it refuses rows of appenders. Absent: a change of state, which may use the reserve.
   */
  readonly is_record?: boolean;
}

export interface WriteResult {
  /** Index of the statement whose expectation was missed; the batch was rolled back. Null: committed. */
  readonly conflict: number | null;
  /** Changed rows per statement; empty if the batch was rolled back. */
  readonly changes: readonly number[];
}

/** Writes one row. Resolves after its commit, rejects when this row was refused. */
export type Append = (row: readonly Value[]) => Promise<void>;

/** What the store is about, for its watchers. */
export interface StoreStats {
  /** Writes that wait for their commit, and the bytes of their values. */
  readonly queue_count: number;
  readonly queue_bytes: number;
  /** Size of the write-ahead log; 0 where there is none. */
  readonly wal_bytes: number;
}

/** Hears of each commit: how many writes it held, also those that failed, and how long it took. Never throws. */
export type CommitListener = (items_count: number, duration_ms: number) => void;

export interface Store {
  /**
   * Commits one batch. Rejects with CAPACITY_FULL when too much waits already or the disk is full, SHUTTING_DOWN after
   * `close`, INTERNAL when the database refuses (read-only, constraint); the store stays usable. A name that may be taken is
   * inserted with `ON CONFLICT DO NOTHING` and `expect_changes: 1`, not by catching.
   */
  write(statements: readonly Statement[], options?: WriteOptions): Promise<WriteResult>;
  /** For records of calls: rows of one tick become prepared multi-row inserts into `table`. Make it once, keep it. */
  appender(table: string, columns: readonly string[]): Append;
  /** Rows in order, at most `LIMITS.store_read_rows_max`: a query that may have more carries its own LIMIT. */
  read<R extends Row = Row>(sql: string, args?: readonly Value[]): Promise<R[]>;
  /** The first row, or null. */
  readOne<R extends Row = Row>(sql: string, args?: readonly Value[]): Promise<R | null>;
  /** One listener. */
  onCommit(listener: CommitListener): void;
  /** Looks at the file too, so not for every call. */
  stats(): StoreStats;
  /** Commits what waits, copies the log back and lets go of the file. Later calls reject with SHUTTING_DOWN. */
  close(): Promise<void>;
}
