/** Invocation records in a real store: numbers, ids, reading and pruning. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { randomIds } from "../../../src/base/ids.ts";
import { LIMITS } from "../../../src/base/limits.ts";
import { createLog } from "../../../src/base/log.ts";
import { firstPage } from "../../../src/base/paging.ts";
import { ALL_RECORDS, deleteExpired } from "../../../src/functions/records/byte-paging.ts";
import { NumberBlocks } from "../../../src/functions/records/invocation-numbers.ts";
import { Invocations } from "../../../src/functions/records/invocations.ts";
import type { InvocationRecord } from "../../../src/functions/schema.ts";
import { openEmbedded } from "../../../src/store/embedded.ts";
import type { Row, Store, Value } from "../../../src/store/store.ts";
import { nodeQuotas } from "../node-quotas.ts";

const DAY_SECONDS = 86_400;
const NOW_SECONDS = 2_000_000_000;
const clock: Clock = { ...systemClock, epochMs: () => NOW_SECONDS * 1000 };

let folder: string;
let store: Store;
let invocations: Invocations;
const key = { function_seq: 1, id: "fn_1", name: "f" };

const makeInvocations = () =>
  new Invocations({
    store,
    ids: randomIds(),
    node: { id: "node_1", seq: 1 },
    log: createLog("silent", systemClock),
    quotas: nodeQuotas(),
    numbers: new NumberBlocks(store),
  });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "hearth-invocations-"));
  store = openEmbedded({ path: join(folder, "hearth.db"), clock: systemClock, log: createLog("error", systemClock) });
  invocations = makeInvocations();
  await invocations.boot();
  await store.write([
    { sql: "INSERT INTO nodes (id) VALUES ('node_1'), ('node_2')" },
    {
      sql: `INSERT INTO functions (seq, id, tenant_id, name, state, current_version, min_instances, max_instances,
        cleanup_on_exit, created_at, updated_at) VALUES (1, 'fn_1', 'default', 'f', 'active', 1, 0, 1, 1, 0, 0)`,
    },
  ]);
});

afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true, force: true });
});

async function append(parts: Partial<InvocationRecord> = {}): Promise<InvocationRecord> {
  const number = invocations.number();
  const record: InvocationRecord = {
    invocation_id: number.id,
    function_id: "fn_1",
    function_name: "f",
    version: 1,
    execution_node_id: "node_1",
    status: "success",
    started_at: NOW_SECONDS,
    ended_at: NOW_SECONDS,
    duration_ms: 1,
    exit_code: 0,
    result: { sum: 3 },
    stdout: "out",
    stderr: "",
    stdout_truncated: false,
    stderr_truncated: true,
    error_message: null,
    cold_start: true,
    instance_nonce: "abc",
    timings: { queue: 0, handler: 1, total: 2 },
    ...parts,
  };
  await invocations.append(1, number, record, JSON.stringify(record.result));
  return record;
}

function bound(inner: Store): Store {
  return {
    write: (statements, options) => inner.write(statements, options),
    appender: (table, columns) => inner.appender(table, columns),
    read: (sql, args) => inner.read(sql, args),
    readOne: (sql, args) => inner.readOne(sql, args),
    onCommit: (listener) => inner.onCommit(listener),
    stats: () => inner.stats(),
    close: () => inner.close(),
  };
}

/** Counts the characters of all text that is read from now on. */
function spyOnReads(): { characters: number } {
  const seen = { characters: 0 };
  const read = store.read.bind(store);
  store.read = async <R extends Row>(sql: string, args?: readonly Value[]): Promise<R[]> => {
    const rows = await read<R>(sql, args);
    for (const row of rows) for (const value of Object.values(row)) seen.characters += String(value).length;
    return rows;
  };
  return seen;
}

