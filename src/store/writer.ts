/**
 * Hot path. The store's one writer: natural batching. Whatever is asked for in one turn of the event loop is committed
 * together in one transaction at the end of that turn; nothing waits for more to come. Runs on the main thread, where a
 * commit costs 17 µs and saves two thread hops.
 *
 * W1. Every item settles exactly once: after its commit, with its own error, or with the error of a hold or of `close`.
 * W2. An item that fails takes no other with it. Where SQLite gives up the whole transaction (disk full), each item is
 *     tried again in one of its own.
 * W3. Between two flushes no transaction is open.
 *     Batches are tried once more when the disk's reserve was given up for them; rows are refused before they use it.
 * W4. Waiting items are bounded in number and bytes, transactions too: the event loop is never held for long.
 */
import type { Clock } from "../base/clock.ts";
import { AppError, invariant } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Checkpointer } from "./checkpointer.ts";
import { type Connection, checkValues, diskFull, sqliteCode, storeError } from "./connection.ts";
import type { Reserve } from "./reserve.ts";
import type { Append, CommitListener, Statement, Value, WriteOptions, WriteResult } from "./store.ts";

export interface WriterLimits {
  readonly writer_queue_max: number;
  readonly writer_queue_bytes_max: number;
  readonly writer_batch_max: number;
  readonly writer_batch_bytes_max: number;
}

export interface WriterOptions {
  readonly connection: Connection;
  readonly limits: WriterLimits;
  readonly reserve: Reserve;
  readonly clock: Clock;
  /** It refers back to the writer, so it arrives as a function. */
  readonly checkpointer: () => Checkpointer;
}

/** Rows per prepared insert, largest first: any number is made up of these, each prepared once. */
const ROWS_PER_INSERT = [32, 8, 2, 1] as const;

interface Table {
  readonly columns: readonly string[];
  /** SQL by number of rows. */
  readonly inserts: ReadonlyMap<number, string>;
}

interface Waiting {
  readonly bytes: number;
  readonly reject: (error: unknown) => void;
}

interface BatchItem extends Waiting {
  readonly kind: "batch";
  readonly statements: readonly Statement[];
  readonly is_durable: boolean;
  readonly resolve: (result: WriteResult) => void;
}

interface RowItem extends Waiting {
  readonly kind: "row";
  readonly table: Table;
  readonly values: readonly Value[];
  readonly resolve: () => void;
}

type Item = BatchItem | RowItem;

/** What became of an item inside its transaction: a result of a batch, null for a row, or the error that it met. */
type Outcome = WriteResult | null | { readonly thrown: unknown };

function isFailure(outcome: Outcome): outcome is { readonly thrown: unknown } {
  return outcome !== null && "thrown" in outcome;
}

const NO_VALUES: readonly Value[] = [];

export class Writer {
  readonly #connection: Connection;
  readonly #limits: WriterLimits;
  readonly #checkpointer: () => Checkpointer;
  readonly #reserve: Reserve;
  readonly #clock: Clock;
  #onCommit: CommitListener = () => {};
  #queue: Item[] = [];
  #queue_bytes = 0;
  #is_scheduled = false;
  #is_closed = false;
  #idle: (() => void) | null = null;
  /** Resolvers of durable batches that wait for the next sync; one sync serves all of them. */
  #unsynced: { readonly resolve: () => void; readonly reject: (error: unknown) => void }[] = [];
  #is_syncing = false;

  constructor({ connection, limits, reserve, clock, checkpointer }: WriterOptions) {
    this.#connection = connection;
    this.#limits = limits;
    this.#reserve = reserve;
    this.#clock = clock;
    this.#checkpointer = checkpointer;
  }

  onCommit(listener: CommitListener): void {
    this.#onCommit = listener;
  }

