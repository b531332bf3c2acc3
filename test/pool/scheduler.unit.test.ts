import { describe, expect, test } from "vitest";
import { statusOf, totalsOf } from "../../pool/stats.ts";
import { CLASS, deeds, removed, Scene, started } from "./scene.ts";

const F = "fn_a@1";
const G = "fn_b@1";

describe("a call", () => {
  test("takes the most recently used ready instance of its group, warm", () => {
    const scene = new Scene();
    scene.ready(F, 3);
    expect(deeds(scene.call(F))).toEqual([
      expect.objectContaining({ type: "assign", instance: "i1", cold: false, specialise: false, waited_ms: 0 }),
    ]);
    expect(deeds(scene.call(F))).toEqual([expect.objectContaining({ type: "assign", instance: "i2" })]);
  });

  test("waits for a start of its own when nothing is there, and is served cold", () => {
    const scene = new Scene();
    scene.group(F);
    expect(deeds(scene.call(F))).toEqual([{ type: "start", instance: "i1", class: CLASS, group: F }]);
    scene.now_ms += 8;
    expect(deeds(scene.started("i1"))).toEqual([
      {
        type: "assign",
        instance: "i1",
        call: 1,
        group: F,
        specialise: true,
        cold: true,
        cell_hit: false,
        waited_ms: 8,
      },
    ]);
  });

  test("that is queued takes the freed instance when it comes before the new one", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    scene.call(F);
    expect(started(scene.call(F))).toEqual(["i2"]);
    scene.finished("i1");
    expect(deeds(scene.idle("i1"))).toEqual([
      expect.objectContaining({ type: "assign", instance: "i1", cold: false, specialise: false }),
    ]);
    // Nobody waits for the new one any more: it is bound and rests.
    expect(deeds(scene.started("i2"))).toEqual([{ type: "specialise", instance: "i2", group: F }]);
    expect(statusOf(scene.state.groups.get(F) ?? null)).toMatchObject({ warming_count: 1, ready_count: 0 });
    scene.specialised("i2");
    expect(deeds(scene.call(F))).toEqual([
      expect.objectContaining({ type: "assign", instance: "i2", cold: false, specialise: false }),
    ]);
  });

  test("that waits while an instance is specialised takes it cold, without specialising it again", () => {
    const scene = new Scene();
    scene.group(F, { min_instances: 1, max_instances: 1 });
    scene.started("i1");
    expect(deeds(scene.call(F))).toEqual([]);
    expect(deeds(scene.specialised("i1"))).toEqual([
      expect.objectContaining({ type: "assign", instance: "i1", cold: true, specialise: false }),
    ]);
  });

  test("is refused at once when its deadline has passed", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    expect(deeds(scene.call(F, 0))).toEqual([
      expect.objectContaining({ type: "refuse", code: "QUEUE_TIMEOUT", retry_after: 1 }),
    ]);
  });

  test("is refused with QUEUE_FULL and whole seconds when the queue is full", () => {
    const scene = new Scene();
    scene.group(F, { max_instances: 1, queue_max: 3 });
    scene.call(F);
    scene.started("i1");
    scene.now_ms += 2_500;
    scene.freed("i1");
    for (let i = 0; i < 4; i++) scene.call(F);
    expect(deeds(scene.call(F))).toEqual([
      expect.objectContaining({ type: "refuse", call: 6, code: "QUEUE_FULL", retry_after: 8 }),
    ]);
  });

  test("is refused with QUEUE_TIMEOUT at its deadline when its group may not grow", () => {
    const scene = new Scene();
    scene.group(F, { max_instances: 1 });
    scene.call(F);
    scene.started("i1");
    scene.call(F, 500);
    expect(deeds(scene.pass(499))).toEqual([]);
    expect(deeds(scene.pass(1))).toEqual([
      expect.objectContaining({ type: "refuse", call: 2, code: "QUEUE_TIMEOUT", retry_after: 1 }),
    ]);
  });

  test("is refused with CAPACITY_FULL at its deadline when the node has no room", () => {
    const scene = new Scene({ instances_max: 1 });
    scene.group(F);
    scene.call(F);
    scene.started("i1");
    expect(deeds(scene.call(F, 500))).toEqual([]);
    expect(deeds(scene.pass(500))).toEqual([expect.objectContaining({ call: 2, code: "CAPACITY_FULL" })]);
  });

  test("that is cancelled leaves the queue and is not answered", () => {
    const scene = new Scene();
    scene.group(F, { max_instances: 1 });
    for (let i = 0; i < 3; i++) scene.call(F);
    expect(deeds(scene.feed({ type: "call_cancelled", call: 2 }))).toEqual([]);
    expect(deeds(scene.started("i1"))).toEqual([expect.objectContaining({ type: "assign", call: 1 })]);
    expect(deeds(scene.freed("i1"))).toEqual([expect.objectContaining({ type: "assign", call: 3 })]);
  });

  test("to an unknown group is refused with NOT_FOUND", () => {
    expect(deeds(new Scene().call(F))).toEqual([expect.objectContaining({ type: "refuse", code: "NOT_FOUND" })]);
  });
});

