/** Clean-up tasks, forced clean-up, monitors and activity: what they tell compared with the machine. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { askingOf } from "../support/asking.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const { makeTenant, ok, refusal } = askingOf(daemon);
type Json = Answer["body"];

const tasksOf = async (id: string, key = KEY): Promise<Json[]> =>
  (await ok("GET", `/api/containers/${id}/cleanup/tasks`, undefined, key)).tasks;
const force = (id: string, body: object = { confirm: true }, key = KEY) =>
  daemon.call("POST", `/api/containers/${id}/cleanup/force`, body, { "x-api-key": key });

const state = { key: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  state.key = await makeTenant("other");
});
afterAll(() => daemon.dispose());

describe("clean-up tasks", () => {
  it("are none before anything was removed", async () => {
    const { container_id } = await user.create({ name: "fresh" });
    expect(await tasksOf(container_id)).toEqual([]);
    await user.delete(container_id);
  });

  it("tell of the end of a run and of the deletion, and are seen by their tenant alone", async () => {
    const { container_id } = await user.create({ name: "box" });
    const { veth_host } = await ok("GET", `/api/containers/${container_id}/network`);
    await ok("POST", `/api/containers/${container_id}/kill`);
    const ended = await tasksOf(container_id);
    expect(new Set(ended.map(({ resource_type }) => resource_type))).toEqual(
      new Set(["cgroup", "container", "network"]),
    );
    expect(ended.find(({ resource_type }) => resource_type === "network").resource_path).toBe(veth_host);
    for (const task of ended) {
      expect(task).toMatchObject({ container_id, status: "completed", error_message: null });
      expect(task.completed_at).toBeGreaterThanOrEqual(task.created_at);
      expect(task.resource_path).not.toContain(daemon.data_dir);
    }
    await user.delete(container_id);
    const all = await tasksOf(container_id);
    expect(all.map(({ resource_type }) => resource_type)).toEqual(expect.arrayContaining(["rootfs", "logs"]));
    expect(await refusal("GET", `/api/containers/${container_id}/cleanup/tasks`, undefined, state.key)).toEqual([
      404,
      "NOT_FOUND",
    ]);
    expect((await ok("GET", "/api/cleanup/tasks", undefined, state.key)).tasks).toEqual([]);
    expect(await ok("GET", "/api/cleanup/status", undefined, state.key)).toMatchObject({
      status: "clean",
      completed_count: 0,
    });
    expect(await ok("GET", "/api/cleanup/status")).toMatchObject({ status: "clean", failed_count: 0 });
  });

  it("are paged", async () => {
    const { tasks, next_cursor } = await ok("GET", "/api/cleanup/tasks?limit=2");
    expect(tasks).toHaveLength(2);
    const rest = await ok("GET", `/api/cleanup/tasks?limit=2&cursor=${next_cursor}`);
    expect(rest.tasks[0].task_id).not.toBe(tasks[1].task_id);
  });

  it("of a removal that a crash cut short come back with the next daemon", async () => {
    const { container_id } = await user.create({ name: "crashed" });
    await daemon.stop();
    await daemon.start({ HEARTH_CELLS: "0", HEARTH_FAILPOINT: "containers.delete.hidden" });
    await daemon.call("DELETE", `/api/containers/${container_id}`).catch(() => null);
    await daemon.start({ HEARTH_CELLS: "0" });
    await eventually("the removal is complete", async () => {
      const { body } = await daemon.call("GET", `/api/containers/${container_id}/cleanup/tasks`);
      const types = (body.tasks ?? []).map((task: Json) => `${task.resource_type} ${task.status}`);
      return types.includes("rootfs completed") && types.includes("network completed");
    });
    expect(daemon.leftovers().container_files).not.toContain(container_id);
  });
});

describe("forced clean-up", () => {
  it("refuses a container that runs, and a request without confirmation", async () => {
    const { container_id } = await user.create({ name: "running" });
    const { status, body } = await force(container_id);
    expect([status, body.error_code, body.details.state]).toEqual([409, "WRONG_STATE", "running"]);
    await ok("POST", `/api/containers/${container_id}/kill`);
    expect((await force(container_id, {})).status).toBe(422);
    expect((await force(container_id, { confirm: false })).status).toBeGreaterThanOrEqual(400);
    expect((await force(container_id, { confirm: true }, state.key)).status).toBe(404);
    expect((await user.get(container_id)).state).toBe("exited");
    await user.delete(container_id);
  });

  it("leaves nothing of a stopped container, and its volume only if asked", async () => {
    const before = daemon.leftovers();
    await ok("POST", "/api/volumes", { name: "data" });
    const { container_id } = await user.create({ name: "gone", volumes: ["data:/data"] });
    await user.shell(container_id, "head -c 100000 /dev/urandom > /root/x; echo y > /data/y");
    await ok("POST", `/api/containers/${container_id}/kill`);
    const forced = await force(container_id);
    expect([forced.status, forced.body]).toMatchObject([200, { success: true, container_id }]);
    expect(forced.body.tasks.map(({ resource_type }: Json) => resource_type)).toEqual(
      expect.arrayContaining(["rootfs", "logs", "network", "cgroup", "container"]),
    );
    expect((await force(container_id)).status).toBe(404);
    expect((await ok("GET", "/api/volumes")).volumes).toHaveLength(1);
    const second = await user.create({ name: "gone", volumes: ["data:/data"] });
    await ok("POST", `/api/containers/${second.container_id}/kill`);
    const all = await force(second.container_id, { confirm: true, remove_volumes: true });
    expect(all.body.tasks[0]).toMatchObject({ resource_type: "volumes", status: "completed" });
    expect((await ok("GET", "/api/volumes")).volumes).toEqual([]);
    const after = daemon.leftovers();
    expect([after.subvolumes, after.container_files]).toEqual([before.subvolumes, before.container_files]);
  });

  it("keeps a volume that another container mounts, with a failed task that says so", async () => {
    await ok("POST", "/api/volumes", { name: "shared" });
    const [one, two] = await Promise.all(
      ["one", "two"].map((name) => user.create({ name, volumes: ["shared:/data"] })),
    );
    await ok("POST", `/api/containers/${one.container_id}/kill`);
    const { status, body } = await force(one.container_id, { confirm: true, remove_volumes: true });
    expect([status, body.tasks[0]]).toMatchObject([200, { resource_type: "volumes", status: "failed" }]);
    expect(body.message).toContain("volumes not deleted");
    expect(body.tasks[0].error_message).toContain("shared");
    expect((await ok("GET", "/api/volumes")).volumes).toHaveLength(1);
    await user.delete(two.container_id);
    await ok("DELETE", "/api/volumes/shared");
  });

  it("removes a copy that never ran, and loses against a start or wins", async () => {
    const { container_id } = await user.create({ name: "source" });
    const tenant = { "x-tenant-id": "default" };
    const path = `/api/containers/${container_id}/fork?execution=sync`;
    await daemon.call("POST", path, { name: "copy", resume_policy: "manual" }, tenant);
    const copy = (await ok("GET", "/api/containers/by-name/copy")).container_id;
    expect((await user.get(copy)).state).toBe("created");
    expect((await force(copy)).status).toBe(200);
    await ok("POST", `/api/containers/${container_id}/kill`);
    const [started, forced] = await Promise.all([
      daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`),
      force(container_id),
    ]);
    expect([started.status, forced.status]).toEqual(forced.status === 200 ? [expect.any(Number), 200] : [200, 409]);
    if (forced.status === 200) expect(started.status).toBeGreaterThanOrEqual(400);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });
});

describe("monitors", () => {
  it("say how each run goes, or ended", async () => {
    const health = { command: ["true"], interval_seconds: 1 };
    const runs = await user.create({ name: "runs", health });
    const done = await user.create({ name: "done", command: ["true"] });
    const bad = await user.create({ name: "bad", command: ["false"] });
    const stopped = await user.create({ name: "stopped" });
    await ok("POST", `/api/containers/${stopped.container_id}/kill`);
    for (const { container_id } of [done, bad]) {
      await user.until(container_id, "it ended", ({ state }) => state === "exited");
    }
    const { monitors } = await ok("GET", "/api/monitors");
    const statuses = Object.fromEntries(monitors.map((one: Json) => [one.container_name, one.status]));
    expect(statuses).toEqual({ runs: "monitoring", done: "completed", bad: "failed", stopped: "aborted" });
    expect(await ok("GET", "/api/monitors/profile")).toMatchObject({
      container_count: 4,
      monitoring_count: 1,
      completed_count: 1,
      failed_count: 1,
      aborted_count: 1,
    });
    const first = await ok("GET", `/api/monitors/${runs.container_id}`);
    expect([first.pid, readFileSync(`/proc/${first.pid}/cmdline`, "utf8").startsWith("/dev/init")]).toEqual([
      runs.pid,
      true,
    ]);
    const later = await eventually("it was checked more often", async () => {
      const record = await ok("GET", `/api/monitors/${runs.container_id}`);
      return record.check_count >= first.check_count + 3 ? record : null;
    });
    expect(later.last_check).toBeGreaterThanOrEqual(later.started_at);
    const { processes } = await ok("GET", "/api/monitors/processes");
    expect(processes).toEqual([expect.objectContaining({ container_id: runs.container_id, pid: runs.pid })]);
    expect(processes[0].process_count).toBeGreaterThanOrEqual(1);
    // Others see none of it.
    expect((await ok("GET", "/api/monitors", undefined, state.key)).monitors).toEqual([]);
    expect(await ok("GET", "/api/monitors/profile", undefined, state.key)).toMatchObject({ container_count: 0 });
    expect(await refusal("GET", `/api/monitors/${runs.container_id}`, undefined, state.key)).toEqual([
      404,
      "NOT_FOUND",
    ]);
    await user.delete(...[runs, done, bad, stopped].map(({ container_id }) => container_id));
  });
});

describe("activity", () => {
  it("lists the newest events of the tenant, page by page", async () => {
    const { container_id } = await user.create({ name: "active" });
    await user.delete(container_id);
    const { activities, next_cursor } = await ok("GET", "/api/activity?limit=2");
    expect(activities.map(({ message }: Json) => message)).toEqual([
      "container active removed",
      "container active started",
    ]);
    expect(activities[0]).toMatchObject({ type: "container_update", event_type: "removed", container_id });
    const older = await ok("GET", `/api/activity?limit=2&cursor=${next_cursor}`);
    expect(Number(older.activities[0].activity_id)).toBe(Number(activities[1].activity_id) - 1);
    const theirs = (await ok("GET", "/api/activity?limit=200", undefined, state.key)).activities;
    expect(theirs.every(({ type }: Json) => type === "api_key_update" || type === "tenant_update")).toBe(true);
    expect((await ok("GET", "/api/activity?limit=100000")).activities.length).toBeLessThanOrEqual(200);
  });
});
