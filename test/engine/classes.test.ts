/** Functions of two classes, which differ in image and engine options: the pool above the real engine. */
import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Pool } from "../../pool/index.ts";
import { RUNTIMES, type Runtime } from "../../runtimes/index.ts";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import type { Adopted, Instance } from "../../src/engine/ports.ts";
import { Adoption } from "../../src/functions/adoption.ts";
import { Bindings } from "../../src/functions/calls/bindings.ts";
import type { Call } from "../../src/functions/calls/calling.ts";
import { FunctionLauncher } from "../../src/functions/calls/launch.ts";
import type { Outcome } from "../../src/functions/calls/outcome.ts";
import { InvocationTokens } from "../../src/functions/calls/tokens.ts";
import { Classes } from "../../src/functions/classes.ts";
import { Groups } from "../../src/functions/groups.ts";
import { SAMPLES } from "../../src/functions/samples.ts";
import type { FunctionRecord } from "../../src/functions/schema.ts";
import { groupKey, prepare } from "../../src/functions/target.ts";
import { NO_CODE, NO_SECRETS } from "../functions/no-parts.ts";
import { eventually, leftoversOf } from "../support/daemon.ts";
import { engineConfig, engineOf } from "../support/engine.ts";
import { MadeImages, mountsOf } from "../support/made-images.ts";
import { ownNetworkFlags } from "../support/networks.ts";

const data_dir = realpathSync(mkdtempSync("/var/tmp/hearth-classes-"));
const config = engineConfig(ownNetworkFlags(data_dir));
const engine = engineOf(config);
const images = new MadeImages(`localhost/hearth-test-classes-${process.pid}`);
const log = createLog("error", systemClock);
const SCRATCH_MB = 7;

/** Returns the shell runtime with another image and another size of /tmp. */
function otherRuntime(): Runtime {
  const shell = RUNTIMES.get("shell");
  if (shell === undefined) throw new Error("there is no shell runtime");
  return { ...shell, name: "other", profile: "other", scratch_mb: SCRATCH_MB };
}

interface Parts {
  readonly classes: Classes;
  readonly launcher: FunctionLauncher;
  readonly pool: Pool<Call, Outcome>;
  readonly groups: Groups;
  readonly faults: unknown[];
}

function makeParts(image_id: string): Parts {
  const runtimes = new Map([...RUNTIMES.values(), otherRuntime()].map((runtime) => [runtime.name, runtime]));
  const classes = new Classes({
    runtimes,
    runtimes_directory: join(data_dir, "runtimes"),
    compiled: new Map(),
    imageOf: (profile) => (profile === "other" ? image_id : engine.images.pinned.id),
    images: engine.images,
    clock: systemClock,
    log,
  });
  const tokens = new InvocationTokens(randomIds(), systemClock);
  const bindings = new Bindings({
    instances: engine.instances,
    clock: systemClock,
    secrets: NO_SECRETS,
    code: NO_CODE,
  });
  const parts = { instances: engine.instances, classes, bindings, clock: systemClock, log, tokens };
  const launcher = new FunctionLauncher(parts);
  const faults: unknown[] = [];
  const pool = new Pool<Call, Outcome>({
    settings: {
      instances_max: 20,
      starts_max: 2,
      start_attempts_max: 2,
      instance_prefix: "i",
      default_class: classes.of({ runtime: "shell" }).key,
    },
    clock: systemClock,
    launcher,
    dispatch_running_max: 4,
    onFault: (fault) => faults.push(fault),
  });
  const groups = new Groups({ pool, launcher, bindings, classes, log, queue_max: 10 });
  return { classes, launcher, pool, groups, faults };
}

const state: { parts: Parts | null; image_id: string } = { parts: null, image_id: "" };
const parts = (): Parts => {
  if (state.parts === null) throw new Error("the engine has not booted");
  return state.parts;
};

beforeAll(async () => {
  state.image_id = images.make("other");
  await engine.boot();
  state.parts = makeParts(state.image_id);
});
afterAll(async () => {
  expect(await parts().pool.drain(5_000)).toBe(true);
  expect(parts().faults).toEqual([]);
  await engine.shutdown();
  expect(existsSync(config.run_dir)).toBe(false);
  expect(leftoversOf(config).image_containers).toEqual([]);
  rmSync(data_dir, { recursive: true, force: true });
  images.remove();
});

function functionOf(name: string, runtime: string): FunctionRecord {
  return { ...SAMPLES.active, id: `fn_${name}`, function_id: `fn_${name}`, name, runtime };
}

const LOOK = "cat /version 2>/dev/null || echo standard; df --output=size /tmp | tail -1";

