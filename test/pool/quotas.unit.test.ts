/** What the groups of one owner may have together: room that they share, in turns, and never beyond but for chains. */
import { describe, expect, test } from "vitest";
import type { PoolEffect } from "../../pool/protocol.ts";
import { ownerUseOf } from "../../pool/stats.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { CLASS, deeds, removed, Scene, started } from "./scene.ts";

const A = "fn_a@1";
const B = "fn_b@1";
const C = "fn_c@1";
const OWN = { owner: "ten_a", memory_mb: 256 };

const served = (effects: readonly PoolEffect[]) =>
  effects.filter((effect) => effect.type === "assign").map(({ call }) => call);

const refused = (effects: readonly PoolEffect[]) => effects.filter((effect) => effect.type === "refuse");

/** An owner who may have so many instances. */
function limited(instances_max: number, groups: readonly string[] = [A, B, C]): Scene {
  const scene = new Scene();
  scene.owner("ten_a", { instances_max });
  for (const group of groups) scene.group(group, OWN);
  return scene;
}

test("the instances of an owner's groups are counted with limits and without", () => {
  const scene = new Scene();
  scene.group(A, { ...OWN, memory_mb: 512, min_instances: 2 });
  scene.group(B, { ...OWN, min_instances: 1 });
  scene.group(C, { ...OWN, owner: "ten_b", min_instances: 1 });
  for (const limits of [{}, { instances_max: 9, memory_mb_max: 9_000 }]) {
    scene.owner("ten_a", limits);
    expect(ownerUseOf(scene.state, "ten_a")).toEqual({ count: 3, mb: 1_280 });
  }
  expect(ownerUseOf(scene.state, "ten_nobody")).toEqual({ count: 0, mb: 0 });
});

/** A call that has an instance of its own; answers that. */
function running(scene: Scene, group: string): string {
  const [instance = ""] = started(scene.call(group));
  scene.started(instance);
  return instance;
}

describe("an owner at its limit", () => {
  test("starts no more, whichever of its groups asks, and a group of nobody does", () => {
    const scene = limited(2);
    scene.group("fn_free@1");
    for (let i = 0; i < 3; i++) scene.call(A);
    expect(scene.state.starting_count).toBe(2);
    expect(deeds(scene.call(B))).toEqual([]);
    expect(started(scene.call("fn_free@1"))).toEqual(["i3"]);
  });

  test("is at it whether its limits came before its groups or after", () => {
    const scene = new Scene();
    scene.group(A, OWN);
    running(scene, A);
    scene.owner("ten_a", { instances_max: 1 });
    expect(deeds(scene.call(A))).toEqual([]);
    expect(started(scene.owner("ten_a", { instances_max: 2 }))).toEqual(["i2"]);
    scene.call(A);
    expect(started(scene.owner("ten_a", {}))).toEqual(["i3"]);
  });

  test("counts memory by what an instance of each group may use", () => {
    const scene = new Scene();
    scene.owner("ten_a", { memory_mb_max: 1_024 });
    scene.group(A, { ...OWN, memory_mb: 512 });
    scene.group(B, OWN);
    expect(started(scene.call(A))).toHaveLength(1);
    expect(started(scene.call(B))).toHaveLength(1);
    expect(started(scene.call(A))).toEqual([]);
    // It does not hold up what fits.
    expect(started(scene.call(B))).toHaveLength(1);
    expect(started(scene.call(B))).toEqual([]);
  });

  test("counts adopted instances", () => {
    const scene = limited(1);
    scene.adopted("old1", A);
    expect(removed(scene.adopted("old2", B))).toEqual(["old2"]);
    expect(removed(scene.call(B))).toEqual(["old1"]);
  });

  test("takes back what it has granted when an adopted instance takes the room", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.owner("ten_a", { instances_max: 2 });
    scene.group(A, OWN);
    scene.call(A);
    scene.call(A);
    scene.adopted("old1", A);
    expect(started(scene.started("i1"))).toEqual([]);
  });

  test("hands freed room to its groups in turns", () => {
    const scene = limited(1, [A, B, C]);
    const first = running(scene, C);
    for (const group of [A, A, B, B]) scene.call(group);
    const order: (string | null)[] = [];
    let instance = first;
    for (let i = 0; i < 4; i++) {
      const effects = scene.finished(instance, false);
      for (const effect of effects) if (effect.type === "start") order.push(effect.group);
      instance = started(effects)[0] ?? "";
      scene.started(instance);
    }
    expect(order).toEqual([A, B, A, B]);
  });

  test("lets a group that comes later have its turn at room that another was granted and has no start for yet", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.owner("ten_a", { instances_max: 3 });
    for (const group of [A, B]) scene.group(group, OWN);
    for (let i = 0; i < 5; i++) scene.call(A);
    scene.call(B);
    const order: (string | null)[] = [];
    for (const instance of ["i1", "i2"]) {
      for (const effect of scene.started(instance)) if (effect.type === "start") order.push(effect.group);
    }
    expect(order).toContain(B);
  });

  test("refuses a call whose deadline passes as a full group does", () => {
    const scene = limited(1);
    running(scene, A);
    scene.call(B, 100);
    expect(refused(scene.pass(100))).toMatchObject([{ code: "QUEUE_TIMEOUT", retry_after: 1 }]);
  });
});

