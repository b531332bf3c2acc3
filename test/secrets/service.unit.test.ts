/** Secrets on a store: who reads which value, what bounds them, and what a changed row is worth. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import { secretName } from "../../src/base/schema.ts";
import { scratchStores } from "../store/scratch.ts";
import { bytes, makeSecrets, textsOf } from "./made.ts";

const scratch = scratchStores();
const refusal = (code: string, text = "") =>
  expect.objectContaining({ code, message: expect.stringContaining(text) as string });

describe("a secret", () => {
  it("is created, replaced and deleted; its record has sizes and times and no value", async () => {
    const { secrets, store, values } = await makeSecrets(scratch());
    const made = await secrets.set("a", "TOKEN", bytes("first value"));
    const time = expect.any(Number) as number;
    expect(made).toEqual({
      record: { name: "TOKEN", size_bytes: 11, created_at: time, updated_at: time },
      is_new: true,
    });
    const again = await secrets.set("a", "TOKEN", bytes("second"));
    expect(again).toEqual({ record: { ...made.record, size_bytes: 6, updated_at: time }, is_new: false });
    expect(await textsOf(values, "a", "TOKEN")).toEqual(["second"]);
    await secrets.remove("a", "TOKEN");
    await expect(secrets.remove("a", "TOKEN")).rejects.toThrow(refusal("NOT_FOUND", "secret 'TOKEN' not found"));
    const events = await store.read("SELECT event_type, data FROM events WHERE name = 'secret_update' ORDER BY seq");
    expect(events.map(({ event_type }) => event_type)).toEqual(["created", "updated", "removed"]);
    for (const { data } of events) expect(JSON.parse(String(data))).toMatchObject({ kind: "secret", secret: "TOKEN" });
    expect(JSON.stringify(events)).not.toMatch(/first|second/);
  });

  it("keeps bytes as they are, from one to the limit, and is refused beyond", async () => {
    const { secrets, values } = await makeSecrets(scratch());
    for (const size of [1, 255, LIMITS.secret_bytes_max]) {
      const value = Buffer.alloc(size, "\0\xff\r\n", "latin1");
      await secrets.set("a", `size-${size}`, value);
      expect((await values.values("a", [`size-${size}`])).get(`size-${size}`)).toEqual(value);
    }
    for (const size of [0, LIMITS.secret_bytes_max + 1]) {
      expect(() => secrets.set("a", "X", Buffer.alloc(size))).toThrow(refusal("INVALID_ARGUMENT", `${size} bytes`));
    }
  });

  it("belongs to its tenant and kind: the same name elsewhere is another secret", async () => {
    const { secrets, of, values, valuesOf } = await makeSecrets(scratch());
    const registry = of("registry");
    await secrets.set("a", "NAME", bytes("of a"));
    await secrets.set("b", "NAME", bytes("of b"));
    await registry.set("a", "NAME", bytes("registry of a"));
    await registry.set("a", "docker.io/library", bytes("any name"));
    expect(await textsOf(values, "a", "NAME")).toEqual(["of a"]);
    expect(await textsOf(values, "b", "NAME")).toEqual(["of b"]);
    expect(await textsOf(valuesOf("registry"), "a", "NAME")).toEqual(["registry of a"]);
    expect((await secrets.list("a", firstPage())).items.map(({ name }) => name)).toEqual(["NAME"]);
    await expect(secrets.get("a", "docker.io/library")).rejects.toThrow(refusal("NOT_FOUND"));
    await secrets.remove("a", "NAME");
    expect(await textsOf(valuesOf("registry"), "a", "NAME")).toEqual(["registry of a"]);
    await secrets.eraseAll("a");
    await expect(registry.get("a", "NAME")).rejects.toThrow(refusal("NOT_FOUND"));
    expect(await textsOf(values, "b", "NAME")).toEqual(["of b"]);
  });

  it("names all missing secrets of a request, the first ten of many", async () => {
    const { secrets, values } = await makeSecrets(scratch());
    await secrets.set("a", "HERE", bytes("x"));
    await secrets.set("b", "THEIRS", bytes("x"));
    expect(await values.values("a", [])).toEqual(new Map());
    const missing = values.values("a", ["HERE", "THEIRS", "NONE", "NONE"]);
    await expect(missing).rejects.toThrow(refusal("NOT_FOUND", "secrets 'THEIRS', 'NONE' not found"));
    const many = Array.from({ length: 12 }, (_, i) => `N${i}`);
    expect(await secrets.missing("a", ["HERE", "THEIRS", "NONE"])).toEqual(["THEIRS", "NONE"]);
    await expect(values.values("a", many)).rejects.toThrow(refusal("NOT_FOUND", "'N9' and 2 more not found"));
  });

  it("is in a list, newest first, page by page; a replaced one keeps its place", async () => {
    const { secrets } = await makeSecrets(scratch());
    for (let i = 0; i < 5; i++) await secrets.set("a", `S${i}`, bytes("x"));
    await secrets.set("a", "S1", bytes("y"));
    const names: string[] = [];
    for (let below = Number.MAX_SAFE_INTEGER; ; ) {
      const { items, last } = await secrets.list("a", { limit: 2, below });
      names.push(...items.map(({ name }) => name));
      if (last === null) break;
      below = last;
    }
    expect(names).toEqual(["S4", "S3", "S2", "S1", "S0"]);
  });

  it("is refused above secrets_max, also by requests at the same time; a replacement is not", async () => {
    const { secrets, of, quotas } = await makeSecrets(scratch());
    quotas.set("a", { secrets_max: 3 });
    const results = await Promise.allSettled(
      Array.from({ length: 8 }, (_, i) => (i % 2 ? secrets : of("registry")).set("a", `S${i}`, bytes("x"))),
    );
    const refused = results.filter(({ status }) => status === "rejected") as PromiseRejectedResult[];
    expect(refused).toHaveLength(5);
    for (const { reason } of refused) expect(reason).toEqual(refusal("QUOTA_EXCEEDED", "secrets_max (limit 3"));
    const [kept] = (await secrets.list("a", firstPage())).items;
    expect(await secrets.set("a", kept?.name ?? "", bytes("new"))).toMatchObject({ is_new: false });
    expect(quotas.of("b").secrets_max).toBe(LIMITS.tenant_secrets_default);
    expect(quotas.of("default").secrets_max).toBeNull();
  });

  it("is not made in a tenant that is being deleted", async () => {
    const { secrets, store } = await makeSecrets(scratch());
    await secrets.set("a", "OLD", bytes("x"));
    await store.write([{ sql: "UPDATE tenants SET state = 'deleting' WHERE id = 'a'" }]);
    for (const name of ["OLD", "NEW"]) {
      await expect(secrets.set("a", name, bytes("y"))).rejects.toThrow(refusal("UNAUTHORIZED"));
    }
    await expect(secrets.set("none", "NEW", bytes("y"))).rejects.toThrow(refusal("UNAUTHORIZED"));
    expect(await store.read("SELECT name FROM secrets")).toEqual([{ name: "OLD" }]);
  });

  it("ends as one of its values after ten thousand changes by many at the same time", async () => {
    const { secrets, store, values } = await makeSecrets(scratch());
    const names = Array.from({ length: 50 }, (_, i) => `S${i}`);
    for (let round = 0; round < 200; round++) {
      await Promise.all(names.map((name) => secrets.set("a", name, bytes(`${name} ${round}`))));
    }
    expect(await textsOf(values, "a", ...names)).toEqual(names.map((name) => `${name} 199`));
    const row = await store.readOne(
      "SELECT count(*) AS count, count(DISTINCT substr(value, 1, 12)) AS nonces FROM secrets",
    );
    expect(row).toEqual({ count: 50, nonces: 50 });
    expect(store.stats().wal_bytes).toBeLessThan(LIMITS.wal_bytes_max);
  });
});

describe("the name of a secret", () => {
  it("is a file name of ASCII letters that stays in its directory", () => {
    for (const name of ["A", "_", "api_TOKEN", "tls.key-2", "a..b", "A".repeat(64)]) {
      expect([name, secretName.safeParse(name).success]).toEqual([name, true]);
    }
    for (const name of ["", ".", "..", "../a", "a/b", "-a", "1", "a\0", "a\n", "\u0430", "\u212a", "A".repeat(65)]) {
      expect([name, secretName.safeParse(name).success]).toEqual([name, false]);
    }
  });
});

describe("a row that was changed behind the daemon's back", () => {
  it.each([
    ["to another tenant's value", "(SELECT value FROM secrets WHERE tenant_id = 'b')"],
    ["to the value of another name", "(SELECT value FROM secrets WHERE name = 'OTHER')"],
    ["to the value of another kind", "(SELECT value FROM secrets WHERE kind = 'registry')"],
    ["by one bit", "CAST(substr(value, 1, 20) || x'00' || substr(value, 22) AS BLOB)"],
    ["to a part of it", "substr(value, 1, 27)"],
    ["to nothing", "x''"],
  ])("does not decrypt: %s", async (_, value) => {
    const { secrets, of, store, values } = await makeSecrets(scratch());
    await secrets.set("a", "NAME", bytes("the value of a"));
    await secrets.set("a", "OTHER", bytes("the value of a"));
    await secrets.set("b", "NAME", bytes("the value of b"));
    await of("registry").set("a", "NAME", bytes("the value of r"));
    const sql = `UPDATE secrets SET value = ${value} WHERE tenant_id = 'a' AND kind = 'secret' AND name = 'NAME'`;
    await store.write([{ sql, expect_changes: 1 }]);
    const asked = values.values("a", ["OTHER", "NAME"]);
    await expect(asked).rejects.toThrow(refusal("INTERNAL", "the stored value of secret 'NAME' does not decrypt"));
    await expect(asked).rejects.not.toThrow(/value of [abr]/);
    expect(await textsOf(values, "a", "OTHER")).toEqual(["the value of a"]);
    await secrets.set("a", "NAME", bytes("mended"));
    expect(await textsOf(values, "a", "NAME")).toEqual(["mended"]);
  });

  it("does not decrypt where its tenant, its kind or its name was changed", async () => {
    const { secrets, store, values, valuesOf } = await makeSecrets(scratch());
    for (const [i, change] of ["tenant_id = 'b'", "kind = 'registry'", "name = 'STOLEN'"].entries()) {
      await secrets.set("a", `S${i}`, bytes("x"));
      await store.write([{ sql: `UPDATE secrets SET ${change} WHERE name = ?`, args: [`S${i}`], expect_changes: 1 }]);
    }
    await expect(values.values("b", ["S0"])).rejects.toThrow(refusal("INTERNAL"));
    await expect(valuesOf("registry").values("a", ["S1"])).rejects.toThrow(refusal("INTERNAL"));
    await expect(values.values("a", ["STOLEN"])).rejects.toThrow(refusal("INTERNAL"));
  });
});
