/**
 * The data directory on a disk of its own that fills up, and on one that cannot be written: every call has a defined
 * answer, no answered record is lost, what frees space works, and nothing has to be started again afterwards.
 */
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statSync, writeSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

const SETTINGS = { HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "warn" };
const DISK_MB = 112;
/** More than the reserve of the pool. */
const POOL_DISK_MB = 1_024;
const FULL = [503, "CAPACITY_FULL", "disk of the store full"];

function run(command: string, ...args: string[]): void {
  execFileSync(command, args, { stdio: ["ignore", "ignore", "inherit"] });
}

/** Fills the disk of a file to its last byte. */
function fillUp(filler: string): void {
  const file = openSync(filler, "a");
  for (const bytes of [1024 * 1024, 4096, 1]) {
    const block = Buffer.alloc(bytes, 1);
    try {
      for (;;) writeSync(file, block);
    } catch (error) {
      expect(error).toMatchObject({ code: "ENOSPC" });
    }
  }
  closeSync(file);
}

/** Mounts a new file system of a size. Returns its mount point. */
function mountDisk(directory: string, size_mb: number): string {
  const disk = `${directory}/disk`;
  mkdirSync(disk);
  run("truncate", "-s", `${size_mb}M`, `${directory}/image`);
  // Blocks as on any larger disk: smaller ones than pages leave holes in the file that SQLite shares by mapping it.
  run("mkfs.ext4", "-q", "-m", "0", "-b", "4096", `${directory}/image`);
  run("mount", "-o", "loop", `${directory}/image`, disk);
  return disk;
}

function removeDisk(directory: string): void {
  // Another daemon's launcher may have a copy of the mount; the loop device goes when that ends.
  run("umount", "--lazy", `${directory}/disk`);
  rmSync(directory, { recursive: true });
}

/** Code and text of a refusal. */
const refusal = ({ status, body }: Answer) => [status, body.error_code, body.error];

