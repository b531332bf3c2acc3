/** GPUs of containers through the real API, with CDI files of harmless devices. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CdiFiles } from "../support/cdi.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const cdi = new CdiFiles();
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_CDI_DIRS: cdi.setting };

// biome-ignore lint/suspicious/noExplicitAny: records as they came.
type Json = any;

beforeAll(async () => {
  cdi.write("test.json", cdi.value());
  await daemon.start(SETTINGS);
});
afterAll(async () => {
  await daemon.dispose();
  cdi.remove();
});

const create = (fields: object) => daemon.call("POST", "/api/containers", { name: "other", ...fields });
const full = (error: string | RegExp) => ({
  status: 503,
  body: { error_code: "CAPACITY_FULL", retry_after: null, error: expect.stringMatching(error) },
});
const start = (id: string) => daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
const info = async () => (await daemon.call("GET", "/api/system/info")).body;
const inventory = (what: string, isSo: (gpus: Json[]) => boolean) =>
  eventually(what, async () => isSo((await info()).gpus));
/** Opens a device node for reading and prints the result. */
const opened = (path: string) => `(exec 3<${path}) 2>&1 && echo open`;

describe("a container with GPUs", () => {
  it("sees and opens its devices, has their variables, files and hooks, and no other container has", async () => {
    const { container_id, ...record } = await containers.create({ name: "one", gpu_count: 1 });
    expect(record).toMatchObject({ gpu_count: 1, gpu_ids: ["nvidia0"] });
    expect(await containers.shell(container_id, opened("/dev/test-gpu0"))).toBe("open\n");
    expect(await containers.shell(container_id, opened("/dev/test-ctl"))).toBe("open\n");
    expect(await containers.shell(container_id, "stat -c '%F %u %g %a' /dev/test-gpu0")).toBe(
      "character special file 0 0 600\n",
    );
    expect(await containers.shell(container_id, "ls /dev | grep test")).toBe("test-ctl\ntest-gpu0\n");
    expect(await containers.shell(container_id, "env | grep ^GPU | sort")).toBe("GPU_0=yes\nGPU_DRIVER=test\n");
    expect(await containers.shell(container_id, "cat /lib/test/libgpu.so")).toBe("a library");
    expect(await containers.shell(container_id, "grep libgpu.so /proc/self/mountinfo")).toMatch(
      / \/usr\/lib\/test\/libgpu.so ro,nosuid,nodev/,
    );
    expect(readFileSync(`${cdi.shared}/hooks`, "utf8")).toBe("createRuntime ran\ncreateContainer ran\n");
    const plain = await containers.create({ name: "plain" });
    expect(plain).toMatchObject({ gpu_count: 0, gpu_ids: [] });
    expect(await containers.shell(plain.container_id, "ls /dev | grep -c test; env | grep -c ^GPU")).toBe("0\n0\n");
    await containers.delete("one", "plain");
  });
});

