/** Images that buildah pulls into a store: their names, their end, and what failures and crashes leave. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FAILPOINTS } from "../../src/base/failpoints.ts";
import { directory, entry, sha256, tar } from "../support/layer-bytes.ts";
import { stall } from "../support/layer-registry.ts";
import { eventually } from "../support/native.ts";
import { ImageGround } from "./image-ground.ts";

const RUNNER = join(import.meta.dirname, "image-crash-runner.ts");
const EMPTY = { images: {}, layers: 0, directories: 0 };

const layer = (name: string) => tar(directory("etc"), entry({ name: `etc/${name}`, content: name.repeat(1_000) }));
const [BASE, MIDDLE, TOP] = ["base", "middle", "top"].map(layer) as [Buffer, Buffer, Buffer];

let held: ImageGround;
beforeEach(async () => {
  held = new ImageGround();
  await held.start();
});
afterEach(() => held.stop());

/** The name that keeps an image. */
const kept = (id: string) => `localhost/hearth/kept:hearth-test-${id.slice(0, 32)}`;

describe("a pull", () => {
  it("keeps the image under a name of the daemon alone, by tag and by digest", async () => {
    const image = held.registry.add("1", [BASE, TOP]);
    const byTag = await held.images.pull(held.of("team/app:1"));
    expect(byTag.id).toBe(image.id);
    const byDigest = await held.images.pull(held.of(`team/app@${image.digest}`));
    expect(byDigest.id).toBe(image.id);
    expect(await held.stored()).toEqual({ images: { [image.id]: [kept(image.id)] }, layers: 2, directories: 2 });
    expect(held.notes()).toEqual([]);
    expect(await held.images.find(image.id)).toMatchObject({ id: image.id });
  });

  it("describes the image as the registry has it", async () => {
    const image = held.registry.add("1", [BASE, MIDDLE, TOP]);
    const { id } = await held.images.pull(held.of("app:1"));
    const found = await held.images.describe(id);
    expect(found).toMatchObject({
      id,
      manifest_digest: image.digest,
      manifest_json: image.manifest,
      config_json: image.config,
      size_bytes: BASE.length + MIDDLE.length + TOP.length,
    });
    expect(found.layers).toEqual(
      [BASE, MIDDLE, TOP].map((bytes, i) => ({
        digest: image.layers[i],
        size_bytes: expect.any(Number),
        uncompressed_size: bytes.length,
        diff_id: sha256(bytes),
        media_type: "application/vnd.oci.image.layer.v1.tar+gzip",
      })),
    );
    await expect(held.images.describe("0".repeat(64))).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(held.images.describe("../manifest")).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  it("shares layers, and asks for each of them once", async () => {
    const one = held.registry.add("1", [BASE, TOP]);
    const two = held.registry.add("2", [BASE, MIDDLE]);
    await held.images.pull(held.of("app:1"));
    await held.images.pull(held.of("other:2"));
    expect(await held.stored()).toMatchObject({ layers: 3, directories: 3 });
    expect(held.registry.asked.filter((digest) => digest === one.layers[0])).toHaveLength(1);
    expect(two.layers[0]).toBe(one.layers[0]);
  });

  it("of a name that the store had leaves the name with the image that had it", async () => {
    const old = held.registry.add("1", [BASE]);
    await held.buildPull("app:1");
    const moved = held.registry.add("1", [TOP]);
    expect((await held.images.pull(held.of("app:1"))).id).toBe(moved.id);
    const name = `${held.host}/app:1`;
    expect((await held.stored()).images).toEqual({ [old.id]: [name], [moved.id]: [kept(moved.id)] });

    held.registry.add("1", [BASE]);
    expect((await held.images.pull(held.of("app:1"))).id).toBe(old.id);
    expect(new Set((await held.stored()).images[old.id])).toEqual(new Set([name, kept(old.id)]));
  });

  it("of many at once, of the same and of different ones, keeps each", async () => {
    const images = Array.from({ length: 6 }, (_, i) => held.registry.add(`${i}`, [BASE, layer(`own${i}`)]));
    const pulls = [...images, ...images].map((_, i) => held.images.pull(held.of(`app:${i % 6}`)));
    const pulled = await Promise.all(pulls);
    expect(pulled.slice(0, 6).map(({ id }) => id)).toEqual(images.map(({ id }) => id));
    expect((await held.stored()).images).toEqual(Object.fromEntries(images.map(({ id }) => [id, [kept(id)]])));
    expect(await held.stored()).toMatchObject({ layers: 7, directories: 7 });
  });

  it("from the store keeps an image beside the name that it has", async () => {
    const image = held.registry.add("1", [BASE]);
    await held.buildPull("app:1");
    await held.build("tag", image.id, "localhost/mine:1");
    const of = held.of("", { transport: "containers-storage", reference: "localhost/mine:1" });
    expect((await held.images.pull(of)).id).toBe(image.id);
    expect((await held.stored()).images[image.id]).toContain("localhost/mine:1");
    expect((await held.stored()).images[image.id]).toContain(kept(image.id));
    const missing = { ...of, reference: "localhost/none:1" };
    await expect(held.images.pull(missing)).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  it.each([
    "",
    "app",
    "app:1",
    "--help",
    "host/app",
    "host/app:1@sha256:0",
    "oci:/etc:x",
    "host/a b:1",
    "docker://host/a:1",
  ])("refuses the reference '%s'", async (reference) => {
    await expect(held.images.pull({ ...held.of(""), reference })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });
});

describe("an image that nothing needs", () => {
  it("is removed with its own layers when it is not kept any more, never before its pull is released", async () => {
    const one = held.registry.add("1", [BASE, TOP]);
    const two = held.registry.add("2", [BASE, MIDDLE]);
    const [first, second] = [await held.images.pull(held.of("app:1")), await held.images.pull(held.of("app:2"))];
    await held.images.keep(async () => new Set());
    expect(Object.keys((await held.stored()).images)).toHaveLength(2);
    first.release();
    first.release();
    await held.images.keep(async () => new Set());
    expect(await held.stored()).toEqual({ images: { [two.id]: [kept(two.id)] }, layers: 2, directories: 2 });
    second.release();
    await held.images.keep(async () => new Set([two.id, one.id]));
    expect(await held.stored()).toMatchObject({ images: { [two.id]: [kept(two.id)] } });
    await held.images.keep(async () => new Set());
    expect(await held.stored()).toEqual(EMPTY);
  });

  it("is unmounted first, and stays while a container has it", async () => {
    const { id } = held.registry.add("1", [BASE]);
    (await held.images.pull(held.of("app:1"))).release();
    const entered = await held.images.enter(id);
    await held.images.keep(async () => new Set());
    expect(Object.keys((await held.stored()).images)).toEqual([id]);
    entered.leave();
    await held.images.keep(async () => new Set());
    expect(await held.stored()).toEqual(EMPTY);
  });

  it("is kept by a reservation from its begin to its release, under one name for several", async () => {
    const { id } = held.registry.add("1", [BASE]);
    await held.buildPull("app:1");
    const name = `${held.host}/app:1`;
    const [first, second] = await Promise.all([held.images.reserve(id), held.images.reserve(id)]);
    expect(new Set((await held.stored()).images[id])).toEqual(new Set([name, kept(id)]));
    // Set-up, which removes the image by its own name, leaves the daemon's.
    await held.build("rmi", name);
    first.release();
    first.release();
    await held.images.keep(async () => new Set());
    expect((await held.stored()).images).toEqual({ [id]: [kept(id)] });
    second.release();
    await held.images.keep(async () => new Set());
    expect(await held.stored()).toEqual(EMPTY);
    for (const missing of [id, "0".repeat(64)]) {
      await expect(held.images.reserve(missing)).rejects.toMatchObject({ code: "NOT_FOUND" });
    }
  });

  it("stays for one more time if its pull was released while the ids were read, and the listener is notified", async () => {
    const { id } = held.registry.add("1", [BASE]);
    const pulled = await held.images.pull(held.of("app:1"));
    let idle_count = 0;
    held.images.onIdle(() => void idle_count++);
    await held.images.keep(async () => {
      // Its row was committed after the rows were read.
      pulled.release();
      return new Set();
    });
    expect((await held.stored()).images).toEqual({ [id]: [kept(id)] });
    expect(idle_count).toBe(1);
    await held.images.keep(async () => new Set());
    expect(await held.stored()).toEqual(EMPTY);
  });

  it("gets its name back if a reservation of it failed to become a need", async () => {
    const { id } = held.registry.add("1", [BASE]);
    await held.buildPull("app:1");
    let idle_count = 0;
    held.images.onIdle(() => void idle_count++);
    const [first, second] = await Promise.all([held.images.reserve(id), held.images.reserve(id)]);
    first.release();
    expect(idle_count).toBe(0);
    second.release();
    expect(idle_count).toBe(1);
    await held.images.keep(async () => new Set());
    expect((await held.stored()).images).toEqual({ [id]: [`${held.host}/app:1`] });
    const third = await held.images.reserve(id);
    await held.images.keep(async () => new Set([id]));
    third.release();
    expect(idle_count).toBe(1);
  });

  it("rejects as the reader of the ids does, and removes nothing then", async () => {
    const { id } = held.registry.add("1", [BASE]);
    (await held.images.pull(held.of("app:1"))).release();
    await expect(held.images.keep(() => Promise.reject(new Error("no rows")))).rejects.toThrow("no rows");
    expect((await held.stored()).images).toEqual({ [id]: [kept(id)] });
  });

  it("loses the name of this daemon alone if an operator gave it another", async () => {
    const { id } = held.registry.add("1", [BASE]);
    (await held.images.pull(held.of("app:1"))).release();
    await held.build("tag", id, "localhost/mine:1");
    await held.images.keep(async () => new Set());
    expect((await held.stored()).images).toEqual({ [id]: ["localhost/mine:1"] });
  });
});

describe("a pull that fails", () => {
  /** Expects that nothing of a pull is left, and that the next one works. */
  async function expectNothingLeft(): Promise<void> {
    expect(held.processes()).toEqual([]);
    expect(held.notes()).toEqual([]);
    expect(await held.stored()).toEqual(EMPTY);
    held.registry.misbehave = () => false;
    const { id } = held.registry.add("again", [BASE, MIDDLE, TOP]);
    expect((await held.images.pull(held.of("app:again"))).id).toBe(id);
  }

  it("in its last layer leaves none of its layers", async () => {
    const image = held.registry.add("1", [BASE, MIDDLE, TOP]);
    held.registry.misbehave = (digest, response) => {
      if (digest !== image.layers[2]) return false;
      // The others are in the store by then.
      setTimeout(() => response.writeHead(500).end(), 1_000);
      return true;
    };
    await expect(held.images.pull(held.of("app:1"))).rejects.toMatchObject({
      code: "INTERNAL",
      message: expect.stringMatching(/^buildah could not pull .*\/app:1: .*500/),
    });
    await expectNothingLeft();
  });

  it("leaves none of its uncompressed layers, but those of others, if it is told their digests", async () => {
    const [base, middle, top] = [BASE, MIDDLE, TOP].map(sha256);
    const image = held.registry.add("1", [BASE, MIDDLE, TOP], { isCompressed: false });
    const other = held.registry.add("other", [MIDDLE], { isCompressed: false });
    held.registry.misbehave = (digest, response) => {
      if (digest !== image.layers[2]) return false;
      setTimeout(() => response.writeHead(500).end(), 1_000);
      return true;
    };
    const diff_ids = [base, middle, top] as string[];
    await expect(held.images.pull(held.of("app:1", { diff_ids }))).rejects.toMatchObject({ code: "INTERNAL" });
    expect([await held.stored(), held.notes()]).toEqual([EMPTY, []]);
    // A layer that nobody told of may belong to a commit.
    await expect(held.images.pull(held.of("app:1", { diff_ids: [] }))).rejects.toMatchObject({ code: "INTERNAL" });
    expect(await held.stored()).toMatchObject({ images: {}, layers: 2 });
    await held.images.pull(held.of("app:other", { diff_ids: [middle as string] }));
    expect(await held.stored()).toMatchObject({ images: { [other.id]: [kept(other.id)] } });
  });

  it("for a digest that lies leaves nothing", async () => {
    const image = held.registry.add("1", [BASE, TOP]);
    held.registry.misbehave = (digest, response) => {
      if (digest !== image.layers[1]) return false;
      response.writeHead(200).end(Buffer.alloc(100));
      return true;
    };
    await expect(held.images.pull(held.of("app:1"))).rejects.toMatchObject({ code: "INTERNAL" });
    await expectNothingLeft();
  });

  it("for a stalled registry is ended at its deadline, with all its processes", async () => {
    const image = held.registry.add("1", [BASE, TOP]);
    held.registry.misbehave = (digest, response) => digest === image.layers[1] && stall(response);
    await expect(held.images.pull(held.of("app:1", { timeout_ms: 1_500 }))).rejects.toMatchObject({
      code: "TIMEOUT",
      message: expect.stringMatching(/did not end within 1500 ms$/),
    });
    await expectNothingLeft();
  });

  it("because it was cancelled rejects with the reason", async () => {
    const image = held.registry.add("1", [BASE, TOP]);
    held.registry.misbehave = (digest, response) => digest === image.layers[1] && stall(response);
    const cancel = new AbortController();
    const pulling = held.images.pull(held.of("app:1", { signal: cancel.signal }));
    const reason = { code: "WRONG_STATE" };
    pulling.catch(() => {});
    await eventually("the registry is asked", () => held.registry.asked.length > 1);
    cancel.abort(reason);
    await expect(pulling).rejects.toBe(reason);
    await expect(held.images.pull(held.of("app:1", { signal: cancel.signal }))).rejects.toBe(reason);
    await expectNothingLeft();
  });

  it("because the policy refuses it says so", async () => {
    held.registry.add("1", [BASE]);
    const policy_file = `${held.ground.root}/policy.json`;
    writeFileSync(policy_file, JSON.stringify({ default: [{ type: "reject" }] }));
    await expect(held.images.pull(held.of("app:1", { policy_file }))).rejects.toMatchObject({ code: "FORBIDDEN" });
    await expectNothingLeft();
  });

  it("leaves layers that another pull may still need, until that one ends", async () => {
    const bad = held.registry.add("bad", [BASE, TOP]);
    const slow = held.registry.add("slow", [BASE, MIDDLE]);
    const waiting: (() => void)[] = [];
    held.registry.misbehave = (digest, response) => {
      if (digest === bad.layers[1]) setTimeout(() => response.writeHead(500).end(), 500);
      else if (digest === slow.layers[1] && waiting.length === 0) {
        waiting.push(() => {
          held.registry.misbehave = () => false;
          response.destroy();
        });
      } else return false;
      return true;
    };
    const pulling = held.images.pull(held.of("app:slow"));
    pulling.catch(() => {});
    await eventually("the slow pull waits", () => waiting.length > 0);
    await expect(held.images.pull(held.of("app:bad"))).rejects.toMatchObject({ code: "INTERNAL" });
    waiting[0]?.();
    await pulling.catch(() => {});
    await held.images.pull(held.of("app:slow"));
    expect(await held.stored()).toEqual({ images: { [slow.id]: [kept(slow.id)] }, layers: 2, directories: 2 });
  });
});

describe("a pull whose daemon is killed", () => {
  /** Runs a process on the store until it dies, or until `stop` resolves, which then kills it. */
  async function crash(failpoint: string, reference: string, stop?: () => Promise<unknown>): Promise<void> {
    await held.ground.kill();
    const argv = [RUNNER, held.ground.root, failpoint, held.host, reference, ...[BASE, MIDDLE, TOP].map(sha256)];
    const child = spawn(process.execPath, argv, { stdio: ["ignore", "ignore", "inherit"] });
    const exited = new Promise<string | null>((resolve) => child.once("exit", (_, signal) => resolve(signal)));
    if (stop !== undefined) {
      await stop();
      child.kill("SIGKILL");
    }
    expect(await exited).toBe("SIGKILL");
    await held.ground.start();
    held.restart();
  }

  /** Waits until a layer is asked for, and another one is stored. */
  async function storedBut(digest = ""): Promise<void> {
    const list = `${held.ground.root}/storage/overlay-layers/layers.json`;
    await eventually("the last layer is asked for", () => held.registry.asked.includes(digest));
    await eventually(
      "another layer is stored",
      () => existsSync(list) && readFileSync(list, "utf8").includes("diff-digest"),
    );
  }

  /** Expects what the next boot of the daemon makes of it. */
  async function expectRecovered(): Promise<void> {
    // A note outlives a sweep that did not get the lock of the store; each later one tries again.
    await eventually("what is left is removed", async () => {
      await held.images.keep(async () => new Set());
      return held.notes().length === 0;
    });
    expect(held.processes()).toEqual([]);
    expect(held.notes()).toEqual([]);
    expect(await held.stored()).toEqual(EMPTY);
    held.registry.misbehave = () => false;
    const { id } = held.registry.add("next", [BASE, TOP]);
    expect((await held.images.pull(held.of("app:next"))).id).toBe(id);
  }

  it.each(FAILPOINTS.filter((name) => name.startsWith("images.pull.")))("at %s leaves nothing", async (name) => {
    held.registry.add("1", [BASE, MIDDLE, TOP]);
    await crash(name, "app:1");
    await expectRecovered();
  });

  it("while uncompressed layers come leaves nothing", async () => {
    const image = held.registry.add("1", [BASE, MIDDLE, TOP], { isCompressed: false });
    held.registry.misbehave = (digest, response) => digest === image.layers[2] && stall(response);
    await crash("", "app:1", () => storedBut(image.layers[2]));
    expect(held.notes()).toHaveLength(1);
    await expectRecovered();
  });

  it("while layers come leaves nothing, whether buildah survives the daemon or not", async () => {
    const image = held.registry.add("1", [BASE, MIDDLE, TOP]);
    held.registry.misbehave = (digest, response) => digest === image.layers[2] && stall(response);
    await crash("", "app:1", () =>
      eventually("the last layer is asked for", () => held.registry.asked.includes(image.layers[2] ?? "")),
    );
    expect(held.processes().length).toBeGreaterThan(0);
    expect(held.notes()).toHaveLength(1);
    await expectRecovered();
  });

  it("leaves nothing once the lock is free, if another process has it while the next daemon starts", async () => {
    const image = held.registry.add("1", [BASE, MIDDLE, TOP]);
    held.registry.misbehave = (digest, response) => digest === image.layers[2] && stall(response);
    const locked = Promise.withResolvers<void>();
    const holder = spawn("flock", ["--shared", `${held.ground.root}/pulls.lock`, "sh", "-c", "echo; exec sleep 100"], {
      stdio: ["ignore", "pipe", "inherit"],
      detached: true,
    });
    holder.stdout.once("data", () => locked.resolve());
    try {
      await locked.promise;
      await crash("", "app:1", () => storedBut(image.layers[2]));
      await held.images.keep(async () => new Set());
      expect(held.notes()).toHaveLength(1);
    } finally {
      process.kill(-(holder.pid ?? 0), "SIGKILL");
    }
    await expectRecovered();
  });

  it("at any moment leaves nothing", async () => {
    const large = Array.from({ length: 4 }, (_, i) =>
      tar(...Array.from({ length: 2_000 }, (_, n) => entry({ name: `d${i}/${n}`, content: `${n}`.repeat(100) }))),
    );
    held.registry.add("1", large);
    for (let wait_ms = 300; wait_ms <= 1_500; wait_ms += 200) {
      await crash("", "app:1", () => new Promise((resolve) => setTimeout(resolve, wait_ms))).catch((error) => {
        // It may have ended before.
        if (!/SIGKILL/.test(String(error))) throw error;
      });
      await held.images.keep(async () => new Set());
      expect(await held.stored()).toEqual(EMPTY);
      expect(held.notes()).toEqual([]);
    }
    await expectRecovered();
  });

  it("under a name that stood for another image gives the name back", async () => {
    const old = held.registry.add("1", [BASE]);
    await held.buildPull("app:1");
    held.registry.add("1", [TOP]);
    await crash("images.pull.stored", "app:1");
    await held.images.keep(async () => new Set());
    expect(await held.stored()).toEqual({ images: { [old.id]: [`${held.host}/app:1`] }, layers: 1, directories: 1 });
  });
});
