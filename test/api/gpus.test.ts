/** GPUs of containers through the real API, with CDI files of harmless devices. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CdiFiles } from "../support/cdi.ts";
import { ContainerUser, commandLines } from "../support/containers.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { scrape } from "../support/metrics.ts";

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

describe("a tenant", () => {
  it("holds at most gpus_max GPUs, sees their number and its own, and nothing of others", async () => {
    const own = await containers.create({ name: "operators", gpu_count: 1 });
    const make = async (name: string) => {
      const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name })).body;
      const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
      const call = (method: string, path: string, body?: object) =>
        daemon.call(method, path, body, { "x-api-key": key });
      return { tenant_id, call };
    };
    const tenant = await make("gpu-user");
    const one = { name: "one", gpu_count: 1 };
    const [a, b] = await Promise.all([
      tenant.call("POST", "/api/containers", one),
      tenant.call("POST", "/api/containers", { ...one, name: "two" }),
    ]);
    const [made, refused] = a?.status === 201 ? [a, b] : [b, a];
    expect(made).toMatchObject({ status: 201, body: { gpu_ids: ["nvidia1"] } });
    expect([403, 503]).toContain(refused?.status);
    expect(await tenant.call("POST", "/api/containers", { ...one, name: "two" })).toMatchObject({
      status: 403,
      body: { error_code: "QUOTA_EXCEEDED", error: expect.stringContaining("gpus_max (limit 1") },
    });
    const { usage, limits } = (await tenant.call("GET", "/api/tenant")).body;
    expect([usage.gpus, limits.gpus_max]).toEqual([1, 1]);
    const seen = (await tenant.call("GET", "/api/system/info")).body;
    expect(seen).toMatchObject({ gpu_count: 2, gpu_free_count: 0, gpu_warnings: [] });
    expect(seen.gpus.map(({ gpu_id }: Json) => gpu_id)).toEqual(["nvidia1"]);
    expect(JSON.stringify(seen)).not.toContain(own.container_id);
    const full_info = await info();
    expect(full_info.gpus).toMatchObject([
      {
        gpu_id: "nvidia0",
        device: "nvidia.com/gpu=0",
        vendor: "nvidia.com",
        is_held: true,
        holder_id: own.container_id,
      },
      { gpu_id: "nvidia1", is_held: true, tenant_id: tenant.tenant_id },
    ]);
    const other = await make("gpu-less");
    expect(await other.call("POST", "/api/containers", one)).toMatchObject(full("not enough free GPUs"));
    expect((await other.call("GET", "/api/system/info")).body.gpus).toEqual([]);
    const metrics = await scrape(daemon);
    expect([metrics.of("hearth_gpus"), metrics.of("hearth_gpus_held")]).toEqual([2, 2]);
    await containers.delete("operators");
    expect((await tenant.call("DELETE", `/api/containers/${made?.body.name}`)).status).toBe(200);
    for (const { tenant_id } of [tenant, other]) await daemon.call("DELETE", `/api/tenants/${tenant_id}`);
    await inventory("the tenant's GPU is free", (gpus) => gpus.every(({ is_held }) => !is_held));
  });
});

describe("a request for GPUs", () => {
  it.each([
    { gpu_count: -1 },
    { gpu_count: 65 },
    { gpu_count: 1.5 },
    { gpu_count: "1" },
    { gpu_count: [1] },
    { gpu_count: 1, gpu_ids: "nvidia0" },
    { gpu_count: 1, gpu_ids: ["nvidia0", "nvidia1"] },
    { gpu_count: 2, gpu_ids: ["nvidia0", "nvidia0"] },
    { gpu_ids: ["nvidia0"] },
    { gpu_count: 1, gpu_ids: ["nvidia.com/gpu=0"] },
    { gpu_count: 1, gpu_ids: ["../nvidia0"] },
    { gpu_count: 1, gpu_ids: ["NVIDIA0"] },
    { gpu_count: 1, gpu_ids: ["nvidia0000"] },
    { gpu_count: 1, strict: true },
    { gpu_count: 9, strict: true },
  ])("of %j is 400", async (fields) => {
    expect(await create(fields)).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT" } });
    expect((await daemon.call("POST", "/api/containers?execution=async", { name: "other", ...fields })).status).toBe(
      400,
    );
  });

  it.each([
    [{ gpu_count: 3 }, "not enough GPUs on this node: 3 requested (limit 2)"],
    [{ gpu_count: 1, gpu_ids: ["nvidia9"] }, "no such GPU on this node: nvidia9"],
    [{ gpu_count: 1, gpu_ids: ["amd0"] }, "no such GPU on this node: amd0"],
  ])("of %j is 503", async (fields, error) => {
    const answer = await create(fields);
    expect(answer).toMatchObject({ status: 503, body: { error_code: "CAPACITY_FULL", retry_after: null } });
    expect(answer.body.error).toContain(error);
    expect(answer.body.hint).not.toBeNull();
  });
});

describe("edits of a CDI file", () => {
  const withDevice = async (edits: object, work: () => Promise<void>) => {
    cdi.write("more.yaml", cdi.value([cdi.device("GPU-2af3", edits)], { hooks: [] }), "second");
    await inventory("it has a third GPU", (gpus) => gpus.length === 3);
    await work();
    cdi.unlink("more.yaml", "second");
    await inventory("it has two GPUs", (gpus) => gpus.length === 2);
  };
  const third = { gpu_count: 1, gpu_ids: ["nvidia2"] };

  it("give nodes their mode, owner and access, and groups to root", async () => {
    const deviceNodes = [
      { path: "/dev/sub/a", hostPath: cdi.node("GPU-2af3"), fileMode: 0o640, uid: 5, gid: 7, permissions: "r" },
      { path: "/dev/b", type: "c", major: 10, minor: 237, permissions: "none" },
    ];
    await withDevice({ deviceNodes, additionalGids: [7, 0] }, async () => {
      const { container_id } = await containers.create({ name: "edits", ...third });
      expect(await containers.shell(container_id, "stat -c '%a %u %g' /dev/sub/a /dev/b")).toBe("640 5 7\n666 0 0\n");
      expect(await containers.shell(container_id, "id -G")).toBe("0 7\n");
      expect(await containers.shell(container_id, opened("/dev/sub/a"))).toMatch(/open\n$/);
      expect(await containers.shell(container_id, "(exec 3>/dev/sub/a) 2>&1")).toMatch(/not permitted|denied/);
      await containers.delete("edits");
      const other = await containers.create({ name: "edits", ...third, user: "nobody" });
      expect(await containers.shell(other.container_id, "id -G")).toBe("65534\n");
      await containers.delete("edits");
    });
  });

  it("mount nothing over what is the kernel's or a volume's, whatever the container's links", async () => {
    await daemon.call("POST", "/api/volumes?execution=sync", { name: "data" });
    const mounts = [{ hostPath: `${cdi.shared}/libgpu.so`, containerPath: "/place/x" }];
    await withDevice({ mounts }, async () => {
      for (const [link, why] of [
        ["/proc/self", "leads to /proc"],
        ["/data", "leads to /data"],
        ["../../dev", "leads to /dev"],
        ["place", "too many links"],
        ["../../root", null],
      ] as const) {
        const { container_id } = await containers.create({ name: "links", volumes: ["data:/data"], ...third });
        expect(await containers.shell(container_id, `cat /place/x; mv /place /first; ln -s ${link} /place`)).toBe(
          "a library",
        );
        await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
        const answer = await start(container_id);
        if (why !== null) expect(answer).toMatchObject({ status: 503, body: { error: expect.stringContaining(why) } });
        else expect(await containers.shell(container_id, "cat /root/x")).toBe("a library");
        await containers.delete("links");
      }
    });
  });

  it("have a hook that hangs ended, the start fail, and nothing left", async () => {
    const hooks = [{ hookName: "createRuntime", path: "/bin/sleep", args: ["sleep", "98765"] }];
    await withDevice({ hooks }, async () => {
      expect(await create(third)).toMatchObject({ status: 503, body: { error_code: "START_FAILED" } });
      expect(commandLines().filter(({ args }) => args.includes("98765"))).toEqual([]);
    });
  });

  it("run a poststop hook when the container ends", async () => {
    const hooks = [
      { hookName: "poststop", path: "/bin/sh", args: ["sh", "-c", `echo stopped >> ${cdi.shared}/hooks`] },
    ];
    await withDevice({ hooks }, async () => {
      await containers.create({ name: "poststop", ...third });
      await containers.delete("poststop");
      expect(readFileSync(`${cdi.shared}/hooks`, "utf8")).toMatch(/stopped\n$/);
    });
  });
});

describe("a copy of a container with GPUs", () => {
  it("has none, and the operation says so", async () => {
    const { container_id } = await containers.create({ name: "source", gpu_count: 1 });
    const { body } = await daemon.call(
      "POST",
      `/api/containers/${container_id}/fork?execution=sync`,
      { name: "fork" },
      { "x-api-key": KEY, "x-tenant-id": "default" },
    );
    expect(body.capability_downgrades, JSON.stringify(body)).toContain("gpus: a copy has none");
    const fork = await containers.get("fork");
    expect(fork).toMatchObject({ gpu_count: 0, gpu_ids: [] });
    await containers.delete("source", "fork");
  });
});

describe.each([
  ["crun", "auto"],
  ["crun", "off"],
  ["runc", "off"],
])("with %s, user namespaces %s", (runtime, namespaces) => {
  it("a container with a read-only root and another user has its GPU, and another container none", async () => {
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_OCI_RUNTIME: runtime, HEARTH_USER_NAMESPACES: namespaces });
    const fields = { gpu_count: 1, read_only_root: true };
    const { container_id } = await containers.create({ name: "root", ...fields });
    expect(await containers.shell(container_id, opened("/dev/test-gpu0"))).toBe("open\n");
    expect(await containers.shell(container_id, "cat /lib/test/libgpu.so")).toBe("a library");
    const user = await containers.create({ name: "user", gpu_count: 1, user: "1000" });
    expect(await containers.shell(user.container_id, opened("/dev/test-gpu1"))).toMatch(/denied/);
    expect(await containers.shell(user.container_id, opened("/dev/test-ctl"))).toBe("open\n");
    const plain = await containers.create({ name: "plain" });
    const numbers = "mknod /tmp/a c 10 229 2>&1; ls /dev | grep -c test";
    expect(await containers.shell(plain.container_id, numbers)).toMatch(/not permitted\n0\n$/);
    await containers.delete("root", "user", "plain");
  });
});

it("leaves nothing", async () => {
  await daemon.call("DELETE", "/api/volumes/data?execution=sync");
  expect((await daemon.call("GET", "/api/containers")).body.containers).toEqual([]);
  expect((await info()).gpu_free_count).toBe(2);
  await daemon.stop();
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
