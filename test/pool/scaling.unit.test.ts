import { describe, expect, test } from "vitest";
import { statusOf, totalsOf } from "../../pool/stats.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { CLASS, deeds, removed, Scene, started } from "./scene.ts";

const F = "fn_a@1";
const G = "fn_b@1";

describe("scaling", () => {
  test("follows the queue at once, up to the group's maximum and the concurrent starts", () => {
    const scene = new Scene({ starts_max: 4 });
    scene.group(F, { max_instances: 6 });
    for (let i = 0; i < 20; i++) scene.call(F);
    expect(scene.state.starting_count).toBe(4);
    expect(deeds(scene.started("i1"))).toMatchObject([{ type: "assign" }, { type: "start", instance: "i5" }]);
    expect(started(scene.started("i2"))).toEqual(["i6"]);
    expect(started(scene.started("i3"))).toEqual([]);
  });

  test("starts none for a call that an instance in cleanup serves soon", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    for (const instance of started(scene.feed({ type: "cells_set", target: 1 }))) scene.started(instance);
    for (let i = 0; i < 300; i++) {
      expect(deeds(scene.call(F))).toMatchObject(i === 0 ? [{ type: "assign" }] : []);
      if (i > 0) expect(deeds(scene.idle("i1"))).toMatchObject([{ type: "assign", instance: "i1", cold: false }]);
      scene.pass(2);
      expect(deeds(scene.finished("i1"))).toEqual([]);
      scene.pass(1);
    }
  });

  test("starts one per call that no instance in cleanup is left for", () => {
    const scene = new Scene();
    const [first = "", second = ""] = scene.ready(F, 2);
    scene.call(F);
    scene.call(F);
    scene.finished(first);
    scene.finished(second);
    expect(started(scene.call(F))).toEqual([]);
    expect(started(scene.call(F))).toEqual([]);
    expect(started(scene.call(F))).toEqual(["i3"]);
    // The cleanups serve the first two calls: neither counts for a later one.
    expect(deeds(scene.idle(first))).toMatchObject([{ type: "assign", instance: first }]);
    expect(started(scene.call(F))).toEqual(["i4"]);
  });

  test("starts one at once when the instance in cleanup is lost", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    scene.call(F);
    scene.finished("i1");
    expect(deeds(scene.call(F))).toEqual([]);
    const effects = scene.feed({ type: "crashed", instance: "i1", reason: "lost" });
    expect(started(effects)).toEqual(["i2"]);
  });

  test("starts one when a cleanup takes longer than a start from a cell", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    scene.call(F);
    scene.finished("i1");
    scene.call(F);
    expect(started(scene.pass(LIMITS.recycling_patience_ms - 1))).toEqual([]);
    expect(started(scene.pass(1))).toEqual(["i2"]);
  });

  test("takes turns between the groups that wait", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.group(F);
    scene.group(G);
    const order: (string | null)[] = [];
    const note = (effects: ReturnType<Scene["call"]>): void => {
      for (const effect of effects) if (effect.type === "start") order.push(effect.group);
    };
    for (let i = 0; i < 3; i++) note(scene.call(F));
    for (let i = 0; i < 3; i++) note(scene.call(G));
    for (let i = 1; i <= 5; i++) note(scene.started(`i${i}`));
    expect(order).toEqual([F, F, G, F, G, G]);
  });

  test("takes turns between owners, however many groups each has", () => {
    const scene = new Scene({ starts_max: 1 });
    const wanting = (owner: string, count: number) => {
      const keys = Array.from({ length: count }, (_, i) => `fn_${owner}${i}@1`);
      for (const key of keys) {
        scene.group(key, { owner });
        scene.call(key);
        scene.call(key);
      }
      return keys;
    };
    const many = wanting("many", 20);
    const [few] = wanting("few", 1);
    const served: string[] = [];
    // Each start that ends makes room for the next.
    for (let instance = "i1"; served.length < 6; ) {
      const effects = scene.started(instance);
      served.push(
        ...effects.filter(({ type }) => type === "assign").map((effect) => (effect as { group: string }).group),
      );
      instance = started(effects)[0] ?? "";
    }
    expect(served).toEqual([many[0], many[1], few, many[2], few, many[3]]);
  });

  test("takes turns between owners with the cells of a class, too", () => {
    const scene = new Scene({ instances_max: 10, starts_max: 1 });
    scene.feed({ type: "cells_set", target: 1 });
    for (const [key, owner] of [
      ["fn_a@1", "many"],
      ["fn_b@1", "many"],
      ["fn_c@1", "many"],
      ["fn_d@1", "few"],
    ] as const) {
      scene.group(key, { owner });
      scene.call(key);
    }
    const taker = (instance: string) => deeds(scene.started(instance)).find(({ type }) => type === "assign");
    expect(taker("i1")).toMatchObject({ group: "fn_a@1" });
    expect(taker("i2")).toMatchObject({ group: "fn_b@1" });
    expect(taker("i3")).toMatchObject({ group: "fn_d@1" });
    expect(taker("i4")).toMatchObject({ group: "fn_c@1" });
  });

  test("gives a started instance that its own group no longer needs to a group that waits", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.ready(F, 1);
    scene.group(G);
    scene.call(F);
    scene.call(F);
    scene.freed("i1");
    expect(deeds(scene.call(G))).toEqual([]);
    expect(deeds(scene.started("i2"))).toEqual([
      expect.objectContaining({ type: "assign", instance: "i2", group: G, specialise: true, cold: true }),
    ]);
  });

  test("evicts the least recently used idle instance when the node is full, and no more than needed", () => {
    const scene = new Scene({ instances_max: 4 });
    const [oldest] = scene.ready(F, 4).toReversed();
    scene.group(G);
    expect(deeds(scene.call(G))).toEqual([{ type: "remove", instance: oldest, reason: "evicted" }]);
    expect(deeds(scene.feed({ type: "woken" }))).toEqual([]);
    expect(deeds(scene.removed("i4"))).toEqual([{ type: "start", instance: "i5", class: CLASS, group: G }]);
  });

  test("never evicts what a minimum needs", () => {
    const scene = new Scene({ instances_max: 2 });
    scene.ready(F, 2, { min_instances: 2 });
    scene.group(G);
    expect(deeds(scene.call(G))).toEqual([]);
    expect(deeds(scene.group(F, { min_instances: 1 }))).toEqual([
      { type: "remove", instance: "i2", reason: "evicted" },
    ]);
  });
});

