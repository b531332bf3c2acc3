/** CDI files as the daemon reads them, well-formed and hostile, and the holders of the GPUs that they describe. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { type CdiFile, parseCdiFile } from "../../src/engine/gpu/cdi-file.ts";
import { LocalGpus } from "../../src/engine/gpu/gpus.ts";
import { resolveTarget } from "../../src/engine/gpu/targets.ts";

const root = mkdtempSync("/var/tmp/hearth-gpus-");
afterAll(() => rmSync(root, { recursive: true, force: true }));

const node = (path: string) => ({ deviceNodes: [{ path, type: "c", major: 10, minor: path.length }] });
const device = (name: string, containerEdits: object = node(`/dev/x${name.replace(/\W/g, "")}`)) => ({
  name,
  containerEdits,
});
const file = (devices: readonly object[], more: object = {}) => ({
  cdiVersion: "0.5.0",
  kind: "nvidia.com/gpu",
  devices,
  ...more,
});
const parsed = (value: object): CdiFile => parseCdiFile("/etc/cdi/a.json", JSON.stringify(value));

/** The GPUs of the directories that the files are written to, on a clock that stands at a time to be set. */
class Ground {
  readonly directories = ["a", "b"].map((name) => `${mkdtempSync(`${root}/cdi-`)}/${name}`);
  readonly clock = { now_ms: 0, monotonicMs: () => this.clock.now_ms, epochMs: () => 0, after: () => () => {} };
  readonly gpus: LocalGpus;

  constructor() {
    for (const path of this.directories) mkdirSync(path);
    const silent = () => {};
    const log = { debug: silent, info: silent, warn: silent, error: silent };
    this.gpus = new LocalGpus({ directories: this.directories, clock: this.clock, log });
  }

  write(name: string, value: object | string, directory = 0): void {
    writeFileSync(this.path(name, directory), typeof value === "string" ? value : JSON.stringify(value));
  }

  path(name: string, directory = 0): string {
    return `${this.directories[directory]}/${name}`;
  }

  async ids(): Promise<string[]> {
    this.clock.now_ms += LIMITS.cdi_look_interval_ms;
    return (await this.gpus.states()).gpus.map(({ gpu_id, device }) => `${gpu_id} ${device.split("=")[1]}`);
  }

  async warnings(): Promise<string> {
    return (await this.gpus.states()).warnings.join("\n");
  }
}

describe("a CDI file", () => {
  it.each([
    [{ deviceNodes: [{ path: "/dev/../etc/x" }] }, /path: expected an absolute path/],
    [{ deviceNodes: [{ path: "/etc/x" }] }, /below \/dev/],
    [{ deviceNodes: [{ path: "/dev/init" }] }, /below \/dev/],
    [{ deviceNodes: [{ path: "/dev/pts/ptmx" }] }, /below \/dev/],
    [{ deviceNodes: [{ path: "/dev/null" }] }, /below \/dev/],
    [{ deviceNodes: [{ path: "/dev/x", major: -1 }] }, /major/],
    [{ deviceNodes: [{ path: "/dev/x", type: "p" }] }, /expected b or c/],
    [{ deviceNodes: [{ path: "/dev/x", permissions: "rwx" }] }, /some of r, w, m/],
    [{ deviceNodes: [{ path: "/dev/x", uid: 70_000 }] }, /uid/],
    [{ mounts: [{ hostPath: "/", containerPath: "/x" }] }, /hostPath/],
    [{ mounts: [{ hostPath: "/x", containerPath: "/proc/x" }] }, /outside of/],
    [{ mounts: [{ hostPath: "/x", containerPath: "/x", type: "proc" }] }, /bind mount/],
    [{ hooks: [{ hookName: "startContainer", path: "/bin/x" }] }, /expected one of/],
    [{ hooks: [{ hookName: "poststop", path: "bin/x" }] }, /absolute path/],
    [{ env: ["=x"] }, /NAME=value/],
    [{ env: ["A"] }, /NAME=value/],
    [{ env: ["A=\0"] }, /NAME=value/],
    [{ env: Array.from({ length: LIMITS.cdi_entries_max + 1 }, () => "A=1") }, /too big/i],
    [{ additionalGids: [-1] }, /additionalGids/],
    [{ deviceNodes: "all" }, /deviceNodes/],
  ])("leaves out a device with edits %j and keeps the others", (edits, why) => {
    const { devices, warnings } = parsed(file([device("0", edits), device("1")]));
    expect(devices.map(({ name }) => name)).toEqual(["1"]);
    expect(warnings).toEqual([expect.stringMatching(why)]);
    expect(warnings[0]).toContain('"0"');
  });

  it("has unknown fields, intelRdt and writable mounts named, and is read", () => {
    const mounts = [{ hostPath: "/x", containerPath: "/x", options: ["rw"] }];
    const { devices, warnings } = parsed(
      file([{ ...device("0", { intelRdt: {}, netDevices: [], mounts }), colour: 1 }], { extra: 1 }),
    );
    expect(devices).toHaveLength(1);
    for (const text of ['"extra"', '"colour"', '"netDevices"', "intelRdt", "read-only"])
      expect(warnings.join("\n")).toContain(text);
  });

  it.each(["0.2.0", "2.0.0", "x", 1])("of version %j is refused", (cdiVersion) => {
    expect(() => parsed({ ...file([device("0")]), cdiVersion })).toThrow(/cdiVersion/);
  });
});

