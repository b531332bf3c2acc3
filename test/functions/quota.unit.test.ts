/** What a tenant may own, and what is taken from one that has more, against a real store. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { DEFAULT_TENANT_ID, type NodeBounds, type TenantLimits } from "../../src/base/tenant-limits.ts";
import { guards, refusalOf, trimStorage } from "../../src/functions/quota.ts";
import type { Store } from "../../src/store/store.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { nodeQuotas } from "./node-quotas.ts";

const MEGABYTE = 1024 * 1024;
const never = () => false;
/** Of a node whose store's disk has 20 MB: a tenth of it is the default. */
const quotas = nodeQuotas({ store_disk_mb: 20 });

/** `limits`: as the operator set them. */
async function makeTenant(store: Store, id: string, limits: Partial<TenantLimits>, state = "active"): Promise<void> {
  const sql = "INSERT INTO tenants (id, name, created_at, state) VALUES (?, ?, 0, ?)";
  await store.write([{ sql, args: [id, id, state] }]);
  quotas.set(id, limits);
}

async function makeFunction(store: Store, seq: number, tenant_id: string, handler = "cat"): Promise<void> {
  await store.write([
    {
      sql: `INSERT INTO functions (seq, id, tenant_id, name, state, current_version, min_instances, max_instances,
        cleanup_on_exit, created_at, updated_at) VALUES (?, ?, ?, ?, 'active', 1, 0, 1, 1, 0, 0)`,
      args: [seq, `fn_${seq}`, tenant_id, `f${seq}`],
    },
    {
      sql: `INSERT INTO function_versions (function_seq, version, id, handler, runtime, environment, memory_limit_mb,
        timeout_seconds, created_at) VALUES (?, 1, ?, ?, 'shell', '{}', 256, 30, 0)`,
      args: [seq, `fv_${seq}`, handler],
    },
  ]);
}

async function makeRecords(store: Store, function_seq: number, seqs: readonly number[], bytes: number): Promise<void> {
  const append = store.appender("invocations", [
    ...["seq", "function_seq", "suffix", "version", "status", "started_at", "ended_at", "duration_ms"],
    ...["stdout", "stderr", "cold_start", "flags", "timings"],
  ]);
  for (const seq of seqs) {
    await append([seq, function_seq, "x", 1, "success", 0, 0, 1, "x".repeat(bytes), "", 0, 0, "{}"]);
  }
}

const storedOf = async (store: Store, tenant_id: string) =>
  Number(
    (await store.readOne("SELECT sum(stored_bytes) AS bytes FROM functions WHERE tenant_id = ?", [tenant_id]))?.bytes,
  );
const recordsOf = async (store: Store, function_seq: number) =>
  (await store.read("SELECT seq FROM invocations WHERE function_seq = ? ORDER BY seq", [function_seq])).map(
    ({ seq }) => seq,
  );