/** Opens the function's group and calls it: what its instance is made of, and how it was served. */
async function call(record: FunctionRecord): Promise<{ image: string; tmp_kb: number; outcome: Outcome }> {
  parts().groups.open({ record, image: null });
  const group = groupKey(record.id, record.version);
  const target = {
    ...prepare(record, null, parts().classes.runtimes),
    function_seq: 1,
    argv: ["sh", "-c", LOOK],
    environment: { PATH: "/usr/bin:/bin" },
  };
  const outcome = await parts().pool.submit(
    group,
    {
      target,
      invocation_id: "inv_1",
      environment: {},
      payload: "",
      timeout_ms: 10_000,
      ends_ms: Number.POSITIVE_INFINITY,
      depth: 0,
      trace: {
        trace_id: "1".repeat(32),
        span_id: "2".repeat(16),
        parent_span_id: null,
        is_sampled: false,
        state: null,
      },
    },
    { deadline_ms: systemClock.monotonicMs() + 30_000 },
  );
  const [image = "", tmp_kb = ""] = outcome.stdout.trim().split("\n");
  return { image, tmp_kb: Number(tmp_kb), outcome };
}

/** Cells that stand ready, by runtime. */
function cells(): Record<string, number> {
  const entries = parts()
    .pool.totals()
    .classes.map(({ class: key, cells: count }) => [key.replace(/-[0-9a-f]{12}$/, ""), count] as const);
  return Object.fromEntries(entries);
}

const bundles = () => readdirSync(`${config.run_dir}/i`);

describe("functions of two classes", () => {
  it("run in instances of their own class, with cells of both", async () => {
    parts().pool.setCells(3);
    await eventually("the cells stand ready", () => cells().shell === 3);
    const first = await call(functionOf("first", "other"));
    expect(first).toMatchObject({ image: "other", tmp_kb: SCRATCH_MB * 1024, outcome: { cold_start: true } });
    await eventually("a cell of its class stands ready", () => cells().other === 1);
    expect(cells()).toEqual({ shell: 2, other: 1 });

    const shell = await call(functionOf("plain", "shell"));
    expect(shell).toMatchObject({
      image: "standard",
      outcome: { cold_start: true, timings: { cell: expect.anything() } },
    });
    expect(shell.tmp_kb).not.toBe(first.tmp_kb);
    const second = await call(functionOf("second", "other"));
    expect(second).toMatchObject({ image: "other", tmp_kb: SCRATCH_MB * 1024 });
    // Served by the cell: nothing was started for it.
    expect(second.outcome.timings).not.toHaveProperty("start");
    expect(await call(functionOf("second", "other"))).toMatchObject({ outcome: { cold_start: false } });
  });

  it("find a working directory in the image of their class", async () => {
    const { classes } = parts();
    const other = classes.of({ runtime: "other" });
    expect(await engine.instances.modeOf(other, "/usr/bin")).toBe(0o40755);
    expect(await engine.instances.modeOf(other, "/missing")).toBe(null);
    const missing = { ...other, image: "0".repeat(64) };
    await expect(engine.instances.modeOf(missing, "/usr")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(engine.instances.start("none", missing)).rejects.toMatchObject({ code: "START_FAILED" });
    expect(bundles()).not.toContain("none");
  });

  it("are adopted into their classes; an instance of another class or image ends", async () => {
    const { classes, groups, launcher, pool } = parts();
    const other = classes.of({ runtime: "other" });
    const adopted = async (id: string, key: string, image = other.image): Promise<Adopted> => {
      const instance: Instance = await engine.instances.start(id, { ...other, key, image });
      return { instance, class: key, image, mark: null, is_furnished: false };
    };
    const found = [await adopted("old-other", other.key), await adopted("old-gone", "gone-1")];
    // An instance that was started while the store had lost the image of the class.
    found.push(await adopted("old-present", other.key, classes.of({ runtime: "shell" }).image));
    const rows = { version: async () => null };
    new Adoption({ pool, launcher, classes, groups, rows, log }, found).finish();
    await eventually("the unknown one is removed", () => !bundles().includes("old-gone"));
    await eventually("the one on another image is removed", () => !bundles().includes("old-present"));
    expect(pool.totals().remove_failed_count).toBe(0);
    // Above the budget, the oldest cell ends first.
    pool.setCells(20);
    await eventually("the cell is kept", () => (cells().other ?? 0) >= 2);
    expect(bundles()).toContain("old-other");
  });

  it("keep the image mounted for as long as instances need it", async () => {
    const { pool } = parts();
    const mounted = () => mountsOf(leftoversOf(config), state.image_id);
    expect(mounted()).toHaveLength(1);
    pool.setCells(0);
    for (const name of ["first", "second"]) {
      await pool.dropGroup(groupKey(`fn_${name}`, functionOf(name, "other").version), "deleted", {
        deadline_ms: 5_000,
      });
    }
    await eventually("the image is unmounted", () => mounted().length === 0);
    expect(await call(functionOf("third", "other"))).toMatchObject({ image: "other" });
    expect(mounted()).toHaveLength(1);
  });
});
