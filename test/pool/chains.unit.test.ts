/** Calls that wait for calls: bounds that are wider the deeper a call is in its chain, so that no chain waits for ever. */
import { describe, expect, test } from "vitest";
import { LevelQueue, Link } from "../../pool/queue.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { deeds, removed, Scene, started } from "./scene.ts";

const A = "fn_a@1";
const B = "fn_b@1";

/** The call that each assign effect serves. */
const served = (effects: ReturnType<Scene["call"]>) =>
  effects.filter((effect) => effect.type === "assign").map(({ call }) => call);

describe("a nested call", () => {
  test("gets an instance beyond the maximum of a group whose instances may all wait for it", () => {
    const scene = new Scene();
    scene.ready(A, 1, { max_instances: 1 });
    scene.call(A);
    expect(started(scene.call(A, 30_000, 1))).toEqual(["i2"]);
    expect(deeds(scene.started("i2"))).toEqual([expect.objectContaining({ type: "assign", instance: "i2", call: 3 })]);
  });

  test("goes ahead of calls from outside, which get nothing beyond the maximum", () => {
    const scene = new Scene();
    scene.ready(A, 1, { max_instances: 1 });
    scene.call(A);
    scene.call(A);
    scene.call(A, 30_000, 1);
    expect(served(scene.started("i2"))).toEqual([4]);
    expect(deeds(scene.call(A))).toEqual([]);
  });

  test("leaves the group at its maximum when it is over", () => {
    const scene = new Scene();
    scene.ready(A, 1, { max_instances: 1 });
    scene.call(A);
    scene.call(A, 30_000, 1);
    scene.started("i2");
    expect(removed(scene.finished("i2"))).toEqual(["i2"]);
    expect(removed(scene.freed("i1"))).toEqual([]);
  });

  test("that is gone before its instance has started leaves nothing beyond the maximum", () => {
    const scene = new Scene();
    scene.ready(A, 1, { max_instances: 1 });
    scene.call(A);
    scene.call(A, 30_000, 1);
    scene.feed({ type: "call_cancelled", call: 3 });
    expect(removed(scene.started("i2"))).toEqual(["i2"]);
  });

  test("finds room on a node that is full of instances that may wait for it", () => {
    const scene = new Scene({ instances_max: 1 });
    scene.ready(A, 1, { max_instances: 1 });
    scene.group(B);
    scene.call(A);
    expect(deeds(scene.call(B))).toEqual([]);
    expect(started(scene.call(B, 30_000, 1))).toEqual(["i2"]);
  });

  test("leaves its level to the next of them: no call from outside takes it on a full node", () => {
    const scene = new Scene({ instances_max: 1 });
    scene.ready(A, 1, { max_instances: 1 });
    scene.group(B);
    scene.call(A);
    scene.call(B, 30_000, 1);
    scene.started("i2");
    scene.call(B);
    expect(removed(scene.finished("i2"))).toEqual(["i2"]);
    expect(started(scene.removed("i2"))).toEqual([]);
    expect(started(scene.call(A, 30_000, 1))).toEqual(["i3"]);
  });

  test("of each level finds one instance more: a chain through one function ends at its last level", () => {
    const scene = new Scene({ instances_max: 1 });
    scene.ready(A, 1, { max_instances: 1 });
    scene.call(A);
    for (let depth = 1; depth <= LIMITS.chain_depth_max; depth++) {
      expect(started(scene.call(A, 30_000, depth))).toEqual([`i${depth + 1}`]);
      expect(served(scene.started(`i${depth + 1}`))).toHaveLength(1);
    }
    for (let i = LIMITS.chain_depth_max + 1; i >= 2; i--) expect(removed(scene.finished(`i${i}`))).toEqual([`i${i}`]);
    scene.freed("i1");
    expect(served(scene.call(A))).toHaveLength(1);
  });
});

describe("a queue with levels", () => {
  test("gives the deepest first, and within a level the one that came first", () => {
    const queue = new LevelQueue<string>();
    const links = (["a0", "b0", "a2", "a1", "b2"] as const).map((name) => new Link<string>(name));
    for (const link of links) queue.push(link, Number(link.value[1]));
    expect([...queue]).toEqual(["a2", "b2", "a1", "a0", "b0"]);
    expect([queue.size, queue.depth, queue.first?.value]).toEqual([5, 2, "a2"]);
    for (const link of links) queue.remove(link, Number(link.value[1]));
    expect([queue.size, queue.depth, queue.first]).toEqual([0, 0, null]);
  });
});