describe("what a tenant has above its storage", () => {
  const scratch = scratchStores();

  it("goes from the oldest records of its largest function, just as much as needed, and from nobody else's", async () => {
    const store = scratch().open();
    await makeTenant(store, "over", { storage_mb_max: 1 });
    await makeTenant(store, "other", { storage_mb_max: 1 });
    await makeTenant(store, "free", { storage_mb_max: null });
    await makeFunction(store, 1, "over");
    await makeFunction(store, 2, "over");
    await makeFunction(store, 3, "other");
    await makeFunction(store, 4, "free");
    await makeRecords(store, 1, [10, 11, 12, 13, 14, 15], 200_000);
    await makeRecords(store, 2, [1, 2], 50_000);
    await makeRecords(store, 3, [3, 4], 300_000);
    await makeRecords(store, 4, [5, 6, 7], 1_000_000);
    await trimStorage(store, quotas, quietLog, never);
    // 1,305,000 and a little: two of 200,500 are the fewest that bring it below nine tenths of 1,048,576.
    expect(await recordsOf(store, 1)).toEqual([12, 13, 14, 15]);
    expect(await storedOf(store, "over")).toBeLessThanOrEqual(0.9 * MEGABYTE);
    expect([await recordsOf(store, 2), await recordsOf(store, 3), await recordsOf(store, 4)]).toEqual([
      [1, 2],
      [3, 4],
      [5, 6, 7],
    ]);
    await trimStorage(store, quotas, quietLog, never);
    expect(await recordsOf(store, 1)).toEqual([12, 13, 14, 15]);
  });

  it("goes above the default too, where the operator set no limit, but for the operator's own tenant", async () => {
    const store = scratch().open();
    await makeTenant(store, "plain", {});
    await makeTenant(store, DEFAULT_TENANT_ID, {});
    await makeFunction(store, 1, "plain");
    await makeFunction(store, 2, DEFAULT_TENANT_ID);
    for (const [seq, first] of [
      [1, 1],
      [2, 11],
    ] as const) {
      await makeRecords(store, seq, [first, first + 1, first + 2], 1_000_000);
    }
    await trimStorage(store, quotas, quietLog, never);
    expect([await recordsOf(store, 1), await recordsOf(store, 2)]).toEqual([[3], [11, 12, 13]]);
  });

  it("leaves the newest records a tenth of a storage that code has used up", async () => {
    const store = scratch().open();
    await makeTenant(store, "coder", { storage_mb_max: 1 });
    await makeFunction(store, 1, "coder");
    await makeRecords(store, 1, [1, 2, 3, 4], 40_000);
    const sql = "INSERT INTO code (tenant_id, digest, size_bytes, entry_count, created_at) VALUES (?, ?, ?, 1, 0)";
    await store.write([{ sql, args: ["coder", "a".repeat(64), 5 * MEGABYTE] }]);
    await trimStorage(store, quotas, quietLog, never);
    expect(await recordsOf(store, 1)).toEqual([3, 4]);
  });

  it("goes from one function after the other when the largest has no more records", async () => {
    const store = scratch().open();
    await makeTenant(store, "over", { storage_mb_max: 0 });
    await makeFunction(store, 1, "over");
    await makeFunction(store, 2, "over", "x".repeat(60_000));
    await makeRecords(store, 1, [1, 2, 3], 1_000);
    await makeRecords(store, 2, [4], 1_000);
    await trimStorage(store, quotas, quietLog, never);
    expect([await recordsOf(store, 1), await recordsOf(store, 2)]).toEqual([[], []]);
    // The functions themselves are their owner's to delete.
    expect(await store.read("SELECT id FROM functions")).toHaveLength(2);
  });

  it("is more than one page, and stays for the next round where there is no time", async () => {
    const store = scratch().open();
    await makeTenant(store, "over", { storage_mb_max: 2 });
    await makeFunction(store, 1, "over");
    await makeRecords(
      store,
      1,
      Array.from({ length: 12 }, (_, n) => n + 1),
      1_000_000,
    );
    const looks = { count: 0 };
    await trimStorage(store, quotas, quietLog, () => looks.count++ > 0);
    const left = await recordsOf(store, 1);
    expect(left.length).toBeLessThan(12);
    expect(left.length).toBeGreaterThan(1);
    await trimStorage(store, quotas, quietLog, never);
    expect(await recordsOf(store, 1)).toEqual([12]);
  });
});