describe("a call of an owner at its limit", () => {
  test("gets the room of the idle instance of another group that was used longest ago", () => {
    const scene = limited(3);
    const instances = [A, A, B].map((group) => running(scene, group));
    const [oldest = ""] = instances.toReversed();
    for (const instance of instances.toReversed()) scene.freed(instance);
    expect(deeds(scene.call(C))).toEqual([
      { type: "remove", instance: oldest, reason: "yielded" },
      { type: "start", instance: "i4", class: CLASS, group: C },
    ]);
  });

  test("never takes what a minimum needs", () => {
    const scene = limited(2);
    scene.freed(running(scene, A));
    scene.freed(running(scene, B));
    scene.group(A, { ...OWN, min_instances: 1 });
    expect(removed(scene.call(C))).toEqual(["i2"]);
    expect(deeds(scene.call(B))).toEqual([]);
  });

  test("ends idle instances of a superseded version first, though it was used last", () => {
    const scene = limited(2);
    scene.freed(running(scene, A));
    scene.freed(running(scene, B));
    scene.feed({ type: "group_retire", group: B });
    expect(removed(scene.call(C))).toEqual(["i2"]);
  });

  test("ends as many as its memory needs, and none when that would not be enough", () => {
    const scene = new Scene();
    scene.owner("ten_a", { memory_mb_max: 1_024 });
    scene.group(A, OWN);
    scene.group(B, { ...OWN, memory_mb: 1_024 });
    scene.group(C, { ...OWN, memory_mb: 512 });
    const names = [1, 2, 3, 4].map(() => running(scene, A));
    for (const name of names.slice(1)) scene.freed(name);
    expect(deeds(scene.call(B))).toEqual([]);
    expect(removed(scene.call(C))).toEqual(["i2", "i3"]);
  });

  test("ends none while there is no start for it, and one when there is", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.owner("ten_a", { instances_max: 1 });
    for (const group of [A, B]) scene.group(group, OWN);
    scene.freed(running(scene, A));
    scene.group("fn_free@1");
    scene.call("fn_free@1");
    expect(deeds(scene.call(B))).toEqual([]);
    expect(removed(scene.started("i2"))).toEqual(["i1"]);
  });

  test("ends one while others wait for every start, and takes its turn among them", () => {
    for (const isDelayedBefore of [false, true]) {
      const scene = new Scene({ starts_max: 1 });
      scene.owner("ten_a", { instances_max: 2 });
      for (const group of [A, B]) scene.group(group, OWN);
      for (const instance of [running(scene, A), running(scene, A)].toReversed()) scene.freed(instance);
      const others = { ...OWN, owner: "ten_b", max_instances: 100 };
      scene.owner("ten_b", { instances_max: 50 });
      scene.group("fn_other@1", others);
      const busy = () => Array.from({ length: 20 }, () => scene.call("fn_other@1")).flat();
      const waiting = scene.call("fn_other@1");
      const effects = isDelayedBefore ? [...scene.call(B), ...busy()] : [...busy(), ...scene.call(B)];
      // One alone: the second stays while the first has not been followed by a start.
      expect(removed([...waiting, ...effects])).toHaveLength(1);
      const order: (string | null)[] = [];
      let next = started(waiting)[0] ?? "";
      for (let n = 0; n < 4; n++) {
        const after = scene.started(next);
        for (const effect of after) if (effect.type === "start") order.push(effect.group);
        next = started(after)[0] ?? "";
      }
      expect(order).toContain(B);
    }
  });

  test("is refused at once when not one instance of its group is within the limits", () => {
    const scene = limited(0);
    expect(refused(scene.call(A))).toEqual([
      {
        type: "refuse",
        call: 1,
        code: "QUOTA_EXCEEDED",
        reason: "instances_max of the tenant exceeded: this function needs 1 instance (limit 0)",
      },
    ]);
    scene.owner("ten_a", { memory_mb_max: 128 });
    expect(refused(scene.call(A))).toMatchObject([
      { reason: "memory_mb_max of the tenant exceeded: one instance of this function needs 256 MiB (limit 128 MiB)" },
    ]);
  });

  test("is refused when the limits come to hold not one instance of its group", () => {
    const scene = limited(1);
    running(scene, A);
    scene.call(B);
    expect(refused(scene.owner("ten_a", { memory_mb_max: 128 }))).toMatchObject([{ call: 2, code: "QUOTA_EXCEEDED" }]);
  });
});

