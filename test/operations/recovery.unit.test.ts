/** Operations whose process was killed in the middle, or has ended in order: none of them hangs. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { firstPage } from "../../src/base/paging.ts";
import { NODE_PATH } from "../../src/installation/paths.js";
import { scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";
import { byHand, eventsOf, makeOperations } from "./made.ts";

const waiting = { timeout_ms: 10_000 };
const all = firstPage(100);

/** Runs until it has said all of `words`, and is then killed. Returns what it said. */
async function killedAt(path: string, step: string, words: readonly RegExp[]): Promise<string> {
  const child = spawn(NODE_PATH, [join(import.meta.dirname, "crash-runner.ts"), path, step]);
  let said = "";
  child.stdout.on("data", (chunk) => {
    said += chunk;
  });
  let complaint = "";
  child.stderr.on("data", (chunk) => {
    complaint += chunk;
  });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  try {
    await eventually("it is where it is to be killed", () => {
      if (child.exitCode !== null) throw new Error(complaint);
      return words.every((word) => word.test(said));
    });
  } finally {
    child.kill("SIGKILL");
    await exited;
  }
  return said;
}

describe("after a kill", () => {
  const scratch = scratchStores();

  it.each(["one", "two"])("what had finished step %s goes on behind it", async (step) => {
    const { path, open } = scratch();
    const ids = await killedAt(path, step, [new RegExp(`(${step}[\\s\\S]*){2}`), /accepted/]);
    const { operations, store } = await makeOperations(open());
    const seen: string[] = [];
    const steps = ["one", "two", "three"];
    operations.register("wall.build", {
      ...byHand().runner,
      resumable: true,
      run: async (context) => {
        seen.push(`${JSON.stringify(context.input)} ${steps.map((name) => JSON.stringify(context.done(name)))}`);
        for (const name of steps) if (context.done(name) === undefined) await context.finish(name);
        return { result: { resumed: true } };
      },
    });
    const painted = byHand();
    const looked = byHand();
    operations.register("wall.paint", painted.runner);
    operations.register("wall.look", looked.runner);
    await operations.boot();
    const [, looks = "", waits = "", attached = ""] = /accepted (\S+) (\S+) (\S+)/.exec(ids) ?? [];
    const [build] = (await operations.list("a", { operation_type: "wall.build" }, all)).items;
    const [paint] = (await operations.list("a", { operation_type: "wall.paint" }, all)).items;
    expect(await operations.wait("a", build?.operation_id ?? "", waiting)).toMatchObject({ status: "succeeded" });
    const left = steps.map((name) => (steps.indexOf(name) <= steps.indexOf(step) ? `{"step":"${name}"}` : "undefined"));
    expect(seen).toEqual([`{"type":"wall.build"} ${left.map((text) => (text === "undefined" ? "" : text))}`]);
    // What cannot be taken up says so, and is not run twice.
    const interrupted = { status: "failed", reason_code: "INTERRUPTED", error: expect.any(String) };
    expect(paint).toMatchObject(interrupted);
    expect(await operations.get("a", looks)).toMatchObject(interrupted);
    expect(await operations.get("a", attached)).toMatchObject(interrupted);
    expect(painted.begun).toEqual([]);
    // What had not begun does.
    expect((await looked.next()).context.operation_id).toBe(waits);
    expect(await eventsOf(store, build?.operation_id)).toEqual(["accepted", "started", "started", "succeeded"]);
  });

  it("an operation of a type that there is no more fails, and so does nothing twice", async () => {
    const { path, open } = scratch();
    await killedAt(path, "one", [/(one[\s\S]*){2}/, /accepted/]);
    const { operations } = await makeOperations(open());
    await operations.boot();
    const found = (await operations.list("a", {}, all)).items;
    expect(found.map(({ status, reason_code }) => [status, reason_code])).toEqual(
      Array(5).fill(["failed", "INTERRUPTED"]),
    );
    await operations.boot();
    expect((await operations.list("a", {}, all)).items).toEqual(found);
  });

  it("one that was asked to stop is told so when it is taken up", async () => {
    const { open } = scratch();
    const first = await makeOperations(open());
    const deaf = byHand({ resumable: true });
    first.operations.register("wall.build", { ...deaf.runner, cancellable: true });
    const { operation_id } = await first.operations.accept("a", { type: "wall.build" });
    await deaf.next();
    void first.operations.cancel("a", operation_id).catch(() => {});
    await eventually(
      "it is asked",
      async () => (await first.store.readOne("SELECT is_cancel_asked AS flag FROM operations"))?.flag === 1,
    );
    // As if the process had ended here.
    const second = await makeOperations(open());
    const told: unknown[] = [];
    second.operations.register("wall.build", {
      ...byHand().runner,
      resumable: true,
      cancellable: true,
      run: async ({ signal }) => {
        told.push(signal.aborted);
        throw signal.reason;
      },
    });
    await second.operations.boot();
    expect(await second.operations.wait("a", operation_id, waiting)).toMatchObject({ status: "cancelled" });
    expect(told).toEqual([true]);
  });
});

describe("at the end of a daemon", () => {
  const scratch = scratchStores();

  it("what can be taken up is stopped and stays, what cannot is finished, what waits stays", async () => {
    const { open } = scratch();
    const first = await makeOperations(open());
    const [builds, paints] = [byHand({ resumable: true, cancellable: true }), byHand({ running_max: 1 })];
    first.operations.register("wall.build", builds.runner);
    first.operations.register("wall.paint", paints.runner);
    const accept = async (type: string) => (await first.operations.accept("a", { type })).operation_id;
    const [build, paint, waits] = [await accept("wall.build"), await accept("wall.paint"), await accept("wall.paint")];
    const [built, painted] = [await builds.next(), await paints.next()];
    const drained = first.operations.drain(10_000);
    await eventually("it hears of the end", () => built.context.signal.aborted);
    expect(built.context.signal.reason).toMatchObject({ code: "SHUTTING_DOWN" });
    expect(painted.context.signal.aborted).toBe(false);
    painted.succeed();
    await drained;
    const statuses = await Promise.all(
      [build, paint, waits].map(async (id) => (await first.operations.get("a", id)).status),
    );
    expect(statuses).toEqual(["running", "succeeded", "queued"]);
    const second = await makeOperations(open());
    const [again, later] = [byHand({ resumable: true }), byHand()];
    second.operations.register("wall.build", again.runner);
    second.operations.register("wall.paint", later.runner);
    await second.operations.boot();
    expect((await again.next()).context.operation_id).toBe(build);
    expect((await later.next()).context.operation_id).toBe(waits);
  });
});
