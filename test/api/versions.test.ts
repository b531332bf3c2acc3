/** Versions through the API: what a PUT makes, what a rollback moves, and what calls under way notice of it: nothing. */
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "4", HEARTH_LOG_LEVEL: "warn" }));
afterAll(async () => {
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const path = (id: string, verb = "") => `/api/functions/${id}${verb}`;
const put = (id: string, body: object) => daemon.call("PUT", path(id), body);
const rollback = (id: string, version: number) => daemon.call("POST", path(id, "/rollback"), { version });
const versionsOf = async (id: string) => (await daemon.call("GET", path(id, "/versions"))).body.versions;
const poolOf = async (id: string) => (await daemon.call("GET", path(id, "/pool"))).body;

describe("PUT /api/functions/<id>", () => {
  it("makes the next version of a partial body, points to it, and leaves the first as it was", async () => {
    const { id } = await daemon.deploy({ name: "put", handler: "echo one", environment: { A: "1" } });
    const answer = await put(id, { handler: "echo two $A", description: "second", max_instances: 3 });
    expect(answer.status).toBe(200);
    expect(answer.body).toMatchObject({ id, state: "active", current_version: 2, version: 2, handler: "echo two $A" });
    expect(answer.body).toMatchObject({ description: "second", max_instances: 3, environment: { A: "1" } });
    expect(await daemon.invoke("put")).toMatchObject({ stdout: "two 1\n", version: 2 });
    const versions = await versionsOf(id);
    expect(versions).toEqual([
      expect.objectContaining({ version: 2, handler: "echo two $A", is_active: true, function_id: id }),
      expect.objectContaining({ version: 1, handler: "echo one", is_active: false, environment: { A: "1" } }),
    ]);
    expect(versions[0].id).not.toBe(versions[1].id);
  });

  it("versions handler, runtime, environment, memory, cpu, timeout and directory, and nothing else", async () => {
    const { id } = await daemon.deploy({ name: "fields", handler: "pwd", max_instances: 5, description: "first" });
    const changed = {
      memory_limit_mb: 300,
      cpu_limit_percent: 50,
      timeout_seconds: 7,
      environment: { B: "2" },
      working_directory: "/usr",
      handler: "pwd; echo $B",
    };
    await put(id, { ...changed, max_instances: 6, min_instances: 1, concurrency_limit: 9, description: "later" });
    expect(await daemon.invoke("fields")).toMatchObject({ stdout: "/usr\n2\n" });
    const { body } = await rollback(id, 1);
    expect(body).toMatchObject({ memory_limit_mb: 256, cpu_limit_percent: null, timeout_seconds: 30, environment: {} });
    expect(body).toMatchObject({ working_directory: null, handler: "pwd", current_version: 1 });
    expect(body).toMatchObject({ max_instances: 6, min_instances: 1, concurrency_limit: 9, description: "later" });
    expect((await rollback(id, 2)).body).toMatchObject(changed);
    expect((await put(id, { cpu_limit_percent: null, working_directory: null })).body).toMatchObject({
      current_version: 3,
      cpu_limit_percent: null,
      working_directory: null,
      memory_limit_mb: 300,
    });
  });

  it("changes nothing where the body makes no sense, and says what is wrong", async () => {
    const { id } = await daemon.deploy({ name: "refused", handler: "cat", max_instances: 2 });
    const before = (await daemon.call("GET", path(id))).body;
    const refused = async (body: object, status: number, code: string, message: RegExp) => {
      const answer = await put(id, body);
      expect([answer.status, answer.body.error_code]).toEqual([status, code]);
      expect(answer.body.error).toMatch(message);
    };
    await refused({ handler: 5 }, 422, "UNPROCESSABLE_ENTITY", /handler/);
    await refused({ memory_limit_mb: 10 }, 400, "INVALID_ARGUMENT", /memory_limit_mb/);
    await refused({ min_instances: 3 }, 400, "INVALID_ARGUMENT", /min_instances.*max_instances/);
    await refused({ working_directory: "/nowhere" }, 400, "INVALID_ARGUMENT", /does not exist in the image/);
    await refused({ name: "other" }, 400, "INVALID_ARGUMENT", /name: cannot be changed/);
    await refused({ handler: "" }, 400, "INVALID_ARGUMENT", /handler/);
    await refused({ source_code: "x" }, 400, "INVALID_ARGUMENT", /source_code/);
    expect((await daemon.call("GET", path(id))).body).toEqual(before);
    expect(await versionsOf(id)).toHaveLength(1);
    expect((await daemon.call("PUT", path("fn_0000000000000000"), {})).status).toBe(404);
  });

  it("before the first deploy and while paused moves the pointer and starts nothing", async () => {
    const { body } = await daemon.call("POST", "/api/functions", { name: "resting", handler: "echo 1" });
    expect((await put(body.id, { handler: "echo 2" })).body).toMatchObject({ state: "pending", current_version: 2 });
    await daemon.call("POST", path(body.id, "/deploy"));
    expect(await daemon.invoke("resting")).toMatchObject({ stdout: "2\n" });
    await daemon.call("POST", path(body.id, "/pause"));
    expect((await put(body.id, { handler: "echo 3" })).body).toMatchObject({ state: "paused", current_version: 3 });
    expect(await poolOf(body.id)).toMatchObject({ total_count: 0, superseded_count: 0 });
    await daemon.call("POST", path(body.id, "/resume"));
    expect(await daemon.invoke("resting")).toMatchObject({ stdout: "3\n", version: 3 });
  });

  it("warms as many instances as the version before has, so that its first calls are not cold", async () => {
    const { id } = await daemon.deploy({ name: "warmed", handler: "sleep 1; echo 1", max_instances: 3 });
    await Promise.all([0, 1, 2].map(() => daemon.invoke("warmed")));
    await put(id, { handler: "sleep 1; echo 2" });
    expect(await poolOf(id)).toMatchObject({ ready_count: 3, superseded_count: 3 });
    const records = await Promise.all([0, 1, 2].map(() => daemon.invoke("warmed")));
    expect(records.map(({ stdout, cold_start }) => [stdout, cold_start])).toEqual(Array(3).fill(["2\n", false]));
  });

  it("lets calls under way finish on the version that they began with, waiting ones too", async () => {
    const { id } = await daemon.deploy({ name: "under-way", handler: "sleep 2; echo old", max_instances: 1 });
    const calls = [daemon.invoke("under-way"), daemon.invoke("under-way")];
    await eventually("one runs and one waits", async () => {
      const { busy_count, queued_count } = await poolOf(id);
      return busy_count === 1 && queued_count === 1;
    });
    await put(id, { handler: "echo new" });
    expect(await daemon.invoke("under-way")).toMatchObject({ stdout: "new\n", version: 2 });
    for (const record of await Promise.all(calls)) {
      expect(record).toMatchObject({ status: "success", stdout: "old\n", version: 1 });
    }
  });

  it("twice at once makes two versions, one after the other", async () => {
    const { id } = await daemon.deploy({ name: "twice", handler: "echo 1" });
    await daemon.invoke("twice");
    const answers = await Promise.all([put(id, { handler: "echo a" }), put(id, { handler: "echo b" })]);
    expect(answers.map(({ body }) => body.current_version).sort()).toEqual([2, 3]);
    const last = answers.find(({ body }) => body.current_version === 3)?.body.handler.slice(5);
    expect(await daemon.invoke("twice")).toMatchObject({ stdout: `${last}\n`, version: 3 });
  });
});

describe("PUT on a machine where nothing starts any more", () => {
  it("leaves the pointer and no instance, so that the next version of the same number has its own limits", async () => {
    const broken = new Daemon();
    const runtime = `${broken.data_dir}/runtime`;
    writeFileSync(runtime, '#!/bin/bash\n[ -e "$0.broken" ] && [ "$3" = run ] && exit 1\nexec crun "$@"\n');
    chmodSync(runtime, 0o755);
    await broken.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "error", HEARTH_OCI_RUNTIME: runtime });
    try {
      const { id } = await broken.deploy({ name: "f", handler: "echo 1", min_instances: 2 });
      const pool = async () => (await broken.call("GET", path(id, "/pool"))).body;
      await eventually("a cell is ready", async () => {
        return (await broken.call("GET", "/api/functions/pool/stats")).body.cells === 1;
      });
      writeFileSync(`${runtime}.broken`, "");
      const failed = await broken.call("PUT", path(id), { handler: "echo 2", memory_limit_mb: 300 });
      expect([failed.status, failed.body.error_code]).toEqual([503, "START_FAILED"]);
      expect(failed.body.error).toMatch(/cannot warm version 2; version 1 stays active/);
      expect(await broken.invoke("f")).toMatchObject({ stdout: "1\n", version: 1, cold_start: false });
      await eventually("what it had started is gone", async () => (await pool()).superseded_count === 0);
      rmSync(`${runtime}.broken`);
      const handler = "head -c 320M /dev/zero > /dev/shm/x && echo fits";
      const made = await broken.call("PUT", path(id), { handler, memory_limit_mb: 500 });
      expect(made.body).toMatchObject({ version: 2, memory_limit_mb: 500 });
      const records = await Promise.all([broken.invoke("f"), broken.invoke("f")]);
      expect(records.map(({ stdout }) => stdout)).toEqual(["fits\n", "fits\n"]);
    } finally {
      await broken.dispose();
    }
  });
});

