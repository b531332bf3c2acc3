/** GPUs of functions through the real API, with CDI files of harmless devices. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { CdiFiles } from "../support/cdi.ts";
import { CodeUser } from "../support/code.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const user = new CodeUser(daemon);
const cdi = new CdiFiles();
const SETTINGS = { HEARTH_CELLS: "2", HEARTH_CDI_DIRS: cdi.setting, HEARTH_FAILPOINT: `@${daemon.failpoint_file}` };

// biome-ignore lint/suspicious/noExplicitAny: records as they came.
type Json = any;

beforeAll(async () => {
  cdi.write("test.json", cdi.value());
  await daemon.start(SETTINGS);
});
afterAll(async () => {
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
  cdi.remove();
});

const gpus = async (): Promise<Json[]> => (await daemon.call("GET", "/api/system/info")).body.gpus;
const held = async () => (await gpus()).filter(({ is_held }) => is_held).length;
const areHeld = (count: number, deadline_ms?: number) =>
  eventually(`${count} GPUs are held`, async () => (await held()) === count, deadline_ms);
const call = (name: string, body: object = {}) => daemon.call("POST", `/api/functions/invoke/${name}`, body);
const path = async (name: string, verb = "") => {
  const { functions } = (await daemon.call("GET", "/api/functions")).body;
  return `/api/functions/${functions.find((one: Json) => one.name === name).id}${verb}`;
};
const put = async (name: string, body: object) => daemon.call("PUT", await path(name), body);
const remove = async (...names: string[]) => {
  for (const name of names) expect((await daemon.call("DELETE", await path(name))).status).toBe(200);
};
const full = (error: string | RegExp) => ({
  status: 503,
  body: { error_code: "CAPACITY_FULL", retry_after: null, retryable: false, error: expect.stringMatching(error) },
});
/** Opens a device node for reading and prints the result. */
const opened = (path: string) => `(exec 3<${path}) 2>&1 && echo open`;
/** Leaves one GPU for functions. */
const takeOne = () => containers.create({ name: "taker", gpu_count: 1 });

beforeEach(() => areHeld(0, 5_000));

describe("an instance with GPUs", () => {
  it("opens its devices, has their variables and files, and others have none of it", async () => {
    const look = [
      "env | grep ^GPU_ | sort",
      "ls /dev | grep test",
      opened("/dev/test-gpu0"),
      opened("/dev/test-gpu1"),
      "cat /lib/test/libgpu.so",
      "echo; touch /lib/test/x 2>&1; ls -l /dev/test-gpu0 | cut -c1-10",
    ].join("; ");
    const made = await daemon.deploy({ name: "own", handler: look, gpu_count: 1 });
    expect(made.gpu_count).toBe(1);
    await daemon.deploy({ name: "none", handler: "ls /lib/test; env | grep GPU_; ls /dev | grep test; true" });
    const { stdout } = await daemon.invoke("own");
    expect(stdout).toMatch(/^GPU_0=yes\nGPU_DRIVER=test\ntest-ctl\ntest-gpu0\nopen\n/);
    expect(stdout).toMatch(/test-gpu1: No such file[^\n]*\na library\n/);
    expect(stdout).toMatch(/Read-only file system\ncrw-------\n$/);
    expect((await daemon.invoke("none")).stdout).toBe("");
    expect(await gpus()).toMatchObject([
      { gpu_id: "nvidia0", is_held: true },
      { gpu_id: "nvidia1", is_held: false },
    ]);
    expect((await daemon.invoke("own")).cold_start).toBe(false);
    await remove("own", "none");
  });

  it("loads code in a resident process that has the variables, and holds all that it asked for", async () => {
    const code = "export const main = () => [process.env.GPU_0, process.env.GPU_1, process.env.OWN];";
    await user.deploy(
      "resident",
      { "index.mjs": code },
      { runtime: "nodejs", handler: "index.mjs#main", gpu_count: 2, environment: { OWN: "1", GPU_1: "mine" } },
    );
    expect((await daemon.invoke("resident")).result).toEqual(["yes", "yes", "1"]);
    expect(await held()).toBe(2);
    await remove("resident");
  });
});

