/** Images that nothing uses: pruned by their tenant, and evicted while the disk is nearly full. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import { readDisk } from "../../src/engine/kernel/node-bounds.ts";
import type { Store } from "../../src/store/store.ts";
import { scratchStores } from "../store/scratch.ts";
import { SmallDisk } from "../support/small-disk.ts";
import { container, content, idOf, MEGABYTE, makeImages } from "./tenant-images.ts";

const scratch = scratchStores();
const complete = (name: string) => `docker.io/library/${name}:latest`;

/** A function whose only version has an image: of the tenant, or of the profile. */
async function version(store: Store, tenant_id: string, mark: string, oci: boolean): Promise<void> {
  const name = `fn_${tenant_id}_${mark}`;
  const fields = "state, current_version, min_instances, max_instances, cleanup_on_exit, created_at, updated_at";
  await store.write([
    {
      sql: `INSERT INTO functions (id, tenant_id, node_seq, name, ${fields}) VALUES (?, ?, 1, ?, 'active', 1, 0, 1, 1, 0, 0)`,
      args: [name, tenant_id, name],
    },
    {
      sql: `INSERT INTO function_versions (function_seq, version, id, handler, runtime, environment, memory_limit_mb,
        timeout_seconds, created_at, image, options) SELECT seq, 1, ?, 'cat', 'shell', '{}', 1, 1, 0, ?, ? FROM functions WHERE id = ?`,
      args: [`fv_${name}`, idOf(mark), oci ? '{"oci":true}' : null, name],
    },
  ]);
}

async function made(options: Parameters<typeof makeImages>[2] = {}) {
  const store = scratch().open();
  const { images, state } = await makeImages(store, undefined, options);
  /** Gives a tenant an image, a minute after the last one. */
  const pull = async (tenant_id: string, name: string, mark: string) => {
    state.clock_ms += 60_000;
    await images.put(tenant_id, complete(name), content({ mark }), "pulled");
  };
  const left = async () => {
    const rows = await store.read("SELECT tenant_id, reference FROM oci_images ORDER BY seq");
    return rows.map(({ tenant_id, reference }) => `${tenant_id} ${String(reference).split(/[/:]/).at(-2)}`);
  };
  const wait = (seconds: number) => {
    state.clock_ms += seconds * 1_000;
  };
  return { store, images, state, pull, left, wait };
}

describe("a prune", () => {
  it("deletes the tenant's images that no container and no version uses, and no other tenant's", async () => {
    const { store, images, state, pull, left } = await made();
    for (const [i, name] of ["used", "spare", "called", "profile"].entries()) await pull("a", name, `a${i}`);
    await images.put("a", complete("second"), content({ mark: "a1" }), "tagged");
    await images.put("a", complete("also"), content({ mark: "a0" }), "tagged");
    await pull("b", "spare", "a1");
    await store.write([container("ctr_1", "a", idOf("a0")), container("ctr_2", "b", idOf("a3"), "prod@1")]);
    await version(store, "a", "a2", true);
    await version(store, "a", "a3", false);
    const { images: pruned, freed_bytes } = await images.deleteUnused("a", 0);
    expect(pruned.map(({ reference }) => reference)).toEqual([
      complete("spare"),
      complete("profile"),
      complete("second"),
    ]);
    expect(freed_bytes).toBe(2 * 5 * MEGABYTE);
    expect(await left()).toEqual(["a used", "a called", "a also", "b spare"]);
    expect(state.kept.at(-1)).toEqual([idOf("a0"), idOf("a1"), idOf("a2")]);
    const events = await store.read("SELECT data FROM events WHERE data LIKE '%removed%'");
    expect(events).toHaveLength(3);
    expect((await images.deleteUnused("a", 0)).images).toEqual([]);
  });

  it("keeps what was used later than the given age, and what the operator shares", async () => {
    const { store, images, pull, left, wait } = await made();
    await pull("default", "shared", "a0");
    await images.share("default", complete("shared"), true);
    await pull("default", "old", "a1");
    await pull("default", "touched", "a2");
    wait(3_600);
    await store.write([(await images.resolve("default", "touched")).use.statement]);
    expect((await images.deleteUnused("default", 1_800)).images.map(({ reference }) => reference)).toEqual([
      complete("old"),
    ]);
    expect(await left()).toEqual(["default shared", "default touched"]);
    // Whoever may use it does not delete it either.
    expect((await images.deleteUnused("b", 0)).images).toEqual([]);
  });
});

