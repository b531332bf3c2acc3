/**
 * One libsql connection: prepared statements kept, rows as plain objects. It knows nothing of batches or checkpoints.
 * Everything here is synchronous.
 *
 * What libsql 0.5.29 does and this file keeps from everybody else:
 * C1. Binding a boolean aborts the process, a missing argument reuses the one of the call before, a second statement
 *     in the text is ignored: each is refused before, as a fault.
 * C2. A prepared BEGIN IMMEDIATE that fails busy breaks the next COMMIT: transactions go through `exec`, which is
 *     also the faster way (0.7 µs).
 */
import Database from "libsql";
import { invariant } from "../base/errors.ts";
import { bindable, checkParameters, countParameters, readable } from "./sql.ts";
import type { Row, Value } from "./store.ts";

interface Prepared {
  readonly statement: Database.Statement;
  readonly parameter_count: number;
  /** Names, and whether a blob in that column stands for text (D2). Filled by the first read. */
  columns: readonly { readonly name: string; readonly is_text: boolean }[] | null;
}

export interface ConnectionLimits {
  readonly store_statements_max: number;
  readonly store_read_rows_max: number;
  readonly store_cache_bytes: number;
  readonly store_busy_timeout_ms: number;
}

export class Connection {
  readonly #db: Database.Database;
  readonly #limits: ConnectionLimits;
  /** In the order of their making: the program has far fewer texts than the bound, so the oldest goes first. */
  readonly #prepared = new Map<string, Prepared>();

  constructor(path: string, limits: ConnectionLimits) {
    this.#db = new Database(path, { timeout: limits.store_busy_timeout_ms });
    this.#limits = limits;
    // Statement journals of multi-row inserts stay in memory; negative cache_size is KiB.
    this.exec(`PRAGMA temp_store=MEMORY; PRAGMA cache_size=-${Math.ceil(limits.store_cache_bytes / 1024)}`);
  }

  get in_transaction(): boolean {
    return this.#db.inTransaction;
  }

  /** Runs fixed text: transaction control, pragmas, migrations. Never with values in it. */
  exec(sql: string): void {
    this.#db.exec(sql);
  }

  /** Runs a statement whose values have passed `checkValues`. Returns the number of changed rows. */
  run(sql: string, values: readonly Value[]): number {
    const prepared = this.#prepare(sql, values);
    return prepared.statement.run(bindable(values)).changes;
  }

  rows(sql: string, values: readonly Value[]): Row[] {
    const prepared = this.#prepare(sql, values);
    if (prepared.columns === null) {
      prepared.columns = prepared.statement.columns().map(({ name, type }) => ({ name, is_text: type === "TEXT" }));
      prepared.statement.raw();
    }
    const rows_max = this.#limits.store_read_rows_max;
    const found: Row[] = [];
    for (const cells of prepared.statement.iterate(bindable(values)) as IterableIterator<unknown[]>) {
      invariant(found.length < rows_max, `read too large (limit ${rows_max} rows): ${sql}`);
      const row: Record<string, Value> = {};
      for (let i = 0; i < prepared.columns.length; i++) {
        const column = prepared.columns[i];
        if (column !== undefined) row[column.name] = readable(cells[i], column.is_text);
      }
      found.push(row);
    }
    return found;
  }

  /** The file is let go when the last prepared statement is collected; nothing may be run after this. */
  close(): void {
    this.#prepared.clear();
    this.#db.close();
  }

  #prepare(sql: string, values: readonly Value[]): Prepared {
    let prepared = this.#prepared.get(sql);
    if (prepared === undefined) {
      const parameter_count = countParameters(sql);
      prepared = { statement: this.#db.prepare(sql), parameter_count, columns: null };
      if (this.#prepared.size >= this.#limits.store_statements_max) {
        for (const oldest of this.#prepared.keys()) {
          this.#prepared.delete(oldest);
          break;
        }
      }
      this.#prepared.set(sql, prepared);
    }
    checkParameters(sql, prepared.parameter_count, values);
    return prepared;
  }
}
