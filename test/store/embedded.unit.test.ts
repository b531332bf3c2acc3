/** The embedded store: the contract, and what only a file has (log size, crash, damage, full disk). */
import { spawn } from "node:child_process";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { storeContract } from "./contract.ts";
import { NOTES } from "./notes.ts";
import { scratchStores } from "./scratch.ts";

describe("the store contract on an embedded file", () => {
  const scratch = scratchStores();
  storeContract(() => scratch().open({ migrations: NOTES }));
});

describe("a bounded writer", () => {
  const scratch = scratchStores();

  it("commits the rows and batches of one turn together", async () => {
    const store = scratch().open({ migrations: NOTES });
    const counts: number[] = [];
    store.onCommit((items_count) => counts.push(items_count));
    const append = store.appender("notes", ["id"]);
    const batch = store.write([{ sql: "INSERT INTO notes (id) VALUES (3)" }]);
    await Promise.all([append([1]), append([2]), batch]);
    await append([4]);
    expect(counts).toEqual([3, 1]);
  });

  it("refuses with CAPACITY_FULL when too many items wait, and takes new ones afterwards", async () => {
    const store = scratch().open({ migrations: NOTES, limits: { writer_queue_max: 10, writer_batch_max: 3 } });
    const append = store.appender("notes", ["id"]);
    const outcomes = await Promise.allSettled(Array.from({ length: 15 }, (_, id) => append([id])));
    const refused = outcomes.filter(({ status }) => status === "rejected");
    expect(refused).toHaveLength(5);
    expect(refused[0]).toMatchObject({ reason: { code: "CAPACITY_FULL", retry_after: 1 } });
    await append([100]);
    expect((await store.readOne("SELECT count(*) AS n FROM notes"))?.n).toBe(11);
  });

  it("counts waiting bytes too", async () => {
    const store = scratch().open({ migrations: NOTES, limits: { writer_queue_bytes_max: 1_000 } });
    const append = store.appender("notes", ["body"]);
    const outcomes = await Promise.allSettled(Array.from({ length: 3 }, () => append(["x".repeat(400)])));
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
  });

  it("splits what waits into transactions of bounded bytes without losing any", async () => {
    const store = scratch().open({ migrations: NOTES, limits: { writer_batch_bytes_max: 1_000 } });
    const append = store.appender("notes", ["body"]);
    await Promise.all(Array.from({ length: 20 }, () => append(["x".repeat(3_000)])));
    expect((await store.readOne("SELECT count(*) AS n FROM notes"))?.n).toBe(20);
  });
});

describe("the write-ahead log", () => {
  const scratch = scratchStores();

  it("is begun again under constant writing, with nothing lost", async () => {
    const { path, open } = scratch();
    const store = open({
      migrations: NOTES,
      limits: { wal_checkpoint_bytes: 64 * 1024, wal_restart_bytes: 256 * 1024 },
    });
    const append = store.appender("notes", ["id", "body"]);
    const body = "x".repeat(2_000);
    const written = { count: 0, shrunk: 0, wal_bytes: 0 };
    const deadline_ms = performance.now() + 20_000;
    // A log that is begun again gives back what it has above `wal_restart_bytes`. There is never a pause to do it in.
    while (written.shrunk < 3) {
      if (performance.now() > deadline_ms) throw new Error(`the log was begun again ${written.shrunk} times only`);
      await Promise.all(Array.from({ length: 10 }, () => append([written.count++, body])));
      const wal_bytes = statSync(`${path}-wal`).size;
      if (wal_bytes < written.wal_bytes) written.shrunk++;
      written.wal_bytes = wal_bytes;
    }
    expect(await store.readOne("SELECT count(*) AS n, sum(length(body)) AS bytes FROM notes")).toEqual({
      n: written.count,
      bytes: written.count * 2_000,
    });
    await store.close();
    expect(existsSync(`${path}-wal`) ? statSync(`${path}-wal`).size : 0).toBe(0);
  });

  it("holds commits at its hard bound until a checkpoint is through, and then goes on", async () => {
    const { path, open } = scratch();
    const limits = { wal_checkpoint_bytes: 32 * 1024, wal_restart_bytes: 128 * 1024, wal_bytes_max: 128 * 1024 };
    const store = open({ migrations: NOTES, limits });
    const append = store.appender("notes", ["id", "body"]);
    await Promise.all(
      Array.from({ length: 400 }, (_, id) => store.write([{ sql: "INSERT INTO notes (id) VALUES (?)", args: [id] }])),
    );
    const sizes: number[] = [];
    for (let id = 1_000; id < 1_400; id++) {
      await append([id, "x".repeat(8_000)]);
      sizes.push(statSync(`${path}-wal`).size);
    }
    expect(Math.max(...sizes)).toBeLessThan(256 * 1024);
    expect((await store.readOne("SELECT count(*) AS n FROM notes"))?.n).toBe(800);
  });
});

