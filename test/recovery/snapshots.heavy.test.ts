/**
 * The daemon killed while it takes, copies, restores and deletes snapshots: after the next start everything that was
 * accepted ends, no snapshot is half, no container is frozen, and the machine holds as much as before.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FAILPOINTS, type Failpoint } from "../../src/base/failpoints.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { StoreRows } from "../support/rows.ts";
import { ask, dies } from "./ledger.ts";
import { type Counts, countAtRest, expectAtRest } from "./rest.ts";

type Json = Answer["body"];

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const SETTINGS = {
  HEARTH_CELLS: "0",
  HEARTH_LOG_LEVEL: "warn",
  HEARTH_FAILPOINT: `@${daemon.failpoint_file}`,
};
const TENANT = { "x-tenant-id": "default" };
const OPEN = ["pending", "running"];
/** The container that all copies are made of, with minit and its command. */
const LIVING = { containers: 1, processes: 2 };
const FORKS = 3;

/** The objects that a client knows from its responses. */
const known = {
  before: {} as Counts,
  /** Content of the container and its volume. */
  text: "",
  /** Content that was last asked for: the container has it or not, if the daemon died before its answer. */
  asked: "",
  round: 0,
  operations: new Set<string>(),
  /** Content of each snapshot by its id. */
  snapshots: new Map<string, string>(),
  /** Content of each copy by its id, and whether it runs. */
  copies: new Map<string, { readonly text: string; readonly state: string }>(),
  deleted: new Set<string>(),
};

async function ok(method: string, path: string, body?: unknown): Promise<Json> {
  const { status, body: answer } = await ask(daemon, method, path, body, TENANT);
  expect([method, path, status, status < 300 ? null : answer]).toEqual([method, path, status, null]);
  return answer;
}

function forget(): void {
  for (const what of [known.operations, known.snapshots, known.copies, known.deleted]) what.clear();
}

/** Removes what a failed case before has left, so that each fails for itself. */
async function ready(): Promise<void> {
  if (!daemon.isAlive) await daemon.start(SETTINGS);
  if ((await containers.get("box")).state !== "running") await ok("POST", "/api/containers/box/start?execution=sync");
  await quiet();
  await clear();
}

async function ended(operation_id: string): Promise<Json> {
  return eventually(`operation ${operation_id} ends`, async () => {
    const record = await ok("GET", `/api/operations/${operation_id}`);
    return OPEN.includes(record.status) ? null : record;
  });
}

/** Also what was accepted and not answered has ended. */
async function quiet(): Promise<void> {
  await eventually("nothing is under way", async () => {
    const { operations } = await ok("GET", "/api/operations?limit=100");
    return operations.every(({ status }: Json) => !OPEN.includes(status));
  });
}

/** Accepts an operation, and waits for its end. */
async function operate(path: string, body: object, note: (handle: Json) => void): Promise<void> {
  const handle = await ok("POST", path, body);
  known.operations.add(handle.operation_id);
  note(handle);
  const record = await ended(handle.operation_id);
  expect([path, record.status, record.error]).toEqual([path, "succeeded", null]);
}

async function write(text: string): Promise<void> {
  const line = `echo -n ${text} > /data/file; echo -n ${text} > /root/file`;
  known.asked = text;
  await ok("POST", "/api/containers/box/exec", { command: ["sh", "-c", line] });
  known.text = text;
}

const read = (id: string, dir: string): Promise<string> => containers.shell(id, `cat ${dir}/file`);

async function take(): Promise<string> {
  const ids: string[] = [];
  const { text } = known;
  await operate("/api/containers/box/snapshot", { volume_mode: "include_all_allowed" }, ({ snapshot_id }) => {
    known.snapshots.set(snapshot_id, text);
    ids.push(snapshot_id);
  });
  return ids[0] ?? "";
}

/** All that snapshots can do. */
async function round(): Promise<void> {
  const n = known.round++;
  await write(`text-${n}`);
  const first = await take();
  await write(`later-${n}`);
  const body = { name: `clone-${n}`, resume_policy: "immediate" };
  await operate(`/api/snapshots/${first}/clone`, body, ({ container_id }) => {
    known.copies.set(container_id, { text: `text-${n}`, state: "running" });
  });
  const forks = { name: `fork-${n}-{n}`, count: FORKS, volume_mode: "include_all_allowed" };
  await operate("/api/containers/box/fork", forks, ({ container_ids }) => {
    for (const id of container_ids) known.copies.set(id, { text: `later-${n}`, state: "created" });
  });
  const snapshot_id = first;
  known.asked = `text-${n}`;
  await operate("/api/containers/box/restore", { snapshot_id }, () => {
    known.text = `text-${n}`;
  });
  known.deleted.add(first);
  await ok("DELETE", `/api/snapshots/${first}`);
}

