/**
 * The SQL dialect that every implementation of the store shares: SQLite's. Here alone statements are checked, values are
 * encoded and errors are translated, so that a store means the same in a file and on a server.
 *
 * D1. A statement is one statement with plain `?`, and a value is one that SQLite stores as it is.
 * D2. Text with U+0000 is stored as a blob of its UTF-8 bytes and decoded if the column is declared TEXT: libsql cuts
 *     text at U+0000 when it reads it.
 * D3. The schema's version is SQLite's `user_version`.
 */
import { AppError, errorText, InvariantError, invariant } from "../base/errors.ts";
import type { Statement, Value } from "./store.ts";

/** SQLite has no positive integer for it, so that `abs` of it is an error. */
const OVERFLOWING = "-9223372036854775808";
const QUOTED_OR_COMMENT = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*.*?\*\//gs;

/** Number of `?` in one statement. Throws where a part would be lost silently (D1). */
export function countParameters(sql: string): number {
  const bare = sql.replace(QUOTED_OR_COMMENT, "");
  if (/;\s*\S/.test(bare)) throw new InvariantError(`more than one statement: ${sql}`);
  if (/\?\d|[:@$][A-Za-z_]/.test(bare)) throw new InvariantError(`parameters other than plain '?': ${sql}`);
  return bare.split("?").length - 1;
}

/** Bytes that the values take in memory, roughly. Throws on a value that cannot be bound (D1). */
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

/** Values as they are bound: text with U+0000 as its bytes (D2). */
export function bindable(values: readonly Value[]): readonly Value[] {
  for (const value of values) {
    if (typeof value === "string" && value.includes("\0")) {
      return values.map((v) => (typeof v === "string" && v.includes("\0") ? Buffer.from(v) : v));
    }
  }
  return values;
}

/** A value as it was written (D2). */
export function readable(value: unknown, is_text: boolean): Value {
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

/** A full disk is expected and no fault: it ends when there is space again. */
export function diskFull(cause?: unknown): AppError {
  const hint = "free space on the disk of the data directory, or delete unused functions";
  return new AppError("CAPACITY_FULL", "disk of the store full", { hint, retry_after: 1, cause });
}

/** Translates an error of the database for callers of the store. Values never appear in SQLite's messages. */
export function storeError(thrown: unknown): unknown {
  const code = sqliteCode(thrown);
  if (code === "") return thrown;
  if (code === "SQLITE_FULL") return diskFull(thrown);
  const text = /^SQLITE_(READONLY|IOERR_(WRITE|TRUNCATE|FSYNC))/.test(code)
    ? `cannot write to the disk of the store (${code})`
    : code.startsWith("SQLITE_CONSTRAINT")
      ? `the store refused a record: ${errorText(thrown)}`
      : `the store failed with ${code}: ${errorText(thrown)}`;
  if (!code.startsWith("SQLITE_BUSY")) return new AppError("INTERNAL", text, { cause: thrown });
  const hint = "another process holds a lock on the store's file; fuser names it";
  return new AppError("INTERNAL", text, { hint, cause: thrown });
}

/** Throws unless there is a value for each parameter. */
export function checkParameters(sql: string, parameter_count: number, values: readonly Value[]): void {
  invariant(parameter_count === values.length, `${values.length} values for ${parameter_count} parameters: ${sql}`);
}

/** Returns the statement that inserts `count` rows, with their values side by side. */
export function insertRows(table: string, columns: readonly string[], count: number): string {
  const row = `(${columns.map(() => "?").join(",")})`;
  return `INSERT INTO ${table} (${columns.join(",")}) VALUES ${Array.from({ length: count }, () => row).join(",")}`;
}

export const READ_VERSION: Statement = { sql: "PRAGMA user_version" };

/** Pragmas take no parameters. */
export const writeVersion = (version: number): Statement => ({ sql: `PRAGMA user_version=${version}` });

/** Fails the batch unless the statement before it changed so many rows; for a server that has no other condition. */
export const assertChanges = (count: number): Statement => ({
  sql: `SELECT abs(iif(changes() = ?, 0, ${OVERFLOWING}))`,
  args: [count],
});

/** Fails the batch unless the schema has this version. */
export const assertVersion = (version: number): Statement => ({
  sql: `SELECT abs(iif((SELECT user_version FROM pragma_user_version) = ?, 0, ${OVERFLOWING}))`,
  args: [version],
});