describe("invocation records", () => {
  it("come back as they went in, by id and newest first", async () => {
    const first = await append({ stdout: "a\0b\u{1f525}", exit_code: null, error_message: "lost", status: "failed" });
    const second = await append();
    expect(await invocations.get(key, first.invocation_id)).toEqual(first);
    expect(await invocations.list(key, firstPage(10))).toEqual({ items: [second, first], last: null });
    const { last, ...newest } = await invocations.list(key, firstPage(1));
    expect(newest).toEqual({ items: [second] });
    expect(await invocations.list(key, { limit: 1, below: Number(last) })).toEqual({ items: [first], last: null });
  });

  it("are listed as far as their texts fit into one answer, and no more is read", async () => {
    const stdout = "x".repeat(LIMITS.output_bytes_max - 4_096);
    const all: InvocationRecord[] = [];
    for (let i = 0; i < 20; i++) all.push(await append({ stdout }));
    const read = spyOnReads();
    const { items, last } = await invocations.list(key, firstPage(1_000));
    expect(items).toEqual(all.reverse().slice(0, 16));
    expect(read.characters).toBeLessThan(LIMITS.list_bytes_max + 100_000);
    expect(await invocations.list(key, { limit: 1_000, below: Number(last) })).toEqual({
      items: all.slice(16),
      last: null,
    });
    expect(await invocations.list(key, firstPage(17))).toMatchObject({ last, items: { length: 16 } });
  });

  it("are listed whole when there are many small ones", async () => {
    const all = await Promise.all(Array.from({ length: 100 }, () => append()));
    expect(await invocations.list(key, firstPage(1_000))).toEqual({ items: all.reverse(), last: null });
    expect((await invocations.list(key, firstPage(77))).items).toEqual(all.slice(0, 77));
  });

  it("are found by their whole id only", async () => {
    const { invocation_id } = await append();
    for (const wrong of [
      `${invocation_id}x`,
      invocation_id.slice(0, -1),
      "inv_1_00000000",
      "inv__",
      "1",
      "inv_zzzzzzzzzzzz_a",
    ]) {
      await expect(invocations.get(key, wrong)).rejects.toMatchObject({ code: "NOT_FOUND" });
    }
    await expect(invocations.get({ ...key, function_seq: 2 }, invocation_id)).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
  });

  it("have ids that tell nothing of how many calls there were, and are the same after a restart", async () => {
    const all: InvocationRecord[] = [];
    for (let i = 0; i < 50; i++) all.push(await append());
    const shown = all.map(({ invocation_id }) => Number.parseInt(invocation_id.split("_")[1] ?? "", 36));
    // The mask has 48 random bits: no id is near the number of its row, and ids do not ascend.
    expect(shown.filter((number) => number < 100_000_000)).toHaveLength(0);
    expect(shown.filter((number, i) => number > (shown[i - 1] ?? 0)).length).toBeLessThan(45);
    const later = makeInvocations();
    await later.boot();
    expect((await later.list(key, firstPage(100))).items).toEqual(all.toReversed());
    for (const record of all) expect(await later.get(key, record.invocation_id)).toEqual(record);
  });

  it("from before ids were masked keep theirs", async () => {
    const number = invocations.number();
    const record = await append();
    const seq = number.seq + 1;
    await store.write([{ sql: "DELETE FROM meta WHERE key = 'invocation_id_mask'", args: [] }]);
    const later = makeInvocations();
    await later.boot();
    const id = `inv_${seq.toString(36)}_${record.invocation_id.split("_")[2]}`;
    expect(await later.get(key, id)).toEqual({ ...record, invocation_id: id });
    await expect(later.get(key, record.invocation_id)).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  it("are counted on their function in the same commit", async () => {
    await append();
    await append({ status: "timeout" });
    const row = await store.readOne(
      "SELECT invocation_count, error_count, last_invoked_at FROM functions WHERE seq = 1",
    );
    expect(row).toEqual({ invocation_count: 2, error_count: 1, last_invoked_at: NOW_SECONDS });
  });

  it("never get a number that an earlier process may have given out", async () => {
    const { seq } = invocations.number();
    const later = makeInvocations();
    await later.boot();
    expect(later.number().seq).toBeGreaterThan(seq + 100_000);
  });

  it("are pruned by count and by age, and no others", async () => {
    const old = await append({ ended_at: NOW_SECONDS - 8 * DAY_SECONDS });
    const kept = [await append({ ended_at: NOW_SECONDS - 6 * DAY_SECONDS }), await append(), await append()];
    await invocations.prune(clock, 100, 7 * DAY_SECONDS);
    expect((await invocations.list(key, firstPage(10))).items).toEqual([...kept].reverse());
    await expect(invocations.get(key, old.invocation_id)).rejects.toMatchObject({ code: "NOT_FOUND" });
    await invocations.prune(clock, 2, 7 * DAY_SECONDS);
    expect((await invocations.list(key, firstPage(10))).items).toEqual([kept[2], kept[1]]);
  });

  it("are pruned until nothing is left to prune, however many they are", async () => {
    const count = 2 * LIMITS.delete_rows_per_pass + 50;
    const all = await Promise.all(Array.from({ length: count }, () => append()));
    await invocations.prune(clock, 10, 7 * DAY_SECONDS);
    expect((await invocations.list(key, firstPage(1_000))).items).toEqual(all.slice(-10).reverse());
  });

  it("are pruned beside one that is kept for its age", async () => {
    const old = { ended_at: NOW_SECONDS - 8 * DAY_SECONDS };
    await append(old);
    const long = await append();
    await append(old);
    await invocations.prune(clock, 100, 7 * DAY_SECONDS);
    expect((await invocations.list(key, firstPage(10))).items).toEqual([long]);
  });

  it("are kept whatever the clock did between them, as long as none is too old by the clock as it is", async () => {
    const times = [0, -3600, DAY_SECONDS, -DAY_SECONDS, 0];
    const kept: InvocationRecord[] = [];
    for (const off of times) kept.unshift(await append({ ended_at: NOW_SECONDS + off }));
    for (const off of times) {
      const now: Clock = { ...clock, epochMs: () => (NOW_SECONDS + off) * 1000 };
      await invocations.prune(now, 100, 3 * DAY_SECONDS);
    }
    expect((await invocations.list(key, firstPage(10))).items).toEqual(kept);
  });

  it("are pruned no longer than the interval, but a page of each function", async () => {
    for (let i = 0; i < LIMITS.delete_rows_per_pass + 1; i++) await append();
    const times = { now_ms: 0 };
    const slow: Clock = { ...clock, monotonicMs: () => (times.now_ms += LIMITS.prune_interval_ms) };
    await invocations.prune(slow, 0, 7 * DAY_SECONDS);
    expect((await invocations.list(key, firstPage(10))).items).toHaveLength(1);
  });

  it("are deleted in statements of a few megabytes and a bounded number of rows", async () => {
    const stdout = "x".repeat(LIMITS.output_bytes_max);
    for (let i = 0; i < 8; i++) await append({ stdout });
    await Promise.all(Array.from({ length: LIMITS.delete_rows_per_pass + 5 }, () => append({ stdout: "" })));
    const deleted: number[] = [];
    const spied: Store = {
      ...bound(store),
      write: async (statements) => {
        const result = await store.write(statements);
        deleted.push(...result.changes);
        return result;
      },
    };
    await deleteExpired(spied, 1, ALL_RECORDS);
    expect(deleted.slice(0, 2)).toEqual([3, 3]);
    expect(Math.max(...deleted)).toBeLessThanOrEqual(LIMITS.delete_rows_per_pass);
    expect(deleted.reduce((sum, count) => sum + count)).toBe(8 + LIMITS.delete_rows_per_pass + 5);
    expect((await invocations.list(key, firstPage(10))).items).toEqual([]);
  });

  it("of functions that are gone are pruned, whatever their age", async () => {
    const record = await append();
    for (const function_seq of [7, 9]) await invocations.append(function_seq, invocations.number(), record, null);
    await invocations.prune(clock, 100, 7 * DAY_SECONDS);
    const left = await store.read("SELECT DISTINCT function_seq FROM invocations");
    expect(left).toEqual([{ function_seq: 1 }]);
  });
});