describe("cells", () => {
  function withCells(target: number, settings = {}): Scene {
    const scene = new Scene(settings);
    for (const instance of started(scene.feed({ type: "cells_set", target }))) scene.started(instance);
    return scene;
  }

  test("serve a waiting call at once, cold and specialised, before anything is started", () => {
    const scene = withCells(2);
    scene.group(F);
    expect(deeds(scene.call(F))).toEqual([
      expect.objectContaining({ type: "assign", instance: "i2", specialise: true, cold: true, cell_hit: true }),
    ]);
    expect(totalsOf(scene.state)).toMatchObject({ cells: 1, cell_hit_count: 1, cell_miss_count: 0, busy_count: 1 });
  });

  test("are refilled a little after the last one was taken", () => {
    const scene = withCells(3);
    scene.group(F);
    scene.call(F);
    scene.pass(15);
    scene.call(F);
    expect(deeds(scene.pass(19))).toEqual([]);
    expect(started(scene.pass(1))).toEqual(["i4", "i5"]);
  });

  test("are refilled at once when none is left", () => {
    const scene = withCells(1);
    scene.group(F);
    expect(started(scene.call(F))).toEqual(["i2"]);
  });

  test("on their way are earmarked for a group that waits, instead of starting another", () => {
    const scene = new Scene();
    scene.feed({ type: "cells_set", target: 1 });
    scene.group(F);
    // The refill then makes up for the start that was given away.
    expect(deeds(scene.call(F))).toEqual([{ type: "start", instance: "i2", class: CLASS, group: null }]);
    expect(statusOf(scene.state.groups.get(F) ?? null)).toMatchObject({ warming_count: 1, total_count: 1 });
    // Whichever comes first serves the call, the other one becomes the cell.
    expect(deeds(scene.started("i2"))).toEqual([expect.objectContaining({ type: "assign", instance: "i2" })]);
    expect(deeds(scene.started("i1"))).toEqual([]);
    expect(totalsOf(scene.state)).toMatchObject({ cells: 1, warming_count: 0, busy_count: 1 });
  });

  test("whose starts fail pause for 1, 2, 4 and at most 60 seconds", () => {
    const scene = new Scene();
    let [instance = ""] = started(scene.feed({ type: "cells_set", target: 1 }));
    const pauses: number[] = [];
    for (let i = 0; i < 9; i++) {
      const failed_ms = scene.now_ms;
      scene.failed(instance);
      scene.removed(instance);
      for (instance = ""; instance === ""; ) [instance = ""] = started(scene.pass(1_000));
      pauses.push((scene.now_ms - failed_ms) / 1_000);
    }
    expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60]);
  });

  test("that die are replaced after a second", () => {
    const scene = withCells(1);
    expect(deeds(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual([
      { type: "remove", instance: "i1", reason: "crashed" },
    ]);
    expect(deeds(scene.pass(999))).toEqual([]);
    expect(started(scene.pass(1))).toEqual(["i2"]);
  });

  test("that die young together count as one failure, and those whose starts fail together too", () => {
    const scene = withCells(8);
    for (let i = 1; i <= 8; i++) scene.feed({ type: "crashed", instance: `i${i}`, reason: "lost" });
    expect(deeds(scene.pass(999))).toEqual([]);
    const again = started(scene.pass(1));
    expect(again).toHaveLength(8);
    for (const instance of again) scene.failed(instance);
    expect(deeds(scene.pass(999))).toEqual([]);
    expect(started(scene.pass(1_001))).toHaveLength(8);
  });

  test("that die after they stood for a while are replaced at once", () => {
    const scene = withCells(8);
    scene.pass(LIMITS.settled_ms);
    for (let i = 1; i <= 8; i++) {
      expect(started(scene.feed({ type: "crashed", instance: `i${i}`, reason: "lost" }))).toEqual([`i${8 + i}`]);
    }
  });

  test("above a lowered target end", () => {
    const scene = withCells(3);
    expect(removed(scene.feed({ type: "cells_set", target: 1 }))).toEqual(["i1", "i2"]);
  });

  test("are not refilled when the node is full", () => {
    const scene = withCells(2, { instances_max: 2 });
    scene.group(F);
    scene.call(F);
    expect(deeds(scene.pass(1_000))).toEqual([]);
    expect(scene.state.instances.size).toBe(2);
  });
});

