/** The store on a server: the contract, the daemon's schema, and what only a connection has. */
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { openRemote, type RemoteLimits } from "../../src/store/remote.ts";
import type { Store } from "../../src/store/store.ts";
import { eventually } from "../support/native.ts";
import { storeContract } from "./contract.ts";
import { NOTES } from "./notes.ts";
import { StoreServer } from "./server.ts";

const INSERT = "INSERT INTO notes (id, name) VALUES (?, ?)";

describe.each(["ws", "http"] as const)("the store contract on a server, over %s", (scheme) => {
  const server = new StoreServer();
  const stores: Store[] = [];
  beforeAll(() => server.start());
  beforeEach(() => server.run("DROP TABLE IF EXISTS notes", "PRAGMA user_version=0"));
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
  });
  afterAll(() => server.dispose());
  storeContract(async () => {
    const store = await openRemote({ url: server.url(scheme), clock: systemClock, migrations: NOTES });
    stores.push(store);
    return store;
  });
});

describe("a store on a server", () => {
  const server = new StoreServer();
  const stores: Store[] = [];
  const open = async (migrations = NOTES, limits: Partial<RemoteLimits> = {}) => {
    const store = await openRemote({ url: server.url("ws"), clock: systemClock, migrations, limits });
    stores.push(store);
    return store;
  };
  const versionOf = async (store: Store) => (await store.readOne("PRAGMA user_version"))?.user_version;
  beforeEach(() => server.start());
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    await server.dispose();
  });

  it("takes the daemon's whole schema", async () => {
    const store = await open(MIGRATIONS);
    expect(await versionOf(store)).toBe(MIGRATIONS.length);
    expect(await store.read("SELECT * FROM invocations")).toEqual([]);
  });

  it("applies new migrations once, all of one or none", async () => {
    const added = { version: 2, statements: ["ALTER TABLE notes ADD COLUMN colour TEXT DEFAULT 'red'"] };
    await (await open()).write([{ sql: INSERT, args: [1, "kept"] }]);
    await open([...NOTES, added]);
    const again = await open([...NOTES, added]);
    expect(await again.readOne("SELECT name, colour FROM notes")).toEqual({ name: "kept", colour: "red" });
    const broken = { version: 3, statements: ["CREATE TABLE half (id INTEGER)", "CREATE TABLE notes (id INTEGER)"] };
    await expect(open([...NOTES, added, broken])).rejects.toThrow(/cannot migrate the store .* to schema 3/);
    expect(await again.readOne("SELECT name FROM sqlite_master WHERE name = 'half'")).toBeNull();
    expect(await versionOf(again)).toBe(2);
    await expect(open()).rejects.toThrow(/too new: 2 \(this version supports up to 1\)/);
  });

  it("refuses items above its bounds with CAPACITY_FULL", async () => {
    const store = await open(NOTES, { writer_queue_max: 10 });
    const append = store.appender("notes", ["id"]);
    const outcomes = await Promise.allSettled(Array.from({ length: 15 }, (_, id) => append([id])));
    const refused = outcomes.filter(({ status }) => status === "rejected");
    expect(refused).toHaveLength(5);
    expect(refused[0]).toMatchObject({ reason: { code: "CAPACITY_FULL", retry_after: 1 } });
  });

  it("refuses writes while the server is down and accepts them again when it is back, with all that it acknowledged", async () => {
    const store = await open();
    await store.write([{ sql: INSERT, args: [1, "before"] }]);
    await server.kill();
    await expect(store.write([{ sql: INSERT, args: [2, "lost"] }])).rejects.toThrow(/cannot reach the store/);
    await expect(store.read("SELECT 1")).rejects.toMatchObject({ code: "INTERNAL" });
    await server.start();
    await eventually("a write is accepted", () =>
      store.write([{ sql: INSERT, args: [3, "after"] }]).then(
        () => true,
        () => false,
      ),
    );
    expect(await store.read("SELECT id FROM notes ORDER BY id")).toEqual([{ id: 1 }, { id: 3 }]);
  });

  it("gives up on a server that stops answering and resumes when it answers again", async () => {
    const store = await open(NOTES, { store_answer_ms: 200 });
    await store.write([{ sql: INSERT, args: [1, "before"] }]);
    await server.pause();
    await expect(store.write([{ sql: INSERT, args: [2, "unknown"] }])).rejects.toThrow(/no response within 200 ms/);
    await expect(store.read("SELECT 1")).rejects.toThrow(/no response within 200 ms/);
    server.resume();
    await eventually("a write is accepted", () =>
      store.write([{ sql: INSERT, args: [3, "after"] }]).then(
        () => true,
        () => false,
      ),
    );
    expect((await store.read("SELECT id FROM notes WHERE id <> 2 ORDER BY id")).map(({ id }) => id)).toEqual([1, 3]);
  });

  it("gives up on a server that accepts connections and never answers", async () => {
    const sockets: Socket[] = [];
    const silent = createServer((socket) => sockets.push(socket));
    silent.listen(0, "127.0.0.1");
    await once(silent, "listening");
    const address = silent.address();
    const url = `ws://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
    const opening = openRemote({ url, clock: systemClock, limits: { store_answer_ms: 50 } });
    await expect(opening).rejects.toThrow(`cannot reach the store ${url}: no response within 50 ms`);
    for (const socket of sockets) socket.destroy();
    silent.close();
    await once(silent, "close");
  });
});
