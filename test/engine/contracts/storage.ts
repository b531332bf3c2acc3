/** The promises of the `Storage` port, on each kind of storage pool. */
import { execFileSync } from "node:child_process";
import { closeSync, openSync, truncateSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Storage } from "../../../src/engine/ports.ts";
import { Ground } from "../../support/storage-ground.ts";

const MIB = 1024 * 1024;
const SIZE_MB = 1_024;
/** Id of a tree of code: as long as ids may be. */
const DIGEST = "0123456789abcdef".repeat(4);

export type Quotas = "simple" | "full";

/** A pool that is open on a ground of its own. */
export interface OpenedPool {
  readonly ground: Ground;
  readonly pool: Storage;
  /** Path of the pool as the launcher sees it. */
  readonly path: string;
  readonly quotas: Quotas;
}

/** A pool in a file of the data directory. Kernels before 6.7 have full quotas only. */
export function poolInFile(quotas: Quotas): () => Promise<OpenedPool> {
  return async () => {
    const ground = new Ground();
    if (quotas === "full") {
      closeSync(openSync(ground.file, "w"));
      truncateSync(ground.file, SIZE_MB * MIB);
      execFileSync("mkfs.btrfs", ["-q", ground.file], { stdio: "ignore" });
      await ground.start();
      const there = `${ground.data_dir}/there`;
      await ground.sh(
        `mkdir ${there}; mount -o loop ${ground.file} ${there} && btrfs quota enable ${there}; umount ${there}`,
      );
    }
    const pool = await ground.open(SIZE_MB);
    return { ground, pool, path: pool.path, quotas };
  };
}

/** A pool in a directory of a btrfs whose owner has full quotas on. */
export async function poolInDirectory(): Promise<OpenedPool> {
  const ground = Ground.on("btrfs", 1_200);
  execFileSync("btrfs", ["quota", "enable", ground.data_dir]);
  const pool = await ground.open(SIZE_MB);
  return { ground, pool, path: pool.path, quotas: "full" };
}

