/** Code caches that the daemon keeps, and their bounds. */
import { expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { CodeCaches } from "../../../src/functions/calls/code-caches.ts";

const bytes = (length: number, value = 1) => Buffer.alloc(length, value);

it("keep the first cache of a version until it is deleted", () => {
  const caches = new CodeCaches();
  expect(caches.get("f@1")).toEqual(bytes(0));
  caches.keep("f@1", "t", bytes(3, 1));
  caches.keep("f@1", "t", bytes(3, 2));
  expect(caches.get("f@1")).toEqual(bytes(3, 1));
  caches.delete("f@1");
  expect(caches.get("f@1")).toEqual(bytes(0));
});

it("have memory of their own, however small they are", () => {
  const caches = new CodeCaches();
  caches.keep("f@1", "t", Buffer.from("a few bytes of a slab"));
  expect(caches.get("f@1")?.buffer.byteLength).toBe(21);
});

it("bound how many versions of a tenant have none", () => {
  const caches = new CodeCaches();
  for (let i = 0; i < 1_000; i++) caches.keep(`f@${i}`, "t", bytes(0));
  const none = Array.from({ length: 1_000 }, (_, i) => caches.get(`f@${i}`)).filter((kept) => kept === null);
  expect(none.length).toBe(LIMITS.code_caches_per_tenant_bytes_max / 8192);
});

it("ask no process of a version again if the first one made none", () => {
  const caches = new CodeCaches();
  caches.keep("f@1", "t", bytes(0));
  expect(caches.get("f@1")).toBeNull();
});

it("bound what one tenant has, at the expense of its own least recently used", () => {
  const caches = new CodeCaches();
  const size = Math.floor(LIMITS.code_caches_per_tenant_bytes_max / 4);
  caches.keep("other@1", "other", bytes(size));
  for (const group of ["a", "b", "c"]) caches.keep(group, "t", bytes(size));
  caches.get("a");
  for (const group of ["d", "e"]) caches.keep(group, "t", bytes(size));
  const kept = ["a", "b", "c", "d", "e", "other@1"].filter((group) => caches.get(group)?.length !== 0);
  expect(kept).toEqual(["a", "d", "e", "other@1"]);
});

it("bound what all tenants have", () => {
  const caches = new CodeCaches();
  const count = LIMITS.code_caches_bytes_max / LIMITS.result_bytes_max;
  for (let i = 0; i < 2 * count; i++) caches.keep(`f${i}@1`, `t${i}`, bytes(LIMITS.result_bytes_max));
  const kept = Array.from({ length: 2 * count }, (_, i) => caches.get(`f${i}@1`)?.length).filter(
    (length) => length !== 0,
  );
  expect(kept.length).toBeLessThan(count);
  expect(kept.length).toBeGreaterThan(count / 2);
});