describe("calls", () => {
  it("are refused while others hold the GPUs, and wait for an instance that exists", async () => {
    await takeOne();
    await daemon.deploy({ name: "slow", handler: "sleep 0.3; echo done", gpu_count: 1, max_instances: 4 });
    const answers = await Promise.all(Array.from({ length: 4 }, () => call("slow")));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(await held()).toBe(2);
    await remove("slow");
    await areHeld(1);
    await containers.create({ name: "second", gpu_count: 1 });
    await daemon.deploy({ name: "late", handler: "echo late", gpu_count: 1 });
    expect(await call("late")).toMatchObject(full("not enough free GPUs"));
    await containers.delete("second");
    expect((await call("late")).status).toBe(200);
    await put("late", { gpu_count: 3 });
    expect(await call("late")).toMatchObject(full("not enough GPUs on this node: 3"));
    await remove("late");
    await containers.delete("taker");
  });

  it("compete with two containers for one GPU, which exactly one of the three gets", async () => {
    await takeOne();
    await daemon.deploy({ name: "wants", handler: "cat; echo mine", gpu_count: 1 });
    for (let round = 0; round < 3; round++) {
      const ask = (name: string) =>
        daemon.call("POST", "/api/containers", { name, gpu_count: 1, memory_limit_mb: 256 });
      const answers = await Promise.all([ask("left"), ask("right"), call("wants")]);
      const lost = answers.filter(({ status }) => status >= 300);
      expect(lost).toHaveLength(2);
      for (const answer of lost) expect(answer).toMatchObject(full("not enough free GPUs"));
      const all = await gpus();
      expect(all.map(({ is_held }) => is_held)).toEqual([true, true]);
      expect(new Set(all.map(({ holder_id }) => holder_id)).size).toBe(2);
      for (const { status, body } of answers.slice(0, 2))
        if (status === 201) await containers.delete(body.container_id);
      expect((await daemon.call("POST", await path("wants", "/pause"))).status).toBe(200);
      await areHeld(1);
      await daemon.call("POST", await path("wants", "/resume"));
    }
    await remove("wants");
    await containers.delete("taker");
  });

  it("get the GPU of an idle instance of another function, which ends for them, and none that is too few", async () => {
    await daemon.deploy({ name: "a", handler: "echo a", gpu_count: 1 });
    await daemon.deploy({ name: "b", handler: "echo b", gpu_count: 2 });
    await daemon.deploy({ name: "kept", handler: "echo kept", gpu_count: 1 });
    expect((await call("a")).status).toBe(200);
    expect((await call("b")).status).toBe(200);
    expect(await held()).toBe(2);
    expect((await call("kept")).status).toBe(200);
    await takeOne();
    const [before] = (await gpus()).filter(({ is_held }) => is_held);
    expect(await call("b")).toMatchObject(full("2 requested"));
    expect((await gpus())[0].holder_id).toBe(before.holder_id);
    expect((await daemon.invoke("kept")).cold_start).toBe(false);
    await remove("a", "b", "kept");
    await containers.delete("taker");
  });
});

describe("a GPU of an instance", () => {
  it("is free after a timeout, a crash, a pause and a deletion, and after a start that fails", async () => {
    await daemon.deploy({ name: "ends", handler: 'eval "$WHAT"', gpu_count: 2, timeout_seconds: 1 });
    const timed_out = await call("ends", { environment: { WHAT: "sleep 60" } });
    expect(timed_out.body.status).toBe("timeout");
    await areHeld(0);
    await call("ends", { environment: { WHAT: "true" } });
    expect(await held()).toBe(2);
    expect((await daemon.call("POST", await path("ends", "/pause"))).status).toBe(200);
    await areHeld(0);
    const resume = async () => {
      // The daemon looks at the files once a second.
      await new Promise((resolve) => setTimeout(resolve, LIMITS.cdi_look_interval_ms + 100));
      await daemon.call("POST", await path("ends", "/resume"));
      return call("ends", { environment: { WHAT: "true" } });
    };
    cdi.write("test.json", cdi.value(undefined, { hooks: [{ hookName: "createRuntime", path: "/bin/false" }] }));
    expect(await resume()).toMatchObject({ status: 503, body: { error_code: "START_FAILED" } });
    await areHeld(0);
    await daemon.call("POST", await path("ends", "/pause"));
    cdi.write("test.json", cdi.value());
    expect((await resume()).status).toBe(200);
    await remove("ends");
    await areHeld(0);
  });

  it("stays with its instance over kill -9 of the daemon, and is free when the instance is gone", async () => {
    await daemon.deploy({ name: "lives", handler: "env | grep GPU_0", gpu_count: 1, min_instances: 1 });
    await areHeld(1);
    const [{ holder_id }] = await gpus();
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(await gpus()).toMatchObject([{ holder_id }, { is_held: false }]);
    expect(await daemon.invoke("lives")).toMatchObject({ stdout: "GPU_0=yes\n", cold_start: false });
    await remove("lives");
    await areHeld(0);
  });

  it("is given back by a start that kill -9 interrupts", async () => {
    await daemon.deploy({ name: "cut", handler: "echo cut", gpu_count: 2 });
    await daemon.arm("engine.start.ready");
    await call("cut").catch(() => {});
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    await areHeld(0);
    expect((await call("cut")).status).toBe(200);
    await remove("cut");
  });
});

