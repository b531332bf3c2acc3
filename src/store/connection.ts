/**
 * One libsql connection: prepared statements kept, values checked before they are bound, rows as plain objects.
 * It knows nothing of batches or checkpoints. Everything here is synchronous.
 *
 * What libsql 0.5.29 does and this file keeps from everybody else:
 * C1. Binding a boolean aborts the process, a missing argument reuses the one of the call before, a second statement
 *     in the text is ignored: each is refused here as a fault.
 * C2. Text is cut at U+0000 when it is read. Such a string is stored as a blob of its UTF-8 bytes and decoded again
 *     where the column is declared TEXT.
 * C3. A prepared BEGIN IMMEDIATE that fails busy breaks the next COMMIT: transactions go through `exec`, which is
 *     also the faster way (0.7 µs).
 */
import Database from "libsql";
import { AppError, errorText, InvariantError, invariant } from "../base/errors.ts";
import type { Row, Value } from "./store.ts";

interface Prepared {
  readonly statement: Database.Statement;
  readonly parameter_count: number;
  /** Names, and whether a blob in that column stands for text (C2). Filled by the first read. */
  columns: readonly { readonly name: string; readonly is_text: boolean }[] | null;
}

const QUOTED_OR_COMMENT = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*.*?\*\//gs;

/** Number of `?` in one statement. Throws where C1 would lose something silently. */
export function countParameters(sql: string): number {
  const bare = sql.replace(QUOTED_OR_COMMENT, "");
  if (/;\s*\S/.test(bare)) throw new InvariantError(`more than one statement: ${sql}`);
  if (/\?\d|[:@$][A-Za-z_]/.test(bare)) throw new InvariantError(`parameters other than plain '?': ${sql}`);
  return bare.split("?").length - 1;
}

/** Bytes that the values take in memory, roughly. Throws on a value that cannot be bound (C1). */
export function checkValues(values: readonly Value[]): number {
  let bytes = 0;
  for (const value of values) {
    switch (typeof value) {
      case "string":
        bytes += value.length;
        break;
      case "number":
        // SQLite stores NaN as NULL.
        if (Number.isNaN(value)) throw new InvariantError("NaN cannot be stored");
        bytes += 8;
        break;
      case "bigint":
        bytes += 8;
        break;
      default:
        if (value === null) break;
        if (!(value instanceof Uint8Array)) throw new InvariantError(`a ${typeof value} cannot be stored`);
        bytes += value.byteLength;
    }
  }
  return bytes;
}

function bindable(values: readonly Value[]): readonly Value[] {
  for (const value of values) {
    if (typeof value === "string" && value.includes("\0")) {
      return values.map((v) => (typeof v === "string" && v.includes("\0") ? Buffer.from(v) : v));
    }
  }
  return values;
}

function readable(value: unknown, is_text: boolean): Value {
  if (value === null || typeof value !== "object") return value as Value;
  // Blobs come as Buffer or as ArrayBuffer, by the libsql call that read them.
  const bytes = value instanceof ArrayBuffer ? new Uint8Array(value) : (value as Uint8Array);
  return is_text ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString() : bytes;
}

/** SQLite's name of an error (`SQLITE_FULL`), or an empty string for anything else that was thrown. */
export function sqliteCode(thrown: unknown): string {
  const code = thrown instanceof Error && "code" in thrown ? thrown.code : "";
  return typeof code === "string" && code.startsWith("SQLITE_") ? code : "";
}

/** Expected, as everything that runs out: no fault, and over when there is space again. */
export function diskFull(cause?: unknown): AppError {
  const hint = "free space where the data directory is, or delete functions that are not needed";
  return new AppError("CAPACITY_FULL", "the store's disk is full", { hint, retry_after: 1, cause });
}

/** What callers of the store get for an error of the database. Values never appear in SQLite's messages. */
export function storeError(thrown: unknown): unknown {
  const code = sqliteCode(thrown);
  if (code === "") return thrown;
  if (code === "SQLITE_FULL") return diskFull(thrown);
  const text = /^SQLITE_(READONLY|IOERR_(WRITE|TRUNCATE|FSYNC))/.test(code)
    ? `the store's disk cannot be written (${code})`
    : code.startsWith("SQLITE_CONSTRAINT")
      ? `the store refused a record: ${errorText(thrown)}`
      : `the store failed with ${code}: ${errorText(thrown)}`;
  return new AppError("INTERNAL", text, { cause: thrown });
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
      invariant(found.length < rows_max, `a read passed ${rows_max} rows: ${sql}`);
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
    invariant(
      prepared.parameter_count === values.length,
      `${values.length} values for ${prepared.parameter_count} parameters: ${sql}`,
    );
    return prepared;
  }
}
