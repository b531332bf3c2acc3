/** Several calls in one instance: where a call goes, how many instances the queue wants, and how an instance ends. */
import { describe, expect, test } from "vitest";
import { Places } from "../../pool/places.ts";
import { isConcurrency, placement, predictedWaitMs, retryAfterSeconds, wantedStarts } from "../../pool/policy.ts";
import type { AssignEffect, PoolEffect } from "../../pool/protocol.ts";
import { Link } from "../../pool/queue.ts";
import { statusOf, totalsOf } from "../../pool/stats.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { deeds, removed, Scene, started } from "./scene.ts";

const F = "fn_a@1";
const G = "fn_b@1";

function assigned(effects: readonly PoolEffect[]): AssignEffect[] {
  return effects.filter((effect) => effect.type === "assign");
}

/** The instance that serves each call of a step. */
function servers(effects: readonly PoolEffect[]): string[] {
  return assigned(effects).map(({ instance }) => instance);
}

function statusIn(scene: Scene, group = F) {
  return statusOf(scene.state.groups.get(group) ?? null);
}

/** A group with instances i1, i2 and so on that run so many calls each: descending, as those before are full then. */
function loaded(concurrency: number, ...loads: number[]): Scene {
  const scene = new Scene();
  for (const [i, load] of loads.entries()) {
    scene.group(F, { concurrency: load });
    for (let count = 0; count < load; count++) scene.call(F);
    scene.started(`i${i + 1}`);
  }
  scene.group(F, { concurrency });
  return scene;
}

describe("where a call goes", () => {
  const least = { concurrency: 4, idle_count: 1, least_load: 1 };
  test("to a busy instance below half of its concurrency, though another is idle", () => {
    expect(placement(least)).toBe("busy");
    expect(placement({ ...least, concurrency: 3 })).toBe("busy");
  });
  test("to an idle instance if every busy one has half of its calls or more", () => {
    expect(placement({ ...least, least_load: 2 })).toBe("idle");
    expect(placement({ ...least, concurrency: 2 })).toBe("idle");
  });
  test("to the least loaded busy instance if none is idle, and nowhere if that is full", () => {
    expect(placement({ ...least, idle_count: 0, least_load: 3 })).toBe("busy");
    expect(placement({ ...least, idle_count: 0, least_load: 4 })).toBe("none");
    expect(placement({ ...least, idle_count: 0, least_load: Number.POSITIVE_INFINITY })).toBe("none");
  });
  test("to an idle instance alone with a concurrency of 1", () => {
    expect(placement({ concurrency: 1, idle_count: 1, least_load: Number.POSITIVE_INFINITY })).toBe("idle");
    expect(placement({ concurrency: 1, idle_count: 0, least_load: 1 })).toBe("none");
  });
});

describe("how many places there are", () => {
  const group = { warming_count: 0, returning_count: 0, live_count: 1, min_instances: 0, max_instances: 10 };
  const shared = { ...group, concurrency: 4, is_backing_off: false };
  test("decides how many instances the queue wants", () => {
    expect(wantedStarts({ ...shared, queued_count: 1 })).toBe(1);
    expect(wantedStarts({ ...shared, queued_count: 9 })).toBe(3);
    expect(wantedStarts({ ...shared, queued_count: 9, warming_count: 2 })).toBe(1);
    expect(wantedStarts({ ...shared, queued_count: 8, warming_count: 1, returning_count: 4 })).toBe(0);
  });
  test("decides how long a call waits, and when to try again", () => {
    const waiting = { ahead_count: 80, live_count: 4, least_service_ms: 100 };
    expect(predictedWaitMs({ ...waiting, concurrency: 1 })).toBe(2_000);
    expect(predictedWaitMs({ ...waiting, concurrency: 10 })).toBe(200);
    const queued = { queued_count: 1_000, service_ms: 100, max_instances: 4 };
    expect(retryAfterSeconds({ ...queued, concurrency: 10 })).toBe(3);
  });
  test("is a whole number from 1 to 100 per instance", () => {
    expect([1, 8, 100].every(isConcurrency)).toBe(true);
    expect([0, -1, 1.5, 101, Number.NaN].some(isConcurrency)).toBe(false);
    expect(() => new Scene().group(F, { concurrency: 0 })).toThrow("P2: fn_a@1 cannot have a concurrency of 0");
  });
});

describe("free places", () => {
  test("are found by the lowest level, then by the least load, then by the last use", () => {
    const places = new Places<string>();
    const links = ["a", "b", "c", "d"].map((name) => new Link(name));
    const [a, b, c, d] = links as [Link<string>, Link<string>, Link<string>, Link<string>];
    places.add(a, 0, 3);
    places.add(b, 0, 2);
    places.add(c, 0, 2);
    places.add(d, 1, 1);
    expect(places.least()).toBe("c");
    places.remove(c);
    places.remove(c);
    expect(places.least()).toBe("b");
    places.remove(b);
    places.remove(a);
    expect([places.size, places.least(), places.least(0)]).toEqual([1, "d", null]);
    places.add(a, 0, 7);
    expect(places.least()).toBe("a");
  });
});

