/** The audit log on a real store, with the time held by hand. */
import { describe, expect, it } from "vitest";
import type { AuditFilter } from "../../src/audit/schema.ts";
import { Audit } from "../../src/audit/service.ts";
import type { Caller } from "../../src/base/caller.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import type { Served } from "../../src/base/request-observer.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { scratchStores } from "../store/scratch.ts";

const ALL: AuditFilter = { tenant_id: null };

const callerOf = (tenant_id: string, key_id: string): Caller => ({
  tenant_id,
  kind: "key",
  key_id,
  scopes: ["admin"],
  is_operator: false,
  invocation: null,
});

const request = (parts: Partial<Served> = {}): Served => ({
  request_id: "req_1",
  method: "POST",
  route: "/api/functions",
  operation: "createFunction",
  address: "192.0.2.1",
  is_change: true,
  target: "fn_1",
  status: 201,
  error_code: null,
  is_poll: false,
  caller: callerOf("t1", "key_1"),
  begun_ms: 0,
  ended_ms: 1,
  trace: {} as never,
  notes: {},
  ...parts,
});

const refusal = (parts: Partial<Served> = {}) =>
  request({ status: 403, error_code: "FORBIDDEN", target: null, ...parts });
const stranger = { caller: null, status: 401, error_code: "UNAUTHORIZED" } as const;

