/** Operations against a real store: how they are accepted, run, told of, and how each of them ends. */
import { writeFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import type { OperationStatus } from "../../src/operations/states.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";
import { byHand, eventsOf, makeOperations } from "./made.ts";

const all = firstPage(100);
const waiting = { timeout_ms: 10_000 };

describe("an operation", () => {
  const scratch = scratchStores();

  it("is durable when it is accepted, runs with its input, and ends with its result", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    const accepted = await operations.accept("a", {
      type: "box.fill",
      target: { type: "container", id: "ctr_1" },
      made: { type: "snapshot", id: "snap_1" },
      input: { with: "sand" },
      attachment: 42,
    });
    expect(accepted).toMatchObject({
      operation_type: "box.fill",
      target_resource_type: "container",
      target_resource_id: "ctr_1",
      container_id: "ctr_1",
      snapshot_id: "snap_1",
      result_container_id: null,
    });
    const { context, succeed } = await next();
    expect([context.tenant_id, context.operation_id]).toEqual(["a", accepted.operation_id]);
    expect([context.input, context.attachment]).toEqual([{ with: "sand" }, 42]);
    expect((await operations.get("a", accepted.operation_id)).status).toBe("running");
    succeed({
      result: { grains: 7 },
      made: { type: "container", id: "ctr_2" },
      message: "full",
      warnings: ["it was wet"],
    });
    const ended = await operations.wait("a", accepted.operation_id, waiting);
    expect(ended).toMatchObject({
      status: "succeeded",
      result: { grains: 7 },
      items: null,
      container_id: "ctr_1",
      snapshot_id: null,
      result_container_id: "ctr_2",
      message: "full",
      warnings: ["it was wet"],
      capability_downgrades: [],
      progress_pct: 100,
      error: null,
      reason_code: null,
    });
    expect(ended.completed_at).toBeGreaterThanOrEqual(ended.started_at ?? Number.POSITIVE_INFINITY);
    expect(await eventsOf(store, accepted.operation_id)).toEqual(["accepted", "started", "succeeded"]);
    // What it was asked to do may hold secrets, and is of no use any more.
    const row = await store.readOne("SELECT input, journal FROM operations");
    expect(row).toMatchObject({ input: "{}", journal: "{}" });
  });

  it("fails with all four fields where it is refused, and tells nothing of the inside where there is a fault", async () => {
    const { operations, faults } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    const ends = async (error: unknown) => {
      const { operation_id } = await operations.accept("a", { type: "box.fill" });
      (await next()).fail(error);
      return operations.wait("a", operation_id, waiting);
    };
    const text = "the box is closed";
    expect(await ends(new AppError("WRONG_STATE", text))).toMatchObject({
      status: "failed",
      error: text,
      message: text,
      reason_code: "WRONG_STATE",
      reason_message: text,
    });
    expect(faults).toEqual([]);
    expect(await ends(new TypeError("cannot read /secret"))).toMatchObject({
      status: "failed",
      error: "internal error",
      reason_code: "INTERNAL",
    });
    expect(faults).toEqual(["operation failed"]);
  });

  it("fails with the reason, and without a fault, where the disk has no room for a file", async () => {
    const { operations, faults } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    // A device without room, as a disk without it.
    const full = await writeFile("/dev/full", "x").catch((error) => error);
    expect(full).toMatchObject({ code: "ENOSPC" });
    const { operation_id } = await operations.accept("a", { type: "box.fill" });
    (await next()).fail(full);
    expect(await operations.wait("a", operation_id, waiting)).toMatchObject({
      status: "failed",
      error: "no space for files in the data directory",
      reason_code: "CAPACITY_FULL",
    });
    expect(faults).toEqual([]);
  });

  it("is accepted together with what stands alongside, or not at all", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    const { runner, begun } = byHand();
    operations.register("box.fill", runner);
    const note = (key: string, expect_changes: number) => ({
      sql: "INSERT INTO meta (key, value) VALUES (?, '') ON CONFLICT DO NOTHING",
      args: [key],
      expect_changes,
    });
    const refusal = (index: number) => new AppError("NAME_TAKEN", `statement ${index}`);
    const statements = [note("one", 1), note("one", 1)];
    await expect(operations.accept("a", { type: "box.fill" }, { statements, refusal })).rejects.toMatchObject({
      code: "NAME_TAKEN",
      message: "statement 1",
    });
    expect(await store.read("SELECT 1 FROM operations UNION ALL SELECT 1 FROM events")).toEqual([]);
    expect(begun).toEqual([]);
    await operations.accept("a", { type: "box.fill" }, { statements: [note("one", 1)], refusal });
    expect(await store.readOne("SELECT value FROM meta WHERE key = 'one'")).not.toBeNull();
  });

  it("is not accepted from a tenant that is being deleted, and is nobody else's", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    operations.register("box.fill", byHand().runner);
    const { operation_id } = await operations.accept("a", { type: "box.fill" });
    for (const look of [
      operations.get("b", operation_id),
      operations.cancel("b", operation_id),
      operations.wait("b", operation_id, waiting),
    ]) {
      await expect(look).rejects.toMatchObject({ code: "NOT_FOUND", message: `operation '${operation_id}' not found` });
    }
    expect(await operations.list("b", {}, all)).toEqual({ items: [], last: null });
    await store.write([{ sql: "UPDATE tenants SET state = 'deleting' WHERE id = 'b'" }]);
    await expect(operations.accept("b", { type: "box.fill" })).rejects.toMatchObject({ code: "UNAUTHORIZED" });
  });

  it("is accepted together with the record of its Idempotency-Key, or not at all", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    operations.register("box.fill", byHand().runner);
    const recorded: unknown[] = [];
    const record = (status: number, body: unknown) => {
      recorded.push([status, body]);
      return { sql: "INSERT INTO meta (key, value) VALUES ('record', '')" };
    };
    const { operation_id } = await operations.accept("a", { type: "box.fill", once: { record } });
    const status_url = `/api/operations/${operation_id}`;
    expect(recorded).toEqual([[202, { success: true, operation_id, status_url }]]);
    expect(await store.readOne("SELECT value FROM meta WHERE key = 'record'")).not.toBeNull();
    await expect(operations.accept("a", { type: "box.fill", once: { record } })).rejects.toMatchObject({
      code: "INTERNAL",
    });
    expect((await operations.list("a", {}, all)).items).toHaveLength(1);
  });

  it("is listed newest first, by state, type and thing", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    operations.register("box.burn", { ...runner, running_max: 1 });
    const first = await operations.accept("a", { type: "box.fill", target: { type: "box", id: "box_1" } });
    (await next()).succeed({ items: [{ ok: true }] });
    await operations.wait("a", first.operation_id, waiting);
    const second = await operations.accept("a", { type: "box.burn", target: { type: "container", id: "ctr_2" } });
    const ids = async (query: object) =>
      (await operations.list("a", query, all)).items.map(({ operation_id }) => operation_id);
    expect(await ids({})).toEqual([second.operation_id, first.operation_id]);
    expect((await operations.list("a", {}, firstPage(1))).items).toMatchObject([{ operation_id: second.operation_id }]);
    expect(await ids({ status: "succeeded" })).toEqual([first.operation_id]);
    expect(await ids({ operation_type: "box.burn" })).toEqual([second.operation_id]);
    expect(await ids({ target_resource_id: "box_1" })).toEqual([first.operation_id]);
    expect(await ids({ container_id: "ctr_2" })).toEqual([second.operation_id]);
    expect(await ids({ container_id: "box_1" })).toEqual([]);
    expect(await ids({ target_resource_id: "box_1", operation_type: "box.burn" })).toEqual([]);
    expect((await operations.get("a", first.operation_id)).items).toEqual([{ ok: true }]);
  });

  it("tells how far it is, and writes that now and then", async () => {
    const clock = new HandClock();
    const { operations, store } = await makeOperations(scratch().open(), clock);
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    const { operation_id } = await operations.accept("a", { type: "box.fill" });
    const { context, succeed } = await next();
    const seen = async () => {
      const { progress_pct, message, items } = await operations.get("a", operation_id);
      return [progress_pct, message, items];
    };
    context.progress(10, "begun");
    await eventually("the first word is written at once", async () => (await seen())[0] === 10);
    for (let pct = 11; pct <= 60; pct++) context.progress(pct);
    context.items([{ n: 1 }]);
    expect(await seen()).toEqual([10, "begun", null]);
    await clock.pass(LIMITS.operation_progress_interval_ms);
    await eventually("the last one of many follows", async () => (await seen())[0] === 60);
    expect(await seen()).toEqual([60, "begun", [{ n: 1 }]]);
    context.progress(150, "x".repeat(2_000));
    context.items([{ n: 1 }, { n: 2 }]);
    succeed();
    await operations.wait("a", operation_id, waiting);
    expect(await seen()).toEqual([100, "x".repeat(LIMITS.operation_message_length_max), [{ n: 1 }, { n: 2 }]]);
    expect(await eventsOf(store)).toEqual(["accepted", "started", "succeeded"]);
  });

  it("has its finished steps on the disk before it goes on, with what changed by them", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    await operations.accept("a", { type: "box.fill" });
    const { context } = await next();
    expect(context.done("opened")).toBeUndefined();
    const statement = { sql: "INSERT INTO meta (key, value) VALUES ('opened', '1')", expect_changes: 1 };
    await context.finish("opened", null, {
      statements: [statement],
      refusal: () => new AppError("NAME_TAKEN", "opened"),
    });
    await Promise.all([1, 2, 3].map((n) => context.finish(`layer ${n}`, { n })));
    expect([context.done("opened"), context.done("layer 2"), context.done("toString")]).toEqual([
      null,
      { n: 2 },
      undefined,
    ]);
    const row = await store.readOne("SELECT journal FROM operations");
    expect(Object.keys(JSON.parse(String(row?.journal)))).toEqual(["opened", "layer 1", "layer 2", "layer 3"]);
    expect(await store.readOne("SELECT 1 FROM meta WHERE key = 'opened'")).not.toBeNull();
    await expect(context.finish("opened")).rejects.toThrow("finished twice");
    const missed = { sql: "DELETE FROM meta WHERE key = 'nothing'", expect_changes: 1 };
    const refused = context.finish("closed", null, {
      statements: [missed],
      refusal: (index) => new AppError("WRONG_STATE", `statement ${index}`),
    });
    await expect(refused).rejects.toMatchObject({ message: "statement 0" });
    expect(context.done("closed")).toBeUndefined();
  });
});

