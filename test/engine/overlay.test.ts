/** Roots of containers: an image below, a subvolume of the storage pool above, in a container that crun runs. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ImageStore, type MountedImage } from "../../src/engine/images/image-store.ts";
import { MountedImages } from "../../src/engine/images/mounted-images.ts";
import { StoreFiles } from "../../src/engine/images/store-files.ts";
import type { StoragePool } from "../../src/engine/storage/storage-pool.ts";
import { buildahCommand, imageStore, readDirectories } from "../../src/installation/paths.js";
import { profileImage } from "../../src/installation/profiles.js";
import { imageParts } from "../support/image-parts.ts";
import { eventually } from "../support/native.ts";
import { Ground } from "../support/storage-ground.ts";

const DIRECTORY = 0o040000;
const LINK = 0o120000;
const KIND = 0o170000;
const CGROUP = `/hearth-storage-${process.pid}`;

let ground: Ground;
let pool: StoragePool;
let lower: string;
let target: string;

beforeEach(async () => {
  ground = new Ground();
  pool = await ground.open();
  lower = `${ground.root}/lower`;
  target = `${ground.root}/merged`;
  mkdirSync(`${lower}/etc`, { recursive: true });
  writeFileSync(`${lower}/etc/below`, "below");
});

afterEach(() => ground?.stop());

/** Makes the container's subvolume and mounts its root. */
async function mountRoot(id: string, limit_mb: number | null = null, isReadonly = false): Promise<void> {
  const directory = await pool.create("containers", id, limit_mb);
  await ground.client.mountOverlay({ lower, directory, target, isReadonly });
}

describe("the root of a container", () => {
  it("shows the image, keeps what is written to it in its subvolume, and counts it against that one's limit", async () => {
    await mountRoot("c1", 20);
    expect(await ground.sh(`cat ${target}/etc/below; echo changed > ${target}/etc/below`)).toBe("below");
    expect(await ground.sh(`cat ${pool.subvolume("containers", "c1")}/upper/etc/below`)).toBe("changed");
    expect(readFileSync(`${lower}/etc/below`, "utf8")).toBe("below");
    expect((await ground.fill(`${target}/a`, 30)).complaint).toBe("Disk quota exceeded");
    expect(await ground.sh(`rm ${target}/a; mknod ${target}/null c 1 3; echo > ${target}/null`)).toMatch(/denied/);
    expect(existsSync(`${target}/etc`)).toBe(false);
  });

  it("is mounted anew where it was mounted, unmounted once and again, and can be read-only", async () => {
    await mountRoot("c1");
    await ground.sh(`echo kept > ${target}/kept`);
    await mountRoot("c1");
    const count = () => ground.sh(`grep -c ' ${target} ' /proc/self/mountinfo`);
    expect(await count()).toBe("1");
    for (let i = 0; i < 2; i++) await ground.client.unmount(target);
    expect(await count()).toMatch(/^0/);
    await ground.client.unmount(`${target}/none`);
    await mountRoot("c1", null, true);
    expect(await ground.sh(`cat ${target}/kept; touch ${target}/kept`)).toMatch(/^kept.*Read-only file system/s);
  });

  it("may have any name that a directory can have", async () => {
    lower = `${ground.root}/a,b:c\\d lower`;
    target = `${ground.root}/a,b:c\\d merged`;
    mkdirSync(lower);
    writeFileSync(`${lower}/file`, "below");
    const directory = `${await pool.create("containers", "c1", null)}/e,f:g\\h i`;
    await ground.sh(`mkdir '${directory}'`);
    await ground.client.mountOverlay({ lower, directory, target, isReadonly: false });
    expect(await ground.sh(`cat '${target}/file'; echo > '${target}/new'; ls '${directory}/upper'`)).toBe("belownew");
  });

  it("can be asked whether a directory is one, or a link to one", async () => {
    await mountRoot("c1");
    await ground.sh(`cd ${target} && mkdir real && ln -s real link && ln -s /real absolute && ln -s real parent`);
    const kind = async (path: string, ask: "statInRoot" | "lstatInRoot") => {
      const mode = await ground.client[ask](target, path);
      return mode === null ? null : mode & KIND;
    };
    for (const path of ["/link", "/absolute"]) {
      expect([await kind(path, "statInRoot"), await kind(path, "lstatInRoot")]).toEqual([DIRECTORY, LINK]);
    }
    expect([await kind("/real", "lstatInRoot"), await kind("/none", "lstatInRoot")]).toEqual([DIRECTORY, null]);
  });

  it("is refused with the step that failed", async () => {
    const directory = await pool.create("containers", "c1", null);
    const request = { lower: `${lower}/none`, directory, target, isReadonly: false };
    await expect(ground.client.mountOverlay(request)).rejects.toThrow(/mount overlay: No such file/);
    await expect(ground.client.mountOverlay({ ...request, directory: "/none" })).rejects.toThrow(/open: No such file/);
    expect(await ground.sh(`grep -c ' ${target} ' /proc/self/mountinfo`)).toMatch(/^0/);
  });
});

