/**
 * The words of SQLite's dialect that statements outside of the store need, each once. All else that concerns write is
 * standard SQL, or `ON CONFLICT DO NOTHING`. Names are the program's own, never a client's.
 */

/** The number of a row, in a table whose key is text. */
export const ROW_NUMBER = "rowid";

/** A field of a JSON object: a text or a number, NULL where there is none. */
export const jsonField = (column: string, field: string): string => `${column} ->> '${field}'`;

/** The JSON object with other fields, each for one parameter that is JSON, and without some. */
export function jsonChanged(column: string, fields: readonly string[], gone: readonly string[] = []): string {
  const set = fields.map((field) => `, '$.${field}', json(?)`).join("");
  const removed = gone.map((field) => `, '$.${field}'`).join("");
  return `json_remove(json_set(${column}${set})${removed})`;
}

/** The condition that a value is in a list, which one parameter holds as JSON. */
export const isListed = (column: string): string => `${column} IN (SELECT value FROM json_each(?))`;

/** All values of a column as one JSON list. */
export const asList = (column: string): string => `json_group_array(${column})`;

/** The condition that a JSON object has a field with a value, which two parameters name. */
export const hasEntry = (column: string): string =>
  `EXISTS (SELECT 1 FROM json_each(${column}) AS entry WHERE entry.key = ? AND entry.value = ?)`;

/** The items of a list in a JSON object as rows, each with its JSON in `value`. */
export const jsonItems = (column: string, field: string): string => `json_each(${column}, '$.${field}')`;

/** The condition that a text contains what one parameter holds. */
export const contains = (column: string): string => `instr(${column}, ?) > 0`;

/** Begins an update that changes no row where the new values are taken. */
export const updateUnlessTaken = (table: string): string => `UPDATE OR IGNORE ${table}`;

/** Begins an insertion that takes the place of the row with the same key. */
export const insertInPlace = (table: string): string => `INSERT OR REPLACE INTO ${table}`;