  get waiting(): { readonly queue_count: number; readonly queue_bytes: number } {
    return { queue_count: this.#queue.length, queue_bytes: this.#queue_bytes };
  }

  write(statements: readonly Statement[], { durable = false }: WriteOptions = {}): Promise<WriteResult> {
    return new Promise((resolve, reject) => {
      let bytes = 0;
      for (const statement of statements) bytes += checkValues(statement.args ?? NO_VALUES);
      this.#add({ kind: "batch", statements, is_durable: durable, bytes, resolve, reject });
    });
  }

  appender(name: string, columns: readonly string[]): Append {
    const row = `(${columns.map(() => "?").join(",")})`;
    const insert = (count: number): string =>
      `INSERT INTO ${name} (${columns.join(",")}) VALUES ${Array.from({ length: count }, () => row).join(",")}`;
    const table: Table = { columns, inserts: new Map(ROWS_PER_INSERT.map((count) => [count, insert(count)])) };
    return (values) =>
      new Promise((resolve, reject) => {
        // Rows are bound side by side: one of the wrong length would shift its neighbours.
        invariant(values.length === columns.length, `${values.length} values for ${columns.length} columns of ${name}`);
        this.#add({ kind: "row", table, values, bytes: checkValues(values), resolve, reject });
      });
  }

  /** The end of a hold: go on, or refuse what waits. */
  release(error: AppError | null): void {
    if (error === null) {
      this.#schedule();
      return;
    }
    const refused = this.#queue;
    this.#queue = [];
    this.#queue_bytes = 0;
    for (const item of refused) item.reject(error);
    this.#idle?.();
  }

  /** Refuses new items and waits until all that were accepted have settled. */
  async close(): Promise<void> {
    this.#is_closed = true;
    while (this.#queue.length > 0 || this.#unsynced.length > 0 || this.#is_syncing) {
      await new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
    }
  }

  #add(item: Item): void {
    if (this.#is_closed) {
      item.reject(new AppError("SHUTTING_DOWN", "the store is closed"));
    } else if (
      this.#queue.length >= this.#limits.writer_queue_max ||
      this.#queue_bytes + item.bytes > this.#limits.writer_queue_bytes_max
    ) {
      item.reject(new AppError("CAPACITY_FULL", "too much waits to be stored", { retry_after: 1 }));
    } else if (item.kind === "row" && !this.#reserve.takesRecords) {
      item.reject(diskFull());
    } else {
      this.#queue.push(item);
      this.#queue_bytes += item.bytes;
      this.#schedule();
    }
  }