describe("POST /api/functions/<id>/rollback", () => {
  it("moves the pointer to warm instances: under load no call fails and none is cold", async () => {
    // As many as ever call at once, so that no call is cold for another reason.
    const { id } = await daemon.deploy({ name: "loaded", handler: "echo 1", min_instances: 4, max_instances: 4 });
    await put(id, { handler: "echo 2" });
    const records: { status: string; cold_start: boolean; version: number; stdout: string }[] = [];
    const state = { isOver: false };
    const clients = [0, 1, 2].map(async () => {
      while (!state.isOver) records.push(await daemon.invoke("loaded"));
    });
    for (const version of [1, 2, 1, 2, 1]) {
      const seen = records.length;
      await eventually("calls go on", () => records.length > seen + 20);
      expect((await rollback(id, version)).body.current_version).toBe(version);
      expect(await daemon.invoke("loaded")).toMatchObject({ version, stdout: `${version}\n`, cold_start: false });
    }
    state.isOver = true;
    await Promise.all(clients);
    expect(records.filter(({ status, version, stdout }) => status !== "success" || stdout !== `${version}\n`)).toEqual(
      [],
    );
    expect(records.filter(({ cold_start }) => cold_start)).toEqual([]);
    expect(new Set(records.map(({ version }) => version))).toEqual(new Set([1, 2]));
  });

  it("to a version that is not there answers 404, of another shape 422 or 400, and to the current one changes nothing", async () => {
    const { id } = await daemon.deploy({ name: "nowhere", handler: "cat" });
    expect((await rollback(id, 2)).status).toBe(404);
    expect((await daemon.call("POST", path(id, "/rollback"), { version: "1" })).status).toBe(422);
    expect((await daemon.call("POST", path(id, "/rollback"), {})).status).toBe(422);
    expect((await daemon.call("POST", path(id, "/rollback"), { version: 0 })).status).toBe(400);
    expect((await daemon.call("POST", path(id, "/rollback"), { version: 1, force: true })).status).toBe(422);
    const before = (await daemon.call("GET", path(id))).body;
    expect((await rollback(id, 1)).body).toEqual(before);
  });

  it("does not outlive a pause or a deletion: the instances of all versions go", async () => {
    const { id } = await daemon.deploy({ name: "all-gone", handler: "echo 1" });
    await daemon.invoke("all-gone");
    await put(id, { handler: "echo 2" });
    expect(await poolOf(id)).toMatchObject({ ready_count: 1, superseded_count: 1 });
    await daemon.call("POST", path(id, "/pause"));
    expect(await poolOf(id)).toMatchObject({ total_count: 0, superseded_count: 0 });
    await daemon.call("POST", path(id, "/resume"));
    await daemon.invoke("all-gone");
    await rollback(id, 1);
    expect((await daemon.call("DELETE", path(id))).status).toBe(200);
    expect((await daemon.call("GET", path(id, "/versions"))).status).toBe(404);
  });
});

describe("GET /api/functions/<id>/versions", () => {
  it("lists the newest first, as many as asked for", async () => {
    const { id } = await daemon.deploy({ name: "many", handler: "echo 1" });
    for (let version = 2; version <= 5; version++) await put(id, { handler: `echo ${version}` });
    const { body } = await daemon.call("GET", path(id, "/versions?limit=2"));
    expect(body.versions.map(({ version }: { version: number }) => version)).toEqual([5, 4]);
    expect(await versionsOf(id)).toHaveLength(5);
  });
});
