/** The bounds of a tenant's states: each refusal changes nothing, and other tenants never feel it. */
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { States } from "../../src/icc/state/service.ts";
import { scratchStores } from "../store/scratch.ts";

const TENANT = "acme";
const scratch = scratchStores();

function ground() {
  const store = scratch().open();
  const states = new States({ store, clock: systemClock });
  const put = (key: string, bytes: number, tenant_id = TENANT) =>
    states.put(tenant_id, {
      ...{ key, content_type: "text/plain", data: Buffer.alloc(bytes, "x"), from: "api", if_version: null },
      msg_id: null,
    });
  const facts = async () => {
    const counted = await store.readOne("SELECT state_count, state_bytes FROM icc_tenants WHERE tenant_id = ?", [
      TENANT,
    ]);
    const summed = await store.readOne(
      "SELECT count(*) AS state_count, coalesce(sum(bytes), 0) AS state_bytes FROM icc_states WHERE tenant_id = ?",
      [TENANT],
    );
    return { counted, summed };
  };
  return { store, states, put, facts };
}

describe("states of a tenant", () => {
  it("are at most 10,000 keys, also for writers at the same time", async () => {
    const { store, states, put, facts } = ground();
    await put("first", 10);
    const rows = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      INSERT INTO icc_states (tenant_id, key, version, bytes, updated_ms, content_type, set_by, data)
      SELECT ?, 'k' || i, 1, 1, 0, 'text/plain', 'api', x'' FROM n`;
    const added = LIMITS.state_keys_max - 2;
    await store.write([
      { sql: rows, args: [added, TENANT] },
      {
        sql: "UPDATE icc_tenants SET state_count = state_count + ?, state_bytes = state_bytes + ?",
        args: [added, added],
      },
    ]);
    const settled = await Promise.allSettled(["last-1", "last-2", "last-3"].map((key) => put(key, 1)));
    expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    await expect(put("more", 1)).rejects.toMatchObject({
      code: "QUOTA_EXCEEDED",
      message: expect.stringContaining(`${LIMITS.state_keys_max} keys`),
    });
    expect(await states.find(TENANT, "more")).toBeNull();
    const { counted, summed } = await facts();
    expect(counted).toEqual(summed);
    expect(summed?.state_count).toBe(LIMITS.state_keys_max);
    // A key that is there still takes values, and a deleted one makes room.
    expect((await put("first", 20)).version).toBe(2);
    expect((await put("more", 1, "other")).version).toBe(1);
    await states.delete(TENANT, "first", null);
    await put("more", 1);
    const after = await facts();
    expect(after.counted).toEqual(after.summed);
  });

  it("have at most 256 KiB each, patched ones too", async () => {
    const { states, put, facts } = ground();
    const max = LIMITS.state_value_bytes_max;
    expect((await put("big", max)).version).toBe(1);
    const before = await facts();
    await expect(put("big", max + 1)).rejects.toMatchObject({
      code: "BODY_TOO_LARGE",
      message: expect.stringContaining(`${max + 1} bytes (limit ${max})`),
    });
    await expect(put("new", max + 1)).rejects.toMatchObject({ code: "BODY_TOO_LARGE" });
    const text = Buffer.from(JSON.stringify({ a: "x".repeat(max / 2) }));
    const json = { content_type: "application/json", from: "api", if_version: null, msg_id: null };
    await states.put(TENANT, { ...json, key: "json", data: text });
    const patch = Buffer.from(JSON.stringify({ b: "x".repeat(max / 2) }));
    for (const is_dry of [true, false]) {
      const patching = states.patch(TENANT, { ...json, key: "json", patch, is_dry });
      await expect(patching).rejects.toMatchObject({ code: "BODY_TOO_LARGE" });
    }
    const kept = await states.get(TENANT, "json");
    expect([kept.version, kept.data.byteLength]).toEqual([1, text.byteLength]);
    expect(await states.find(TENANT, "new")).toBeNull();
    expect((await states.get(TENANT, "big")).data.byteLength).toBe(max);
    const after = await facts();
    expect(after.counted).toEqual(after.summed);
    expect(Number(after.summed?.state_bytes)).toBeGreaterThan(Number(before.summed?.state_bytes));
  });

  it("have at most 64 MiB together, and shrink above it", async () => {
    const { store, states, put, facts } = ground();
    await put("a", 1_000);
    await put("b", 100);
    const size = (await facts()).counted;
    const room = 500;
    const filler = LIMITS.state_bytes_max - Number(size?.state_bytes) - room;
    // In place of 255 large values.
    await store.write([{ sql: "UPDATE icc_tenants SET state_bytes = state_bytes + ?", args: [filler] }]);
    await expect(put("b", 100 + room + 1)).rejects.toMatchObject({
      code: "QUOTA_EXCEEDED",
      message: expect.stringContaining(`${LIMITS.state_bytes_max} bytes`),
    });
    await expect(put("c", room)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    expect((await states.get(TENANT, "b")).data.byteLength).toBe(100);
    expect(await states.find(TENANT, "c")).toBeNull();
    expect((await put("b", 100 + room)).version).toBe(2);
    expect((await put("a", 500)).version).toBe(2);
    expect((await put("c", 100)).version).toBe(1);
    expect((await put("c", 1_000, "other")).version).toBe(1);
  });
});

describe("a watcher of states", () => {
  it("that takes nothing holds one change of each key, and ends above its bound", async () => {
    const { states, put } = ground();
    await put("a", 1);
    const ending = new AbortController();
    const watch = states.watch(TENANT, "", ending.signal);
    expect(await watch.next()).toMatchObject({ value: { key: "a", version: 1 } });
    for (let i = 0; i < 5; i++) await put("a", 10 + i);
    expect(await watch.next()).toMatchObject({ value: { key: "a", version: 6 } });
    // Keys that were deleted meanwhile count too: each is one more to look at.
    for (let i = 0; i <= LIMITS.state_watch_changes_max; i++) states.containerEnded(`ctr_${i}`);
    expect(await watch.next()).toEqual({ done: true, value: undefined });
    const again = states.watch(TENANT, "", ending.signal);
    expect(await again.next()).toMatchObject({ value: { key: "a", version: 6 } });
    ending.abort();
    expect(await again.next()).toEqual({ done: true, value: undefined });
  });

  it("sees nothing of another tenant, whatever its key", async () => {
    const { states, put } = ground();
    const ending = new AbortController();
    await put("ctr_1", 1);
    const watch = states.watch("other", "", ending.signal);
    const next = watch.next();
    await put("ctr_1", 2);
    states.containerEnded("ctr_1");
    await put("mine", 3, "other");
    expect(await next).toMatchObject({ value: { key: "mine", version: 1 } });
    ending.abort();
    expect((await watch.next()).done).toBe(true);
  });
});
