/**
 * Writes that wait for their commit, of every implementation: whole batches, and rows of appenders. The implementation
 * takes them in the order of their calls, commits them and settles each.
 *
 * Q1. Waiting items are bounded in number and bytes; one above a bound is refused at once.
 * Q2. Nothing waits for more to come: a flush follows at the end of the event loop's turn.
 */
import { AppError, invariant } from "../base/errors.ts";
import { checkValues, insertRows } from "./sql.ts";
import type { Append, Statement, Value, WriteOptions, WriteResult } from "./store.ts";

export interface QueueLimits {
  readonly writer_queue_max: number;
  readonly writer_queue_bytes_max: number;
  readonly writer_batch_max: number;
  readonly writer_batch_bytes_max: number;
}

export interface Table {
  /** SQL by number of rows. */
  readonly inserts: ReadonlyMap<number, string>;
}

interface Waiting {
  readonly bytes: number;
  readonly reject: (error: unknown) => void;
}

export interface BatchItem extends Waiting {
  readonly kind: "batch";
  readonly statements: readonly Statement[];
  readonly is_durable: boolean;
  readonly is_record: boolean;
  readonly resolve: (result: WriteResult) => void;
}

export interface RowItem extends Waiting {
  readonly kind: "row";
  readonly table: Table;
  readonly values: readonly Value[];
  readonly resolve: () => void;
}

export type Item = BatchItem | RowItem;

/** Rows per prepared insert, largest first: any number is made up of these, each prepared once. */
const ROWS_PER_INSERT = [32, 8, 2, 1] as const;

/** Splits rows into the sizes that inserts are prepared for. */
export function* chunksOf<One>(rows: readonly One[]): Generator<readonly One[]> {
  for (let done = 0; done < rows.length; ) {
    const count = ROWS_PER_INSERT.find((size) => size <= rows.length - done) ?? 1;
    yield rows.slice(done, done + count);
    done += count;
  }
}

/** Records never take the disk's reserve. */
export const isRecord = (item: Item): boolean => item.kind === "row" || item.is_record;

export interface QueueOptions {
  readonly limits: QueueLimits;
  /** Called at the end of a turn in which something was added, or after `schedule`. */
  readonly flush: () => void;
  /** Returns the reason why records cannot be accepted now; null: they can. */
  readonly refusal?: () => AppError | null;
}

export class WriteQueue {
  readonly #limits: QueueLimits;
  readonly #flush: () => void;
  readonly #refusal: () => AppError | null;
  #items: Item[] = [];
  #bytes = 0;
  #isScheduled = false;
  #isClosed = false;
  #wake: (() => void) | null = null;

  constructor({ limits, flush, refusal = () => null }: QueueOptions) {
    this.#limits = limits;
    this.#flush = flush;
    this.#refusal = refusal;
  }

  get waiting(): { readonly queue_count: number; readonly queue_bytes: number } {
    return { queue_count: this.#items.length, queue_bytes: this.#bytes };
  }

  get isEmpty(): boolean {
    return this.#items.length === 0;
  }

  write(
    statements: readonly Statement[],
    { durable: is_durable = false, is_record = false }: WriteOptions = {},
  ): Promise<WriteResult> {
    return new Promise((resolve, reject) => {
      let bytes = 0;
      for (const { args } of statements) if (args !== undefined) bytes += checkValues(args);
      this.#add({ kind: "batch", statements, is_durable, is_record, bytes, resolve, reject });
    });
  }

  appender(name: string, columns: readonly string[]): Append {
    const inserts = new Map(ROWS_PER_INSERT.map((count) => [count, insertRows(name, columns, count)]));
    const table: Table = { inserts };
    return (values) =>
      new Promise((resolve, reject) => {
        // Rows are bound side by side: one of the wrong length would shift its neighbours.
        invariant(values.length === columns.length, `${values.length} values for ${columns.length} columns of ${name}`);
        this.#add({ kind: "row", table, values, bytes: checkValues(values), resolve, reject });
      });
  }

  /** The next items that fit into one transaction, at least one where any waits. */
  take(): Item[] {
    const { writer_batch_max, writer_batch_bytes_max } = this.#limits;
    let count = 0;
    let statement_count = 0;
    let bytes = 0;
    for (const item of this.#items) {
      statement_count += item.kind === "batch" ? item.statements.length : 1;
      bytes += item.bytes;
      if (count > 0 && (statement_count > writer_batch_max || bytes > writer_batch_bytes_max)) break;
      this.#bytes -= item.bytes;
      count++;
    }
    if (count < this.#items.length) return this.#items.splice(0, count);
    const all = this.#items;
    this.#items = [];
    return all;
  }

  /** `setImmediate` comes after all input of this turn has been handled, a microtask after each single piece of it. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#flush();
    });
  }

  /** Rejects all that waits. */
  refuse(error: AppError): void {
    const refused = this.#items;
    this.#items = [];
    this.#bytes = 0;
    for (const item of refused) item.reject(error);
    this.settled();
  }

  /** Something ended that `close` may wait for. */
  settled(): void {
    this.#wake?.();
  }

  /** Refuses new items and waits until none waits and `isIdle`. */
  async close(isIdle: () => boolean): Promise<void> {
    this.#isClosed = true;
    while (!this.isEmpty || !isIdle()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #add(item: Item): void {
    const refusal = this.#refusalOf(item);
    if (refusal !== null) {
      item.reject(refusal);
      return;
    }
    this.#items.push(item);
    this.#bytes += item.bytes;
    this.schedule();
  }

  #refusalOf(item: Item): AppError | null {
    if (this.#isClosed) return new AppError("SHUTTING_DOWN", "the store is closed");
    const { writer_queue_max, writer_queue_bytes_max } = this.#limits;
    if (this.#items.length >= writer_queue_max || this.#bytes + item.bytes > writer_queue_bytes_max) {
      return new AppError("CAPACITY_FULL", "too many queued writes", { retry_after: 1 });
    }
    return isRecord(item) ? this.#refusal() : null;
  }
}
