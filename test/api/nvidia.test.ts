/**
 * GPUs of containers and functions with a GPU of NVIDIA and its driver: not run on a machine without /dev/nvidia0 and a CDI file
 * for it (src/docs/guides/gpus.md). Tests with harmless devices are in gpus.test.ts.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const SETTINGS = { HEARTH_CELLS: "0" };
const CUDA = readFileSync(new URL("../support/cuda.py", import.meta.url), "utf8");
/** A CUDA context takes some 300 MB of the machine's memory. */
const GPU = { gpu_count: 1, memory_limit_mb: 2048 };

/** Reason why the tests cannot run; null: they can. */
function lacking(): string | null {
  if (!existsSync("/dev/nvidia0")) return "no /dev/nvidia0";
  const directories = (process.env.HEARTH_CDI_DIRS ?? "/etc/cdi,/var/run/cdi").split(",").filter(existsSync);
  const files = directories.flatMap((path) => readdirSync(path).map((name) => `${path}/${name}`));
  const isFound = files.some((path) => readFileSync(path, "utf8").includes("nvidia.com/gpu"));
  return isFound ? null : `no CDI file of nvidia.com/gpu in ${directories.join(", ") || "/etc/cdi"}`;
}
const reason = lacking();

const full = { status: 503, body: { error_code: "CAPACITY_FULL", retry_after: null } };
const gpus = async () => (await daemon.call("GET", "/api/system/info")).body.gpus;
const isHeld = (held: boolean) => eventually(`held: ${held}`, async () => (await gpus())[0].is_held === held);
const create = (name: string) => daemon.call("POST", "/api/containers", { name, ...GPU });
const compute = async (id: string) => JSON.parse(await containers.python(id, CUDA));
const usedMb = () => Number(execFileSync("nvidia-smi", ["--query-gpu=memory.used", "--format=csv,noheader,nounits"]));

/** Opens a device of this machine as a process of a container's control group. */
function openedIn(pid: number, device: string): string {
  const group = /^\d+:(?:[^:]*,)?devices(?:,[^:]*)?:(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1];
  const unified = /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1];
  const folder = group === undefined ? `/sys/fs/cgroup${unified}` : `/sys/fs/cgroup/devices${group}`;
  const line = `echo $$ > ${folder}/cgroup.procs && (exec 3<${device}) 2>&1 && echo open`;
  return execFileSync("sh", ["-c", `${line}; true`], { encoding: "utf8" });
}

describe.skipIf(reason !== null)(`a GPU of NVIDIA${reason === null ? "" : ` (not run: ${reason})`}`, () => {
  beforeAll(async () => {
    await daemon.start(SETTINGS);
  });
  afterAll(async () => {
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    await daemon.dispose();
  });

  it("is in the inventory, free, without warnings", async () => {
    const { body } = await daemon.call("GET", "/api/system/info");
    expect(body.gpus[0]).toMatchObject({ gpu_id: "nvidia0", device: "nvidia.com/gpu=0", is_held: false });
    expect(body).toMatchObject({ gpu_count: body.gpus.length, gpu_free_count: body.gpus.length, gpu_warnings: [] });
  });

  it.each([
    ["root", {}, 0],
    ["user 1000", { user: "1000" }, 1000],
    ["a read-only root", { read_only_root: true }, 0],
  ])("computes for a container: %s", async (_, fields, uid) => {
    const { container_id, gpu_ids } = await containers.create({ name: "one", ...GPU, ...fields });
    expect(gpu_ids).toEqual(["nvidia0"]);
    const found = await compute(container_id);
    expect(found).toMatchObject({ count: 1, are_squares: true, uid });
    expect(await containers.shell(container_id, "nvidia-smi -L")).toContain(`GPU 0: ${found.name}`);
    await containers.delete("one");
  });

  it("computes for calls of a function, cold and warm", async () => {
    const handler = `cat > /tmp/cuda.py <<'END'\n${CUDA}END\npython3 /tmp/cuda.py`;
    await daemon.deploy({ name: "computes", handler, ...GPU });
    for (const cold_start of [true, false]) {
      const call = await daemon.invoke("computes");
      expect(call).toMatchObject({ exit_code: 0, cold_start });
      expect(JSON.parse(call.stdout)).toMatchObject({ count: 1, are_squares: true });
    }
    await isHeld(true);
    const { functions } = (await daemon.call("GET", "/api/functions")).body;
    await daemon.call("DELETE", `/api/functions/${functions[0].id}`);
    await isHeld(false);
  });

  it("cannot be opened by another container, even with a node of it", async () => {
    const { pid: holder } = await containers.create({ name: "holder", ...GPU });
    expect(openedIn(holder, "/dev/nvidia0")).toBe("open\n");
    expect(openedIn(holder, "/dev/kmsg")).toMatch(/not permitted/);
    const { container_id, pid } = await containers.create({ name: "plain" });
    expect(await containers.shell(container_id, "ls /dev | grep nvidia; cat /dev/nvidia0")).toMatch(/No such file/);
    expect(await containers.shell(container_id, "mknod /tmp/gpu c 195 0")).toMatch(/not permitted/);
    for (const device of ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]) {
      expect(openedIn(pid, device)).toMatch(/not permitted/);
    }
    await containers.delete("holder", "plain");
  });

  it.each([
    ["stop", () => daemon.call("POST", "/api/containers/holder/stop", { timeout_ms: 0 })],
    ["kill", () => daemon.call("POST", "/api/containers/holder/kill")],
    ["delete", () => daemon.call("DELETE", "/api/containers/holder")],
  ])("is held, with its memory, until %s", async (_, end) => {
    const before_mb = usedMb();
    const { container_id } = await containers.create({ name: "holder", ...GPU });
    const holds = `${CUDA}\nimport time\ntime.sleep(1000)\n`;
    const command = ["python3", "-c", holds];
    await daemon.call("POST", `/api/containers/${container_id}/exec`, { command, detach: true });
    await eventually("it uses memory", () => usedMb() > before_mb + 1_000);
    expect(await create("other")).toMatchObject(full);
    expect((await end()).status).toBe(200);
    expect(usedMb()).toBeLessThanOrEqual(before_mb + 16);
    expect((await create("other")).status).toBe(201);
    expect(await compute("other")).toMatchObject({ are_squares: true });
    await containers.delete("other");
    await daemon.call("DELETE", "/api/containers/holder");
  });

  it("stays with its container over kill -9 of the daemon, and is free when that has ended", async () => {
    const { container_id, pid } = await containers.create({ name: "holder", ...GPU });
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(await gpus()).toMatchObject([{ gpu_id: "nvidia0", is_held: true, holder_id: container_id }]);
    expect(await compute(container_id)).toMatchObject({ are_squares: true });
    expect(await create("other")).toMatchObject(full);
    await daemon.stop("SIGKILL");
    process.kill(pid, "SIGKILL");
    await daemon.start(SETTINGS);
    await isHeld(false);
    expect((await create("other")).status).toBe(201);
    await containers.delete("other", "holder");
  });
});