describe("failing starts", () => {
  test("are retried at once while a call waits, until the attempts are used up", () => {
    const scene = new Scene();
    scene.group(F);
    scene.call(F);
    expect(started(scene.failed("i1", "first"))).toEqual(["i2"]);
    expect(started(scene.failed("i2", "second"))).toEqual(["i3"]);
    expect(deeds(scene.failed("i3", "disk full"))).toEqual([
      { type: "remove", instance: "i3", reason: "start_failed" },
      expect.objectContaining({ type: "refuse", call: 1, code: "START_FAILED" }),
      { type: "gave_up", group: F, reason: "disk full" },
    ]);
    expect(statusOf(scene.state.groups.get(F) ?? null).last_error).toBe("disk full");
    // The count begins anew: the next call has all its attempts.
    expect(started(scene.call(F))).toEqual(["i4"]);
    expect(started(scene.failed("i4"))).toEqual(["i5"]);
  });

  test("are counted in a row: a success in between begins the count anew", () => {
    const scene = new Scene();
    scene.group(F, { max_instances: 3 });
    for (let i = 0; i < 3; i++) scene.call(F);
    scene.failed("i1");
    scene.failed("i2");
    scene.started("i3");
    expect(deeds(scene.failed("i4")).filter((effect) => effect.type === "refuse")).toEqual([]);
  });

  test("pause the warming to a minimum, but not for a call", () => {
    const scene = new Scene();
    scene.group(F, { min_instances: 1 });
    expect(started(scene.failed("i1"))).toEqual([]);
    expect(started(scene.pass(999))).toEqual([]);
    expect(started(scene.pass(1))).toEqual(["i2"]);
    expect(started(scene.failed("i2"))).toEqual([]);
    expect(started(scene.pass(1_999))).toEqual([]);
    expect(started(scene.call(F))).toEqual(["i3"]);
  });

  test("of one moment pause the warming once", () => {
    const scene = new Scene({ start_attempts_max: 10 });
    scene.group(F, { min_instances: 4 });
    for (let i = 1; i <= 4; i++) scene.failed(`i${i}`);
    expect(deeds(scene.pass(999))).toEqual([]);
    expect(started(scene.pass(1))).toHaveLength(4);
  });

  test("are not what it means that ready instances are lost after a while", () => {
    const scene = new Scene();
    scene.ready(F, 4, { min_instances: 4 });
    scene.pass(LIMITS.settled_ms);
    for (let i = 1; i <= 4; i++) {
      expect(started(scene.feed({ type: "crashed", instance: `i${i}`, reason: "lost" }))).toEqual([`i${4 + i}`]);
    }
  });

  test("count when a started instance cannot be specialised, too", () => {
    const scene = new Scene();
    scene.group(F, { min_instances: 1 });
    const reasons: string[] = [];
    for (let i = 1; i <= 3; i++) {
      scene.started(`i${i}`);
      for (const effect of scene.failed(`i${i}`, `bad ${i}`))
        if (effect.type === "gave_up") reasons.push(effect.reason);
      scene.pass(10_000);
    }
    expect(reasons).toEqual(["bad 3"]);
  });
});

