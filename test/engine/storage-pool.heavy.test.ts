/**
 * The storage pool on the real kernel beside its contract (contracts/storage.ts): its file, its room on every kind of disk,
 * and crashes of the launcher.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, statfsSync, statSync, writeFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import type { StoragePool } from "../../src/engine/storage/storage-pool.ts";
import { eventually as within } from "../support/daemon.ts";
import { eventually } from "../support/native.ts";
import { Ground } from "../support/storage-ground.ts";

const MIB = 1024 * 1024;

let ground: Ground;

async function opened(size_mb: number | null = 1_024): Promise<StoragePool> {
  ground = new Ground();
  return ground.open(size_mb);
}

afterEach(() => ground?.stop());

describe("the storage pool", () => {
  it("is mounted for the launcher alone, and nothing of it is left when it is closed", async () => {
    const pool = await opened();
    expect(await ground.sh(`stat -f -c %T ${pool.path}`)).toBe("btrfs");
    expect(ground.mounts()).toEqual([]);
    expect(ground.loops().length).toBe(1);
    expect(statSync(ground.file).blocks * 512).toBeLessThan(16 * MIB);
    await pool.close();
    ground.pool = null;
    await eventually("the loop device to go", () => ground.loops().length === 0);
    expect(await ground.sh(`grep ${ground.root} /proc/self/mountinfo`)).toBe("[1]");
  });

  it("takes half of the disk unless it is told how much, and grows with what lies in it, and never shrinks", async () => {
    const pool = await opened(1_024);
    await pool.create("volumes", "kept", null);
    await ground.sh(`echo kept > ${pool.subvolume("volumes", "kept")}/file`);
    const sizes: number[] = [];
    for (const size_mb of [2_048, 1_024, null]) {
      await ground.pool?.close();
      const again = await ground.open(size_mb);
      expect(await ground.sh(`cat ${again.subvolume("volumes", "kept")}/file`)).toBe("kept");
      sizes.push((await again.statistics()).size_mb);
    }
    const usable = (size_mb: number) => Math.floor(size_mb * (1 - LIMITS.storage_pool_spare_ratio));
    expect(sizes.slice(0, 2)).toEqual([usable(2_048), usable(2_048)]);
    const { blocks, bsize } = statfsSync("/var/tmp");
    expect(sizes[2]).toBe(usable(Math.floor((blocks * bsize) / 2 / MIB)));
    expect(ground.lines).toContain("cannot shrink the storage pool");
  });

  it("grows while a container of an earlier launcher still holds it", async () => {
    const pool = await opened(1_024);
    await pool.create("volumes", "a", null);
    const holder = await ground.sh(`cd ${pool.subvolume("volumes", "a")} && { setsid sleep 1000 & echo $!; }`);
    await ground.kill();
    const [device] = ground.loops();
    await ground.start();
    const again = await ground.open(1_536);
    expect(ground.loops()).toEqual([device]);
    expect((await again.statistics()).size_mb).toBeGreaterThan(1_400);
    process.kill(Number(holder), "SIGKILL");
  });

  it("is made anew where making it was cut off, and never where a file is that is no storage pool", async () => {
    ground = new Ground();
    writeFileSync(`${ground.file}.new`, "half");
    await ground.open();
    expect(ground.exists(`${ground.data_dir}/area/volumes`)).toBe(true);
    await ground.stop();
    ground = new Ground();
    writeFileSync(ground.file, "precious");
    await expect(ground.open()).rejects.toThrow(/cannot mount the storage pool .*area\.btrfs/);
    expect(readFileSync(ground.file, "utf8").slice(0, 8)).toBe("precious");
    expect(ground.loops()).toEqual([]);
  });
});

/** True if the pool has no room for another volume. */
async function isRefused(pool: StoragePool): Promise<boolean> {
  const code = await pool.create("volumes", "new", null).then(
    () => null,
    (error) => error.code,
  );
  expect([null, "CAPACITY_FULL"]).toContain(code);
  return code !== null;
}

const RESERVE_MB = LIMITS.storage_pool_host_reserve_bytes / MIB;

function hostFreeMb(): number {
  const { bavail, bsize } = statfsSync(ground.data_dir);
  return (bavail * bsize) / MIB;
}

/** Fills the disk below until the pool has this much room on it, and waits until the limit of the pool follows. */
async function leaveRoom(pool: StoragePool, megabytes: number): Promise<void> {
  const ballast_mb = Math.floor(hostFreeMb() - RESERVE_MB - megabytes);
  execFileSync("fallocate", ["-l", `${ballast_mb}M`, `${ground.data_dir}/ballast`]);
  await eventually("the limit to follow", async () => {
    const groups = await ground.sh(`btrfs qgroup show --raw -r ${pool.path}`);
    const limit = /^1\/5\s+\d+\s+\d+\s+(\d+)/m.exec(groups)?.[1];
    // The pool's own bookkeeping on the disk is some megabytes.
    return limit !== undefined && Number(limit) <= (megabytes + 10) * MIB;
  });
}

