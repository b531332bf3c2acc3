/** Idempotency-Keys through the real API: nothing is made twice, over crashes and restarts too, and nobody's answer leaks. */
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually } from "../support/daemon.ts";
import { ROUTES } from "../support/routes.ts";

const HOUR_MS = 3_600_000;
const PRELOAD = join(import.meta.dirname, "../support/clock-shift.ts");

const daemon = new Daemon();
const clock = `${daemon.data_dir}/clock`;
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_TEST_CLOCK: clock, NODE_OPTIONS: `--import ${PRELOAD}` };

/** Sets the daemon's clock off by so much. */
function shift(ms: number): void {
  writeFileSync(`${clock}.new`, String(ms));
  renameSync(`${clock}.new`, clock);
}

const send = (key: string, method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  daemon.call(method, path, body, { "idempotency-key": key, ...headers });
/** The tenant of the credential, which the routes of snapshots want to be named. */
const OWN = { "x-tenant-id": "default" };
const isReplayed = ({ headers }: Answer): boolean => headers.get("idempotent-replayed") === "true";

/** Ends the daemon by force and starts it again. */
async function crash(settings: Readonly<Record<string, string>> = {}): Promise<void> {
  await daemon.stop("SIGKILL");
  await daemon.start({ ...SETTINGS, ...settings });
}

beforeAll(async () => {
  shift(0);
  await daemon.start(SETTINGS);
});
afterAll(() => daemon.dispose());

describe("a route that takes an Idempotency-Key", () => {
  const made = { function_id: "", snapshot_id: "" };
  /** In the order in which they can be sent. */
  const REQUESTS: Record<string, () => readonly [method: string, path: string, body?: unknown]> = {
    createFunction: () => ["POST", "/api/functions", { name: "keyed", handler: "cat" }],
    updateFunction: () => ["PUT", `/api/functions/${made.function_id}`, { handler: "rev" }],
    deployFunctions: () => [
      "POST",
      "/api/functions/deployments",
      { functions: [{ name: "together", handler: "cat" }] },
    ],
    createTenant: () => ["POST", "/api/tenants", { name: "keyed" }],
    createVolume: () => ["POST", "/api/volumes", { name: "keyed" }],
    snapshotVolume: () => ["POST", "/api/volumes/keyed/snapshot?execution=sync"],
    deleteVolume: () => ["DELETE", "/api/volumes/keyed"],
    createContainer: () => ["POST", "/api/containers", { name: "keyed" }],
    // Its answer shows a token, which its record does not keep: services.test.ts.
    publishService: () => ["POST", "/api/containers/keyed/services", { name: "keyed", target_port: 8_080 }],
    publishMessage: () => ["POST", "/api/icc/messages", { to: "keyed", type: "keyed", payload: 1 }],
    createTerminalSession: () => ["POST", "/api/terminal/sessions", { container_id: "keyed" }],
    createContainers: () => ["POST", "/api/containers/batch?execution=sync", { items: [{ name: "batched" }] }],
    snapshotContainer: () => ["POST", "/api/containers/keyed/snapshot?execution=sync", { name: "keyed" }],
    pinSnapshot: () => ["POST", `/api/snapshots/${made.snapshot_id}/pin`],
    unpinSnapshot: () => ["POST", `/api/snapshots/${made.snapshot_id}/unpin`],
    cloneSnapshot: () => ["POST", `/api/snapshots/${made.snapshot_id}/clone?execution=sync`, { name: "cloned" }],
    forkContainer: () => ["POST", "/api/containers/keyed/fork?execution=sync", { name: "forked-{n}", count: 2 }],
    restoreContainer: () => ["POST", "/api/containers/keyed/restore?execution=sync", { snapshot_id: made.snapshot_id }],
    exportSnapshot: () => [
      "POST",
      `/api/snapshots/${made.snapshot_id}/export?execution=sync`,
      { reference: "exported:1" },
    ],
    commitContainer: () => ["POST", "/api/containers/keyed/commit?execution=sync", { reference: "committed:1" }],
    createVersionFromSnapshot: () => [
      "POST",
      `/api/functions/${made.function_id}/versions?execution=sync`,
      { snapshot_id: made.snapshot_id },
    ],
    deleteSnapshot: () => ["DELETE", `/api/snapshots/${made.snapshot_id}`],
    stopContainer: () => ["POST", "/api/containers/keyed/stop", {}],
    startContainer: () => ["POST", "/api/containers/keyed/start?execution=sync"],
    resumeContainer: () => ["POST", "/api/containers/batched/resume"],
    deleteContainer: () => ["DELETE", "/api/containers/batched"],
  };

  it("is tested here, and none of them shows a secret", () => {
    const heeding = ROUTES.filter(({ headers }) => headers.includes("Idempotency-Key"));
    const names = heeding.map(({ operation }) => operation);
    expect(names.filter((name) => !/Image/.test(name)).sort()).toEqual(Object.keys(REQUESTS).sort());
    expect(names).not.toEqual(expect.arrayContaining([expect.stringMatching(/Key|Token|Invoke|exec/)]));
    expect(heeding.filter(({ upload, socket }) => upload !== null || socket !== null)).toEqual([]);
  });

  const CRASHED_AFTER = ["createVolume", "createContainer", "snapshotContainer", "forkContainer"];
  it.each(Object.entries(REQUESTS))("%s gives the first answer again, also after a crash", async (name, request) => {
    const send = (path: string) => daemon.call(method, path, body, { "idempotency-key": name, ...OWN });
    if (name === "resumeContainer") await daemon.call("POST", "/api/containers/batched/stop", {});
    if (name === "updateFunction") {
      made.function_id = (await daemon.call("GET", "/api/functions/by-name/keyed")).body.id;
    }
    const [method, path, body] = request();
    const first = await send(path);
    expect([name, first.status < 300, isReplayed(first)]).toEqual([name, true, false]);
    const again = await send(path);
    expect([again.status, again.body, isReplayed(again)]).toEqual([first.status, first.body, true]);
    const other = await send(`${path}${path.includes("?") ? "&" : "?"}more=1`);
    expect(other).toMatchObject({ status: 409, body: { error_code: "IDEMPOTENCY_CONFLICT" } });
    if (CRASHED_AFTER.includes(name)) await crash();
    const later = await send(path);
    expect([later.status, later.body, isReplayed(later)]).toEqual([first.status, first.body, true]);
    if (name === "snapshotContainer") made.snapshot_id = first.body.snapshot_id;
  });

  it("has made one of each of them", async () => {
    const list = async (path: string) => (await daemon.call("GET", path, undefined, OWN)).body;
    const containers: { name: string }[] = (await list("/api/containers")).containers;
    expect(containers.map(({ name }) => name).sort()).toEqual(["cloned", "forked-1", "forked-2", "keyed"]);
    const { snapshots } = await list("/api/snapshots");
    expect(snapshots.map(({ source_volume }: { source_volume: string }) => source_volume)).toEqual(["keyed"]);
    const { versions } = await list(`/api/functions/${made.function_id}/versions`);
    expect(versions.map(({ version }: { version: number }) => version)).toEqual([3, 2, 1]);
  });
});

describe("an Idempotency-Key", () => {
  const count = async (path: string, field: string, name: string): Promise<number> =>
    (await daemon.call("GET", path)).body[field].filter((one: { name: string }) => one.name.startsWith(name)).length;

  it("lets one of many requests at the same time through", async () => {
    const body = { items: [{ name: "race-1" }, { name: "race-2" }] };
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => send("race", "POST", "/api/containers/batch?execution=sync", body)),
    );
    const done = answers.filter(({ status }) => status === 200);
    expect(done.filter((answer) => !isReplayed(answer))).toHaveLength(1);
    const refused = answers.filter(({ status }) => status !== 200);
    for (const { status, body: refusal, headers } of refused) {
      expect([status, refusal.error_code]).toEqual([409, "IDEMPOTENCY_IN_PROGRESS"]);
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    }
    expect(done[0]?.body.result).toMatchObject({ created_count: 2 });
    expect(await count("/api/containers", "containers", "race-")).toBe(2);
    const operations = await daemon.call("GET", "/api/operations?operation_type=container.batch");
    const batches = operations.body.operations.filter(
      ({ operation_id }: { operation_id: string }) => operation_id === done[0]?.body.operation_id,
    );
    expect(batches).toHaveLength(1);
  });

  it("belongs to one tenant: the same key of another tenant gets its own answer", async () => {
    const tenant = await daemon.call("POST", "/api/tenants", { name: "neighbour" });
    const keys = `/api/tenants/${tenant.body.tenant_id}/api-keys`;
    const credential = { "x-api-key": (await daemon.call("POST", keys, { name: "first" })).body.key };
    const body = { name: "mine", handler: "cat", environment: { SECRET: "of-the-operator" } };
    const own = await send("same", "POST", "/api/functions", body);
    const theirs = await send("same", "POST", "/api/functions", body, credential);
    expect([own.status, theirs.status, isReplayed(theirs)]).toEqual([201, 201, false]);
    expect(theirs.body.tenant_id).toBe(tenant.body.tenant_id);
    expect((await send("same", "POST", "/api/functions", body)).body).toEqual(own.body);
    // A key of the tenant that may not make functions gets no answer of one that may.
    const { body: reader } = await daemon.call("POST", keys, { name: "reader", scopes: ["read"] });
    const refused = await send("same", "POST", "/api/functions", body, { "x-api-key": reader.key });
    expect([refused.status, isReplayed(refused)]).toEqual([403, false]);
    await daemon.call("DELETE", `/api/tenants/${tenant.body.tenant_id}?force=true`);
  });

  it("may be used again for the same request that was refused", async () => {
    const first = await daemon.call("POST", "/api/volumes", { name: "taken" });
    expect(await send("again", "POST", "/api/volumes", { name: "taken" })).toMatchObject({ status: 409 });
    await daemon.call("DELETE", "/api/volumes/taken?execution=sync");
    const made = await send("again", "POST", "/api/volumes", { name: "taken" });
    expect([made.status, isReplayed(made), made.body.id === first.body.id]).toEqual([201, false, false]);
  });

  it("of a container that could not be made, waited for or not, may be used again", async () => {
    const body = { name: "late", volumes: ["not-yet:/data"] };
    expect(await send("late", "POST", "/api/containers", body)).toMatchObject({ status: 404 });
    await daemon.call("POST", "/api/volumes", { name: "not-yet" });
    const made = await send("late", "POST", "/api/containers", body);
    expect([made.status, isReplayed(made)]).toEqual([201, false]);
    expect(isReplayed(await send("late", "POST", "/api/containers", body))).toBe(true);
  });

  it("expires after a day", async () => {
    const body = { name: "daily", handler: "cat" };
    await send("daily", "POST", "/api/functions", body);
    shift(23 * HOUR_MS);
    expect(isReplayed(await send("daily", "POST", "/api/functions", body))).toBe(true);
    shift(25 * HOUR_MS);
    expect(await send("daily", "POST", "/api/functions", body)).toMatchObject({
      status: 409,
      body: { error_code: "NAME_TAKEN" },
    });
    shift(0);
  });

  it("leads to the operation that a crash interrupted in the middle", async () => {
    const path = "/api/containers/batch?execution=sync";
    const body = { items: [{ name: "cut-1" }, { name: "cut-2" }] };
    await crash({ HEARTH_FAILPOINT: "containers.create.stored:2=kill" });
    await expect(send("cut", "POST", path, body)).rejects.toThrow();
    await eventually("the daemon is gone", () => !daemon.isAlive);
    await crash();
    const handle = await send("cut", "POST", path, body);
    expect([handle.status, isReplayed(handle)]).toEqual([202, true]);
    const ended = await daemon.call("GET", `${handle.body.status_url}?wait_seconds=60`);
    expect(ended.body).toMatchObject({ status: "succeeded", result: { created_count: 2 } });
    expect(await count("/api/containers", "containers", "cut-")).toBe(2);
    expect((await send("cut", "POST", path, body)).body).toEqual(handle.body);
  });

  it("makes nothing twice after a crash between the work and its record: the name is taken", async () => {
    const body = { name: "cut", handler: "cat" };
    await crash({ HEARTH_FAILPOINT: "functions.create.stored=kill" });
    await expect(send("fn", "POST", "/api/functions", body)).rejects.toThrow();
    await eventually("the daemon is gone", () => !daemon.isAlive);
    await crash();
    expect(await send("fn", "POST", "/api/functions", body)).toMatchObject({
      status: 409,
      body: { error_code: "NAME_TAKEN" },
    });
    expect(await count("/api/functions", "functions", "cut")).toBe(1);
  });
});
