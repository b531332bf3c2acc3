/** The checks of a statement before libsql executes it (D1 in sql.ts). */
import { describe, expect, it } from "vitest";
import { checkValues, countParameters } from "../../src/store/sql.ts";
import type { Value } from "../../src/store/store.ts";

describe("countParameters", () => {
  it("counts question marks outside of quotes and comments", () => {
    expect(countParameters("SELECT ?, '?', \"a?b\", 'it''s ?' -- ?\n, ? /* ? \n ? */ FROM t")).toBe(2);
    expect(countParameters("SELECT 1")).toBe(0);
  });

  it("takes a trailing semicolon but not a second statement", () => {
    expect(countParameters("DELETE FROM t WHERE a = ?; ")).toBe(1);
    expect(countParameters("SELECT ';' FROM t")).toBe(0);
    expect(() => countParameters("DELETE FROM t; DELETE FROM u")).toThrow(/more than one statement/);
  });

  it("refuses numbered and named parameters", () => {
    for (const sql of ["SELECT ?1", "SELECT :a", "SELECT @a", "SELECT $a"]) {
      expect(() => countParameters(sql)).toThrow(/other than plain/);
    }
  });
});

describe("checkValues", () => {
  it("adds up bytes of what can be bound", () => {
    expect(checkValues(["abc", 1, 2n, null, new Uint8Array(5)])).toBe(3 + 8 + 8 + 5);
  });

  it("refuses what libsql would abort on or store as something else", () => {
    const wrong: unknown[] = [true, undefined, {}, [], () => 1, Symbol("a"), Number.NaN, new Date(0)];
    for (const value of wrong) expect(() => checkValues([value as Value])).toThrow();
  });
});