describe("room", () => {
  it("that the pool has not got is refused to writers and to what is new, until something is removed", async () => {
    const pool = await opened();
    const path = await pool.create("volumes", "big", null);
    await pool.create("volumes", "small", null);
    expect((await ground.fill(`${path}/a`, 1_100)).complaint).toMatch(/No space left|quota exceeded/);
    await eventually("what is new to be refused", () => isRefused(pool));
    await expect(
      pool.snapshot({ kind: "volumes", id: "small" }, { kind: "snapshots", id: "s" }, true, null),
    ).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    await pool.remove("volumes", "big");
    // With the commit after the next one, and those are five seconds apart.
    await within("room for what is new", async () => !(await isRefused(pool)), 30_000);
    expect(await ground.fill(`${pool.subvolume("volumes", "small")}/a`, 100)).toEqual({
      written_mb: 100,
      complaint: "",
    });
  });

  it("that the disk below has not got is refused, and the pool goes on", async () => {
    ground = Ground.on("ext4", 1_200);
    const pool = await ground.open();
    const path = await pool.create("volumes", "v", null);
    await leaveRoom(pool, 100);
    const filled = await ground.fill(`${path}/a`, 300);
    expect(filled.complaint).toBe("Disk quota exceeded");
    expect(filled.written_mb).toBeLessThan(110);
    await eventually("what is new to be refused", () => isRefused(pool));
    const full = "the disk is full: new containers, volumes and code are refused";
    const said = () => ground.lines.filter((line) => [full, "the disk has space again"].includes(line));
    expect(said()).toEqual([full]);
    expect(hostFreeMb()).toBeGreaterThan(RESERVE_MB / 2);
    execFileSync("rm", [`${ground.data_dir}/ballast`]);
    await eventually("room for what is new", async () => !(await isRefused(pool)));
    await eventually("the end to be logged", () => said().length === 2);
    expect(await ground.fill(`${path}/b`, 100)).toEqual({ written_mb: 100, complaint: "" });
  });

  it("that a file has been promised on the disk below is not given to another", async () => {
    ground = Ground.on("ext4", 1_200);
    const pool = await ground.open();
    const path = await pool.create("volumes", "v", null);
    await ground.sh(`fallocate -l 150M ${path}/promised && sync -f ${path}`);
    await leaveRoom(pool, 200);
    const filled = await ground.fill(`${path}/a`, 300);
    expect(filled.complaint).toBe("Disk quota exceeded");
    expect(filled.written_mb).toBeLessThan(60);
    expect(hostFreeMb()).toBeGreaterThan(RESERVE_MB + 100);
    expect(await ground.sh(`rm ${path}/a && sync -f ${path}`)).toBe("");
  });
});

describe("a data directory", () => {
  it.each(["ext4", "overlay", "btrfs"] as const)("on %s has the pool in a file", async (kind) => {
    ground = Ground.on(kind, 1_200);
    const pool = await ground.open();
    const path = await pool.create("volumes", "v", 20);
    expect((await ground.fill(`${path}/a`, 30)).complaint).toBe("Disk quota exceeded");
    expect(ground.loops().length).toBe(1);
    // On a btrfs not copied on write once more.
    const attributes = spawnSync("lsattr", [ground.file]).stdout.toString();
    if (kind === "btrfs") expect(attributes).toMatch(/^-*C-* /);
  });

  it("on a btrfs whose owner has quotas on has the pool as a directory of it", async () => {
    ground = Ground.on("btrfs", 1_200);
    execFileSync("btrfs", ["quota", "enable", ground.data_dir]);
    const pool = await ground.open();
    const path = await pool.create("volumes", "v", 20);
    const filled = await ground.fill(`${path}/a`, 30);
    expect(filled.complaint).toBe("Disk quota exceeded");
    await ground.sh(`btrfs subvolume create ${path}/inner`);
    await pool.snapshot({ kind: "volumes", id: "v" }, { kind: "snapshots", id: "s" }, true, null);
    expect(ground.loops()).toEqual([]);
    await pool.close();
    await ground.kill();
    await ground.start();
    const again = await ground.open();
    expect(statSync(`${path}/a`).size / MIB).toBe(filled.written_mb);
    await again.remove("volumes", "v");
    await again.remove("snapshots", "s");
    expect([await again.list("volumes"), await again.list("snapshots")]).toEqual([[], []]);
    execFileSync("btrfs", ["quota", "disable", ground.data_dir]);
    await expect(ground.open()).rejects.toThrow(/needs quotas/);
  });
});

describe("a launcher that is killed", () => {
  it("in the middle of creating and removing leaves every subvolume whole or not at all", async () => {
    const pool = await opened();
    await pool.create("volumes", "origin", null);
    for (let round = 0; round < 12; round++) {
      const names = Array.from({ length: 24 }, (_, i) => `r${round}_${i}`);
      const settled = Promise.allSettled([
        ...names.map((id) => pool.create("containers", id, 7).then(() => pool.remove("containers", id))),
        ...names.map((id) => pool.create("volumes", id, 7)),
        ...names.map((id) => pool.snapshot({ kind: "volumes", id: "origin" }, { kind: "snapshots", id }, true, 7)),
      ]);
      await eventually("the round to be under way", async () =>
        ground.exists(pool.subvolume("volumes", `r${round}_${round * 2}`)),
      );
      await ground.kill();
      await settled;
      await ground.start();
      await pool.mount(ground.client);
      expect(ground.loops().length).toBe(1);
      for (const kind of ["containers", "volumes", "snapshots"] as const) {
        for (const id of await pool.list(kind)) {
          if (id === "origin") continue;
          // One that a child of the killed launcher was about to remove may go meanwhile.
          const usage = await pool.usage(kind, id).catch((error) => error.code);
          if (usage !== "NOT_FOUND" || kind !== "containers") expect(usage).toMatchObject({ limit_bytes: 7 * MIB });
          await pool.remove(kind, id);
        }
      }
    }
    await eventually("all to be gone", async () => (await pool.list("containers")).length === 0);
    expect([await pool.list("volumes"), await pool.list("snapshots")]).toEqual([["origin"], []]);
    expect(await ground.sh("dmesg | tail -50 | grep -c 'BTRFS.*\\(error\\|critical\\)'")).toMatch(/^0/);
  });
});