describe("the inventory", () => {
  it("numbers GPUs by their vendor, merges names of one GPU, and leaves out all", async () => {
    const ground = new Ground();
    const same = node("/dev/same");
    ground.write(
      "n.json",
      file([device("10"), device("GPU-b", same), device("1", same), device("all"), device("MIG-a")]),
    );
    ground.write(
      "a.yaml",
      "cdiVersion: 0.6.0\nkind: amd.com/gpu\ndevices:\n- name: '0'\n  containerEdits: {env: [A=1]}\n",
    );
    ground.write("net.json", file([device("0")], { kind: "nvidia.com/net" }));
    ground.write("notes.txt", "not looked at");
    expect(await ground.ids()).toEqual(["amd0 0", "nvidia0 MIG-a", "nvidia1 1", "nvidia10 10"]);
    expect((await ground.gpus.states()).gpus[2]?.aliases).toEqual(["nvidia.com/gpu=GPU-b"]);
    expect(await ground.warnings()).toBe("");
  });

  it("lets the later directory override, and leaves out what two files of one define", async () => {
    const ground = new Ground();
    ground.write("a.json", file([device("0", node("/dev/first"))]));
    ground.write("a.json", file([device("0", node("/dev/second"))]), 1);
    expect(await ground.ids()).toEqual(["nvidia0 0"]);
    const taken = await ground.gpus.take("r", { tenant_id: "t", id: "r" }, { gpu_count: 1, gpu_ids: [] });
    expect(taken?.edits.nodes.map(({ path }) => path)).toEqual(["/dev/second"]);
    ground.write("b.json", file([device("0"), device("1")]), 1);
    expect(await ground.ids()).toEqual(["nvidia1 1"]);
    expect(await ground.warnings()).toContain("another file of the directory");
    rmSync(ground.path("b.json", 1));
    expect(await ground.ids()).toEqual(["nvidia0 0"]);
  });

  it("reports hostile files and goes on with the others, in a second", async () => {
    const ground = new Ground();
    ground.write("good.json", file([device("0")]));
    symlinkSync("loop.json", ground.path("loop.json"));
    execFileSync("mkfifo", [ground.path("fifo.json")]);
    symlinkSync("/dev/zero", ground.path("device.json"));
    mkdirSync(ground.path("folder.json"));
    ground.write("huge.json", "");
    truncateSync(ground.path("huge.json"), 1024 ** 3);
    ground.write("broken.json", "{");
    ground.write("deep.json", "[".repeat(100_000));
    ground.write("deep.yaml", "[".repeat(100_000));
    ground.write("keys.yaml", Array.from({ length: 15_000 }, (_, i) => `k${i}:`).join("\n"));
    ground.write("alias.yaml", "a: &a [x]\nb: [*a, *a]\n");
    ground.write(
      "proto.json",
      '{"__proto__": {"kind": "nvidia.com/gpu"}, "cdiVersion": "0.5.0", "devices": [{"name": "7"}]}',
    );
    ground.write("none.json", file([]));
    for (let i = 0; i < LIMITS.cdi_files_max; i++) ground.write(`x${i}.json`, "null");
    const begun_ms = performance.now();
    expect(await ground.ids()).toEqual(["nvidia0 0"]);
    expect(performance.now() - begun_ms).toBeLessThan(20_000);
    const warnings = await ground.warnings();
    for (const name of [
      "loop.json",
      "fifo.json",
      "device.json",
      "folder.json",
      "huge.json",
      "deep.json",
      "deep.yaml",
      "alias.yaml",
    ])
      expect(warnings).toContain(name);
    expect(warnings).toMatch(/files left out \(limit 64\)/);
    expect(warnings.split("\n").length).toBeLessThanOrEqual(LIMITS.cdi_warnings_max + 1);
    const again_ms = performance.now();
    await ground.ids();
    expect(performance.now() - again_ms).toBeLessThan(1_000);
  }, 60_000);

  it("leaves out a GPU whose node is missing", async () => {
    const ground = new Ground();
    ground.write(
      "a.json",
      file([device("0", { deviceNodes: [{ path: "/dev/x", hostPath: `${root}/none` }] }), device("1")]),
    );
    expect(await ground.ids()).toEqual(["nvidia1 1"]);
    expect(await ground.warnings()).toContain("no such file");
  });
});