describe("the memory budget", () => {
  const read = (scene: Scene, used_mb: number) => scene.feed({ type: "memory_read", used_mb, budget_mb: 100 });

  test("when used up costs the least recently used idle instances, and then nothing is started", () => {
    const scene = new Scene();
    const [first, second] = scene.ready(F, 4).toReversed();
    scene.group(G);
    // 20 MB above nine tenths of the budget, a quarter of 110 MB each.
    expect(removed(read(scene, 110))).toEqual([first]);
    expect(deeds(scene.call(G))).toEqual([]);
    expect(removed(read(scene, 180))).toEqual([second]);
    scene.removed(first ?? "");
    scene.removed(second ?? "");
    expect(started(read(scene, 91))).toEqual([]);
    expect(started(read(scene, 60))).toEqual(["i5"]);
  });

  test("never costs what a minimum needs, nor a running call", () => {
    const scene = new Scene();
    scene.ready(F, 2, { min_instances: 1 });
    scene.call(F);
    expect(removed(read(scene, 500))).toEqual(["i2"]);
    expect(removed(read(scene, 500))).toEqual([]);
  });

  test("holds back the reserve of cells", () => {
    const scene = new Scene();
    scene.ready(F, 1, { min_instances: 1 });
    read(scene, 200);
    expect(started(scene.feed({ type: "cells_set", target: 2 }))).toEqual([]);
    expect(started(read(scene, 10))).toEqual(["i2", "i3"]);
  });

  test("that is used up without any instance holds back nothing", () => {
    const scene = new Scene();
    read(scene, 200);
    scene.group(F);
    expect(started(scene.call(F))).toEqual(["i1"]);
  });
});

