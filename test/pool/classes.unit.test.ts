/** Instances of several classes: which serve a group, how classes share the cells, and what is forgotten. */
import { describe, expect, test } from "vitest";
import { DEMAND_PER_NEED } from "../../pool/policy.ts";
import type { ClassStatus } from "../../pool/protocol.ts";
import { totalsOf } from "../../pool/stats.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { CLASS, deeds, removed, Scene, started } from "./scene.ts";

const F = "fn_a@1";
const G = "fn_b@1";
const H = "fn_c@1";
const NODE = "nodejs-1";
const PYTHON = "python3-1";

/** A node whose cells of the default class stand ready. */
function withCells(target: number, settings = {}): Scene {
  const scene = new Scene(settings);
  startAll(scene, scene.feed({ type: "cells_set", target }));
  return scene;
}

/** Starts what the effects start, and what comes of that. */
function startAll(scene: Scene, effects: ReturnType<Scene["feed"]>): void {
  for (const instance of started(effects)) startAll(scene, scene.started(instance));
  for (const instance of removed(effects)) startAll(scene, scene.removed(instance));
}

/** Lets time pass in which starts and removals take none. */
function pass(scene: Scene, ms: number): void {
  startAll(scene, scene.pass(ms));
}

function classes(scene: Scene): Record<string, ClassStatus> {
  return Object.fromEntries(totalsOf(scene.state).classes.map((status) => [status.class, status]));
}

const cells = (scene: Scene) =>
  Object.fromEntries(Object.entries(classes(scene)).map(([key, status]) => [key, status.cells]));

/** A cold call of a group of its own, which then has its instance for good. */
function cold(scene: Scene, of: string, group: string, owner?: string): void {
  scene.group(group, { class: of, max_instances: 1, ...(owner === undefined ? {} : { owner }) });
  startAll(scene, scene.call(group));
}

/** The classes of an attack: one owner needs one instance of each. */
const SMALL = Array.from({ length: 8 }, (_, i) => `small-${i}`);

/** Lets an owner need an instance of each class, by groups of their own. */
function needEach(scene: Scene, keys: readonly string[], owner: string, version = "1"): void {
  for (const key of keys) cold(scene, key, `fn_${key}@${version}`, owner);
  pass(scene, LIMITS.cell_refill_delay_ms);
}

const none = (keys: readonly string[]) => Object.fromEntries(keys.map((key) => [key, 0]));
const one = (keys: readonly string[]) => Object.fromEntries(keys.map((key) => [key, 1]));

describe("an instance", () => {
  test("serves groups of its own class alone: a call beside a cell of another class starts one", () => {
    const scene = withCells(1);
    scene.group(F, { class: NODE });
    expect(deeds(scene.call(F))).toEqual([{ type: "start", instance: "i2", class: NODE, group: F }]);
    scene.group(G);
    expect(deeds(scene.call(G))[0]).toMatchObject({ type: "assign", instance: "i1", cell_hit: true });
  });

  test("that has started goes to a group of its class that waits, past those of other classes", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.group(F);
    scene.group(G, { class: NODE });
    scene.group(H);
    scene.call(F);
    scene.feed({ type: "call_cancelled", call: 1 });
    scene.call(G);
    scene.call(H);
    expect(deeds(scene.started("i1"))).toMatchObject([
      { type: "assign", instance: "i1", group: H },
      { type: "start", instance: "i2", class: NODE, group: G },
    ]);
  });

  test("of another class than its group is not adopted", () => {
    const scene = new Scene();
    scene.group(F, { class: NODE });
    expect(removed(scene.adopted("old-1", F, CLASS))).toEqual(["old-1"]);
    expect(removed(scene.adopted("old-2", F, NODE))).toEqual([]);
    expect(deeds(scene.call(F))).toMatchObject([{ type: "assign", instance: "old-2", cold: false }]);
  });

  test("is never started for a group that changes its class", () => {
    const scene = new Scene();
    scene.group(F);
    expect(() => scene.group(F, { class: NODE })).toThrow("S5");
  });
});