describe("an instance with several places", () => {
  test("starts with as many waiting calls as it has places, all cold, and binds with the first alone", () => {
    const scene = new Scene();
    scene.group(F, { concurrency: 3 });
    expect(started(scene.call(F))).toEqual(["i1"]);
    expect(deeds(scene.call(F))).toEqual([]);
    expect(deeds(scene.call(F))).toEqual([]);
    expect(started(scene.call(F))).toEqual(["i2"]);
    const first = assigned(scene.started("i1"));
    expect(first.map(({ call, specialise, cold }) => [call, specialise, cold])).toEqual([
      [1, true, true],
      [2, false, true],
      [3, false, true],
    ]);
    expect(totalsOf(scene.state)).toMatchObject({ busy_count: 1, calls_running: 3, queued: 1, cell_miss_count: 1 });
  });

  test("counts one cold call with a cell, whatever joins it", () => {
    const scene = new Scene();
    scene.feed({ type: "cells_set", target: 1 });
    scene.started("i1");
    scene.group(F, { concurrency: 2 });
    expect(assigned(scene.call(F))).toEqual([expect.objectContaining({ specialise: true, cell_hit: true })]);
    expect(assigned(scene.call(F))).toEqual([
      expect.objectContaining({ specialise: false, cold: true, cell_hit: true }),
    ]);
    expect(totalsOf(scene.state)).toMatchObject({ cell_hit_count: 1, cell_miss_count: 0 });
    scene.freed("i1");
    expect(assigned(scene.call(F))).toEqual([expect.objectContaining({ cold: false, cell_hit: false })]);
  });

  test("is busy until its last call has finished, then in cleanup, and ready when all are clean", () => {
    const scene = new Scene();
    scene.group(F, { concurrency: 3 });
    for (let i = 0; i < 3; i++) scene.call(F);
    scene.started("i1");
    scene.finished("i1", true, 2);
    expect(statusIn(scene)).toMatchObject({ busy_count: 1, calls_running: 2 });
    scene.finished("i1", true, 1);
    scene.idle("i1", 2);
    scene.finished("i1", true, 3);
    expect(statusIn(scene)).toMatchObject({ busy_count: 0, recycling_count: 1, calls_running: 0 });
    scene.idle("i1", 3);
    expect(statusIn(scene)).toMatchObject({ recycling_count: 1, ready_count: 0 });
    scene.idle("i1", 1);
    expect(statusIn(scene)).toMatchObject({ recycling_count: 0, ready_count: 1 });
  });

  test("gives a place to the next call when its cleanup has ended, not before", () => {
    const scene = new Scene();
    scene.group(F, { concurrency: 2, max_instances: 1 });
    for (let i = 0; i < 3; i++) scene.call(F);
    scene.started("i1");
    expect(deeds(scene.finished("i1", true, 1))).toEqual([]);
    expect(servers(scene.idle("i1", 1))).toEqual(["i1"]);
  });

  test("lets a call wait for a place in cleanup for as long as for an instance in cleanup", () => {
    const scene = new Scene();
    scene.group(F, { concurrency: 2 });
    scene.call(F);
    scene.call(F);
    scene.started("i1");
    scene.finished("i1", true, 1);
    expect(deeds(scene.call(F))).toEqual([]);
    expect(started(scene.pass(LIMITS.recycling_patience_ms))).toEqual(["i2"]);
  });

  test("gets a call by its load", () => {
    expect(servers(loaded(10, 7, 5, 3).call(F))).toEqual(["i3"]);
    expect(servers(loaded(10, 10, 10, 9).call(F))).toEqual(["i3"]);
    expect(started(loaded(10, 10, 10).call(F))).toHaveLength(1);
  });

  test("keeps an idle one free until it has half of its calls", () => {
    const scene = new Scene();
    scene.ready(F, 2, { concurrency: 4 });
    const calls = Array.from({ length: 8 }, () => servers(scene.call(F))[0]);
    expect(calls).toEqual(["i1", "i1", "i2", "i2", "i2", "i1", "i1", "i2"]);
  });

  test("gives calls that wait the places that a raised concurrency brings, and takes none from those that run", () => {
    const scene = new Scene();
    scene.group(F, { concurrency: 1, max_instances: 1 });
    for (let i = 0; i < 4; i++) scene.call(F);
    scene.started("i1");
    expect(servers(scene.group(F, { concurrency: 3, max_instances: 1 }))).toEqual(["i1", "i1"]);
    scene.group(F, { concurrency: 1, max_instances: 1 });
    expect(deeds(scene.freed("i1", 1))).toEqual([]);
    expect(deeds(scene.freed("i1", 2))).toEqual([]);
    expect(assigned(scene.freed("i1", 3))).toEqual([expect.objectContaining({ call: 4 })]);
  });

  test("is one instance for its group's maximum and for its owner's limits", () => {
    const scene = new Scene();
    scene.owner("ten_a", { instances_max: 1 });
    scene.group(F, { concurrency: 2, owner: "ten_a" });
    for (let i = 0; i < 3; i++) scene.call(F);
    expect(servers(scene.started("i1"))).toEqual(["i1", "i1"]);
    expect(statusIn(scene)).toMatchObject({ queued_count: 1, total_count: 1 });
  });
});