describe("operations that wait", () => {
  const scratch = scratchStores();

  it("go past those whose tenant has its share of their type", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand({ running_per_tenant_max: 2 });
    operations.register("box.burn", runner);
    const accept = async (tenant_id: string) => (await operations.accept(tenant_id, { type: "box.burn" })).operation_id;
    const [first, second, third] = [await accept("a"), await accept("a"), await accept("a")];
    const other = await accept("b");
    const runs = [await next(), await next(), await next()];
    expect(runs.map(({ context }) => context.operation_id)).toEqual([first, second, other]);
    runs[0]?.succeed();
    expect((await next()).context.operation_id).toBe(third);
  });

  it("go in their order, past those whose type has its share", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    const [one, many] = [byHand({ running_max: 1 }), byHand()];
    operations.register("box.burn", one.runner);
    operations.register("box.fill", many.runner);
    const first = await operations.accept("a", { type: "box.burn" });
    const second = await operations.accept("a", { type: "box.burn" });
    await operations.accept("a", { type: "box.fill" });
    await many.next();
    const begun = await one.next();
    expect(begun.context.operation_id).toBe(first.operation_id);
    await eventually(
      "the second is queued",
      async () => (await operations.get("a", second.operation_id)).status === "queued",
    );
    begun.succeed();
    expect((await one.next()).context.operation_id).toBe(second.operation_id);
    expect(await eventsOf(store, second.operation_id)).toEqual(["accepted", "queued", "started"]);
  });

  it("leave room for other tenants", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, begun } = byHand();
    operations.register("box.fill", runner);
    const share = LIMITS.operations_running_per_tenant_max;
    for (let n = 0; n < share + 5; n++) await operations.accept("a", { type: "box.fill" });
    const other = await operations.accept("b", { type: "box.fill" });
    await eventually("the other tenant's runs", () => begun.length > share);
    expect(begun.map(({ context }) => context.tenant_id).filter((id) => id === "a")).toHaveLength(share);
    expect(begun.at(-1)?.context.operation_id).toBe(other.operation_id);
  });

  it("are refused above a bound, and taken again below it", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand({ running_max: 1 });
    operations.register("box.fill", runner);
    const fill = () => operations.accept("a", { type: "box.fill" });
    await Promise.all(Array.from({ length: LIMITS.operations_open_per_tenant_max }, fill));
    await expect(fill()).rejects.toMatchObject({ code: "QUEUE_FULL", retry_after: 1 });
    const { context, succeed } = await next();
    succeed();
    await operations.wait("a", context.operation_id, waiting);
    await fill();
    await expect(fill()).rejects.toMatchObject({ code: "QUEUE_FULL" });
  });
});

