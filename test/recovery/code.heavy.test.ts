/**
 * The daemon killed where functions get their code: during uploads, deployments, and while instances are bound. After the
 * next start deployments are whole or not there, answered records are kept, functions answer with their own code and
 * secrets, and the machine holds as much as before.
 */
import { existsSync, readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Failpoint } from "../../src/base/failpoints.ts";
import { tarHeader } from "../../src/engine/files/tar.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { ENTRY } from "../support/file-helper.ts";
import { answered, functionOf, KINDS, SECRET, upload } from "./code-functions.ts";
import { ask, dies, startArmed } from "./ledger.ts";
import { type Counts, countAtRest, expectAtRest } from "./rest.ts";

const daemon = new Daemon();
/** No cells: which class would have them depends on the rounds before. */
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn", HEARTH_FAILPOINT: `@${daemon.failpoint_file}` };
const ROUNDS_MAX = 3;
const NAMES = Object.keys(KINDS);
const MARKS = ["1", "2"];

type By = "work" | "start" | "adoption" | "stop";

const CASES: readonly (readonly [Failpoint, at: number, By])[] = [
  ["code.put.unpacked", 1, "work"],
  ["code.put.unpacked", 6, "work"],
  ["code.put.renamed", 1, "work"],
  ["engine.start.ready", 2, "work"],
  ["functions.bind.begun", 3, "work"],
  // Of a deployment of four functions, and of the next one.
  ["engine.attach.noted", 1, "work"],
  ["engine.attach.noted", 7, "work"],
  ["engine.attach.mounted", 2, "work"],
  ["engine.attach.mounted", 8, "work"],
  ["functions.bind.attached", 1, "work"],
  ["functions.bind.attached", 6, "work"],
  ["functions.bind.marked", 3, "work"],
  ["functions.bind.limited", 3, "work"],
  // Three of the runtimes have a resident process.
  ["functions.bind.loaded", 1, "work"],
  ["functions.bind.loaded", 3, "work"],
  ["functions.bind.loaded", 5, "work"],
  ["functions.version.warmed", 1, "work"],
  ["functions.version.warmed", 2, "work"],
  ["functions.version.moved", 1, "work"],
  ["functions.version.moved", 2, "work"],
  ["functions.invoke.ended", 3, "work"],
  ["functions.delete.moved", 2, "work"],
  ["functions.delete.closed", 1, "work"],
  ["functions.delete.erased", 3, "work"],
  ["engine.remove.asked", 2, "work"],
  ["engine.remove.deleted", 2, "work"],
  ["engine.boot.adopted", 1, "adoption"],
  ["functions.boot.adopted", 1, "adoption"],
  ["app.stop.begun", 1, "stop"],
  ["engine.stop.begun", 1, "stop"],
];

const state = {
  before: {} as Counts,
  trees: [] as readonly string[],
  /** Marks that each function may have; null: it may be absent. */
  marks: new Map<string, Set<string | null>>(),
  /** Records by function since its last creation. */
  // biome-ignore lint/suspicious/noExplicitAny: records as they came.
  records: new Map<string, any[]>(),
};

const may = (name: string): Set<string | null> => state.marks.get(name) ?? new Set([null]);
const beingOneOf = (name: string, ...marks: (string | null)[]) => state.marks.set(name, new Set(marks));

/** Trees of code in the storage pool. A launcher may have a child of its name for a moment. */
function trees(): string[] {
  const pids = daemon.processes().flatMap((line) => (line.includes(" launcher ") ? [line.split(" ", 1)[0]] : []));
  const places = pids.map((pid) => `/proc/${pid}/root${daemon.data_dir}/area/code`);
  return [...new Set(places.flatMap((path) => (existsSync(path) ? readdirSync(path) : [])))].toSorted();
}

async function deploy(mark: string): Promise<void> {
  const functions: object[] = [];
  for (const name of NAMES) {
    const kind = KINDS[name];
    functions.push(functionOf(name, name, await upload(daemon, kind?.file ?? "", kind?.source(mark) ?? "")));
  }
  for (const name of NAMES) beingOneOf(name, ...may(name), mark);
  const { status, body } = await ask(daemon, "POST", "/api/functions/deployments", { functions });
  expect([status, body.error]).toEqual([200, undefined]);
  for (const name of NAMES) beingOneOf(name, mark);
}

async function call(name: string): Promise<void> {
  const { status, body } = await ask(daemon, "POST", `/api/functions/invoke/${name}`, {});
  expect([name, status]).toEqual([name, 200]);
  expect([...may(name)]).toContain(answered(body).mark);
  state.records.set(name, [...(state.records.get(name) ?? []), body]);
}

/** Deletes what is there. */
async function deleteAll(): Promise<void> {
  for (const name of NAMES) {
    const { status, body } = await ask(daemon, "GET", `/api/functions/by-name/${name}`);
    if (status === 404) continue;
    beingOneOf(name, ...may(name), null);
    expect((await ask(daemon, "DELETE", `/api/functions/${body.id}`)).status).toBe(200);
    beingOneOf(name, null);
    state.records.delete(name);
  }
}

