/**
 * Hot path. The embedded store's one writer: natural batching. The items of one turn of the event loop are committed
 * together in one transaction at the end of that turn. Runs on the main thread, where a commit costs 17 µs and saves two
 * thread hops.
 *
 * W1. Every item settles exactly once: after its commit, with its own error, or with the error of a hold or of `close`.
 * W2. An item that fails takes no other with it. Where SQLite gives up the whole transaction (disk full), each item is
 *     tried again in one of its own.
 * W3. Between two flushes no transaction is open.
 *     Batches are tried once more when the disk's reserve was given up for them; records are refused before they use it.
 * W4. Transactions are bounded in statements and bytes: the event loop is never held for long.
 */
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Checkpointer } from "./checkpointer.ts";
import type { Connection } from "./connection.ts";
import type { Reserve } from "./reserve.ts";
import { diskFull, sqliteCode, storeError } from "./sql.ts";
import type { CommitListener, Value, WriteResult } from "./store.ts";
import {
  type BatchItem,
  chunksOf,
  type Item,
  isRecord,
  type QueueLimits,
  type Table,
  WriteQueue,
} from "./write-queue.ts";

export interface WriterOptions {
  readonly connection: Connection;
  readonly limits: QueueLimits;
  readonly reserve: Reserve;
  readonly clock: Clock;
  /** It refers back to the writer, so it arrives as a function. */
  readonly checkpointer: () => Checkpointer;
}

/** What became of an item inside its transaction: a result of a batch, null for a row, or the error that it met. */
type Outcome = WriteResult | null | { readonly thrown: unknown };

function isFailure(outcome: Outcome): outcome is { readonly thrown: unknown } {
  return outcome !== null && "thrown" in outcome;
}

const NO_VALUES: readonly Value[] = [];

export class Writer {
  /** Writes that wait for their commit. */
  readonly queue: WriteQueue;
  readonly #connection: Connection;
  readonly #checkpointer: () => Checkpointer;
  readonly #reserve: Reserve;
  readonly #clock: Clock;
  #onCommit: CommitListener = () => {};
  /** Resolvers of durable batches that wait for the next sync; one sync serves all of them. */
  #unsynced: { readonly resolve: () => void; readonly reject: (error: unknown) => void }[] = [];
  #is_syncing = false;

  constructor({ connection, limits, reserve, clock, checkpointer }: WriterOptions) {
    this.#connection = connection;
    this.queue = new WriteQueue({
      limits,
      flush: () => this.#flush(),
      refusal: () => (reserve.takesRecords ? null : diskFull()),
    });
    this.#reserve = reserve;
    this.#clock = clock;
    this.#checkpointer = checkpointer;
  }

  onCommit(listener: CommitListener): void {
    this.#onCommit = listener;
  }

  /** The end of a hold: go on, or refuse what waits. */
  release(error: AppError | null): void {
    if (error === null) this.queue.schedule();
    else this.queue.refuse(error);
  }

  /** Refuses new items and waits until all that were accepted have settled. */
  close(): Promise<void> {
    return this.queue.close(() => this.#unsynced.length === 0 && !this.#is_syncing);
  }

  #flush(): void {
    if (this.queue.isEmpty || this.#checkpointer().mustWait()) return;
    const items = this.queue.take();
    const begun_ms = this.#clock.monotonicMs();
    this.#commit(items);
    this.#onCommit(items.length, this.#clock.monotonicMs() - begun_ms);
    if (this.queue.isEmpty) this.queue.settled();
    else this.queue.schedule();
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
        const isFull = !isRecord(item) && sqliteCode(outcome.thrown) === "SQLITE_FULL";
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
      this.queue.settled();
    };
    this.#checkpointer()
      .sync()
      .then(
        () => settle(null),
        (cause) => settle(new AppError("INTERNAL", "cannot sync the store to the disk", { cause })),
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
        return { conflict: i, changes: [] };
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
    for (const chunk of chunksOf(indexes)) {
      const values: Value[] = [];
      for (const index of chunk) values.push(...valuesAt(index));
      const outcome = this.#runInsert(table, chunk.length, values);
      if (outcome === null) continue;
      for (const index of chunk)
        outcomes[index] = chunk.length === 1 ? outcome : this.#runInsert(table, 1, valuesAt(index));
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