describe("cells", () => {
  test("are all of the default class while no other one is needed", () => {
    const scene = withCells(4);
    expect(cells(scene)).toEqual({ [CLASS]: 4 });
  });

  test("follow the need: one for each instance that a class needed, in the place of one of the default class", () => {
    const scene = withCells(4);
    cold(scene, NODE, F);
    expect(cells(scene)).toEqual({ [CLASS]: 3, [NODE]: 1 });
    cold(scene, NODE, G);
    pass(scene, LIMITS.cell_refill_delay_ms);
    expect(classes(scene)).toMatchObject({
      [CLASS]: { cells: 2, cells_target: 2 },
      [NODE]: { cells: 2, cells_target: 2, cell_hit_count: 1, cell_miss_count: 1 },
    });
  });

  test("of a class that is not needed any more end within three minutes, and the default class has all again", () => {
    const scene = withCells(4);
    for (let i = 0; i < 3; i++) cold(scene, NODE, `fn_${i}@1`);
    pass(scene, LIMITS.cell_demand_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 2 });
    pass(scene, 2 * LIMITS.cell_demand_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 3, [NODE]: 1 });
    pass(scene, LIMITS.cell_demand_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 4 });
  });

  test("are shared by need where they are fewer than needed, at least one for each class", () => {
    const scene = withCells(4);
    for (let i = 0; i < 9; i++) cold(scene, NODE, `fn_n${i}@1`);
    pass(scene, LIMITS.cell_refill_delay_ms);
    // The default class needed none, and has its floor.
    expect(cells(scene)).toEqual({ [CLASS]: 1, [NODE]: 3 });
    cold(scene, PYTHON, "fn_p@1");
    cold(scene, CLASS, "fn_s@1");
    pass(scene, LIMITS.cell_refill_delay_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 1, [NODE]: 2, [PYTHON]: 1 });
  });

  test("end with their class once no group has it, and its demand with them", () => {
    const scene = withCells(4);
    cold(scene, NODE, F);
    pass(scene, LIMITS.cell_refill_delay_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 3, [NODE]: 1 });
    expect(removed(scene.feed({ type: "class_drop", class: NODE }))).toEqual([]);
    const bound = removed(scene.feed({ type: "group_drop", group: F, reject: "deleted", force: true }));
    for (const instance of bound) scene.feed({ type: "removed", instance });
    const effects = scene.feed({ type: "class_drop", class: NODE });
    expect(removed(effects)).toHaveLength(1);
    startAll(scene, effects);
    expect(cells(scene)).toEqual({ [CLASS]: 4 });
    // The default class keeps its cells.
    expect(removed(scene.feed({ type: "class_drop", class: CLASS }))).toEqual([]);
  });

  test("go to the classes that were needed last where they are fewer than these", () => {
    const scene = withCells(2);
    for (const of of ["a", "b", "c"]) cold(scene, of, `fn_${of}@1`);
    pass(scene, LIMITS.cell_refill_delay_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 1, a: 0, b: 0, c: 1 });
    startAll(scene, scene.feed({ type: "cells_set", target: 1 }));
    expect(cells(scene)).toEqual({ [CLASS]: 0, a: 0, b: 0, c: 1 });
  });

  test("stay with the default class, a quarter of them, whatever one owner needs of other classes", () => {
    const scene = withCells(8);
    needEach(scene, SMALL, "ten_a");
    expect(cells(scene)).toEqual({ [CLASS]: 2, ...none(SMALL.slice(0, 2)), ...one(SMALL.slice(2)) });
    // A new owner finds a cell.
    scene.group(F, { owner: "ten_new" });
    expect(deeds(scene.call(F))[0]).toMatchObject({ type: "assign", cell_hit: true });
  });

  test("of an owner's one class stay beside those of another owner's eight: both have an even part", () => {
    const scene = withCells(8);
    for (let i = 0; i < 4; i++) cold(scene, NODE, `fn_n${i}@1`, "ten_b");
    needEach(scene, SMALL, "ten_a");
    const taken = { ...none(SMALL.slice(0, 5)), ...one(SMALL.slice(5)) };
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 3, ...taken });
    // However often it needs them.
    needEach(scene, SMALL, "ten_a", "again");
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 3, ...taken });
  });

  test("that one owner does not ask for go to those of another", () => {
    const scene = withCells(8);
    cold(scene, NODE, F, "ten_b");
    needEach(scene, SMALL, "ten_a");
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 1, ...none(SMALL.slice(0, 3)), ...one(SMALL.slice(3)) });
  });

  test("are kept for a bounded number of claims: who has most loses the oldest, nobody else", () => {
    const scene = withCells(8, { instances_max: 1_000 });
    cold(scene, NODE, F, "ten_b");
    const many = Array.from({ length: LIMITS.cell_claims_max + 5 }, (_, i) => `c${i}`);
    needEach(scene, many, "ten_a");
    const kept = Object.keys(cells(scene));
    // The default class is there without a claim.
    expect(kept).toHaveLength(LIMITS.cell_claims_max + 1);
    expect(kept).toContain(NODE);
    expect(kept).not.toContain("c5");
    expect(kept).toContain("c6");
    expect(cells(scene)).toMatchObject({ [CLASS]: 2, [NODE]: 1 });
  });

  test("of one class whose starts fail leave those of another alone", () => {
    const scene = withCells(3);
    cold(scene, NODE, F);
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 1 });
    scene.group(G, { class: NODE });
    for (const instance of started(scene.call(G))) {
      scene.failed(instance);
      scene.removed(instance);
    }
    for (const group of [F, G]) scene.feed({ type: "group_drop", group, reject: "paused" });
    scene.group(H);
    for (let i = 0; i < 2; i++) startAll(scene, scene.call(H));
    pass(scene, LIMITS.cell_refill_delay_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 0 });
    pass(scene, LIMITS.start_backoff_ms_min);
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 1 });
  });

  test("of another class give their room to a call, those of the class needed longest ago first, before any idle instance", () => {
    const scene = withCells(2, { instances_max: 4 });
    scene.group(F);
    startAll(scene, scene.adopted("idle", F));
    cold(scene, NODE, G);
    // One cell of each class, an idle instance and a busy one.
    expect(cells(scene)).toEqual({ [CLASS]: 1, [NODE]: 1 });
    scene.group(H, { class: PYTHON });
    expect(deeds(scene.call(H))).toMatchObject([{ type: "remove", instance: "i2", reason: "evicted" }]);
    expect(deeds(scene.removed("i2"))).toMatchObject([{ type: "start", class: PYTHON, group: H }]);
  });

  test("of an earlier process keep their class, and decay as others do", () => {
    const scene = new Scene();
    for (const name of ["old-1", "old-2"]) scene.adopted(name, null, NODE);
    for (const name of ["old-3", "old-4"]) scene.adopted(name, null);
    startAll(scene, scene.feed({ type: "cells_set", target: 3 }));
    expect(cells(scene)).toEqual({ [CLASS]: 2, [NODE]: 1 });
    scene.group(F, { class: NODE });
    const effects = scene.call(F);
    expect(deeds(effects)[0]).toMatchObject({ type: "assign", instance: "old-2", cell_hit: true });
    startAll(scene, effects);
    pass(scene, Math.ceil(1 + Math.log2(DEMAND_PER_NEED * 3)) * LIMITS.cell_demand_ms);
    expect(cells(scene)).toEqual({ [CLASS]: 3 });
  });

  test("are not counted on by an owner whose group is of another class", () => {
    const scene = withCells(2, { instances_max: 5, starts_max: 1 });
    scene.owner("ten", { instances_max: 2 });
    scene.ready(F, 2, { owner: "ten", class: NODE });
    scene.group(H, { class: PYTHON });
    scene.group(G, { owner: "ten", class: NODE });
    // The one start is taken: an idle instance would end for nothing.
    const effects = scene.call(H);
    expect(removed(effects).every((instance) => !["i3", "i4"].includes(instance))).toBe(true);
    expect(removed(scene.call(G)).filter((instance) => ["i3", "i4"].includes(instance))).toEqual([]);
  });
});

describe("a class", () => {
  test("is forgotten with its last group, instance and need", () => {
    const scene = withCells(1);
    scene.group(F, { class: NODE });
    expect([...scene.state.classes.keys()]).toEqual([CLASS, NODE]);
    scene.feed({ type: "group_drop", group: F, reject: "deleted" });
    expect([...scene.state.classes.keys()]).toEqual([CLASS]);
    cold(scene, NODE, F);
    startAll(scene, scene.feed({ type: "group_drop", group: F, reject: "deleted", force: true }));
    expect([...scene.state.classes.keys()]).toEqual([CLASS, NODE]);
    pass(scene, 3 * LIMITS.cell_demand_ms);
    expect([...scene.state.classes.keys()]).toEqual([CLASS]);
  });
});