describe("an instance", () => {
  test("is removed after its call when it may not be used again", () => {
    const scene = new Scene();
    scene.group(F, { max_instances: 1 });
    scene.call(F);
    scene.call(F);
    scene.started("i1");
    expect(deeds(scene.finished("i1", false))).toEqual([
      { type: "remove", instance: "i1", reason: "used_up" },
      { type: "start", instance: "i2", class: CLASS, group: F },
    ]);
    expect(statusOf(scene.state.groups.get(F) ?? null)).toMatchObject({ terminating_count: 1, total_count: 2 });
  });

  test("that is lost while busy is removed, and what is heard of its call later changes nothing", () => {
    const scene = new Scene();
    scene.group(F);
    scene.call(F);
    scene.started("i1");
    expect(deeds(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual([
      { type: "remove", instance: "i1", reason: "crashed" },
    ]);
    expect(deeds(scene.finished("i1"))).toEqual([]);
    expect(deeds(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual([]);
    expect(deeds(scene.removed("i1"))).toEqual([]);
    expect(deeds(scene.idle("i1"))).toEqual([]);
    expect(scene.state.instances.size).toBe(0);
  });

  test("stays for its keep-alive after its last call, not after its first", () => {
    const scene = new Scene();
    scene.ready(F, 1, { keep_alive_ms: 10_000 });
    scene.pass(9_000);
    scene.call(F);
    scene.freed("i1");
    expect(deeds(scene.pass(9_999))).toEqual([]);
    expect(deeds(scene.pass(1))).toEqual([{ type: "remove", instance: "i1", reason: "expired" }]);
  });

  test("goes in time when its keep-alive is shorter than any clean-up may take", () => {
    const scene = new Scene();
    scene.group(F, { keep_alive_ms: 100 });
    scene.call(F);
    scene.started("i1");
    scene.freed("i1");
    expect(deeds(scene.pass(99))).toEqual([]);
    expect(removed(scene.pass(1))).toEqual(["i1"]);
  });

  test("that the minimum needs does not expire, the others do", () => {
    const scene = new Scene();
    scene.ready(F, 3, { min_instances: 1, keep_alive_ms: 10_000 });
    expect(removed(scene.pass(60_000))).toHaveLength(2);
    expect(statusOf(scene.state.groups.get(F) ?? null).ready_count).toBe(1);
  });

  test("that the minimum no longer needs gets a keep-alive of its own", () => {
    const scene = new Scene();
    scene.ready(F, 1, { min_instances: 1, keep_alive_ms: 10_000 });
    expect(deeds(scene.pass(60_000))).toEqual([]);
    scene.group(F, { min_instances: 0, keep_alive_ms: 10_000 });
    expect(deeds(scene.pass(9_999))).toEqual([]);
    expect(removed(scene.pass(1))).toEqual(["i1"]);
  });

  test("that is cleaned up for too long is removed", () => {
    const scene = new Scene();
    scene.group(F);
    scene.call(F);
    scene.started("i1");
    scene.finished("i1");
    expect(deeds(scene.pass(9_999))).toEqual([]);
    expect(deeds(scene.pass(1))).toEqual([{ type: "remove", instance: "i1", reason: "stuck" }]);
  });
  test("that has rested before is removed as soon when it is cleaned up for too long", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    scene.pass(1_000);
    scene.call(F);
    scene.finished("i1");
    expect(deeds(scene.pass(9_999))).toEqual([]);
    expect(deeds(scene.pass(1))).toEqual([{ type: "remove", instance: "i1", reason: "stuck" }]);
  });

  test("whose removal failed is gone all the same, and counted", () => {
    const scene = new Scene();
    scene.ready(F, 1, { keep_alive_ms: 1 });
    scene.pass(1);
    scene.feed({ type: "remove_failed", instance: "i1", reason: "busy" });
    expect(totalsOf(scene.state)).toMatchObject({ total_count: 0, remove_failed_count: 1 });
  });
});

describe("a group", () => {
  test("is warmed to its minimum and kept there", () => {
    const scene = new Scene();
    expect(started(scene.group(F, { min_instances: 2 }))).toEqual(["i1", "i2"]);
    expect(deeds(scene.started("i1"))).toEqual([{ type: "specialise", instance: "i1", group: F }]);
    scene.specialised("i1");
    scene.feed({ type: "crashed", instance: "i1", reason: "lost" });
    expect(started(scene.pass(1_000))).toEqual(["i3"]);
  });

  test("is warmed again at once when a busy instance of its minimum is lost", () => {
    const scene = new Scene();
    scene.ready(F, 1, { min_instances: 1 });
    scene.call(F);
    expect(started(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual(["i2"]);
  });

  test("that is set again is warmed at once, whatever failed before", () => {
    const scene = new Scene();
    scene.group(F, { min_instances: 1 });
    scene.failed("i1");
    expect(started(scene.group(F, { min_instances: 1 }))).toEqual(["i2"]);
  });

  test("with a lowered maximum loses idle instances at once and busy ones after their call", () => {
    const scene = new Scene();
    scene.ready(F, 3);
    scene.call(F);
    scene.call(F);
    expect(removed(scene.group(F, { max_instances: 1 }))).toEqual(["i3"]);
    expect(removed(scene.finished("i1"))).toEqual(["i1"]);
    expect(removed(scene.finished("i2"))).toEqual([]);
  });

  test("that is retired has no minimum and keeps its ready instances for five minutes from then", () => {
    const scene = new Scene();
    scene.ready(F, 2, { min_instances: 2, keep_alive_ms: 1_000 });
    scene.pass(3_600_000);
    scene.feed({ type: "group_retire", group: F });
    expect(deeds(scene.pass(299_999))).toEqual([]);
    expect(removed(scene.pass(1))).toHaveLength(2);
  });

  test("that is paused refuses what waits and what comes, and ends when its last call is over", () => {
    const scene = new Scene();
    scene.ready(F, 2, { max_instances: 2 });
    scene.call(F);
    scene.call(F);
    scene.call(F);
    // The third call takes the freed instance, which is then cleaned up when the pause comes.
    scene.freed("i2");
    scene.finished("i2");
    expect(deeds(scene.feed({ type: "group_drop", group: F, reject: "paused" }))).toEqual([
      { type: "remove", instance: "i2", reason: "dropped" },
    ]);
    expect(deeds(scene.call(F))).toEqual([expect.objectContaining({ code: "WRONG_STATE", state: "paused" })]);
    scene.removed("i2");
    expect(removed(scene.finished("i1"))).toEqual(["i1"]);
    expect(deeds(scene.removed("i1"))).toEqual([{ type: "group_gone", group: F }]);
  });

  test("that is dropped with force ends running calls too", () => {
    const scene = new Scene();
    scene.ready(F, 1, { max_instances: 1 });
    scene.call(F);
    scene.call(F);
    expect(deeds(scene.feed({ type: "group_drop", group: F, reject: "deleted", force: true }))).toEqual([
      expect.objectContaining({ type: "refuse", call: 3, code: "NOT_FOUND" }),
      { type: "remove", instance: "i1", reason: "dropped" },
    ]);
  });

  test("that is set again before it is gone goes on with the instances that are left", () => {
    const scene = new Scene();
    scene.ready(F, 1);
    scene.call(F);
    scene.feed({ type: "group_drop", group: F, reject: "paused" });
    scene.group(F);
    scene.freed("i1");
    expect(deeds(scene.call(F))).toEqual([expect.objectContaining({ type: "assign", instance: "i1", cold: false })]);
  });

  test("that is unknown is gone when it is dropped", () => {
    const effects = new Scene().feed({ type: "group_drop", group: F, reject: "deleted" });
    expect(deeds(effects)).toEqual([{ type: "group_gone", group: F }]);
  });

  test("leaves its starts to others when it is dropped", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.group(F);
    scene.group(G);
    scene.call(F);
    scene.call(G);
    scene.feed({ type: "group_drop", group: F, reject: "paused" });
    expect(deeds(scene.started("i1"))).toEqual([expect.objectContaining({ type: "assign", group: G, call: 2 })]);
  });
});

describe("draining", () => {
  test("refuses what waits and what comes, ends what is idle, and the rest when it is done", () => {
    const scene = new Scene();
    scene.feed({ type: "cells_set", target: 1 });
    scene.started("i1");
    scene.group(F, { max_instances: 1 });
    scene.call(F);
    scene.call(F);
    scene.started("i2");
    expect(deeds(scene.feed({ type: "drain" }))).toEqual([
      expect.objectContaining({ type: "refuse", call: 2, code: "SHUTTING_DOWN" }),
      { type: "remove", instance: "i2", reason: "drained" },
    ]);
    expect(deeds(scene.call(F))).toEqual([expect.objectContaining({ type: "refuse", code: "SHUTTING_DOWN" })]);
  });

  test("ends a start when it has come up, and a busy instance after its call or by force", () => {
    const scene = new Scene();
    scene.group(F);
    for (let i = 0; i < 3; i++) scene.call(F);
    scene.started("i1");
    scene.started("i2");
    scene.feed({ type: "drain" });
    expect(removed(scene.started("i3"))).toEqual(["i3"]);
    expect(removed(scene.finished("i1"))).toEqual(["i1"]);
    expect(removed(scene.feed({ type: "drain", force: true }))).toEqual(["i2"]);
    for (const instance of ["i1", "i2", "i3"]) scene.removed(instance);
    expect(scene.state.instances.size).toBe(0);
    expect(scene.state.groups.size).toBe(0);
  });
});

test("a clock that jumps ahead refuses what is overdue before it serves anyone", () => {
  const scene = new Scene();
  scene.group(F, { max_instances: 1 });
  scene.call(F);
  scene.call(F, 1_000);
  scene.call(F, 7_200_000);
  scene.started("i1");
  scene.now_ms += 3_600_000;
  expect(deeds(scene.finished("i1"))).toEqual([expect.objectContaining({ type: "refuse", call: 2 })]);
  expect(deeds(scene.idle("i1"))).toEqual([expect.objectContaining({ type: "assign", call: 3 })]);
});

test("the last 256 events are kept, oldest first", () => {
  const scene = new Scene();
  scene.group(F);
  for (let i = 0; i < 300; i++) scene.feed({ type: "woken" });
  expect(scene.state.recent.list()).toHaveLength(256);
  scene.call(F);
  expect(scene.state.recent.list().at(-1)).toMatchObject({ type: "call_arrived", call: 1 });
});
