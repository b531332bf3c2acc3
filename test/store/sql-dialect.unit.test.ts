/** The words of SQLite's dialect, as each statement outside of the store means them. */
import { expect, it } from "vitest";
import {
  insertInPlace,
  isListed,
  jsonChanged,
  jsonField,
  ROW_NUMBER,
  updateUnlessTaken,
} from "../../src/base/sql-dialect.ts";
import { scratchStores } from "./scratch.ts";

const scratch = scratchStores();

it("reads and changes a field of a JSON object, keeps its type, and removes another", async () => {
  const store = scratch().open();
  const insert = "INSERT INTO meta (key, value) VALUES ('a', ?)";
  await store.write([{ sql: insert, args: ['{"kept":"x","gone":1}'] }]);
  const change = (fields: readonly string[], gone: readonly string[], args: readonly string[]) =>
    store.write([{ sql: `UPDATE meta SET value = ${jsonChanged("value", fields, gone)}`, args }]);
  const stored = async () => JSON.parse(String((await store.readOne("SELECT value FROM meta"))?.value));
  await change(["number", "text"], ["gone"], ["512", '"512"']);
  expect(await stored()).toEqual({ kept: "x", number: 512, text: "512" });
  const fields = ["number", "text", "gone"].map((name) => `${jsonField("value", name)} AS ${name}`).join(", ");
  expect(await store.readOne(`SELECT ${fields} FROM meta`)).toEqual({ number: 512, text: "512", gone: null });
  await change([], ["number"], []);
  await change([], [], []);
  expect(await stored()).toEqual({ kept: "x", text: "512" });
});

it("finds what is listed, leaves alone what is taken, and takes the place of what is there", async () => {
  const store = scratch().open();
  const tenant = (id: string) => ({
    sql: `${insertInPlace("tenants")} (id, name, created_at) VALUES (?, ?, 0)`,
    args: [id, `name of ${id}`],
  });
  await store.write(["a", "b", "c"].map(tenant));
  const rename = `${updateUnlessTaken("tenants")} SET name = ? WHERE id = 'a'`;
  expect((await store.write([{ sql: rename, args: ["name of b"] }])).changes).toEqual([0]);
  expect((await store.write([{ sql: rename, args: ["new"] }])).changes).toEqual([1]);
  await store.write([tenant("a")]);
  const sql = `SELECT ${ROW_NUMBER} AS seq, name FROM tenants WHERE ${isListed("id")} ORDER BY seq`;
  const listed = await store.read(sql, [JSON.stringify(["a", "c", "no"])]);
  expect(listed.map(({ name }) => name)).toEqual(["name of c", "name of a"]);
});