describe("what is made in a tenant", () => {
  const scratch = scratchStores();
  const refusal = async (store: Store, tenant_id: string, new_count = 1) => {
    const quota = guards(quotas, tenant_id, new_count);
    const { conflict } = await store.write(quota.map(({ statement }) => statement));
    return conflict === null ? null : refusalOf(quota, conflict)?.code;
  };

  it("needs a tenant that is there and not about to go", async () => {
    const store = scratch().open();
    await makeTenant(store, "here", { storage_mb_max: null });
    await makeTenant(store, "going", { storage_mb_max: null }, "deleting");
    expect(await refusal(store, "here")).toBeNull();
    expect(await refusal(store, "going")).toBe("UNAUTHORIZED");
    expect(await refusal(store, "nowhere")).toBe("UNAUTHORIZED");
  });

  it("needs room for a function and in the storage; a version needs the second alone", async () => {
    const store = scratch().open();
    await makeTenant(store, "t", { storage_mb_max: 1 });
    quotas.set("t", { storage_mb_max: 1, functions_max: 1 });
    expect(await refusal(store, "t")).toBeNull();
    await makeFunction(store, 1, "t");
    expect([await refusal(store, "t"), await refusal(store, "t", 0)]).toEqual(["QUOTA_EXCEEDED", null]);
    await makeRecords(store, 1, [1, 2], 600_000);
    quotas.set("t", { storage_mb_max: 1, functions_max: null });
    expect([await refusal(store, "t"), await refusal(store, "t", 0)]).toEqual(["QUOTA_EXCEEDED", "QUOTA_EXCEEDED"]);
  });

  it("needs room in the default where the operator set no limit, and none where the limit is null", async () => {
    const store = scratch().open();
    await makeTenant(store, "plain", {});
    await makeTenant(store, DEFAULT_TENANT_ID, {});
    await makeTenant(store, "free", { storage_mb_max: null });
    for (const [seq, id] of ["plain", "free", DEFAULT_TENANT_ID].entries()) {
      await makeFunction(store, seq + 1, id);
      await makeRecords(store, seq + 1, [10 * seq + 1, 10 * seq + 2, 10 * seq + 3], 1_000_000);
    }
    expect(await refusal(store, "plain")).toBe("QUOTA_EXCEEDED");
    expect([await refusal(store, "free"), await refusal(store, DEFAULT_TENANT_ID)]).toEqual([null, null]);
  });

  it("finds room again once records have gone, also while calls add more", async () => {
    const store = scratch().open();
    await makeTenant(store, "t", { storage_mb_max: 1 });
    await makeFunction(store, 1, "t");
    const seqs = Array.from({ length: 110 }, (_, n) => n + 1);
    await makeRecords(store, 1, seqs, 10_000);
    expect(await refusal(store, "t", 0)).toBe("QUOTA_EXCEEDED");
    await trimStorage(store, quotas, quietLog, never);
    await makeRecords(store, 1, [111, 112], 10_000);
    expect(await refusal(store, "t", 0)).toBeNull();
  });
});

describe("the default limits of a tenant", () => {
  const bound = LIMITS.chain_depth_max;
  const nodes: readonly Partial<NodeBounds>[] = [
    {},
    { processes_max: 4_194_304, instances_max: 10_000 },
    { processes_max: 65_536, instances_max: 24 },
    { instances_max: 1, memory_budget_mb: 16 },
  ];

  it("leave other tenants half of the node's instances and half of their processes, in chains of calls too", () => {
    for (const node of nodes) {
      const { instances_max } = nodeQuotas(node).of("t");
      const of = { instances_max: 1_000, processes_max: 32_768, ...node };
      expect(instances_max).toBeGreaterThanOrEqual(1);
      expect(instances_max).toBeLessThanOrEqual(Math.max(1, of.instances_max / 2));
      const processes = ((instances_max ?? Number.POSITIVE_INFINITY) + bound) * LIMITS.instance_pids_max;
      expect(processes).toBeLessThanOrEqual((of.processes_max * LIMITS.kind_processes_ratio) / 2);
    }
    expect(nodeQuotas().of("t").instances_max).toBe(17);
    expect(nodeQuotas({ processes_max: 4_194_304 }).of("t").instances_max).toBe(500);
  });

  it("on memory are half of the budget of instances, and never less than one of the default size", () => {
    expect(nodeQuotas().of("t").memory_mb_max).toBe(6_144);
    expect(nodeQuotas({ memory_budget_mb: 16 }).of("t").memory_mb_max).toBe(LIMITS.memory_limit_mb_default);
    expect(nodeQuotas().of(DEFAULT_TENANT_ID)).toMatchObject({ instances_max: null, memory_mb_max: null });
  });
});

describe("the disk of what is made without a limit", () => {
  it("is the setting's, and on a small disk a part of its tenant's, so that several fit", () => {
    const mb = (disk_mb: number, limits: Partial<TenantLimits> = {}) => {
      const node = nodeQuotas({ disk_mb });
      node.set("t", limits);
      return node.diskLimitMb("t", null);
    };
    expect(mb(122_568)).toBe(1_024);
    expect(mb(2_048)).toBe(64);
    expect(mb(256)).toBe(16);
    expect(mb(2_048, { disk_mb_max: 4_000 })).toBe(500);
    expect(mb(2_048, { disk_mb_max: null })).toBe(null);
    expect(nodeQuotas().diskLimitMb(DEFAULT_TENANT_ID, null)).toBe(null);
    expect(nodeQuotas().diskLimitMb("t", 77)).toBe(77);
  });
});