describe("a container on the image of the functions, with a volume", () => {
  let images: ImageStore;
  let image: MountedImage;
  let bundle: string;

  beforeEach(async () => {
    const { image_dir } = readDirectories(process.env, []);
    images = new ImageStore(buildahCommand(image_dir), `storage-${process.pid}`, imageStore(image_dir).images_file);
    image = await images.mount(ground.client, await images.find(ground.client, profileImage().reference), false);
    lower = image.path;
    bundle = mkdtempSync("/dev/shm/hearth-storage-");
  });

  afterEach(async () => {
    await ground.sh(`crun --root ${bundle}/state delete --force c1`);
    await images.shutdown(ground.client);
    rmSync(bundle, { recursive: true });
    for (const controller of ["memory", "pids", "cpu", "devices", "freezer", "systemd", "blkio", "cpuset", "cpuacct"]) {
      const group = `/sys/fs/cgroup/${controller}${CGROUP}`;
      if (existsSync(group)) rmdirSync(group);
    }
  });

  it("runs on when the launcher is killed, and the next one finds what it wrote and can take it down", async () => {
    await mountRoot("c1", 100);
    const volume = await pool.create("volumes", "v1", 100);
    writeFileSync(`${bundle}/config.json`, JSON.stringify(configuration(target, volume)));
    const run = `crun --root ${bundle}/state run --detach --pid-file ${bundle}/pid --bundle ${bundle} c1`;
    expect(await ground.sh(`${run} </dev/null >/dev/null 2>${bundle}/said; cat ${bundle}/said`)).toBe("");
    const pid = Number(readFileSync(`${bundle}/pid`, "utf8"));
    const inside = (file: string) => readFileSync(`/proc/${pid}/root${file}`, "utf8").length;
    const goesOn = async () => {
      for (const file of ["/data/log", "/root/log"]) {
        const before = existsSync(`/proc/${pid}/root${file}`) ? inside(file) : 0;
        await eventually(`${file} to grow`, () => existsSync(`/proc/${pid}/root${file}`) && inside(file) > before);
      }
    };
    await goesOn();
    // Its own mount namespace holds the root from here on.
    await ground.client.unmount(target);
    await goesOn();
    const [device] = ground.loops();
    await ground.kill();
    await goesOn();
    await ground.start();
    await pool.mount(ground.client);
    expect(ground.loops()).toEqual([device]);
    await goesOn();
    for (const log of [`${volume}/log`, `${pool.subvolume("containers", "c1")}/upper/root/log`]) {
      expect(await ground.sh(`tail -n 1 ${log}`)).toBe("tick");
    }
    process.kill(pid, "SIGKILL");
    await eventually("the container to end", () => !existsSync(`/proc/${pid}`));
    image = await images.mount(ground.client, image, true);
    await mountRoot("c1", 100);
    expect(await ground.sh(`tail -n 1 ${target}/root/log; ls -d ${target}/usr`)).toBe(`tick\n${target}/usr`);
    await ground.client.unmount(target);
    await pool.remove("containers", "c1");
    await pool.remove("volumes", "v1");
    expect([await pool.list("containers"), await pool.list("volumes")]).toEqual([[], []]);
  });

  it("that lives when the pool is closed keeps it, and the device goes with the container", async () => {
    await mountRoot("c1", 100);
    const volume = await pool.create("volumes", "v1", 100);
    writeFileSync(`${bundle}/config.json`, JSON.stringify(configuration(target, volume)));
    const run = `crun --root ${bundle}/state run --detach --pid-file ${bundle}/pid --bundle ${bundle} c1`;
    await ground.sh(`${run} </dev/null >/dev/null 2>&1`);
    const pid = Number(readFileSync(`${bundle}/pid`, "utf8"));
    await ground.client.unmount(target);
    await pool.close();
    const log = `/proc/${pid}/root/data/log`;
    await eventually("the log to be there", () => existsSync(log));
    const before = readFileSync(log).length;
    await eventually("the log to grow", () => readFileSync(log).length > before);
    expect(ground.loops().length).toBe(1);
    process.kill(pid, "SIGKILL");
    await eventually("the device to go", () => ground.loops().length === 0);
    // Opened again for the end of the test.
    pool = await ground.open();
  });
});

describe("an image", () => {
  it("is unmounted when the reference that kept it mounted is evicted", async () => {
    const { image_dir } = readDirectories(process.env, []);
    const images = new ImageStore(buildahCommand(image_dir), `evict-${process.pid}`, imageStore(image_dir).images_file);
    const mounted = new MountedImages({
      ...imageParts(ground.root, () => ground.client),
      images,
      files: new StoreFiles(imageStore(image_dir).images_file),
      references_max: 1,
    });
    const { image, leave } = await mounted.enter(profileImage().reference);
    leave();
    expect(await images.mountedKeys(ground.client)).toEqual([images.keyOf(image.id)]);
    // Its own id is no name that keeps it.
    await mounted.find(image.id);
    await eventually("the image to be unmounted", async () => (await images.mountedKeys(ground.client)).length === 0);
  });
});

/** A container that writes to its root and its volume without end. */
function configuration(root: string, volume: string): object {
  const script = "while :; do echo tick >> /data/log; echo tick >> /root/log; sleep 0.02; done";
  return {
    ociVersion: "1.0.2",
    root: { path: root, readonly: false },
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: ["/bin/bash", "-c", script],
      env: ["PATH=/usr/bin:/bin"],
      cwd: "/",
      noNewPrivileges: true,
    },
    mounts: [
      { destination: "/proc", type: "proc", source: "proc" },
      { destination: "/data", type: "bind", source: volume, options: ["bind", "rw", "nosuid", "nodev"] },
    ],
    linux: {
      cgroupsPath: `${CGROUP}/c1`,
      namespaces: ["pid", "ipc", "uts", "mount", "network"].map((type) => ({ type })),
      rootfsPropagation: "private",
    },
  };
}