/** Records as they were answered, by the path under which they must be found. */
class Answered {
  // biome-ignore lint/suspicious/noExplicitAny: records as they came.
  readonly #records = new Map<string, any>();
  readonly #daemon: Daemon;

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
  }

  async call(name: string, payload_bytes = 10): Promise<Answer> {
    const payload = "x".repeat(payload_bytes);
    const answer = await this.#daemon.call("POST", `/api/functions/invoke/${name}`, { payload });
    if (answer.status === 200) {
      const { function_id, invocation_id } = answer.body;
      this.#records.set(`/api/functions/${function_id}/invocations/${invocation_id}`, answer.body);
    }
    return answer;
  }

  forget(function_id: string): void {
    for (const path of [...this.#records.keys()]) if (path.includes(function_id)) this.#records.delete(path);
  }

  /** All of them are there. Returns how many. */
  async check(): Promise<number> {
    for (const [path, record] of this.#records) expect((await this.#daemon.call("GET", path)).body).toEqual(record);
    return this.#records.size;
  }
}

describe("a disk that is full", () => {
  const directory = mkdtempSync("/var/tmp/hearth-disk-");
  const disk = mountDisk(directory, DISK_MB);
  const filler = `${disk}/filler`;
  const daemon = new Daemon(disk);
  const answered = new Answered(daemon);
  const reserve = `${daemon.data_dir}/hearth.db-reserve`;
  const reserveIsWhole = () => statSync(reserve).size === LIMITS.store_reserve_bytes;
  const ids = { kept: "", other: "" };

  const fill = () => fillUp(filler);

  beforeAll(async () => {
    await daemon.start(SETTINGS);
    ids.kept = (await daemon.deploy({ name: "kept", handler: "cat" })).id;
    ids.other = (await daemon.deploy({ name: "other", handler: "cat" })).id;
    expect((await answered.call("kept")).status).toBe(200);
    await eventually("the reserve is made", reserveIsWhole);
  });
  afterAll(async () => {
    await daemon.dispose();
    removeDisk(directory);
  });

  it("of files, with space, refuses the image of an archive with that reason, and is no fault", async () => {
    const load = async (): Promise<unknown[]> => {
      const headers = { "x-api-key": KEY, "content-type": "application/x-tar" };
      const init = { method: "POST", headers, body: Buffer.alloc(10_240) };
      const answer = await fetch(`${daemon.url}/api/oci/images/load`, init);
      const body = (await answer.json()) as Answer["body"];
      return [answer.status, body.error_code, body.error];
    };
    const files = `${disk}/files`;
    mkdirSync(files);
    const fillFiles = () => {
      for (let i = 0; ; i++) closeSync(openSync(`${files}/${i}`, "w"));
    };
    expect(fillFiles).toThrow(expect.objectContaining({ code: "ENOSPC" }));
    expect(await load()).toEqual([503, "CAPACITY_FULL", "no space for files in the data directory"]);
    rmSync(files, { recursive: true });
    expect(await load()).toEqual([503, "CAPACITY_FULL", expect.stringContaining("no disk space for the archive")]);
    expect(daemon.output).not.toContain("request failed");
  });

  it("refuses calls with the reason, reads on, and loses nothing that was answered", async () => {
    fill();
    const refused = await eventually("a call is refused", async () => {
      const answer = await answered.call("kept", 900_000);
      return answer.status === 200 ? null : answer;
    });
    expect(refusal(refused)).toEqual(FULL);
    expect(refused.body).toMatchObject({ hint: expect.stringContaining("free space"), retry_after: 1 });
    expect((await daemon.call("GET", "/health")).status).toBe(200);
    expect((await daemon.call("GET", `/api/functions/${ids.kept}`)).body).toMatchObject({ state: "active" });
    expect(await answered.check()).toBeGreaterThan(0);
  });

  it("does not keep functions from being made, paused and deleted", async () => {
    const made = await daemon.deploy({ name: "made", handler: "cat", min_instances: 1 });
    expect(made.state).toBe("active");
    expect((await daemon.call("POST", `/api/functions/${made.id}/pause`)).status).toBe(200);
    expect((await daemon.call("DELETE", `/api/functions/${made.id}`)).status).toBe(200);
    expect((await daemon.call("DELETE", `/api/functions/${ids.other}`)).status).toBe(200);
    expect((await daemon.call("GET", `/api/functions/${ids.other}`)).status).toBe(404);
    // The space that was kept for this is not for records.
    expect(refusal(await answered.call("kept"))).toEqual(FULL);
  });

  it("does not keep the daemon from starting after a kill", async () => {
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(refusal(await answered.call("kept"))).toEqual(FULL);
    expect(await answered.check()).toBeGreaterThan(0);
  });

  it("that has space again takes calls again, without a restart, and the reserve is made again", async () => {
    rmSync(filler);
    await eventually("a call is answered", async () => (await answered.call("kept")).status === 200);
    await eventually("the reserve is made", reserveIsWhole);
    expect(await answered.check()).toBeGreaterThan(0);
  });

  it("before a start that finds the reserve whole is one that can be started on", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    fill();
    await daemon.start(SETTINGS);
    expect(refusal(await answered.call("kept"))).toEqual(FULL);
  });

  it("with nothing in reserve any more: a start fails with the reason and leaves nothing, and works when there is space", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    fill();
    daemon.output = "";
    const child = await daemon.launch(SETTINGS);
    await eventually("it gives up", () => !daemon.isAlive);
    expect([child.exitCode, daemon.output]).toEqual([
      1,
      expect.stringMatching(/disk of the store full|no space left/i),
    ]);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    rmSync(filler);
    await daemon.start(SETTINGS);
    expect((await answered.call("kept")).status).toBe(200);
    expect(await answered.check()).toBeGreaterThan(0);
    await eventually("the reserve is made", reserveIsWhole);
  });

  it("was filled by the records: the deletion of a function makes room for those of others", async () => {
    const { id } = await daemon.deploy({ name: "large", handler: "cat" });
    const refused = await eventually("a call is refused", async () => {
      const answer = await answered.call("large", 1_000_000);
      return answer.status === 200 ? null : answer;
    });
    expect(refusal(refused)).toEqual(FULL);
    expect((await daemon.call("DELETE", `/api/functions/${id}`)).status).toBe(200);
    answered.forget(id);
    // The files are as large as before, the room is inside of the database.
    await eventually("a call is answered", async () => (await answered.call("kept")).status === 200);
    expect(await answered.check()).toBeGreaterThan(0);
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("a disk that others fill under the storage pool", () => {
  const directory = mkdtempSync("/var/tmp/hearth-disk-");
  const disk = mountDisk(directory, POOL_DISK_MB);
  const filler = `${disk}/filler`;
  const daemon = new Daemon(disk);
  const containers = new ContainerUser(daemon);
  const files = "cat /root/kept /data/kept";

  beforeAll(async () => {
    await daemon.start(SETTINGS);
    await daemon.call("POST", "/api/volumes", { name: "data" });
    const box = { memory_limit_mb: 256, command: ["sleep", "100000"] };
    await containers.create({ ...box, name: "box", volumes: ["data:/data"] });
    await containers.create({ ...box, name: "again", restart: "always" });
    await containers.shell("box", "echo -n kept > /root/kept; echo -n kept > /data/kept; sync");
  });
  afterAll(async () => {
    await daemon.dispose();
    removeDisk(directory);
  });

  it("makes the pool read-only, and after a kill and with space the daemon starts, ends the containers and loses no file", async () => {
    fillUp(filler);
    await eventually("the pool is read-only", async () => {
      const text = await containers.shell(
        "box",
        "dd if=/dev/urandom of=/root/more bs=1M count=8 2>&1; sync; touch /root/x 2>&1 || :",
      );
      return /read-only/i.test(text);
    });
    await daemon.stop("SIGKILL");
    rmSync(filler);
    await daemon.start(SETTINGS);
    expect(daemon.output).toContain("the storage pool is read-only after an error");
    await containers.until("again", "is started again by its policy", ({ state }) => state === "running");
    expect((await containers.get("box")).state).not.toBe("running");
    await daemon.call("POST", "/api/containers/box/start?execution=sync");
    expect(await containers.shell("box", files)).toBe("keptkept");
    await containers.shell("box", "echo more > /root/more");
  });

  it("leaves nothing", async () => {
    for (const name of ["box", "again"])
      expect((await daemon.call("DELETE", `/api/containers/${name}`)).status).toBe(200);
    expect((await daemon.call("DELETE", "/api/volumes/data?execution=sync")).status).toBe(200);
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("a store that cannot be written", () => {
  const daemon = new Daemon();
  const answered = new Answered(daemon);
  const files = ["", "-wal"].map((suffix) => `${daemon.data_dir}/hearth.db${suffix}`);
  afterAll(() => daemon.dispose());

  it("refuses what has to be written, reads on, and takes calls again when it can", async () => {
    await daemon.start(SETTINGS);
    const { id } = await daemon.deploy({ name: "f", handler: "cat" });
    expect((await answered.call("f")).status).toBe(200);
    // Even for descriptors that are open: a file system cannot be made read-only under those.
    run("chattr", "+i", ...files);
    // The reason names files of this machine: it is the log's.
    const refused = [500, "INTERNAL", "internal error"];
    try {
      expect(refusal(await answered.call("f"))).toEqual(refused);
      expect(refusal(await daemon.call("POST", "/api/functions", { name: "g", handler: "cat" }))).toEqual(refused);
      expect(refusal(await daemon.call("POST", `/api/functions/${id}/pause`))).toEqual(refused);
      expect(refusal(await daemon.call("DELETE", `/api/functions/${id}`))).toEqual(refused);
      expect((await daemon.call("GET", "/health")).status).toBe(200);
      expect((await daemon.call("GET", `/api/functions/${id}`)).body).toMatchObject({ state: "active" });
      expect(await answered.check()).toBe(1);
      expect(daemon.output).toContain("cannot write to the disk of the store");
    } finally {
      run("chattr", "-i", ...files);
    }
    expect((await answered.call("f")).status).toBe(200);
    expect(await answered.check()).toBe(2);
    expect((await daemon.call("DELETE", `/api/functions/${id}`)).status).toBe(200);
    expect(await daemon.stop("SIGTERM")).toBe(0);
  });

  it("because its directory is read-only makes a start fail with the reason, and leaves nothing", async () => {
    run("mount", "--bind", daemon.data_dir, daemon.data_dir);
    try {
      run("mount", "-o", "remount,bind,ro", daemon.data_dir);
      daemon.output = "";
      const child = await daemon.launch(SETTINGS);
      await eventually("it gives up", () => !daemon.isAlive);
      expect([child.exitCode, daemon.output]).toEqual([1, expect.stringMatching(/hearth: .*read-only/)]);
      expect(daemon.output).toContain(`${daemon.data_dir}/hearth.db`);
      expect(daemon.output.trim().split("\n")).toHaveLength(1);
    } finally {
      run("umount", daemon.data_dir);
    }
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