  /** `setImmediate` comes after all input of this turn has been handled, a microtask after each single piece of it. */
  #schedule(): void {
    if (this.#is_scheduled) return;
    this.#is_scheduled = true;
    setImmediate(() => {
      this.#is_scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#queue.length === 0 || this.#checkpointer().mustWait()) return;
    const items = this.#take();
    const begun_ms = this.#clock.monotonicMs();
    this.#commit(items);
    this.#onCommit(items.length, this.#clock.monotonicMs() - begun_ms);
    if (this.#queue.length > 0) this.#schedule();
    else this.#idle?.();
  }

  /** The next items that fit into one transaction (W4), at least one. */
  #take(): Item[] {
    const { writer_batch_max, writer_batch_bytes_max } = this.#limits;
    let count = 0;
    let statement_count = 0;
    let bytes = 0;
    for (const item of this.#queue) {
      statement_count += item.kind === "batch" ? item.statements.length : 1;
      bytes += item.bytes;
      if (count > 0 && (statement_count > writer_batch_max || bytes > writer_batch_bytes_max)) break;
      this.#queue_bytes -= item.bytes;
      count++;
    }
    if (count < this.#queue.length) return this.#queue.splice(0, count);
    const all = this.#queue;
    this.#queue = [];
    return all;
  }

  /** Commits the items together, or each alone (W2), and settles them. */
  #commit(items: readonly Item[]): void {
    const { released_count } = this.#reserve;
    let outcomes: readonly Outcome[];
    failpoint("store.commit.begun");
    try {
      outcomes = this.#transaction(items);
    } catch (thrown) {
      // A busy file stays busy for the single items too, and each would block for the whole timeout.
      if (items.length > 1 && !sqliteCode(thrown).startsWith("SQLITE_BUSY")) {
        for (const item of items) this.#commit([item]);
        return;
      }
      outcomes = items.map(() => ({ thrown }));
    }
    failpoint("store.commit.done");
    let page_count = 1;
    let row_bytes = 0;
    for (const [i, item] of items.entries()) {
      const outcome = outcomes[i] ?? null;
      if (isFailure(outcome)) {
        const isFull = item.kind === "batch" && sqliteCode(outcome.thrown) === "SQLITE_FULL";
        // Given up now or for another item of this transaction; never a second time, so this ends.
        if (isFull && (this.#reserve.release() || this.#reserve.released_count > released_count)) this.#commit([item]);
        else item.reject(storeError(outcome.thrown));
      } else if (item.kind === "row") {
        row_bytes += item.bytes;
        item.resolve();
      } else if (outcome !== null) {
        row_bytes += item.bytes;
        for (const changes of outcome.changes) page_count += 1 + changes;
        this.#settleBatch(item, outcome);
      }
    }
    this.#checkpointer().added(page_count, row_bytes);
  }

  #settleBatch(item: BatchItem, result: WriteResult): void {
    if (!item.is_durable || result.conflict !== null) {
      item.resolve(result);
      return;
    }
    this.#unsynced.push({ resolve: () => item.resolve(result), reject: item.reject });
    // Syncs that this turn's other batches need too are asked for once.
    queueMicrotask(() => this.#sync());
  }

  #sync(): void {
    if (this.#is_syncing || this.#unsynced.length === 0) return;
    const waiting = this.#unsynced;
    this.#unsynced = [];
    this.#is_syncing = true;
    const settle = (error: unknown): void => {
      this.#is_syncing = false;
      for (const { resolve, reject } of waiting) error === null ? resolve() : reject(error);
      this.#sync();
      this.#idle?.();
    };
    this.#checkpointer()
      .sync()
      .then(
        () => settle(null),
        (cause) => settle(new AppError("INTERNAL", "the store could not be synced to the disk", { cause })),
      );
  }

  /** Outcomes in the order of the items. Throws when the transaction as a whole was lost; then nothing is committed. */
  #transaction(items: readonly Item[]): readonly Outcome[] {
    const connection = this.#connection;
    const first = items[0];
    if (items.length === 1 && first !== undefined && isSingleStatement(first)) return [this.#runSingle(first)];
    const outcomes: Outcome[] = new Array(items.length).fill(null);
    connection.exec("BEGIN IMMEDIATE");
    try {
      const rows_by_table = new Map<Table, number[]>();
      for (const [i, item] of items.entries()) {
        if (item.kind === "batch") {
          outcomes[i] = this.#runBatch(item);
        } else {
          const indexes = rows_by_table.get(item.table);
          if (indexes === undefined) rows_by_table.set(item.table, [i]);
          else indexes.push(i);
        }
      }
      for (const [table, indexes] of rows_by_table) this.#runRows(table, items, indexes, outcomes);
      failpoint("store.commit.written");
      connection.exec("COMMIT");
    } catch (thrown) {
      if (connection.in_transaction) connection.exec("ROLLBACK"); // W3
      throw thrown;
    }
    return outcomes;
  }

  /** One statement is a transaction by itself: without BEGIN and COMMIT it is 2 µs faster. */
  #runSingle(item: Item): Outcome {
    if (item.kind === "row") return this.#runInsert(item.table, 1, item.values);
    const changes = item.statements.map(({ sql, args = NO_VALUES }) => this.#connection.run(sql, args));
    return { conflict: null, changes };
  }

  #runBatch({ statements }: BatchItem): Outcome {
    const connection = this.#connection;
    const needs_savepoint = statements.length > 1 || statements[0]?.expect_changes !== undefined;
    if (needs_savepoint) connection.exec("SAVEPOINT batch");
    const undo = (): void => {
      if (needs_savepoint) connection.exec("ROLLBACK TO batch; RELEASE batch");
    };
    const changes: number[] = [];
    for (const [i, { sql, args = NO_VALUES, expect_changes }] of statements.entries()) {
      try {
        changes.push(connection.run(sql, args));
      } catch (thrown) {
        if (!connection.in_transaction) throw thrown; // SQLite gave up the whole transaction.
        undo();
        return { thrown };
      }
      if (expect_changes !== undefined && changes[i] !== expect_changes) {
        undo();
        return { conflict: i, changes };
      }
    }
    if (needs_savepoint) connection.exec("RELEASE batch");
    return { conflict: null, changes };
  }

  /** Inserts the rows at `indexes`, many per statement; where such a statement fails, its rows one by one. */
  #runRows(table: Table, items: readonly Item[], indexes: readonly number[], outcomes: Outcome[]): void {
    const valuesAt = (index: number): readonly Value[] => {
      const item = items[index];
      return item?.kind === "row" ? item.values : NO_VALUES;
    };
    let done = 0;
    while (done < indexes.length) {
      const count = ROWS_PER_INSERT.find((size) => size <= indexes.length - done) ?? 1;
      const chunk = indexes.slice(done, done + count);
      done += count;
      const values: Value[] = [];
      for (const index of chunk) values.push(...valuesAt(index));
      const outcome = this.#runInsert(table, count, values);
      if (outcome === null) continue;
      for (const index of chunk) outcomes[index] = count === 1 ? outcome : this.#runInsert(table, 1, valuesAt(index));
    }
  }

  #runInsert(table: Table, count: number, values: readonly Value[]): Outcome {
    try {
      this.#connection.run(table.inserts.get(count) ?? "", values);
      return null;
    } catch (thrown) {
      if (!this.#connection.in_transaction) throw thrown; // SQLite gave up the whole transaction, or it was this one.
      return { thrown };
    }
  }
}

function isSingleStatement(item: Item): boolean {
  return item.kind === "row" || (item.statements.length === 1 && item.statements[0]?.expect_changes === undefined);
}