describe("a GPU", () => {
  /** Asks for the GPU from another container. */
  const other = () => create({ gpu_count: 1, gpu_ids: ["nvidia1"] });
  const expectFree = async () => {
    const { status, body } = await other();
    expect(body).toMatchObject({ gpu_ids: ["nvidia1"] });
    expect(status).toBe(201);
    await containers.delete("other");
  };
  const holder = (fields: object = {}) =>
    containers.create({ name: "holder", gpu_count: 1, gpu_ids: ["nvidia1"], ...fields });

  it.each([
    ["stop", () => daemon.call("POST", "/api/containers/holder/stop", { timeout_ms: 0 })],
    ["kill", () => daemon.call("POST", "/api/containers/holder/kill")],
    ["delete", () => daemon.call("DELETE", "/api/containers/holder")],
  ])("is held by one container until its %s", async (_, end) => {
    await holder();
    expect(await other()).toMatchObject(full("GPU in use: nvidia1"));
    expect((await end()).status).toBe(200);
    await expectFree();
    await daemon.call("DELETE", "/api/containers/holder");
  });

  it("is free when the command exits, or its processes are killed", async () => {
    const { container_id } = await holder({ command: ["sh", "-c", "env; exit 3"] });
    expect(await containers.until(container_id, "it ends", ({ state }) => state === "exited")).toMatchObject({
      exit_code: 3,
      gpu_count: 1,
      gpu_ids: ["nvidia1"],
    });
    expect((await containers.logs(container_id)).map(({ message }) => message)).toContain("GPU_1=yes");
    await expectFree();
    await containers.delete("holder");
    const { pid } = await holder();
    process.kill(pid, "SIGKILL");
    await containers.until("holder", "it ends", ({ state }) => state === "exited");
    await expectFree();
    await containers.delete("holder");
  });

  it("is free after a start that fails", async () => {
    const hooks = [{ hookName: "createRuntime", path: "/bin/false" }];
    cdi.write("fails.json", cdi.value([cdi.device("GPU-2af3", { hooks })]));
    await inventory("it has a third GPU", (gpus) => gpus.length === 3);
    for (let i = 0; i < 2; i++) {
      expect(await create({ gpu_count: 2, gpu_ids: ["nvidia1", "nvidia2"] })).toMatchObject({
        status: 503,
        body: { error_code: "START_FAILED", error: expect.stringContaining("/bin/false") },
      });
    }
    expect((await daemon.call("GET", "/api/containers/by-name/other")).body.found).toBe(false);
    await expectFree();
    cdi.unlink("fails.json");
    await inventory("it has two GPUs", (gpus) => gpus.length === 2);
  });

  it("goes to exactly one of many containers that ask at once", async () => {
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, i) =>
        create({ name: `race${i}`, gpu_count: 1, ...(i % 2 === 0 ? { gpu_ids: ["nvidia1"] } : {}) }),
      ),
    );
    const made = answers.filter(({ status }) => status === 201).map(({ body }) => body);
    expect(new Set(made.map(({ gpu_ids }) => gpu_ids[0])).size).toBe(made.length);
    expect(made.length).toBeGreaterThan(0);
    expect(made.length).toBeLessThanOrEqual(2);
    for (const { status, body } of answers) if (status !== 201) expect({ status, body }).toMatchObject(full(/GPU/));
    await containers.delete(...made.map(({ name }: Json) => name));
    expect((await daemon.call("GET", "/api/containers")).body.containers).toEqual([]);
  });

  it("is needed again when a stopped container starts, the same one if it named it", async () => {
    await holder();
    await daemon.call("POST", "/api/containers/holder/stop", { timeout_ms: 0 });
    await containers.create({ name: "any", gpu_count: 1, gpu_ids: ["nvidia1"] });
    expect(await start("holder")).toMatchObject(full("GPU in use: nvidia1"));
    expect(await daemon.call("POST", "/api/containers/holder/start?execution=async")).toMatchObject(full("nvidia1"));
    expect((await containers.get("holder")).state).toBe("exited");
    await daemon.call("POST", "/api/containers/any/stop", { timeout_ms: 0 });
    expect(await start("holder")).toMatchObject({ status: 200, body: { state: "running", gpu_ids: ["nvidia1"] } });
    await containers.delete("any", "holder");
    await containers.create({ name: "a", gpu_count: 1 });
    await containers.create({ name: "b", gpu_count: 1 });
    for (const name of ["a", "b"]) await daemon.call("POST", `/api/containers/${name}/stop`, { timeout_ms: 0 });
    expect((await start("b")).body.gpu_ids).toEqual(["nvidia0"]);
    expect((await start("a")).body.gpu_ids).toEqual(["nvidia1"]);
    await containers.delete("a", "b");
  });

  it("stays with a container that its restart policy starts again, and the policy retries while another holds it", async () => {
    await holder({ command: ["sh", "-c", "sleep 0.1; exit 1"], restart: "always" });
    await containers.until("holder", "it restarts", ({ restart_count }) => restart_count >= 2);
    await daemon.call("POST", "/api/containers/holder/kill");
    await eventually("another takes it", async () => (await other()).status === 201);
    expect(await start("holder")).toMatchObject(full("nvidia1"));
    await containers.delete("other");
    expect((await start("holder")).status).toBe(200);
    await containers.delete("holder");
  });

  it("stays with its container over the end of the daemon by kill -9, and is free when the container ended meanwhile", async () => {
    const { container_id, pid } = await holder();
    const ended = await containers.create({ name: "ends", gpu_count: 1 });
    await daemon.stop("SIGKILL");
    process.kill(ended.pid, "SIGKILL");
    await daemon.start(SETTINGS);
    expect(await containers.get(container_id)).toMatchObject({ pid, state: "running", gpu_ids: ["nvidia1"] });
    expect(await containers.shell(container_id, "env | grep GPU_1")).toBe("GPU_1=yes\n");
    expect(await other()).toMatchObject(full("nvidia1"));
    expect(await create({ gpu_count: 1 })).toMatchObject({ status: 201, body: { gpu_ids: ["nvidia0"] } });
    await containers.delete("other", "ends", "holder");
    await expectFree();
  });

  it("is refused at once with execution=async, and for each item of a batch", async () => {
    await holder();
    expect(
      await daemon.call("POST", "/api/containers?execution=async", { name: "x", gpu_count: 1, gpu_ids: ["nvidia1"] }),
    ).toMatchObject(full("nvidia1"));
    const items = [
      { name: "x", gpu_count: 1, gpu_ids: ["nvidia1"] },
      { name: "y", gpu_count: 1 },
      { name: "z", gpu_count: 9 },
    ];
    const { body } = await daemon.call("POST", "/api/containers/batch", { items });
    const record = await eventually("the batch ends", async () => {
      const answer = await daemon.call("GET", `/api/operations/${body.operation_id}?wait_seconds=5`);
      return answer.body.completed_at === null ? null : answer.body;
    });
    const refused = { status: "failed", error_code: "CAPACITY_FULL", retryable: false };
    expect(record.items).toMatchObject([refused, { status: "succeeded" }, refused]);
    await containers.delete("holder", "y");
  });
});