describe("an instance of an earlier process", () => {
  test("is ready for its group: the next call is warm", () => {
    const scene = new Scene();
    scene.group(F);
    expect(deeds(scene.adopted("old-1", F))).toEqual([]);
    expect(deeds(scene.call(F))).toEqual([
      expect.objectContaining({ type: "assign", instance: "old-1", cold: false, specialise: false }),
    ]);
    expect(statusOf(scene.state.groups.get(F) ?? null)).toMatchObject({ busy_count: 1, total_count: 1 });
  });

  test("without a group is a cell, above the target until that is set", () => {
    const scene = new Scene();
    for (const name of ["old-1", "old-2"]) expect(deeds(scene.adopted(name, null))).toEqual([]);
    expect(totalsOf(scene.state).cells).toBe(2);
    expect(removed(scene.feed({ type: "cells_set", target: 1 }))).toEqual(["old-1"]);
  });

  test("goes where its group is not open, or has its maximum", () => {
    const scene = new Scene();
    expect(removed(scene.adopted("old-1", F))).toEqual(["old-1"]);
    scene.ready(F, 1, { max_instances: 1 });
    expect(removed(scene.adopted("old-2", F))).toEqual(["old-2"]);
  });
});

describe("a superseded version", () => {
  test("is forgotten with its last instance", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    expect(deeds(scene.feed({ type: "group_retire", group: F }))).toEqual([]);
    expect(removed(scene.pass(LIMITS.retired_keep_alive_ms))).toEqual(["i1"]);
    expect(deeds(scene.removed("i1"))).toEqual([{ type: "group_gone", group: F }]);
    expect(deeds(scene.call(F))).toEqual([expect.objectContaining({ code: "NOT_FOUND" })]);
  });

  test("without instances is forgotten at once, with a waiting call only after that", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.group(F);
    expect(deeds(scene.feed({ type: "group_retire", group: F }))).toEqual([{ type: "group_gone", group: F }]);
    scene.group(G, { max_instances: 1 });
    scene.call(G, 1_000);
    scene.failed("i1");
    scene.removed("i1");
    expect(deeds(scene.feed({ type: "group_retire", group: G }))).toEqual([]);
    scene.failed("i2");
    scene.removed("i2");
    scene.failed("i3");
    expect(deeds(scene.removed("i3"))).toEqual([{ type: "group_gone", group: G }]);
  });

  test("is forgotten when the last start that was meant for it goes to another", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.group(F);
    scene.group(G);
    scene.call(F);
    scene.feed({ type: "call_cancelled", call: 1 });
    scene.feed({ type: "group_retire", group: F });
    scene.call(G);
    expect(deeds(scene.started("i1"))).toEqual([
      expect.objectContaining({ type: "assign", group: G }),
      { type: "group_gone", group: F },
    ]);
  });

  test("that was dropped stays dropped", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    scene.feed({ type: "group_drop", group: F, reject: "paused" });
    scene.feed({ type: "group_retire", group: F });
    expect(deeds(scene.call(F))).toEqual([expect.objectContaining({ code: "WRONG_STATE" })]);
  });
});

describe("a call that cannot be served in time", () => {
  test("is refused at once, with the time to wait, and only where the group cannot grow", () => {
    const scene = new Scene();
    scene.ready(F, 1, { max_instances: 1 });
    // Calls of ten seconds give the pace.
    for (let i = 0; i < 20; i++) {
      scene.call(F);
      scene.pass(10_000);
      scene.freed("i1");
    }

    scene.call(F);
    scene.call(F, 60_000);
    expect(deeds(scene.call(F, 5_000))).toEqual([
      expect.objectContaining({ type: "refuse", code: "QUEUE_TIMEOUT", retry_after: 10 }),
    ]);
    expect(deeds(scene.call(F, 60_000))).toEqual([]);
    scene.group(F, { max_instances: 5 });
    expect(started(scene.call(F, 5_000))).toHaveLength(1);
  });

  test("is not seen in one slow call, be it the first or one among quick ones", () => {
    const scene = new Scene();
    scene.ready(F, 1, { max_instances: 1 });
    for (const ms of [9_000, 10, 10, 9_000, 10]) {
      scene.call(F);
      for (let i = 0; i < 3; i++) expect(deeds(scene.call(F, 5_000))).toEqual([]);
      scene.pass(ms);
      while (scene.state.counts.busy > 0) {
        scene.freed("i1");
        scene.pass(10);
      }
    }
  });
});