async function round(): Promise<void> {
  for (const mark of MARKS) {
    await deploy(mark);
    await Promise.all(NAMES.map(call)).catch(async (error) => {
      await eventually("the other calls ended with the daemon", () => !daemon.isAlive);
      throw error;
    });
  }
  await deleteAll();
}

/** Holds what was answered against a daemon that has started again. */
async function check(): Promise<void> {
  const found = new Map<string, string | null>();
  for (const name of NAMES) {
    const { status, body } = await eventually(`function ${name} settles`, async () => {
      const answer = await ask(daemon, "GET", `/api/functions/by-name/${name}`);
      return answer.body.state === "deleting" ? null : answer;
    });
    if (status === 404) {
      expect([name, [...may(name)]]).toEqual([name, expect.arrayContaining([null])]);
      found.set(name, null);
      state.records.delete(name);
      continue;
    }
    expect([name, body.state]).toEqual([name, "active"]);
    const { invocations } = (await ask(daemon, "GET", `/api/functions/${body.id}/invocations?limit=1000`)).body;
    expect(invocations).toEqual(expect.arrayContaining(state.records.get(name) ?? []));
    const record = (await ask(daemon, "POST", `/api/functions/invoke/${name}`, {})).body;
    const { mark } = answered(record);
    expect([name, [...may(name)]]).toEqual([name, expect.arrayContaining([mark])]);
    found.set(name, mark);
  }
  // A deployment is whole. A deletion takes one function after the other.
  const isDeleting = NAMES.some((name) => may(name).has(null) && may(name).has("2"));
  const marks = new Set(found.values());
  if (isDeleting) marks.delete(null);
  expect([...marks]).toHaveLength(marks.size === 0 ? 0 : 1);
  for (const [name, mark] of found) beingOneOf(name, mark);
}

beforeAll(async () => {
  await daemon.start(SETTINGS);
  await daemon.call("PUT", `/api/secrets/${SECRET.name}`, { value: SECRET.value });
  await round();
  state.before = await countAtRest(daemon, 0);
  state.trees = trees();
  expect(state.trees).toHaveLength(NAMES.length * MARKS.length);
});
afterAll(() => daemon.dispose());

describe("a daemon with functions that have code, when it is killed", () => {
  it.each(CASES)("at %s, passage %i by %s, has lost nothing and left nothing after its next start", async (...one) => {
    const [name, at, by] = one;
    // A failed case may leave no daemon.
    if (!daemon.isAlive) await daemon.start(SETTINGS);
    const point = `${name}:${at}`;
    if (by === "work") {
      await daemon.arm(point);
      expect(await dies(round, ROUNDS_MAX)).toBe(true);
    } else {
      await deploy("1");
      await Promise.all(NAMES.map(call));
      await daemon.stop("SIGKILL");
      expect(await startArmed(daemon, SETTINGS, point)).toBe(by === "stop");
      if (by === "stop") expect(await daemon.stop("SIGTERM")).toBeNull();
    }
    await daemon.start(SETTINGS);
    await check();
    await deleteAll();
    await expectAtRest(daemon, state.before, 0);
    // Code that was uploaded lately stays for another version.
    expect(state.trees).toEqual(expect.arrayContaining(trees()));
  });

  it("at each of these leaves nothing when it is stopped at last", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("a daemon that is stopped", () => {
  it("during a deployment, a load and an upload ends within its time and leaves nothing", async () => {
    await daemon.stop("SIGTERM");
    await daemon.start(SETTINGS);
    const hanging = await upload(daemon, "index.mjs", "await new Promise(() => {});\nexport const handler = 1;\n");
    const functions = [functionOf("nodejs", "hangs", hanging), { name: "beside", handler: "cat" }];
    const deployment = daemon.call("POST", "/api/functions/deployments", { functions }).catch((error) => error);
    await eventually("it loads", async () => {
      return (await daemon.call("GET", "/api/functions/pool/stats")).body.warming_count > 0;
    });
    const endless = new ReadableStream({
      start: (to) => to.enqueue(new Uint8Array(tarHeader({ ...ENTRY, name: "f", size: 100_000_000 }))),
      pull: (to) => new Promise((resolve) => setTimeout(resolve, 20)).then(() => to.enqueue(new Uint8Array(512))),
    });
    const sending = fetch(`${daemon.url}/api/functions/code`, {
      ...{ method: "POST", body: endless, duplex: "half" },
      headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
    } as RequestInit).catch((error) => error);
    await eventually("it is unpacked", () => trees().some((id) => id.startsWith("new-")));
    expect(await daemon.stop("SIGTERM")).toBe(0);
    await Promise.all([deployment, sending]);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    await daemon.start(SETTINGS);
    for (const name of ["hangs", "beside"]) {
      expect((await daemon.call("GET", `/api/functions/by-name/${name}`)).status).toBe(404);
    }
    expect(trees().filter((id) => id.startsWith("new-"))).toEqual([]);
  });
});