/** Everything that was accepted has ended well, and is as it was asked for. */
async function check(): Promise<void> {
  for (const id of known.operations) {
    const { status, error, items } = await ended(id);
    expect([id, status, error]).toEqual([id, "succeeded", null]);
    for (const item of items ?? []) expect(item).toMatchObject({ status: "succeeded" });
  }
  await quiet();
  const { snapshots } = await ok("GET", "/api/snapshots");
  for (const { snapshot_id, state } of snapshots) {
    expect([snapshot_id, state]).toEqual([snapshot_id, "ready"]);
    const text = known.snapshots.get(snapshot_id);
    if (text === undefined) continue;
    const { container_ids, operation_id } = await ok("POST", `/api/snapshots/${snapshot_id}/clone`, {
      resume_policy: "immediate",
    });
    expect((await ended(operation_id)).status).toBe("succeeded");
    for (const id of container_ids) known.copies.set(id, { text, state: "running" });
  }
  const found = snapshots.map(({ snapshot_id }: Json) => snapshot_id);
  for (const id of known.snapshots.keys()) if (!known.deleted.has(id)) expect(found).toContain(id);
  for (const [id, { text, state }] of known.copies) {
    expect(await containers.get(id)).toMatchObject({ container_id: id, state });
    if (state === "created") await ok("POST", `/api/containers/${id}/start?execution=sync`);
    expect([await read(id, "/root"), await read(id, "/data")]).toEqual([text, text]);
  }
  await checkBox();
}

/** It runs, is not frozen, and has its files whole. Its volume is not restored. */
async function checkBox(): Promise<void> {
  await containers.until("box", "runs", ({ state }) => state === "running");
  const text = await read("box", "/root");
  expect([known.text, known.asked, `later-${known.round - 1}`]).toContain(text);
  known.text = text;
}

/** Deletes all but the container, its volume and what it is made of. */
async function clear(): Promise<void> {
  for (const { snapshot_id } of (await ok("GET", "/api/snapshots")).snapshots) {
    await ok("DELETE", `/api/snapshots/${snapshot_id}`);
  }
  for (const { container_id, name } of (await ok("GET", "/api/containers")).containers) {
    if (name !== "box") await ok("DELETE", `/api/containers/${container_id}`);
  }
  for (const { name } of (await ok("GET", "/api/volumes")).volumes) {
    if (name !== "data") await ok("DELETE", `/api/volumes/${name}?execution=sync`);
  }
  forget();
  const store = new StoreRows(daemon);
  await eventually("no snapshot has a row", () => store.read("SELECT id FROM snapshots", []).length === 0).finally(() =>
    store.close(),
  );
}

beforeAll(async () => {
  await daemon.start(SETTINGS);
  await ok("POST", "/api/volumes", { name: "data" });
  await containers.create({ name: "box", volumes: ["data:/data"], command: ["sleep", "100000"], memory_limit_mb: 256 });
  await round();
  await clear();
  known.before = await countAtRest(daemon, 0, LIVING);
});
afterAll(() => daemon.dispose());

/** Passages of a round at which the daemon is killed: a clone passes those of a copy first, then each fork. */
const PASSAGES: Partial<Record<Failpoint, readonly number[]>> = {
  "snapshots.copy.filled": [1, 2, 1 + FORKS],
  "snapshots.copy.volumes": [1, 2, 1 + FORKS],
  "snapshots.copy.noted": [1, 2, 1 + FORKS],
};
const NAMES = FAILPOINTS.filter((name) => name.startsWith("snapshots."));
const CASES = NAMES.flatMap((name) => (PASSAGES[name] ?? [1]).map((at) => ({ name, at })));

describe("a daemon that is killed", () => {
  it.each(CASES)("at $name, passage $at, ends what was accepted, and has left nothing", async ({ name, at }) => {
    await ready();
    await daemon.arm(`${name}:${at}`);
    expect(await dies(round, 2)).toBe(true);
    await daemon.start(SETTINGS);
    await check();
    await clear();
    await expectAtRest(daemon, known.before, 0, LIVING);
  });

  it.each([0, 1, 2, 3, 4, 5, 6, 7])("while it does many of these, at moment %i, ends what was accepted", async (n) => {
    await ready();
    // A round has dozens of commits.
    await daemon.arm(`store.commit.done:${3 + n * 5}`);
    expect(await dies(round, 5)).toBe(true);
    await daemon.start(SETTINGS);
    await check();
    await clear();
    await expectAtRest(daemon, known.before, 0, LIVING);
  });

  it("while a container is frozen thaws it at the next start", async () => {
    await ready();
    await write("frozen");
    await freeze();
    await daemon.stop("SIGKILL");
    expect(frozenState()).toBe("FROZEN");
    await daemon.start(SETTINGS);
    await containers.until("box", "runs", ({ state }) => state === "running");
    expect(await read("box", "/root")).toBe("frozen");
    await expectAtRest(daemon, known.before, 0, LIVING);
  });
});