describe("a nearly full disk", () => {
  const AGE = LIMITS.image_evict_age_seconds;

  it("evicts images of the tenant that needs room, the least recently used first, with an event each", async () => {
    const { store, images, state, pull, left, wait } = await made();
    for (const [i, tenant] of ["a", "b", "a", "b", "a"].entries()) await pull(tenant, `image${i}`, `a${i}`);
    wait(60);
    await store.write([(await images.resolve("a", "image0")).use.statement]);
    wait(AGE);
    await images.free();
    Object.assign(state, { disk_percent: 90, percent_each: 3 });
    (await images.intake("a", complete("new"))).release();
    expect(await left()).toHaveLength(5);
    state.disk_percent = 91;
    (await images.intake("a", complete("new"), idOf("a2"))).release();
    // 91, 88, 85 percent; image0 was used last, and image2 is needed.
    expect(await left()).toEqual(["b image1", "a image2", "b image3"]);
    const events = await store.read("SELECT tenant_id, data FROM events WHERE data LIKE '%evicted%' ORDER BY seq");
    expect(events.map(({ tenant_id }) => tenant_id)).toEqual(["a", "a"]);
    expect(String(events[0]?.data)).toContain(complete("image4"));
  });

  it("evicts no other tenant's images, whoever asks, and refuses what has no room", async () => {
    const { images, state, pull, left, wait } = await made();
    await pull("b", "theirs", "a0");
    await pull("default", "operators", "a1");
    wait(AGE);
    await images.free();
    Object.assign(state, { disk_percent: 100, percent_each: 0 });
    const refusal = { code: "CAPACITY_FULL", message: expect.stringContaining("disk of the image store full") };
    await expect(images.intake("a", complete("new"))).rejects.toMatchObject(refusal);
    expect(await left()).toEqual(["b theirs"]);
    await images.prune();
    expect(await left()).toEqual(["b theirs"]);
    state.disk_percent = 98;
    (await images.intake("a", complete("new"))).release();
    expect(await left()).toEqual(["b theirs"]);
  });

  it("evicts nothing that is in use, shared, or was used a moment ago", async () => {
    const { store, images, state, pull, left, wait } = await made();
    await pull("a", "contained", "a0");
    await pull("b", "contained", "a0");
    await pull("a", "called", "a1");
    await pull("default", "shared", "a2");
    await images.share("default", complete("shared"), true);
    await store.write([container("ctr_1", "b", idOf("a0"))]);
    await version(store, "a", "a1", true);
    wait(AGE);
    await pull("a", "fresh", "a3");
    state.disk_percent = 99;
    const demand = async () => (await images.intake("a", complete("new"))).release();
    await demand();
    expect(await left()).toEqual(["a contained", "b contained", "a called", "default shared", "a fresh"]);
    wait(AGE);
    await demand();
    expect(await left()).toEqual(["a contained", "b contained", "a called", "default shared"]);
    expect((await images.list("a", { include_digests: false }, firstPage())).items).toHaveLength(3);
  });

  it("keeps an image that another tenant has, too: without one of its references the disk has no more room", async () => {
    const { state, images, pull, left, wait } = await made();
    await pull("a", "common", "a0");
    await pull("a", "own", "a1");
    await pull("b", "common", "a0");
    wait(AGE);
    await images.free();
    Object.assign(state, { disk_percent: 92, percent_each: 1 });
    (await images.intake("a", complete("new"))).release();
    expect(await left()).toEqual(["a common", "b common"]);
  });

  it("that is a real one refuses a tenant, and takes its own images alone", async () => {
    const disk = new SmallDisk(64);
    try {
      const readSmall = () => readDisk(disk.path);
      const min = { disk: readSmall, disk_free_bytes_min: 16 * MEGABYTE };
      const { images, pull, left, wait } = await made(min);
      await pull("b", "theirs", "b0");
      await pull("a", "own", "a0");
      wait(AGE);
      (await images.intake("a", complete("new"))).release();
      expect(await left()).toEqual(["b theirs", "a own"]);
      execFileSync("fallocate", [
        "-l",
        String(readSmall().size_bytes - readSmall().used_bytes - 4 * MEGABYTE),
        `${disk.path}/filler`,
      ]);
      await expect(images.intake("a", complete("new"))).rejects.toMatchObject({ code: "CAPACITY_FULL" });
      expect(await left()).toEqual(["b theirs"]);
      rmSync(`${disk.path}/filler`);
      (await images.intake("a", complete("new"))).release();
      expect(await left()).toEqual(["b theirs"]);
    } finally {
      disk.remove();
    }
  });

  it("is one that df calls so", () => {
    const told = execFileSync("df", ["--output=size,used", "-B1", "/var/tmp"]).toString();
    const [size = 0, used = 0] = [...told.replace(/^.*\n/, "").matchAll(/\d+/g)].map(Number);
    const disk = readDisk("/var/tmp");
    expect(Math.abs(disk.used_bytes - used)).toBeLessThan(size / 100);
    expect(disk.size_bytes).toBeGreaterThan(disk.used_bytes);
    expect(disk.size_bytes).toBeLessThanOrEqual(size);
  });
});