describe("a new version", () => {
  it.each([0, 1])(
    "takes over from an idle one that holds the only GPU, with min_instances %s",
    async (min_instances) => {
      await takeOne();
      const fields = { runtime: "nodejs", handler: "index.mjs#main", gpu_count: 1, min_instances };
      await user.deploy("moves", { "index.mjs": "export const main = () => 1;" }, fields);
      expect((await daemon.invoke("moves")).result).toBe(1);
      expect(await held()).toBe(2);
      const smoke = { expect_status: "success" };
      const changed = await put("moves", { environment: { A: "1" }, smoke });
      expect(changed).toMatchObject({ status: 200, body: { version: 2, state: "active" } });
      expect(await daemon.invoke("moves")).toMatchObject({ version: 2, result: 1 });
      const back = await daemon.call("POST", await path("moves", "/rollback"), { version: 1 });
      expect(back).toMatchObject({ status: 200, body: { version: 1 } });
      expect(await daemon.invoke("moves")).toMatchObject({ version: 1 });
      await areHeld(2);
      await remove("moves");
      await containers.delete("taker");
    },
  );

  it("is refused and leaves the old one serving where a container holds the GPU that it lacks", async () => {
    await takeOne();
    await daemon.deploy({ name: "stays", handler: "echo $V", gpu_count: 1, environment: { V: "1" } });
    expect((await daemon.invoke("stays")).stdout).toBe("1\n");
    const changed = await put("stays", { gpu_count: 2, smoke: {}, environment: { V: "2" } });
    expect(changed).toMatchObject(full("2 requested"));
    expect(await daemon.invoke("stays")).toMatchObject({ stdout: "1\n", version: 1 });
    await remove("stays");
    await containers.delete("taker");
  });
});

describe("a tenant", () => {
  it("holds at most gpus_max GPUs, instances and containers together", async () => {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "gpu-functions" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
    const of = (method: string, path: string, body?: object) => daemon.call(method, path, body, { "x-api-key": key });
    const ids: string[] = [];
    for (const [name, gpu_count] of [
      ["one", 1],
      ["other", 1],
      ["two", 2],
    ] as const) {
      const { status, body } = await of("POST", "/api/functions", { name, handler: "echo", gpu_count });
      expect(status).toBe(201);
      ids.push(body.id);
      expect((await of("POST", `/api/functions/${body.id}/deploy`)).status).toBe(200);
    }
    const invoke = (name: string) => of("POST", `/api/functions/invoke/${name}`, {});
    expect((await invoke("one")).status).toBe(200);
    expect((await of("GET", "/api/tenant")).body.usage.gpus).toBe(1);
    const refused = { status: 403, body: { error_code: "QUOTA_EXCEEDED", error: expect.stringContaining("gpus_max") } };
    expect(await of("POST", "/api/containers", { name: "c", gpu_count: 1 })).toMatchObject(refused);
    expect(await invoke("two")).toMatchObject(refused);
    // Its own idle instance ends, although the node has another GPU.
    expect((await invoke("other")).status).toBe(200);
    expect((await of("GET", "/api/tenant")).body.usage.gpus).toBe(1);
    for (const id of ids) await of("DELETE", `/api/functions/${id}`);
    await daemon.call("DELETE", `/api/tenants/${tenant_id}`);
    await areHeld(0);
  });
});

describe("gpu_count of a function", () => {
  it.each([-1, 9, 1.5])("%s is refused", async (gpu_count) => {
    expect(await daemon.call("POST", "/api/functions", { name: "bad", handler: "x", gpu_count })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("gpu_count") },
    });
  });
});