describe("an operation ends early", () => {
  const scratch = scratchStores();
  const statusOf = (status: OperationStatus, code: string | null = null) => ({ status, reason_code: code });

  it("where it is cancelled before it begins, whatever its type", async () => {
    const { operations, store } = await makeOperations(scratch().open());
    const { runner, next, begun } = byHand({ running_max: 1 });
    operations.register("box.fill", runner);
    await operations.accept("a", { type: "box.fill" });
    const waits = await operations.accept("a", { type: "box.fill" });
    expect(await operations.cancel("a", waits.operation_id)).toMatchObject({ ...statusOf("cancelled"), error: null });
    (await next()).succeed();
    await expect(operations.cancel("a", waits.operation_id)).rejects.toMatchObject({
      code: "WRONG_STATE",
      details: { state: "cancelled" },
    });
    expect((await eventsOf(store, waits.operation_id)).at(-1)).toBe("cancelled");
    expect(begun).toHaveLength(1);
  });

  it("where it is cancelled while it runs and can be stopped, and not where it cannot", async () => {
    const { operations } = await makeOperations(scratch().open());
    const [soft, hard] = [byHand({ cancellable: true }), byHand()];
    operations.register("box.fill", soft.runner);
    operations.register("box.burn", hard.runner);
    const filled = await operations.accept("a", { type: "box.fill" });
    const { context } = await soft.next();
    expect(await operations.cancel("a", filled.operation_id)).toMatchObject(statusOf("cancelled"));
    expect(context.signal.reason).toMatchObject({ code: "WRONG_STATE" });
    const burnt = await operations.accept("a", { type: "box.burn" });
    const { succeed } = await hard.next();
    await expect(operations.cancel("a", burnt.operation_id)).rejects.toMatchObject({
      code: "WRONG_STATE",
      details: { state: "running" },
    });
    succeed();
    expect(await operations.wait("a", burnt.operation_id, waiting)).toMatchObject(statusOf("succeeded"));
  });

  it("as a success where it had succeeded before it heard of that", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", { ...runner, cancellable: true });
    const { operation_id } = await operations.accept("a", { type: "box.fill" });
    const { context, succeed } = await next();
    context.signal.addEventListener("abort", () => succeed({ result: { all: true } }));
    expect(await operations.cancel("a", operation_id)).toMatchObject({ status: "succeeded", result: { all: true } });
  });

  it("at its deadline, whether it runs or waits", async () => {
    const clock = new HandClock();
    const { operations } = await makeOperations(scratch().open(), clock);
    const { runner, next } = byHand({ cancellable: true, running_max: 1 });
    operations.register("box.fill", runner);
    const runs = await operations.accept("a", { type: "box.fill", timeout_ms: 5_000 });
    const waits = await operations.accept("a", { type: "box.fill", timeout_ms: 4_000 });
    const { context } = await next();
    await clock.pass(4_000);
    expect(await operations.wait("a", waits.operation_id, waiting)).toMatchObject(statusOf("timed_out"));
    await clock.pass(1_000);
    expect(await operations.wait("a", runs.operation_id, waiting)).toMatchObject(statusOf("timed_out"));
    expect(context.signal.reason).toMatchObject({ code: "TIMEOUT" });
  });

  it("as told where its runner does not stop, and its place is free when that has returned", async () => {
    const clock = new HandClock();
    const { operations } = await makeOperations(scratch().open(), clock);
    const { runner, next, begun } = byHand({ running_max: 1 });
    operations.register("box.fill", runner);
    const { operation_id } = await operations.accept("a", { type: "box.fill", timeout_ms: 1_000 });
    const deaf = await next();
    const ended = operations.wait("a", operation_id, { timeout_ms: 60_000 });
    await clock.pass(1_000 + LIMITS.operation_stop_ms);
    expect(await ended).toMatchObject(statusOf("timed_out"));
    await operations.accept("a", { type: "box.fill" });
    expect(begun).toHaveLength(1);
    deaf.succeed();
    await next();
  });

  it("with its tenant, and leaves nothing", async () => {
    const { operations, events, store } = await makeOperations(scratch().open());
    const { runner, next } = byHand({ cancellable: true, running_max: 1 });
    operations.register("box.fill", runner);
    for (const tenant_id of ["a", "a", "b"]) await operations.accept(tenant_id, { type: "box.fill" });
    const { context } = await next();
    await operations.erase("a");
    await events.erase("a");
    expect(context.signal.aborted).toBe(true);
    expect(await store.read("SELECT tenant_id FROM operations")).toEqual([{ tenant_id: "b" }]);
    expect(await store.read("SELECT DISTINCT tenant_id FROM events")).toEqual([{ tenant_id: "b" }]);
    expect((await next()).context.tenant_id).toBe("b");
  });
});

