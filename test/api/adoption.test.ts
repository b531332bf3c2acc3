/** What a daemon that was killed leaves running, and what the next one makes of it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { answered, functionOf, KINDS, SECRET, upload } from "../recovery/code-functions.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { ownSubnet } from "../support/networks.ts";

const SETTINGS = { HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "warn" };
const daemon = new Daemon();
beforeAll(() => daemon.start(SETTINGS));
afterAll(async () => {
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const restart = async (settings: Readonly<Record<string, string>> = SETTINGS) => {
  await daemon.stop("SIGKILL");
  await daemon.start(settings);
};
const poolOf = async (id: string) => (await daemon.call("GET", `/api/functions/${id}/pool`)).body;
const bothCells = () =>
  eventually("both cells are there", async () => {
    return (await daemon.call("GET", "/api/functions/pool/stats")).body.cells === 2;
  });

describe("after kill -9 of the daemon", () => {
  it("a function's instances serve on: the first call is warm, in a container from before", async () => {
    const { id } = await daemon.deploy({ name: "lives", handler: "cat", memory_limit_mb: 300 });
    const before = await daemon.invoke("lives", { payload: "1" });
    await restart();
    expect(await poolOf(id)).toMatchObject({ ready_count: 1, total_count: 1 });
    const after = await daemon.invoke("lives", { payload: "2" });
    expect(after).toMatchObject({ status: "success", stdout: "2", cold_start: false });
    expect(after.instance_nonce).toBe(before.instance_nonce);
    await restart();
    expect((await daemon.invoke("lives")).instance_nonce).toBe(before.instance_nonce);
  });

  it("a superseded version's instances are kept too: a rollback is warm", async () => {
    const { id } = await daemon.deploy({ name: "back", handler: "echo 1" });
    const first = await daemon.invoke("back");
    await daemon.call("PUT", `/api/functions/${id}`, { handler: "echo 2" });
    const second = await daemon.invoke("back");
    await restart();
    expect(await poolOf(id)).toMatchObject({ ready_count: 1, superseded_count: 1 });
    expect(await daemon.invoke("back")).toMatchObject({ stdout: "2\n", instance_nonce: second.instance_nonce });
    await daemon.call("POST", `/api/functions/${id}/rollback`, { version: 1 });
    expect(await daemon.invoke("back")).toMatchObject({
      stdout: "1\n",
      cold_start: false,
      instance_nonce: first.instance_nonce,
    });
  });

  it("a minimum is made up of them, and nothing beside it is started", async () => {
    const { id } = await daemon.deploy({ name: "minimum", handler: "cat", min_instances: 3 });
    // A cell that the killed daemon was still starting would be started by the next one.
    await bothCells();
    await restart();
    expect(await poolOf(id)).toMatchObject({ ready_count: 3, total_count: 3 });
    const { body } = await daemon.call("GET", "/api/functions/pool/stats");
    expect(body.started_count).toBe(0);
    await daemon.call("DELETE", `/api/functions/${id}`);
  });

  it("what ran a call is ended, with all that the call had started, and its caller hears of the end", async () => {
    const { id } = await daemon.deploy({ name: "cut", handler: "sleep 71 & sleep 72", max_instances: 1 });
    const call = daemon.invoke("cut").catch((error) => error);
    await eventually("it runs", async () => (await poolOf(id)).busy_count === 1);
    await restart();
    expect(await call).toBeInstanceOf(Error);
    expect(await poolOf(id)).toMatchObject({ busy_count: 0, ready_count: 0 });
    await eventually("its processes have ended", () => {
      return daemon.leftovers().processes.every((line) => !/sleep 7[12]/.test(line));
    });
    const { body } = await daemon.call("GET", `/api/functions/${id}/invocations`);
    expect(body.invocations).toEqual([]);
  });

  it("cells are taken over, and those above a smaller reserve go", async () => {
    await bothCells();
    await restart({ ...SETTINGS, HEARTH_CELLS: "1" });
    const { body } = await daemon.call("GET", "/api/functions/pool/stats");
    expect([body.cells, body.started_count]).toEqual([1, 0]);
    const shell = {
      class: expect.stringMatching(/^shell-[0-9a-f]{12}$/),
      cells_target: 1,
      cells: 1,
      cells_starting: 0,
    };
    expect(body.classes).toEqual([{ ...shell, cell_hit_count: 0, cell_miss_count: 0 }]);
    await daemon.deploy({ name: "from-cell", handler: "cat" });
    expect(await daemon.invoke("from-cell", { payload: "x" })).toMatchObject({ stdout: "x", cold_start: true });
  });

  it("instances of a function that was paused or deleted meanwhile do not come back", async () => {
    const { id } = await daemon.deploy({ name: "paused", handler: "sleep 5; cat" });
    const running = daemon.invoke("paused").catch(() => null);
    await eventually("it runs", async () => (await poolOf(id)).busy_count === 1);
    const pause = daemon.call("POST", `/api/functions/${id}/pause`).catch(() => null);
    await eventually("it is paused", async () => {
      return (await daemon.call("GET", `/api/functions/${id}`)).body.state === "paused";
    });
    await restart();
    await Promise.all([running, pause]);
    await eventually("nothing of it is left", async () => (await poolOf(id)).total_count === 0);
    expect((await daemon.call("POST", "/api/functions/invoke/paused", {})).body.error_code).toBe("WRONG_STATE");
  });

  it("a daemon with another subnet starts afresh", async () => {
    const { id } = await daemon.deploy({ name: "moved", handler: "cat" });
    const before = await daemon.invoke("moved");
    await restart({ ...SETTINGS, HEARTH_SUBNET: ownSubnet() });
    const after = await daemon.invoke("moved", { payload: "x" });
    expect(after).toMatchObject({ stdout: "x", cold_start: true });
    expect(after.instance_nonce).not.toBe(before.instance_nonce);
    expect(await poolOf(id)).toMatchObject({ total_count: 1 });
  });
});

describe("after kill -9 of the daemon, functions with code, secrets and egress off", () => {
  const deploy = (functions: readonly object[]) => daemon.call("POST", "/api/functions/deployments", { functions });
  const names = Object.keys(KINDS);

  it("serve on with their process, in every runtime", async () => {
    // The subnet of the last start was another one, so that the next start removes all instances.
    await restart();
    await daemon.call("PUT", `/api/secrets/${SECRET.name}`, { value: SECRET.value });
    const codes: string[] = [];
    // A tenant may have two uploads under way.
    for (const { file, source } of Object.values(KINDS)) codes.push(await upload(daemon, file, source("1")));
    const { status, body } = await deploy(names.map((name, i) => functionOf(name, name, codes[i] ?? "")));
    expect([status, body.error]).toEqual([200, undefined]);
    const closed = { name: "closed", handler: "bash -c 'exec 3<>/dev/tcp/198.51.100.1/80' 2>&1; echo $?" };
    await daemon.deploy({ ...closed, egress: "off" });
    const before = new Map<string, string>();
    for (const name of [...names, "closed"]) before.set(name, (await daemon.invoke(name)).instance_nonce);
    await restart();
    for (const name of names) {
      const record = await daemon.invoke(name);
      // An instance of shell wipes /tmp after a call.
      expect([name, answered(record).count]).toEqual([name, name === "shell" ? 1 : 2]);
      expect([name, record.cold_start, record.instance_nonce]).toEqual([name, false, before.get(name)]);
    }
    const { stdout, instance_nonce } = await daemon.invoke("closed");
    expect([stdout.endsWith("\n1\n"), instance_nonce]).toEqual([true, before.get("closed")]);
  });

  it("are removed in the middle of a call, and the next one begins anew", async () => {
    const calls = names.map((name) => daemon.invoke(name, { payload: 60_000 }).catch((error) => error));
    const ids = (await daemon.call("GET", "/api/functions?limit=1000")).body.functions
      .filter(({ name }: { name: string }) => names.includes(name))
      .map(({ id }: { id: string }) => id);
    await eventually("all run", async () => {
      const pools = await Promise.all(ids.map(poolOf));
      return pools.every(({ busy_count }) => busy_count === 1);
    });
    await restart();
    for (const call of await Promise.all(calls)) expect(call).toBeInstanceOf(Error);
    for (const name of names) {
      const record = await daemon.invoke(name);
      expect([name, answered(record).count, record.cold_start]).toEqual([name, 1, true]);
    }
  });

  it("are not there if they were being deployed, and their code stays for the next try", async () => {
    const hanging = await upload(daemon, "index.mjs", "await new Promise(() => {});\nexport const handler = 1;\n");
    const [one, two] = [functionOf("nodejs", "hangs", hanging), { name: "beside", handler: "cat" }];
    const deployment = deploy([one, two]).catch((error) => error);
    await eventually(
      "it loads",
      async () => (await daemon.call("GET", "/api/functions/pool/stats")).body.warming_count > 0,
    );
    await restart();
    expect(await deployment).toBeInstanceOf(Error);
    for (const name of ["hangs", "beside"]) {
      expect((await daemon.call("GET", `/api/functions/by-name/${name}`)).status).toBe(404);
    }
    await eventually("nothing of it is left", () => {
      return daemon.leftovers().processes.filter((line) => line.includes("index.mjs")).length === 0;
    });
    expect(await deploy([two])).toMatchObject({ status: 200 });
    expect(await deploy([{ ...one, runtime: "shell", handler: "cat /function/index.mjs" }])).toMatchObject({
      status: 200,
    });
    expect((await daemon.invoke("hangs")).stdout).toContain("new Promise");
  });
});