describe("a store that meets trouble", () => {
  const scratch = scratchStores();

  it("refuses what does not fit on a full disk, keeps what fits, and works again when there is space", async () => {
    const store = scratch().open({ migrations: NOTES });
    const append = store.appender("notes", ["id", "body"]);
    await append([1, "first"]);
    // The file may not grow any more: what SQLite reports is what it reports for a full disk.
    await store.write([{ sql: "PRAGMA max_page_count=1" }]).catch(() => {});
    const big = "x".repeat(100_000);
    const outcomes = await Promise.allSettled([append([2, "small"]), append([3, big]), append([4, "small too"])]);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(outcomes[1]).toMatchObject({ reason: { code: "CAPACITY_FULL", message: "disk of the store full" } });
    await store.write([{ sql: "PRAGMA max_page_count=1000000" }]).catch(() => {});
    await append([5, big]);
    const rows = await store.read("SELECT id FROM notes ORDER BY id");
    expect(rows.map(({ id }) => id)).toEqual([1, 2, 4, 5]);
  });

  it("says so when the file is no database", () => {
    const { path, open } = scratch();
    writeFileSync(path, "this is certainly not a database, it is a text of some length\n".repeat(50));
    expect(() => open()).toThrow(`the store ${path} is damaged or not a database`);
  });

  it("says so when its directory cannot be made", () => {
    const { directory, open } = scratch();
    writeFileSync(`${directory}/file`, "");
    expect(() => open({ path: `${directory}/file/hearth.db` })).toThrow(/file\/hearth\.db cannot be opened/);
  });

  it("refuses a read that would return more rows than its bound", async () => {
    const store = scratch().open({ migrations: NOTES, limits: { store_read_rows_max: 3 } });
    const append = store.appender("notes", ["id"]);
    await Promise.all([1, 2, 3, 4].map((id) => append([id])));
    await expect(store.read("SELECT id FROM notes")).rejects.toThrow(/read too large \(limit 3 rows\)/);
    expect(await store.read("SELECT id FROM notes LIMIT 3")).toHaveLength(3);
  });

  it("keeps every record that it acknowledged before the process was killed", async () => {
    const { path, open } = scratch();
    const writer = spawn(process.execPath, [join(import.meta.dirname, "crash-writer.ts"), path], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let text = "";
    for await (const chunk of writer.stdout.setEncoding("utf8")) {
      text += chunk;
      if (text.length > 20_000) writer.kill("SIGKILL");
    }
    const acknowledged = text.split("\n").slice(0, -1).map(Number);
    expect(acknowledged.length).toBeGreaterThan(1_000);
    const store = open({ migrations: NOTES });
    const present = new Set((await store.read("SELECT id FROM notes")).map(({ id }) => Number(id)));
    expect(acknowledged.filter((id) => !present.has(id))).toEqual([]);
  });
});

describe("migrations", () => {
  const scratch = scratchStores();

  it("make the tables of the first release in an empty file, readable by its owner alone", async () => {
    const { path, open } = scratch();
    const rows = await open().read("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
    expect(rows.map(({ name }) => name).sort()).toEqual(
      [
        ...["api_keys", "function_versions", "functions", "invocations", "meta", "tenants"],
        ...["audit", "event_horizons", "events", "operations"],
        ...["containers", "container_volumes", "exec_jobs", "volumes"],
        ...[
          "code",
          "idempotency_keys",
          "nodes",
          "oci_images",
          "secrets",
          "services",
          "snapshots",
          "snapshot_schedules",
        ],
        ...["build_cache", "build_contexts"],
        ...["api_key_containers", "user_logins", "users"],
        ...["icc_tenants", "icc_inboxes", "icc_entries", "icc_keys", "icc_dead", "icc_gone", "icc_grants"],
        ...["icc_bindings", "icc_subscriptions", "icc_states"],
      ].sort(),
    );
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it("apply what is new to an existing file, each once", async () => {
    const { open } = scratch();
    const first = open({ migrations: NOTES });
    await first.write([{ sql: "INSERT INTO notes (id, name) VALUES (1, 'kept')" }]);
    await first.close();
    const added = { version: 2, statements: ["ALTER TABLE notes ADD COLUMN colour TEXT DEFAULT 'red'"] };
    await open({ migrations: [...NOTES, added] }).close();
    const again = open({ migrations: [...NOTES, added] });
    expect(await again.readOne("SELECT name, colour FROM notes")).toEqual({ name: "kept", colour: "red" });
    expect(await again.readOne("PRAGMA user_version")).toEqual({ user_version: 2 });
  });

  it("leave the file as it was when a step fails", async () => {
    const { open } = scratch();
    await open({ migrations: NOTES }).close();
    const broken = { version: 2, statements: ["CREATE TABLE half (id INTEGER)", "CREATE TABLE notes (id INTEGER)"] };
    expect(() => open({ migrations: [...NOTES, broken] })).toThrow(/cannot migrate the store .* to schema 2/);
    const store = open({ migrations: NOTES });
    expect(await store.readOne("SELECT name FROM sqlite_master WHERE name = 'half'")).toBeNull();
  });

  it("refuse a file that a newer program has written", async () => {
    const { path, open } = scratch();
    await open({ migrations: [{ version: 999, statements: [] }] }).close();
    expect(() => open()).toThrow(
      `schema of the store ${path} too new: 999 (this version supports up to ${MIGRATIONS.length})`,
    );
  });
});
