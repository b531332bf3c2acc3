/** What every implementation of the store port promises (S1–S5 in store.ts). Expects the `NOTES` schema. */
import { beforeEach, expect, it } from "vitest";
import type { Store } from "../../src/store/store.ts";

const INSERT = "INSERT INTO notes (id, name) VALUES (?, ?)";

export function storeContract(open: () => Promise<Store> | Store): void {
  const held: { store: Store | null } = { store: null };
  const store = (): Store => {
    if (held.store === null) throw new Error("no store is open");
    return held.store;
  };
  const names = async () => (await store().read("SELECT name FROM notes ORDER BY id")).map(({ name }) => name);

  beforeEach(async () => {
    held.store = await open();
  });

  it("gives back what was written: text, whole numbers, fractions, bytes and null", async () => {
    const raw = new Uint8Array([0, 1, 254, 255]);
    await store().write([
      {
        sql: "INSERT INTO notes (id, name, body, raw, size, ratio) VALUES (?, ?, ?, ?, ?, ?)",
        args: [1, "größe ✓", null, raw, 2 ** 40, 0.5],
      },
    ]);
    const row = await store().readOne("SELECT * FROM notes");
    expect(row).toEqual({ id: 1, name: "größe ✓", body: null, raw: expect.anything(), size: 2 ** 40, ratio: 0.5 });
    expect(Buffer.from((row?.raw ?? []) as Uint8Array)).toEqual(Buffer.from(raw));
    expect(Object.keys(row ?? {})).toEqual(["id", "name", "body", "raw", "size", "ratio"]);
  });

  it("keeps text with U+0000 whole, in one row and in many", async () => {
    await store().write([{ sql: "INSERT INTO notes (id, body) VALUES (?, ?)", args: [1, "a\0b\0"] }]);
    const append = store().appender("notes", ["id", "body"]);
    await Promise.all([append([2, "\0"]), append([3, "plain"])]);
    const rows = await store().read("SELECT body FROM notes ORDER BY id");
    expect(rows.map(({ body }) => body)).toEqual(["a\0b\0", "\0", "plain"]);
  });

  it("keeps outputs of a megabyte", async () => {
    const append = store().appender("notes", ["id", "name", "body"]);
    const texts = ["x".repeat(1024 * 1024), "é".repeat(512 * 1024), "short"];
    await Promise.all(texts.map((text, id) => append([id, `n${id}`, text])));
    const rows = await store().read("SELECT body FROM notes ORDER BY id");
    expect(rows.map(({ body }) => body === texts[rows.findIndex((row) => row.body === body)])).toEqual([
      true,
      true,
      true,
    ]);
    expect(rows.map(({ body }) => String(body).length)).toEqual([1024 * 1024, 512 * 1024, 5]);
  });

  it("answers null where no row is", async () => {
    expect(await store().readOne("SELECT * FROM notes WHERE id = ?", [7])).toBeNull();
    expect(await store().read("SELECT * FROM notes")).toEqual([]);
  });

  it("reports the changed rows of each statement", async () => {
    await store().write([1, 2, 3].map((id) => ({ sql: INSERT, args: [id, `n${id}`] })));
    const { changes, conflict } = await store().write([
      { sql: "UPDATE notes SET size = 1 WHERE id > ?", args: [1] },
      { sql: "DELETE FROM notes WHERE id = ?", args: [9] },
      { sql: "INSERT INTO notes (id, name) VALUES (?, ?) ON CONFLICT DO NOTHING", args: [1, "other"] },
    ]);
    expect({ changes, conflict }).toEqual({ changes: [2, 0, 0], conflict: null });
  });

  it("sees a write as soon as its promise has resolved", async () => {
    for (let id = 0; id < 50; id++) {
      await store().write([{ sql: INSERT, args: [id, `n${id}`] }], { durable: id % 10 === 0 });
      expect((await store().readOne("SELECT count(*) AS n FROM notes"))?.n).toBe(id + 1);
    }
  });

  it("rolls a batch back as a whole when one of its statements is refused", async () => {
    const batch = [
      { sql: INSERT, args: [1, "a"] },
      { sql: INSERT, args: [2, "a"] },
    ];
    await expect(store().write(batch)).rejects.toMatchObject({ code: "INTERNAL" });
    expect(await names()).toEqual([]);
  });

  it("rolls a batch back and names the statement when an expectation is missed", async () => {
    const result = await store().write([
      { sql: INSERT, args: [1, "a"] },
      { sql: "UPDATE notes SET body = 'x' WHERE id = ?", args: [5], expect_changes: 1 },
      { sql: INSERT, args: [2, "b"] },
    ]);
    expect(result).toEqual({ conflict: 1, changes: [] });
    expect(await names()).toEqual([]);
  });

  it("lets exactly one of many compare-and-sets win", async () => {
    await store().write([{ sql: "INSERT INTO notes (id, size) VALUES (1, 0)" }]);
    const results = await Promise.all(
      Array.from({ length: 20 }, () =>
        store().write([{ sql: "UPDATE notes SET size = 1 WHERE id = 1 AND size = 0", expect_changes: 1 }]),
      ),
    );
    expect(results.filter(({ conflict }) => conflict === null)).toHaveLength(1);
  });

  it("commits the neighbours of a batch that fails, in the order of the calls", async () => {
    const outcomes = await Promise.allSettled([
      store().write([{ sql: INSERT, args: [1, "a"] }]),
      store().write([{ sql: INSERT, args: [2, "a"] }]),
      store().write([
        { sql: INSERT, args: [3, "c"] },
        { sql: INSERT, args: [4, "a"] },
      ]),
      store().write([{ sql: "SELEC nonsense" }]),
      store().write([{ sql: INSERT, args: [5, "e"] }], { durable: true }),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual([
      "fulfilled",
      "rejected",
      "rejected",
      "rejected",
      "fulfilled",
    ]);
    expect(await names()).toEqual(["a", "e"]);
  });

  it("refuses only the one row that is wrong among appended ones", async () => {
    const append = store().appender("notes", ["id", "name"]);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 43 }, (_, id) => append([id === 30 ? 3 : id, `n${id}`])),
    );
    expect(outcomes.flatMap(({ status }, id) => (status === "rejected" ? [id] : []))).toEqual([30]);
    expect(await names()).toHaveLength(42);
  });

  it("takes appended rows of two tables and batches in one turn", async () => {
    const notes = store().appender("notes", ["id", "name"]);
    const sizes = store().appender("notes", ["id", "size"]);
    await Promise.all([
      ...[1, 2, 3].map((id) => notes([id, `n${id}`])),
      ...[4, 5].map((id) => sizes([id, id * 10])),
      store().write([{ sql: INSERT, args: [6, "batch"] }]),
    ]);
    const rows = await store().read("SELECT id, name, size FROM notes ORDER BY id");
    expect(rows.map(({ id, name, size }) => [id, name, size])).toEqual([
      [1, "n1", null],
      [2, "n2", null],
      [3, "n3", null],
      [4, null, 40],
      [5, null, 50],
      [6, "batch", null],
    ]);
  });

  it("refuses values and texts that would be stored wrongly without a word, and stays usable", async () => {
    const wrong: unknown[][] = [[true, "a"], [undefined, "a"], [{}, "a"], [Number.NaN, "a"], [1], [1, "a", "b"]];
    for (const args of wrong) await expect(store().write([{ sql: INSERT, args: args as string[] }])).rejects.toThrow();
    const append = store().appender("notes", ["id", "name"]);
    for (const args of wrong) await expect(append(args as string[])).rejects.toThrow();
    await expect(store().write([{ sql: `${INSERT}; DELETE FROM notes`, args: [1, "a"] }])).rejects.toThrow(
      /one statement/,
    );
    await expect(store().write([{ sql: "DELETE FROM notes WHERE id = ?1", args: [1] }])).rejects.toThrow(/plain/);
    await expect(store().read("SELECT * FROM notes WHERE id = ?")).rejects.toThrow(/0 values for 1 parameters/);
    expect(await names()).toEqual([]);
    await store().write([{ sql: INSERT, args: [1, "it's; a ? 'name'"] }]);
    expect(await names()).toEqual(["it's; a ? 'name'"]);
  });

  it("tells of each commit how much it held, and of what waits while it waits", async () => {
    const commits: { items_count: number; duration_ms: number }[] = [];
    store().onCommit((items_count, duration_ms) => commits.push({ items_count, duration_ms }));
    const append = store().appender("notes", ["id", "name"]);
    const three = Promise.all([append([1, "a"]), append([2, "b"]), store().write([{ sql: INSERT, args: [3, "c"] }])]);
    expect(store().stats()).toMatchObject({ queue_count: 3, queue_bytes: expect.any(Number) });
    expect(store().stats().queue_bytes).toBeGreaterThan(0);
    await three;
    await append([4, "d"]);
    const last = commits.pop();
    expect(commits.reduce((sum, { items_count }) => sum + items_count, 0)).toBe(3);
    expect(last?.items_count).toBe(1);
    expect(commits.every(({ duration_ms }) => duration_ms > 0)).toBe(true);
    expect(store().stats()).toMatchObject({ queue_count: 0, queue_bytes: 0 });
    expect(store().stats().wal_bytes).toBeGreaterThanOrEqual(0);
  });

  it("finishes what was asked for before close, and refuses what comes after", async () => {
    const append = store().appender("notes", ["id", "name"]);
    const before = [append([1, "a"]), store().write([{ sql: INSERT, args: [2, "b"] }], { durable: true })];
    const closing = store().close();
    await expect(append([3, "c"])).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    await expect(store().read("SELECT 1")).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    expect((await Promise.allSettled(before)).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled"]);
    await closing;
  });
}
