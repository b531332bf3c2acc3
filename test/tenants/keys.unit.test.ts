/** Keys at rest and in the cache, with the time held by hand. */
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { SCOPES } from "../../src/base/caller.ts";
import type { Clock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { DEFAULT_TENANT_ID } from "../../src/base/tenant-limits.ts";
import { credentialOf } from "../../src/http/auth.ts";
import type { Row, Store, Value } from "../../src/store/store.ts";
import { scratchStores } from "../store/scratch.ts";
import { testKeys } from "./test-keys.ts";

/** A request as Node parsed it. */
const sent = (headers: Readonly<Record<string, string>>, rawHeaders = Object.entries(headers).flat()) => ({
  headers,
  rawHeaders,
});
const refused = expect.objectContaining({ code: "UNAUTHORIZED" });

describe("the credential of a request", () => {
  it("is X-Api-Key or a bearer token", () => {
    expect(credentialOf(sent({ "x-api-key": "k" }))).toBe("k");
    expect(credentialOf(sent({ authorization: "Bearer k" }))).toBe("k");
    expect(credentialOf(sent({ authorization: "bearer  k" }))).toBe("k");
  });

  it("is refused when both are sent, even the same", () => {
    expect(() => credentialOf(sent({ "x-api-key": "k", authorization: "Bearer k" }))).toThrow(
      expect.objectContaining({ code: "TWO_CREDENTIALS" }),
    );
  });

  it("is refused when it comes twice, even the same, and in whatever case", () => {
    for (const name of ["x-api-key", "authorization"] as const) {
      const raw = [name, "Bearer k", "accept", name, name.toUpperCase(), "Bearer k"];
      expect(() => credentialOf(sent({ [name]: "Bearer k" }, raw))).toThrow(
        expect.objectContaining({ code: "TWO_CREDENTIALS", message: expect.stringContaining(`${name} came 2 times`) }),
      );
    }
  });

  it("is missing when there is none, an empty one or another scheme", () => {
    for (const headers of [{}, { "x-api-key": "" }, { authorization: "Basic azpr" }, { authorization: "Bearer " }]) {
      expect(() => credentialOf(sent(headers as Record<string, string>))).toThrow(refused);
    }
  });
});

describe("keys", () => {
  const scratch = scratchStores();
  const open = () => {
    const time = { now_ms: 1_000_000 };
    const clock: Clock = { epochMs: () => time.now_ms, monotonicMs: () => time.now_ms, after: () => () => {} };
    const store = scratch().open();
    const keys = testKeys(store, clock);
    const revoke = (id: string) => store.write([{ sql: "DELETE FROM api_keys WHERE id = ?", args: [id] }]);
    return { time, store, keys, revoke };
  };

  it("come with the tenant default, and are never kept in clear", async () => {
    const { keys, store } = open();
    const key = "hk_0123456789ab_0123456789abcdefghjkmnpqrstvwxyz";
    await keys.ensureBootstrap(key);
    expect(await keys.caller(key)).toMatchObject({ tenant_id: DEFAULT_TENANT_ID, scopes: SCOPES, is_operator: true });
    expect(await store.readOne("SELECT name FROM tenants")).toEqual({ name: "default" });
    const rows = JSON.stringify(await store.read("SELECT * FROM api_keys"));
    expect(rows).not.toContain(key);
    expect(rows).not.toContain(key.split("_")[2]);
  });

  it("can be given by the operator, in any form; a new one replaces the old one at once", async () => {
    const { keys } = open();
    await keys.ensureBootstrap("any/printable=text!");
    await keys.caller("any/printable=text!");
    await keys.ensureBootstrap("any/printable=text!");
    await keys.caller("any/printable=text!");
    await keys.ensureBootstrap("another-printable-text");
    await keys.caller("another-printable-text");
    expect(keys.cached("any/printable=text!")).toBeNull();
    await expect(keys.caller("any/printable=text!")).rejects.toEqual(refused);
  });

  it("are looked up once and then known for a while without the store", async () => {
    const { keys, revoke, time } = open();
    await keys.ensureBootstrap("operator-key-0123");
    const caller = await keys.caller("operator-key-0123");
    expect(keys.cached("operator-key-0123")).toBe(caller);
    // Revoked behind the back of this process: trusted no longer than the cache's time.
    await revoke(caller.key_id);
    expect(keys.cached("operator-key-0123")).toBe(caller);
    time.now_ms += LIMITS.credential_cache_ttl_ms;
    expect(keys.cached("operator-key-0123")).toBeNull();
    await expect(keys.caller("operator-key-0123")).rejects.toEqual(refused);
  });

  it("end at once when they are revoked and forgotten", async () => {
    const { keys, revoke } = open();
    await keys.ensureBootstrap("operator-key-0123");
    const { key_id } = await keys.caller("operator-key-0123");
    await revoke(key_id);
    keys.forget((caller) => caller.key_id === key_id);
    expect(keys.cached("operator-key-0123")).toBeNull();
    await expect(keys.caller("operator-key-0123")).rejects.toEqual(refused);
  });

  it("end at their expiry even while they are cached", async () => {
    const { keys, store, time } = open();
    await keys.ensureBootstrap("operator-key-0123");
    await store.write([{ sql: "UPDATE api_keys SET expires_at = ?", args: [time.now_ms / 1000 + 5] }]);
    await keys.caller("operator-key-0123");
    time.now_ms += 4_999;
    expect(keys.cached("operator-key-0123")).not.toBeNull();
    time.now_ms += 1;
    expect(keys.cached("operator-key-0123")).toBeNull();
    await expect(keys.caller("operator-key-0123")).rejects.toEqual(refused);
  });

  it("that were wrong are looked up again after a second, so a new key works soon", async () => {
    const { keys, store, time } = open();
    await keys.ensureBootstrap("operator-key-0123");
    await expect(keys.caller("a-second-key")).rejects.toEqual(refused);
    const digest = createHash("sha256").update("a-second-key").digest("hex");
    await store.write([
      {
        sql: `INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at)
              VALUES ('second', 'default', 'second', ?, '["read"]', 1)`,
        args: [digest],
      },
    ]);
    await expect(keys.caller("a-second-key")).rejects.toEqual(refused);
    time.now_ms += LIMITS.credential_refusal_ttl_ms;
    expect(await keys.caller("a-second-key")).toEqual({
      tenant_id: "default",
      kind: "key",
      key_id: "second",
      scopes: ["read"],
      is_operator: false,
      invocation: null,
    });
  });

  it("that are looked up while they are revoked do not enter the cache after it", async () => {
    const { store, time } = open();
    const clock: Clock = { epochMs: () => time.now_ms, monotonicMs: () => time.now_ms, after: () => () => {} };
    const { promise: opened, resolve: letGo } = Promise.withResolvers<void>();
    const gate = { wanted: 0 };
    // A store whose answer to one look-up takes its time on the way.
    const slow: Store = {
      write: (statements, options) => store.write(statements, options),
      appender: (table, columns) => store.appender(table, columns),
      read: (sql, args) => store.read(sql, args),
      readOne: async <R extends Row>(sql: string, args?: readonly Value[]) => {
        const row = await store.readOne<R>(sql, args);
        if (gate.wanted-- === 1) await opened;
        return row;
      },
      onCommit: (listener) => store.onCommit(listener),
      stats: () => store.stats(),
      close: () => store.close(),
    };
    const keys = testKeys(slow, clock);
    await keys.ensureBootstrap("operator-key-0123");
    const operator = await keys.caller("operator-key-0123");
    const made = await keys.create(DEFAULT_TENANT_ID, { name: "k" }, operator);
    gate.wanted = 1;
    const lookup = keys.caller(made.key);
    await keys.revoke(DEFAULT_TENANT_ID, made.id);
    letGo();
    // It was good when it was asked for.
    expect(await lookup).toMatchObject({ key_id: made.id });
    expect(keys.cached(made.key)).toBeNull();
    await expect(keys.caller(made.key)).rejects.toEqual(refused);
  });

  it("are given no scope that their maker lacks, and none past the tenant's own bound, by requests at the same time too", async () => {
    const { keys } = open();
    await keys.ensureBootstrap("operator-key-0123");
    const operator = await keys.caller("operator-key-0123");
    const narrow = await keys.caller(
      (await keys.create(DEFAULT_TENANT_ID, { name: "n", scopes: ["admin", "read"] }, operator)).key,
    );
    const tooMuch = keys.create(DEFAULT_TENANT_ID, { name: "x", scopes: ["read", "write"] }, narrow);
    await expect(tooMuch).rejects.toMatchObject({ code: "FORBIDDEN" });
    expect(await keys.create(DEFAULT_TENANT_ID, { name: "same" }, narrow)).toMatchObject({ scopes: ["read", "admin"] });
    const made = await Promise.allSettled(
      Array.from({ length: LIMITS.api_keys_per_tenant_max + 10 }, (_, n) =>
        keys.create(DEFAULT_TENANT_ID, { name: `k${n}`, scopes: ["read"] }, narrow),
      ),
    );
    // Three are there already: the operator's, the one that makes them and one like it.
    expect(made.filter(({ status }) => status === "fulfilled")).toHaveLength(LIMITS.api_keys_per_tenant_max - 3);
    expect(made.find(({ status }) => status === "rejected")).toMatchObject({ reason: { code: "QUOTA_EXCEEDED" } });
  });

  it("that are absurdly long are refused unread", async () => {
    const { keys, store } = open();
    await store.close();
    await expect(keys.caller("x".repeat(LIMITS.credential_length_max + 1))).rejects.toEqual(refused);
  });
});