describe("a request that waits for an operation", () => {
  const scratch = scratchStores();
  const signal = new AbortController().signal;
  const finished = ({ result }: { readonly result: unknown }) => ({ done: result });

  it("gets its handle, its result, its failure", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand({ cancellable: true });
    operations.register("box.fill", runner);
    const accept = () => operations.accept("a", { type: "box.fill" });
    const first = await accept();
    const extra = { snapshot_id: "snap_1" };
    const handle = await operations.answer("a", first, { execution: "async", signal, extra, finished });
    expect(handle).toMatchObject({
      status: 202,
      body: {
        success: true,
        operation_id: first.operation_id,
        status_url: `/api/operations/${first.operation_id}`,
        snapshot_id: "snap_1",
      },
    });
    const waits = operations.answer("a", first, { execution: "sync", signal, finished });
    (await next()).succeed({ result: { n: 1 } });
    expect(await waits).toEqual({ done: { n: 1 } });
    const second = await accept();
    const fails = operations.answer("a", second, { execution: "sync", signal, finished });
    const refusal = new AppError("NAME_TAKEN", "taken", { hint: "choose another", details: { received: "x" } });
    (await next()).fail(refusal);
    await expect(fails).rejects.toMatchObject({ code: "NAME_TAKEN", message: "taken", hint: "choose another" });
    const third = await accept();
    const cancelled = operations.answer("a", third, { execution: "sync", signal, finished });
    await next();
    await operations.cancel("a", third.operation_id);
    await expect(cancelled).rejects.toMatchObject({ code: "WRONG_STATE", details: { state: "cancelled" } });
    const fourth = await operations.accept("a", { type: "box.fill", timeout_ms: 1 });
    const late = operations.answer("a", fourth, { execution: "sync", signal, finished });
    await expect(late).rejects.toMatchObject({ code: "TIMEOUT" });
  });

  it("gets its handle where the daemon is about to end, and is not waited for when it has gone", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand();
    operations.register("box.fill", runner);
    const first = await operations.accept("a", { type: "box.fill" });
    const gone = new AbortController();
    const left = operations.answer("a", first, { execution: "sync", signal: gone.signal, finished });
    gone.abort();
    expect(await left).toMatchObject({ status: 202 });
    const waits = operations.answer("a", first, { execution: "sync", signal, finished });
    const { succeed } = await next();
    const drained = operations.drain(10_000);
    expect(await waits).toMatchObject({ status: 202 });
    await expect(operations.accept("a", { type: "box.fill" })).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    succeed();
    await drained;
    expect((await operations.get("a", first.operation_id)).status).toBe("succeeded");
  });
});

describe("operations that have ended", () => {
  const scratch = scratchStores();

  it("are kept for a week", async () => {
    const clock = new HandClock();
    clock.now_ms = 1_795_250_210_000;
    const { operations } = await makeOperations(scratch().open(), clock);
    const { runner, next } = byHand();
    operations.register("box.fill", { ...runner, timeout_ms: LIMITS.operation_timeout_ms_max });
    const first = await operations.accept("a", { type: "box.fill" });
    (await next()).succeed();
    await operations.wait("a", first.operation_id, waiting);
    await clock.pass(LIMITS.operations_kept_seconds * 1000 - 1_000);
    const second = await operations.accept("a", { type: "box.fill" });
    const ids = async () => (await operations.list("a", {}, all)).items.map(({ operation_id }) => operation_id);
    await operations.prune();
    expect(await ids()).toEqual([second.operation_id, first.operation_id]);
    await clock.pass(2_000);
    await operations.prune();
    expect(await ids()).toEqual([second.operation_id]);
  });
});
