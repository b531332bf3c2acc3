/** A small schema for tests of the store itself. */
import type { Migration } from "../../src/store/migrations.ts";

export const NOTES: readonly Migration[] = [
  {
    version: 1,
    statements: [
      "CREATE TABLE notes (id INTEGER PRIMARY KEY, name TEXT UNIQUE, body TEXT, raw BLOB, size INTEGER, ratio REAL)",
    ],
  },
];