export function storageContract(open: () => Promise<OpenedPool>): void {
  let ground: Ground;
  let pool: Storage;
  let path: string;
  let quotas: Quotas;

  beforeAll(async () => {
    ({ ground, pool, path, quotas } = await open());
  });
  afterAll(() => ground?.stop());

  it("refuses names that lead elsewhere", async () => {
    for (const id of ["", ".", "..", "../x", "a/b", "A", "a.b", "a b", "x".repeat(65)]) {
      await expect(pool.create("volumes", id, null)).rejects.toThrow(/name: Invalid argument/);
      await expect(pool.remove("volumes", id)).rejects.toThrow(/name: Invalid argument/);
    }
    await expect(pool.create("other" as "volumes", "a", null)).rejects.toThrow(/Invalid argument/);
    expect(await ground.sh(`cd ${path}; find . -mindepth 1 | sort | tr '\\n' ' '`)).toBe(
      "./code ./containers ./contexts ./logs ./snapshots ./volumes",
    );
    await pool.create("volumes", "x".repeat(64), null);
    await pool.remove("volumes", "x".repeat(64));
  });

  it("takes what is repeated for done", async () => {
    await pool.create("containers", "c1", 10);
    await ground.sh(`echo 1 > ${pool.subvolume("containers", "c1")}/f`);
    await pool.create("containers", "c1", 20);
    expect((await pool.usage("containers", "c1")).limit_bytes).toBe(20 * MIB);
    const [from, to] = [{ kind: "containers", id: "c1" } as const, { kind: "snapshots", id: "s1" } as const];
    await pool.snapshot(from, to, false, null);
    await ground.sh(`echo 2 > ${pool.subvolume("containers", "c1")}/f`);
    await pool.snapshot(from, to, false, null);
    expect(await ground.sh(`cat ${pool.subvolume("snapshots", "s1")}/f`)).toBe("1");
    for (let i = 0; i < 2; i++) await pool.remove("containers", "c1");
    expect([await pool.list("containers"), await pool.list("snapshots")]).toEqual([[], ["s1"]]);
    const missing = [
      () => pool.usage("containers", "c1"),
      () => pool.setLimit("containers", "c1", 1),
      () => pool.snapshot(from, { kind: "snapshots", id: "s2" }, false, null),
    ];
    for (const ask of missing) await expect(ask()).rejects.toMatchObject({ code: "NOT_FOUND" });
    await pool.remove("snapshots", "s1");
  });

  it("gives a subvolume another name once, and never one that is taken", async () => {
    const path = await pool.create("code", "new-1", 10);
    await ground.sh(`echo 1 > ${path}/f`);
    expect(await pool.rename("code", "new-1", DIGEST)).toBe(true);
    expect(await pool.rename("code", "new-1", DIGEST)).toBe(true);
    expect(await ground.sh(`cat ${pool.subvolume("code", DIGEST)}/f`)).toBe("1");
    expect((await pool.usage("code", DIGEST)).limit_bytes).toBe(10 * MIB);
    await pool.create("code", "new-2", 10);
    expect(await pool.rename("code", "new-2", DIGEST)).toBe(false);
    expect((await pool.list("code")).sort()).toEqual([DIGEST, "new-2"].sort());
    await expect(pool.rename("code", "none", "other")).rejects.toMatchObject({ code: "NOT_FOUND" });
    for (const id of ["../volumes/x", "a/b", "", "x".repeat(65)]) {
      await expect(pool.rename("code", "new-2", id)).rejects.toThrow(/Invalid argument/);
    }
    for (const id of [DIGEST, "new-2"]) await pool.remove("code", id);
  });

  it("takes several snapshots at once, all or none, in place of those that are there", async () => {
    const [a, b] = [await pool.create("volumes", "a", null), await pool.create("volumes", "b", null)];
    await ground.sh(`echo 1 > ${a}/f; echo 1 > ${b}/f`);
    const pair = (from: string, to: string) =>
      ({ from: { kind: "volumes", id: from }, to: { kind: "snapshots", id: to } }) as const;
    const pairs = [pair("a", "sa"), pair("b", "sb")];
    expect(await pool.snapshots(pairs, true, null)).toEqual({ pause_ms: 0, isFrozen: false });
    await ground.sh(`echo 2 > ${a}/f; echo 2 > ${b}/f`);
    const read = () => ground.sh(`cd ${path}/snapshots; cat sa/f sb/f | tr -d '\\n'; touch sa/new 2>&1`);
    expect(await read()).toMatch(/^11.*Read-only file system/);
    await pool.snapshots(pairs, true, null);
    expect(await read()).toMatch(/^22/);
    const broken = [pair("a", "n1"), pair("none", "n2"), pair("b", "n3")];
    await expect(pool.snapshots(broken, true, null)).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect((await pool.list("snapshots")).sort()).toEqual(["sa", "sb"]);
    const wrong = [pair("a", "n1"), pair("b", "../n2")];
    await expect(pool.snapshots(wrong, true, null)).rejects.toThrow(/Invalid argument/);
    await expect(pool.snapshots([], true, null)).rejects.toThrow(/Invalid argument/);
    const many = Array.from({ length: 33 }, (_, i) => pair("a", `many-${i}`));
    await expect(pool.snapshots(many, true, null)).rejects.toThrow(/too long/);
    expect((await pool.list("snapshots")).sort()).toEqual(["sa", "sb"]);
    await pool.snapshots(many.slice(0, 32), false, null);
    for (const { to } of many) await pool.remove("snapshots", to.id);
    // A file that freezes nothing: no snapshot is taken of what could not be stopped.
    await expect(pool.snapshots([pair("a", "n1")], true, "/none/cgroup.freeze")).rejects.toThrow();
    expect((await pool.list("snapshots")).sort()).toEqual(["sa", "sb"]);
    for (const id of ["sa", "sb"]) await pool.remove("snapshots", id);
    for (const id of ["a", "b"]) await pool.remove("volumes", id);
  });

  it("exchanges the names of two subvolumes at once, with their limits, or of none", async () => {
    const [a, b] = [await pool.create("containers", "a", 10), await pool.create("containers", "b", 20)];
    await ground.sh(`echo a > ${a}/f; echo b > ${b}/f`);
    await pool.exchange("containers", "a", "b");
    expect(await ground.sh(`cat ${a}/f ${b}/f | tr -d '\\n'`)).toBe("ba");
    expect((await pool.usage("containers", "a")).limit_bytes).toBe(20 * MIB);
    await expect(pool.exchange("containers", "a", "none")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(pool.exchange("containers", "none", "a")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(pool.exchange("containers", "a", "../volumes/x")).rejects.toThrow(/Invalid argument/);
    expect(await ground.sh(`cat ${a}/f ${b}/f | tr -d '\\n'`)).toBe("ba");
    // A reader finds one of both at any moment.
    const seen = ground.sh(`for i in $(seq 300); do cat ${a}/f || echo gone; done | sort -u | tr -d '\\n'`);
    for (let n = 0; n < 50; n++) await pool.exchange("containers", "a", "b");
    expect(["a", "b", "ab"]).toContain(await seen);
    for (const id of ["a", "b"]) await pool.remove("containers", id);
  });

  it("counts the space of a subvolume, and what of it no other shares", async () => {
    const source = await pool.create("volumes", "v", null);
    await ground.fill(`${source}/a`, 8);
    await ground.sh(`sync -f ${source}`);
    const alone = await pool.space("volumes", "v");
    expect(alone).toEqual({ total_bytes: 8 * MIB, exclusive_bytes: 8 * MIB });
    await pool.snapshots([{ from: { kind: "volumes", id: "v" }, to: { kind: "snapshots", id: "s" } }], true, null);
    expect(await pool.space("snapshots", "s")).toEqual({ total_bytes: 8 * MIB, exclusive_bytes: 0 });
    await ground.sh(`rm ${source}/a && sync -f ${source}`);
    expect(await pool.space("snapshots", "s")).toEqual({ total_bytes: 8 * MIB, exclusive_bytes: 8 * MIB });
    expect(await pool.space("snapshots", "none")).toBeNull();
    await pool.remove("snapshots", "s");
    await pool.remove("volumes", "v");
  });

  it("holds a limit to the megabyte, for its own subvolume alone, and lets what is there be removed", async () => {
    const [mine, other] = [await pool.create("volumes", "mine", 20), await pool.create("volumes", "other", 40)];
    const full = await ground.fill(`${mine}/a`, 30);
    expect(full.complaint).toBe("Disk quota exceeded");
    expect(full.written_mb).toBeGreaterThan(19);
    expect(full.written_mb).toBeLessThanOrEqual(20);
    expect(await ground.fill(`${other}/a`, 30)).toEqual({ written_mb: 30, complaint: "" });
    const usage = await pool.usage("volumes", "other");
    expect(usage.referenced_bytes).toBeGreaterThanOrEqual(30 * MIB);
    expect(usage.referenced_bytes).toBeLessThan(31 * MIB);
    expect(usage.limit_bytes).toBe(40 * MIB);
    expect(await ground.sh(`rm ${mine}/a && sync -f ${mine}`)).toBe("");
    expect(await ground.fill(`${mine}/a`, 15)).toEqual({ written_mb: 15, complaint: "" });
    await pool.setLimit("volumes", "mine", null);
    expect((await pool.usage("volumes", "mine")).limit_bytes).toBeNull();
    expect(await ground.fill(`${mine}/b`, 30)).toEqual({ written_mb: 30, complaint: "" });
    const { size_mb, used_mb, free_mb } = await pool.statistics();
    expect(used_mb).toBeGreaterThanOrEqual(60);
    expect(used_mb + free_mb).toBeLessThanOrEqual(size_mb);
    for (const id of ["mine", "other"]) await pool.remove("volumes", id);
  });

  it("counts in a snapshot only what is written into it", async () => {
    const source = await pool.create("volumes", "v", null);
    await ground.fill(`${source}/a`, 30);
    const at = (id: string) => ({ kind: "snapshots", id }) as const;
    const copy = await pool.snapshot({ kind: "volumes", id: "v" }, at("rw"), false, quotas === "simple" ? 10 : 40);
    const frozen = await pool.snapshot({ kind: "volumes", id: "v" }, at("ro"), true, null);
    expect((await ground.fill(`${copy}/b`, 20)).complaint).toBe("Disk quota exceeded");
    expect(await ground.sh(`cmp ${source}/a ${frozen}/a; cmp ${source}/a ${copy}/a; touch ${frozen}/b`)).toMatch(
      /Read-only file system/,
    );
    const code = await pool.snapshot({ kind: "volumes", id: "v" }, { kind: "code", id: DIGEST }, true, null);
    expect(await ground.sh(`cmp ${source}/a ${code}/a; touch ${code}/b`)).toMatch(/Read-only file system/);
    expect(await pool.list("code")).toEqual([DIGEST]);
    await pool.remove("code", DIGEST);
    for (const id of ["rw", "ro"]) await pool.remove("snapshots", id);
    await pool.remove("volumes", "v");
    expect([await pool.list("snapshots"), await pool.list("volumes")]).toEqual([[], []]);
  });
}

/** Many subvolumes, and a wait for the kernel's cleaner. */
export function slowStorageContract(open: () => Promise<OpenedPool>): void {
  let ground: Ground;
  let pool: Storage;
  let path: string;

  beforeAll(async () => {
    ({ ground, pool, path } = await open());
  });
  afterAll(() => ground?.stop());

  it("removes a subvolume with its limit, and with the subvolumes that were made inside of it", async () => {
    const mounted = `$(stat -c %m ${path})`;
    const fsid = await ground.sh(`btrfs filesystem show ${mounted} | sed -n 's/.*uuid: //p' | head -n 1`);
    const groups = () => ground.sh(`ls /sys/fs/btrfs/${fsid}/qgroups | grep _ | grep -v drop`);
    const subvolumes = () => ground.sh(`btrfs subvolume list ${path} | sed 's/ gen [0-9]*//'`);
    const before = [await groups(), await subvolumes()];
    const outer = await pool.create("volumes", "outer", 50);
    await ground.sh(`cd ${outer} && for d in a a/b a/b/c d; do btrfs subvolume create $d; echo $d > $d/f; done`);
    await ground.sh(`btrfs property set ${outer}/a/b/c ro true; btrfs property set ${outer}/d ro true`);
    await pool.remove("volumes", "outer");
    expect(await pool.list("volumes")).toEqual([]);
    // A sync of the file system wakes the kernel's cleaner.
    await ground.sh(
      `until timeout 1 btrfs subvolume sync ${path}; do btrfs filesystem sync ${path}; done; sync -f ${path}`,
    );
    expect([await groups(), await subvolumes()]).toEqual(before);
  });

  it("does many things at once, lists a thousand, and leaks no descriptor", async () => {
    const ids = Array.from({ length: 1_000 }, (_, i) => `v_${"x".repeat(40)}${i}`);
    const before = ground.descriptors();
    await Promise.all(ids.map((id) => pool.create("volumes", id, 1)));
    expect((await pool.list("volumes")).sort()).toEqual([...ids].sort());
    await Promise.all(ids.map((id) => pool.usage("volumes", id)));
    await Promise.all(ids.map((id) => pool.remove("volumes", id)));
    expect(await pool.list("volumes")).toEqual([]);
    expect(ground.descriptors()).toBe(before);
  });
}