/** The freezer of the box, whose group is that of its processes. */
function freezer(): string {
  const pid = daemon
    .processes()
    .find((line) => line.includes("sleep 100000"))
    ?.split(" ", 1)[0];
  const groups = readFileSync(`/proc/${pid}/cgroup`, "utf8").split("\n");
  const v1 = groups.map((line) => line.split(":")).find(([, name]) => name === "freezer")?.[2];
  if (v1 !== undefined && v1 !== "/") return `/sys/fs/cgroup/freezer${v1}/freezer.state`;
  return `/sys/fs/cgroup${groups[0]?.split(":")[2]}/cgroup.freeze`;
}

function frozenState(file = freezer()): string {
  const text = readFileSync(file, "utf8").trim();
  return text === "1" ? "FROZEN" : text === "0" ? "THAWED" : text;
}

async function freeze(): Promise<void> {
  const file = freezer();
  writeFileSync(file, file.endsWith("cgroup.freeze") ? "1" : "FROZEN");
  await eventually("the container is frozen", () => frozenState(file) === "FROZEN");
}

/** Blocks until the container is being frozen for a snapshot that was just requested, or until that has passed. */
function spinUntilFrozen(file: string): boolean {
  const end_ms = performance.now() + 3_000;
  while (performance.now() < end_ms) if (frozenState(file) !== "THAWED") return true;
  return false;
}

function launcherPid(): number {
  const line = daemon.processes().find((one) => one.includes(" launcher "));
  return Number(line?.split(" ", 1)[0]);
}
/** Children of the launcher that work on the storage pool: they have its command line. */
function workersOf(launcher: number): number[] {
  const lines = daemon.processes().filter((line) => line.includes(" launcher "));
  return lines.map((line) => Number(line.split(" ", 1)[0])).filter((pid) => pid !== launcher);
}

/** Counts of what a snapshot could leave. The launcher's reserve of networks comes back with the next start alone. */
function kept(): object {
  const { subvolumes, cgroups, container_files, code_uploads } = daemon.leftovers();
  return { subvolumes, cgroups, container_files, code_uploads };
}

describe("a container that is being frozen", () => {
  it.each(["launcher", "helper", "launcher with its helper", "daemon"])(
    "is thawed if the %s is killed meanwhile",
    async (victim) => {
      await ready();
      const [file, before] = [freezer(), kept()];
      let hits = 0;
      for (let n = 0; n < 5; n++) {
        await write(`frozen-${n}`);
        const launcher = launcherPid();
        const taking = ask(daemon, "POST", "/api/containers/box/snapshot?execution=sync", {}, TENANT).catch(() => null);
        // The request is on its way before this thread blocks.
        for (let turns = 0; turns < 20; turns++) await new Promise((resolve) => setImmediate(resolve));
        if (spinUntilFrozen(file)) hits++;
        const victims = {
          launcher: () => [launcher],
          helper: () => workersOf(launcher),
          "launcher with its helper": () => [...workersOf(launcher), launcher],
          daemon: () => [daemon.pid],
        }[victim];
        for (const pid of victims?.() ?? []) {
          try {
            process.kill(pid, "SIGKILL");
          } catch {
            // It has ended by itself.
          }
        }
        await taking;
        if (!daemon.isAlive || victim === "daemon") await daemon.start(SETTINGS);
        await eventually("the container is thawed", () => frozenState(file) === "THAWED");
        expect(await read("box", "/root")).toBe(`frozen-${n}`);
        await check();
        await clear();
      }
      expect(hits).toBeGreaterThan(0);
      await expect.poll(kept).toEqual(before);
    },
  );
});

/** Behind these the work is done or goes on by itself: nothing there can fail. */
const DONE: readonly Failpoint[] = ["snapshots.copy.noted", "snapshots.delete.ended"];

describe("an operation that fails", () => {
  it.each(NAMES.filter((name) => !DONE.includes(name)))("at %s leaves nothing", async (name) => {
    await ready();
    await daemon.arm(`${name}=throw`);
    await round().catch(() => {});
    expect(daemon.isAlive).toBe(true);
    await quiet();
    await containers.until("box", "runs", ({ state }) => state === "running");
    await clear();
    await expectAtRest(daemon, known.before, 0, LIVING);
  });

  it("leaves nothing when the daemon is stopped at last", async () => {
    await ok("DELETE", "/api/containers/box");
    await ok("DELETE", "/api/volumes/data?execution=sync");
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