describe("an instance that is not to be used again", () => {
  function shared(): Scene {
    const scene = new Scene();
    scene.group(F, { concurrency: 3, max_instances: 1 });
    for (let i = 0; i < 2; i++) scene.call(F);
    scene.started("i1");
    return scene;
  }

  test("takes no more calls, and is removed after its last one", () => {
    const scene = shared();
    expect(deeds(scene.finished("i1", false, 1))).toEqual([]);
    expect(deeds(scene.call(F))).toEqual([]);
    expect(deeds(scene.finished("i1", true, 2))).toEqual([
      { type: "remove", instance: "i1", reason: "used_up" },
      expect.objectContaining({ type: "start", instance: "i2" }),
    ]);
  });

  test("does not stay for ever if the launcher never answers", () => {
    const scene = shared();
    scene.finished("i1", false, 1);
    expect(removed(scene.pass(LIMITS.closing_ms_max - 1))).toEqual([]);
    expect(deeds(scene.pass(1))).toEqual([{ type: "remove", instance: "i1", reason: "stuck" }]);
    expect(totalsOf(scene.state).calls_running).toBe(0);
  });

  test("lets its calls finish and is removed if one of its cleanups hangs", () => {
    const scene = shared();
    scene.finished("i1", true, 1);
    expect(deeds(scene.pass(LIMITS.recycling_ms_max))).toEqual([]);
    expect(servers(scene.call(F))).toEqual([]);
    expect(removed(scene.finished("i1", true, 2))).toEqual(["i1"]);
  });

  test("ends with all its calls if it is lost, and what is heard of them later changes nothing", () => {
    const scene = shared();
    scene.call(F);
    expect(removed(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual(["i1"]);
    expect(totalsOf(scene.state)).toMatchObject({ calls_running: 0, terminating_count: 1 });
    for (const call of [1, 2, 3]) expect(deeds(scene.finished("i1", true, call))).toEqual([]);
    expect(removed(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual([]);
  });

  test("finishes its calls while its group is dropped, and ends with them by force", () => {
    const scene = shared();
    scene.feed({ type: "group_drop", group: F, reject: "paused" });
    expect(deeds(scene.freed("i1", 1))).toEqual([]);
    expect(removed(scene.finished("i1", true, 2))).toEqual(["i1"]);
    const forced = shared();
    expect(removed(forced.feed({ type: "group_drop", group: F, reject: "deleted", force: true }))).toEqual(["i1"]);
    expect(totalsOf(forced.state).calls_running).toBe(0);
  });
});

describe("a nested call", () => {
  test("joins the calls that may wait for it", () => {
    const scene = new Scene();
    scene.ready(F, 1, { concurrency: 2, max_instances: 1 });
    scene.call(F);
    expect(servers(scene.call(F, 30_000, 1))).toEqual(["i1"]);
  });

  test("keeps the instance that it got beyond the bounds from calls above it", () => {
    const scene = new Scene();
    scene.ready(F, 1, { concurrency: 2, max_instances: 1 });
    scene.call(F);
    scene.call(F);
    expect(started(scene.call(F, 30_000, 1))).toEqual(["i2"]);
    scene.started("i2");
    // The free place of i2 is for nested calls: filled from outside, i1 and i2 could all wait for such a call.
    expect(servers(scene.call(F))).toEqual([]);
    expect(servers(scene.call(F, 30_000, 1))).toEqual(["i2"]);
    expect(servers(scene.freed("i1", 2))).toEqual(["i1"]);
  });

  test("leaves its place to calls from outside once no instance is too many", () => {
    const scene = new Scene();
    scene.ready(F, 1, { concurrency: 2, max_instances: 1 });
    const [first, second] = [scene.call(F), scene.call(F)].map((effects) => assigned(effects)[0]?.call);
    scene.call(F, 30_000, 1);
    scene.started("i2");
    scene.call(F);
    expect(servers(scene.freed("i1", first))).toEqual(["i1"]);
    scene.call(F);
    scene.call(F);
    scene.freed("i1", second);
    // i1 is lost: i2 is the group's only instance, and serves everyone.
    expect(servers(scene.feed({ type: "crashed", instance: "i1", reason: "lost" }))).toEqual(["i2"]);
  });

  test("of another group finds room beyond a node whose instances are full of calls that wait for it", () => {
    const scene = new Scene({ instances_max: 1 });
    scene.ready(F, 1, { concurrency: 2, max_instances: 1 });
    scene.group(G, { concurrency: 2 });
    scene.call(F);
    scene.call(F);
    expect(started(scene.call(G, 30_000, 1))).toEqual(["i2"]);
    expect(servers(scene.started("i2"))).toEqual(["i2"]);
    expect(deeds(scene.call(G))).toEqual([]);
    expect(servers(scene.call(G, 30_000, 1))).toEqual(["i2"]);
  });
});