describe("holders", () => {
  const holder = { tenant_id: "t", id: "r" };

  it("never hold a GPU and a part of it", async () => {
    const ground = new Ground();
    const both = { deviceNodes: [...node("/dev/whole").deviceNodes, ...node("/dev/part333").deviceNodes] };
    const other = { deviceNodes: [...node("/dev/whole").deviceNodes, ...node("/dev/part22").deviceNodes] };
    ground.write("a.json", file([device("0", node("/dev/whole")), device("p1", both), device("p2", other)]));
    const ids = ["nvidia0 0", "nvidia1 p1", "nvidia2 p2"];
    expect(await ground.ids()).toEqual(ids);
    await ground.gpus.take("a", holder, { gpu_count: 2, gpu_ids: ["nvidia1", "nvidia2"] });
    const whole = { gpu_count: 1, gpu_ids: ["nvidia0"] };
    await expect(ground.gpus.take("b", holder, whole)).rejects.toThrow("GPU in use: nvidia0");
    await expect(ground.gpus.take("b", holder, { gpu_count: 1, gpu_ids: [] })).rejects.toThrow("0 free");
    ground.gpus.release("a");
    await ground.gpus.take("b", holder, whole);
    await expect(ground.gpus.take("a", holder, { gpu_count: 1, gpu_ids: ["nvidia2"] })).rejects.toThrow("in use");
  });

  it("keep their GPU when its file changes or goes, and no other gets it under another name", async () => {
    const ground = new Ground();
    ground.write("a.json", file([device("0", node("/dev/one"))]));
    const taken = await ground.gpus.take("a", holder, { gpu_count: 1, gpu_ids: [] });
    ground.write("a.json", file([device("5", node("/dev/one"))]));
    expect(await ground.ids()).toEqual(["nvidia5 5"]);
    await expect(ground.gpus.check("t", { gpu_count: 1, gpu_ids: [] })).rejects.toThrow("0 free");
    // As a starting daemon finds it.
    const next = new Ground();
    next.write("a.json", file([device("5", node("/dev/one"))]));
    next.gpus.keep("a", "r", taken?.note ?? null);
    await expect(next.gpus.check("t", { gpu_count: 1, gpu_ids: [] })).rejects.toThrow("0 free");
    next.gpus.release("a");
    await next.gpus.check("t", { gpu_count: 1, gpu_ids: [] });
  });

  it("of one tenant hold no more than its limit", async () => {
    const ground = new Ground();
    ground.write("a.json", file([device("0"), device("11")]));
    ground.gpus.bound((tenant_id) => (tenant_id === "t" ? 1 : null));
    const one = { gpu_count: 1, gpu_ids: [] };
    await ground.gpus.take("a", holder, one);
    expect(ground.gpus.countOf("t")).toBe(1);
    await expect(ground.gpus.take("b", holder, one)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    await ground.gpus.take("b", { tenant_id: "u", id: "b" }, one);
  });
});

describe("a target", () => {
  it("follows links of the container inside of it, and is refused below what is not its own", async () => {
    const tree = mkdtempSync(`${root}/tree-`);
    mkdirSync(`${tree}/usr/lib`, { recursive: true });
    symlinkSync("usr/lib", `${tree}/lib`);
    symlinkSync("/../../usr", `${tree}/up`);
    symlinkSync("/proc/self", `${tree}/p`);
    symlinkSync("/data/x", `${tree}/d`);
    symlinkSync("loop", `${tree}/loop`);
    expect(await resolveTarget(tree, "/lib/x/y", [])).toBe("/usr/lib/x/y");
    expect(await resolveTarget(tree, "/up/lib/z", [])).toBe("/usr/lib/z");
    for (const path of ["/p/x", "/p/../../dev/x", "/loop/x", "/up/.."])
      await expect(resolveTarget(tree, path, [])).rejects.toMatchObject({ code: "START_FAILED" });
    await expect(resolveTarget(tree, "/d/y", ["/data"])).rejects.toThrow("leads to /data");
  });
});