describe("limits below what is there", () => {
  test("end idle instances, the one used longest ago first, and no running one before its call is over", () => {
    const scene = limited(5);
    const [busy = "", ...idle] = [A, A, B, B, C].map((group) => running(scene, group));
    for (const instance of idle) scene.freed(instance);
    expect(removed(scene.owner("ten_a", { instances_max: 3 }))).toEqual(idle.slice(0, 2));
    expect(removed(scene.owner("ten_a", { instances_max: 1 }))).toEqual(idle.slice(2));
    expect(deeds(scene.finished(busy))).toEqual([]);
    scene.idle(busy);
    scene.call(A);
    expect(removed(scene.owner("ten_a", { instances_max: 0 }))).toEqual([]);
    expect(removed(scene.finished(busy))).toEqual([busy]);
  });

  test("end what a minimum needs too, after all else, and start none for it", () => {
    const scene = limited(3);
    scene.group(A, { ...OWN, min_instances: 2 });
    for (const instance of ["i1", "i2"]) {
      scene.started(instance);
      scene.specialised(instance);
    }
    scene.freed(running(scene, B));
    const effects = deeds(scene.owner("ten_a", { instances_max: 1 }));
    expect(removed(effects)).toEqual(["i3", "i1"]);
    expect(started(effects)).toEqual([]);
  });
});

describe("a nested call of an owner at its limit", () => {
  test("of each level finds one instance more, by count and by memory", () => {
    for (const limits of [{ instances_max: 1 }, { memory_mb_max: 256 }]) {
      const scene = new Scene();
      scene.owner("ten_a", limits);
      for (const group of [A, B]) scene.group(group, OWN);
      running(scene, A);
      for (let depth = 1; depth <= LIMITS.chain_depth_max; depth++) {
        const [instance = ""] = started(scene.call(depth % 2 === 0 ? A : B, 30_000, depth));
        expect(served(scene.started(instance))).toHaveLength(1);
      }
      for (let i = LIMITS.chain_depth_max + 1; i >= 2; i--) expect(removed(scene.finished(`i${i}`))).toEqual([`i${i}`]);
      expect(removed(scene.freed("i1"))).toEqual([]);
    }
  });

  test("gets the room of an idle instance first, and its own stays warm then", () => {
    const scene = limited(2);
    scene.freed(running(scene, A));
    running(scene, B);
    expect(removed(scene.call(C, 30_000, 1))).toEqual(["i1"]);
    scene.started("i3");
    expect(removed(scene.freed("i3"))).toEqual([]);
  });

  test("that is gone leaves no start to calls from outside beyond the limit", () => {
    const scene = new Scene({ starts_max: 1 });
    scene.owner("ten_a", { instances_max: 1 });
    for (const group of [A, B]) scene.group(group, OWN);
    running(scene, A);
    scene.group("fn_free@1");
    scene.call("fn_free@1");
    scene.call(B);
    scene.call(B, 30_000, 1);
    scene.feed({ type: "call_cancelled", call: 4 });
    expect(started(scene.started("i2"))).toEqual([]);
  });
});
