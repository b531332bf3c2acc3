/** Two nodes with one store: each reads which of them ran or holds something. */
import { beforeEach, describe, expect, it } from "vitest";
import { randomIds } from "../../src/base/ids.ts";
import { firstPage } from "../../src/base/paging.ts";
import { ContainerRows, containerCounts } from "../../src/containers/rows.ts";
import { NumberBlocks } from "../../src/functions/records/invocation-numbers.ts";
import { Invocations } from "../../src/functions/records/invocations.ts";
import { FunctionRows } from "../../src/functions/rows.ts";
import { createFunction } from "../../src/functions/schema.ts";
import type { Store, StoredNode } from "../../src/store/store.ts";
import { VolumeRows } from "../../src/volumes/rows.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { called } from "../telemetry/called.ts";
import { quietLog, scratchStores } from "./scratch.ts";
import { container, ONE, openForTwo, TWO } from "./two-nodes.ts";

describe("a store of two nodes", () => {
  const scratch = scratchStores();
  let store: Store;
  beforeEach(async () => {
    store = await openForTwo(scratch());
  });

  it("says which node ran an invocation, whichever reads it", async () => {
    const record = called("f");
    const key = { function_seq: 1, id: record.function_id, name: record.function_name };
    const ids: string[] = [];
    const invocationsOf = async (node: StoredNode) => {
      const numbers = new NumberBlocks(store);
      const options = { store, ids: randomIds(), node, log: quietLog, quotas: nodeQuotas(), numbers };
      const invocations = new Invocations(options);
      await invocations.boot();
      return invocations;
    };
    for (const node of [ONE, TWO]) {
      const invocations = await invocationsOf(node);
      const number = invocations.number();
      await invocations.append(1, number, record, null);
      ids.push(number.id);
    }
    const reader = await invocationsOf(ONE);
    const { items } = await reader.list(key, firstPage());
    expect(items.map(({ invocation_id, execution_node_id }) => [invocation_id, execution_node_id])).toEqual([
      [ids[1], TWO.id],
      [ids[0], ONE.id],
    ]);
  });

  it("says which node owns a function, and shows each node its own to boot", async () => {
    const input = (name: string) => createFunction.parse({ name, handler: "cat" });
    const [one, two] = [new FunctionRows(store, ONE), new FunctionRows(store, TWO)];
    await store.write([
      ...one.insert(
        "a",
        { id: "fn_1", version_id: "fv_1", image: "x", settings: null, api_scopes: [], now: 1, by: "k", note: null },
        input("f"),
      ),
      ...two.insert(
        "a",
        { id: "fn_2", version_id: "fv_2", image: "x", settings: null, api_scopes: [], now: 1, by: "k", note: null },
        input("g"),
      ),
    ]);
    expect((await one.byId("a", "fn_1"))?.record.owner_node_id).toBe(ONE.id);
    expect((await one.byId("a", "fn_2"))?.record.owner_node_id).toBe(TWO.id);
    const booted: string[] = [];
    for await (const { record } of two.inStates(["pending"])) booted.push(record.id);
    expect(booted).toEqual(["fn_2"]);
  });

  it("counts a node's containers against that node's bounds", async () => {
    await store.write([container("ctr_1", ONE), container("ctr_2", TWO), container("ctr_3", TWO)]);
    const rows = new ContainerRows(store, ONE);
    const held: unknown[] = [];
    for await (const { id, node_seq } of rows.all()) held.push([id, node_seq]);
    expect(held).toEqual([
      ["ctr_1", 1],
      ["ctr_2", 2],
      ["ctr_3", 2],
    ]);
    const hasRoom = async (node: StoredNode) =>
      (await store.write([new ContainerRows(store, node).room("a", 2)])).conflict === null;
    expect([await hasRoom(ONE), await hasRoom(TWO)]).toEqual([true, false]);
    const another = await rows.byId("a", "ctr_2");
    if (another === null) throw new Error("no container");
    const hasMemory = async (node: StoredNode) =>
      (await store.write([new ContainerRows(store, node).memory(another, 250)])).conflict === null;
    expect([await hasMemory(ONE), await hasMemory(TWO)]).toEqual([true, false]);
    expect((await containerCounts(store, TWO)).get("running")).toBe(2);
  });

  it("lets a node finish only the deletions of volumes that it holds", async () => {
    const [one, two] = [new VolumeRows(store, ONE), new VolumeRows(store, TWO)];
    const volume = (name: string) => ({ name, labels: {}, quota_mb: null });
    await store.write([...one.insert("a", "vol_1", volume("v"), 1), ...two.insert("a", "vol_2", volume("w"), 1)]);
    await store.write([one.end("vol_1", 2), two.end("vol_2", 2)]);
    expect(await one.ids()).toEqual({ all: ["vol_1", "vol_2"], held: [], ending: ["vol_1"] });
    expect(await two.ids()).toEqual({ all: ["vol_1", "vol_2"], held: [], ending: ["vol_2"] });
  });
});
