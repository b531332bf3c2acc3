/** The identity of a node: each data directory has its own for good. One takes over the id that the store named before. */
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { randomIds } from "../../src/base/ids.ts";
import { noteStart } from "../../src/store/own-node.ts";
import type { Store } from "../../src/store/store.ts";
import { quietLog, scratchStores } from "./scratch.ts";

const OLD = "node_old";

describe("a node", () => {
  const scratch = scratchStores();
  let store: Store;
  let directory: (name: string) => string;
  beforeEach(() => {
    const place = scratch();
    store = place.open();
    directory = (name) => {
      const path = `${place.directory}/${name}`;
      mkdirSync(path, { recursive: true });
      return path;
    };
  });

  const start = (name: string, through = store) => noteStart(through, directory(name), randomIds(), quietLog);
  const nodes = () => store.read("SELECT seq, id FROM nodes ORDER BY seq");
  /** The store of an earlier version after migration 13. */
  const nameInStore = () =>
    store.write([
      { sql: "INSERT INTO meta (key, value) VALUES ('node_id', ?)", args: [OLD] },
      { sql: "INSERT INTO nodes (seq, id) VALUES (1, ?)", args: [OLD] },
    ]);

  it("is another one for each data directory on the store, and the same at each start", async () => {
    const [first, second] = [await start("a"), await start("b")];
    expect(second.node.id).not.toBe(first.node.id);
    expect(await nodes()).toEqual([
      { seq: first.node.seq, id: first.node.id },
      { seq: second.node.seq, id: second.node.id },
    ]);
    const again = await Promise.all([start("a"), start("b")]);
    expect(again.map(({ node }) => node)).toEqual([first.node, second.node]);
    expect((await start("a")).start_number).toBe(5);
    expect(readFileSync(`${directory("a")}/node-id`, "utf8")).toBe(`${first.node.id}\n`);
    expect(statSync(`${directory("a")}/node-id`).mode & 0o777).toBe(0o600);
  });

  it("takes over the id that an earlier version kept in the store, alone of all", async () => {
    await nameInStore();
    const started = await Promise.all([start("a"), start("b")]);
    const [taker, other] = started.toSorted((one, two) => one.node.seq - two.node.seq);
    expect(taker?.node).toEqual({ id: OLD, seq: 1 });
    expect(other?.node.id).not.toBe(OLD);
    expect((await start("c")).node.id).not.toBe(OLD);
    expect((await Promise.all([start("a"), start("b")])).map(({ node }) => node)).toEqual(
      started.map(({ node }) => node),
    );
  });

  it("does not start with a damaged id, and tells which ids a lost one may have been", async () => {
    const { node } = await start("a");
    const file = `${directory("a")}/node-id`;
    for (const text of ["node_", "two words", `node_${"a".repeat(65)}`, `${node.id}\n${node.id}`, "node_\u0000"]) {
      writeFileSync(file, text);
      await expect(start("a")).rejects.toMatchObject({
        code: "INTERNAL",
        message: `the file ${file} is damaged`,
        hint: expect.stringContaining("owner_node_id"),
      });
    }
    rmSync(file);
    mkdirSync(file);
    await expect(start("a")).rejects.toMatchObject({ message: expect.stringContaining(`the file ${file}: EISDIR`) });
    rmSync(file, { recursive: true });
    const warn = vi.spyOn(quietLog, "warn");
    const other = await start("a");
    expect(warn).toHaveBeenCalledExactlyOnceWith(expect.stringContaining("new node"), {
      file,
      id: other.node.id,
      nodes: node.id,
    });
    writeFileSync(file, `${node.id}\n`);
    expect((await start("a")).node).toEqual(node);
    expect(warn).toHaveBeenCalledOnce();
    warn.mockRestore();
  });

  it("has no second id, wherever its first start with the file was killed", async () => {
    await nameInStore();
    const kills = [0, 1, 2, 3, 4];
    for (const [kill, isAfter] of kills.flatMap((n) => [[n, false] as const, [n, true] as const])) {
      const killed = start(`killed_${kill}_${isAfter}`, killedAt(store, kill, isAfter));
      await expect(killed).rejects.toThrow("killed");
      const { node } = await start(`killed_${kill}_${isAfter}`);
      expect([kill, isAfter, node]).toEqual([kill, isAfter, { id: OLD, seq: 1 }]);
      expect(await nodes()).toEqual([{ seq: 1, id: OLD }]);
      // The state before the first start.
      await store.write([{ sql: "DELETE FROM meta WHERE key = 'node_id_taken_by'" }]);
    }
  });
});

/** A store whose user is killed before or after the call with that number. */
function killedAt(store: Store, kill: number, isAfter: boolean): Store {
  const calls = { count: 0 };
  const passed = async <T>(call: () => Promise<T>): Promise<T> => {
    const isKilled = calls.count++ === kill;
    if (isKilled && !isAfter) throw new Error("killed");
    const answer = await call();
    if (isKilled) throw new Error("killed");
    return answer;
  };
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (name !== "write" && name !== "readOne") return value;
      return (...args: unknown[]) => passed(() => Promise.resolve(Reflect.apply(value as () => unknown, target, args)));
    },
  });
}