describe("the audit log", () => {
  const scratch = scratchStores();
  const open = () => {
    const clock = new HandClock();
    clock.now_ms = 1_800_000_000_000;
    const store = scratch().open();
    const audit = new Audit({ store, clock });
    const entries = async (filter: AuditFilter = ALL) => (await audit.list(filter, firstPage())).items;
    return { clock, store, audit, entries };
  };

  it("records changes and refusals, and neither reads nor invocations that have a record", async () => {
    const { audit, entries } = open();
    audit.served(request());
    audit.served(request({ method: "GET", is_change: false, status: 200 }));
    audit.served(request({ operation: "invokeFunction", notes: { invocation_id: "inv_1" } }));
    audit.served(refusal({ operation: "invokeFunction", notes: { invocation_id: "inv_2" } }));
    audit.served(refusal({ ...stranger, method: "GET", is_change: false }));
    audit.served(request({ status: 500, error_code: "INTERNAL" }));
    audit.served(request({ route: null, operation: null, status: 404, error_code: "NOT_FOUND" }));
    const found = await entries();
    expect(found.map(({ operation, result, tenant_id }) => [operation, result, tenant_id])).toEqual([
      ["createFunction", "failed", "t1"],
      ["createFunction", "refused", null],
      ["invokeFunction", "refused", "t1"],
      ["createFunction", "success", "t1"],
    ]);
    expect(found.at(-1)).toEqual({
      at: 1_800_000_000,
      tenant_id: "t1",
      credential: "key",
      key_id: "key_1",
      key_name: null,
      address: "192.0.2.1",
      method: "POST",
      route: "/api/functions",
      operation: "createFunction",
      target: "fn_1",
      status: 201,
      result: "success",
      error_code: null,
      request_id: "req_1",
      suppressed_count: 0,
    });
  });

  it("records a flood of refusals at a bounded rate, counts the rest, and every change beside it", async () => {
    const { audit, entries, clock } = open();
    const burst = LIMITS.audit_refusals_burst;
    for (let i = 0; i < burst * 20; i++) audit.served(refusal());
    audit.served(request());
    expect(await entries({ ...ALL, result: "refused" })).toHaveLength(burst);
    expect(await entries({ ...ALL, result: "success" })).toHaveLength(1);
    expect(audit.stats()).toEqual({ dropped_count: 0, suppressed_count: burst * 19 });
    // Another key of the tenant and another tenant have a rate of their own.
    audit.served(refusal({ caller: callerOf("t1", "key_2") }));
    audit.served(refusal({ caller: callerOf("t2", "key_3") }));
    expect(await entries({ ...ALL, key_id: "key_2" })).toHaveLength(1);
    expect(await entries({ ...ALL, tenant_id: "t2" })).toHaveLength(1);
    clock.now_ms += 1_000 / LIMITS.audit_refusals_per_second;
    audit.served(refusal({ request_id: "later" }));
    expect((await entries())[0]).toMatchObject({ request_id: "later", suppressed_count: burst * 19 });
  });

  it("bounds refusals without a credential over all addresses together", async () => {
    const { audit, entries } = open();
    const all_max = LIMITS.audit_refusals_burst * LIMITS.audit_sources_factor;
    for (let i = 0; i < all_max * 3; i++) {
      audit.served(refusal({ ...stranger, address: `198.51.${Math.floor(i / 250)}.${i % 250}` }));
    }
    expect(await entries()).toHaveLength(all_max);
    // One host may have a whole network of IPv6.
    const v6 = open();
    for (let i = 0; i < 200; i++) v6.audit.served(refusal({ ...stranger, address: `2001:db8::${i.toString(16)}` }));
    expect(await v6.entries()).toHaveLength(LIMITS.audit_refusals_burst);
  });

  it("filters by time, key, route, target, result and tenant, and pages without losing or repeating entries", async () => {
    const { audit, entries, clock } = open();
    for (let i = 0; i < 25; i++) {
      clock.now_ms += 1_000;
      const caller = callerOf(i % 2 === 0 ? "t1" : "t2", `key_${i % 3}`);
      audit.served(request({ caller, target: `fn_${i}`, route: i < 5 ? "/api/volumes" : "/api/functions" }));
    }
    const targets = async (filter: Partial<AuditFilter>) =>
      (await entries({ ...ALL, ...filter })).map(({ target }) => target);
    expect(await targets({ tenant_id: "t1", key_id: "key_0" })).toEqual(["fn_24", "fn_18", "fn_12", "fn_6", "fn_0"]);
    expect(await targets({ route: "/api/volumes" })).toEqual(["fn_4", "fn_3", "fn_2", "fn_1", "fn_0"]);
    expect(await targets({ target: "fn_7" })).toEqual(["fn_7"]);
    expect(await targets({ since: 1_800_000_003, until: 1_800_000_005 })).toEqual(["fn_3", "fn_2"]);
    expect(await targets({ result: "failed" })).toEqual([]);
    const seen: (string | null)[] = [];
    for (let below = firstPage().below, isMore = true; isMore; ) {
      const { items, last } = await audit.list({ tenant_id: "t1" }, { limit: 4, below });
      seen.push(...items.map(({ target }) => target));
      isMore = last !== null;
      below = last ?? 0;
    }
    expect(seen).toEqual(Array.from({ length: 13 }, (_, i) => `fn_${24 - 2 * i}`));
    const portions: (string | null)[] = [];
    for await (const portion of audit.all({ tenant_id: "t2" }, firstPage().below)) {
      portions.push(...portion.map(({ target }) => target));
    }
    expect(portions).toEqual(Array.from({ length: 12 }, (_, i) => `fn_${23 - 2 * i}`));
  });

  it("counts the entries of tenants with few new ones too once there are too many such tenants", async () => {
    const { audit, store, clock, entries } = open();
    const surplus_count = 5;
    const plant = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      INSERT INTO audit (at_ms, tenant_id, method, route, operation, status, request_id, is_refusal, suppressed_count)
      SELECT ?, 't0', 'POST', '/', 'planted', 403, i, 1, 0 FROM n`;
    await store.write([
      { sql: plant, args: [LIMITS.audit_refusals_kept_per_tenant + surplus_count - 1, clock.now_ms] },
    ]);
    const serve = async (from: number, to: number) => {
      for (let n = from; n < to; n++) audit.served(refusal({ caller: callerOf(`t${n}`, `key_${n}`) }));
      await entries();
      await audit.prune();
    };
    const kept = async () =>
      Number((await store.readOne("SELECT count(*) AS n FROM audit WHERE tenant_id = 't0'", []))?.n);
    await serve(0, LIMITS.audit_uncounted_tenants_max);
    expect(await kept()).toBe(LIMITS.audit_refusals_kept_per_tenant + surplus_count);
    const last = LIMITS.audit_uncounted_tenants_max;
    await serve(last, last + 1);
    expect(await kept()).toBe(LIMITS.audit_refusals_kept_per_tenant);
  });

  it("keeps changes and refusals of a tenant up to a number and an age each", async () => {
    const { audit, store, clock, entries } = open();
    audit.served(request({ target: "old" }));
    await entries();
    clock.now_ms += LIMITS.audit_kept_seconds * 1_000 + 1;
    const plant = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      INSERT INTO audit (at_ms, tenant_id, method, route, operation, status, request_id, is_refusal, suppressed_count)
      SELECT ?, 't1', 'POST', '/', 'planted', ?, i, ?, 0 FROM n`;
    await store.write([
      { sql: plant, args: [LIMITS.audit_changes_kept_per_tenant + 20, clock.now_ms, 200, 0] },
      { sql: plant, args: [LIMITS.audit_refusals_kept_per_tenant + 30, clock.now_ms, 403, 1] },
    ]);
    for (let i = 0; i < LIMITS.audit_counted_every; i++) audit.served(request({ target: "new" }));
    await entries();
    await audit.prune();
    const planted = (is_refusal: number) =>
      store.readOne(
        `SELECT count(*) AS n, min(CAST(request_id AS INTEGER)) AS first FROM audit
          WHERE is_refusal = ? AND operation = 'planted'`,
        [is_refusal],
      );
    // The newest changes are those that came last.
    const new_count = LIMITS.audit_counted_every;
    const kept_count = LIMITS.audit_changes_kept_per_tenant - new_count;
    // The newest of those that were evicted counts the others.
    expect(await planted(0)).toEqual({ n: kept_count + 1, first: new_count + 20 });
    expect(await planted(1)).toEqual({ n: LIMITS.audit_refusals_kept_per_tenant, first: 31 });
    expect(await entries({ ...ALL, target: "old" })).toEqual([]);
    expect(await entries({ ...ALL, target: "new" })).toHaveLength(new_count);
  });

  it("shows what a key did, however many changes it makes after that, and counts those that are gone", async () => {
    const { clock, audit, store, entries } = open();
    const evil = { operation: "deleteFunction", target: "fn_victim", caller: callerOf("t1", "key_evil") };
    const of = (key_id: string) => entries({ ...ALL, tenant_id: "t1", key_id });
    audit.served(request({ caller: callerOf("t1", "key_other") }));
    audit.served(request(evil));
    const flood = async (operation: string, count: number) => {
      await entries();
      const sql = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ${count})
        INSERT INTO audit (at_ms, tenant_id, credential, key_id, method, route, operation, target, status, request_id,
          is_refusal, suppressed_count)
        SELECT ?, 't1', 'key', 'key_evil', 'POST', '/', ?, i, 200, i, 0, 0 FROM n`;
      await store.write([{ sql, args: [clock.now_ms, operation] }]);
      for (let i = 0; i < LIMITS.audit_counted_every; i++) audit.served(request());
      await entries();
      await audit.prune();
    };
    const rows = "SELECT count(*) AS n, sum(suppressed_count + 1) AS counted FROM audit WHERE tenant_id = 't1'";
    await flood("createFunction", LIMITS.audit_changes_kept_per_tenant + 5_000);
    const deleted = { key_id: "key_evil", operation: "deleteFunction", target: "fn_victim", suppressed_count: 0 };
    expect((await entries({ ...ALL, target: "fn_victim" }))[0]).toMatchObject(deleted);
    await flood("deleteFunction", LIMITS.audit_changes_kept_per_tenant);
    const [{ n, counted } = {}] = await store.read(rows);
    expect(counted).toBe(2 * LIMITS.audit_changes_kept_per_tenant + 5_000 + 2 + 2 * LIMITS.audit_counted_every);
    expect(n).toBeLessThan(LIMITS.audit_changes_kept_per_tenant + 5);
    expect(await of("key_other")).toMatchObject([{ operation: "createFunction", suppressed_count: 0 }]);
    const created = "key_id = 'key_evil' AND operation = 'createFunction'";
    expect(await store.read(`SELECT suppressed_count + 1 AS n FROM audit WHERE ${created}`)).toEqual([
      { n: LIMITS.audit_changes_kept_per_tenant + 5_000 },
    ]);
  });

  it("keeps its bound when the merged changes are of more keys than it keeps", async () => {
    const { clock, audit, store, entries } = open();
    const sql = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000)
      INSERT INTO audit (at_ms, tenant_id, credential, key_id, method, route, operation, status, request_id, is_refusal,
        suppressed_count)
      SELECT ?, 't1', ?, 'key_' || i, 'POST', '/', 'createFunction', 200, i, 0, 0 FROM n`;
    await store.write([{ sql, args: [clock.now_ms, "key"] }]);
    for (let i = 0; i < LIMITS.audit_counted_every; i++) audit.served(request());
    await entries();
    await audit.prune();
    expect(await store.read("SELECT count(*) AS n FROM audit")).toEqual([
      { n: LIMITS.audit_changes_kept_per_tenant + LIMITS.audit_merged_max },
    ]);
  });

  it("counts entries that the store does not take", async () => {
    const { audit, store } = open();
    await store.close();
    audit.served(request());
    await expect.poll(() => audit.stats().dropped_count).toBe(1);
  });
});
