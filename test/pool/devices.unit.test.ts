/** Groups whose instances hold devices: which idle instance ends for which group, who waits and who is refused. */
import { describe, expect, test } from "vitest";
import type { GroupPolicy, PoolEffect } from "../../pool/protocol.ts";
import type { Lack } from "../../src/base/lacking.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { deeds, removed, Scene, started } from "./scene.ts";

const A = "fn_a@1";
const A2 = "fn_a@2";
const B = "fn_b@1";
const C = "fn_c@1";

const policy = (of: string, devices = 1, more: Partial<GroupPolicy> = {}) => ({ class: of, devices, ...more });
const lack = (scene: Scene, instance: string, missing_count: number | null, code: Lack["code"] = "CAPACITY_FULL") =>
  scene.feed({ type: "start_failed", instance, reason: "no devices", lack: { code, missing_count } });
const refused = (effects: readonly PoolEffect[]) =>
  effects.filter((effect) => effect.type === "refuse").map(({ code }) => code);
const gaveUp = (effects: readonly PoolEffect[]) =>
  effects.filter((effect) => effect.type === "gave_up").map(({ group }) => group);

/** A group with so many idle instances that hold their devices. */
function idles(scene: Scene, group: string, count: number, of: Partial<GroupPolicy>): string[] {
  scene.group(group, of);
  const names: string[] = [];
  while (names.length < count) {
    const [name = ""] = started(scene.call(group));
    scene.started(name);
    names.push(name);
  }
  for (const name of names) scene.freed(name);
  return names;
}

const idle = (scene: Scene, group: string, of: Partial<GroupPolicy>) => idles(scene, group, 1, of)[0] ?? "";

/** A call whose start fails for a lack of devices. */
function lacking(scene: Scene, group: string, missing_count: number | null, code?: Lack["code"]): PoolEffect[] {
  const [instance = ""] = started(scene.call(group));
  return lack(scene, instance, missing_count, code);
}

describe("a group that lacks devices", () => {
  test("gets those of an idle instance of another group, and starts when it is gone", () => {
    const scene = new Scene();
    const holder = idle(scene, A, policy("gpu-a"));
    scene.group(B, policy("gpu-b"));
    const effects = lacking(scene, B, 1);
    expect(deeds(effects)).toMatchObject([
      { type: "remove", reason: "start_failed" },
      { type: "remove", instance: holder, reason: "evicted" },
    ]);
    expect(started(scene.pass(LIMITS.devices_retry_ms - 1))).toEqual([]);
    const [again = ""] = started(scene.removed(holder));
    expect(scene.started(again)).toMatchObject([{ type: "assign", group: B }]);
    expect([...scene.state.holders].map(({ id }) => id)).toEqual([again]);
  });

  test("tries again after a while where nobody says that devices are free", () => {
    const scene = new Scene();
    const holder = idle(scene, A, policy("gpu-a"));
    scene.group(B, policy("gpu-b"));
    expect(removed(lacking(scene, B, 1))).toContain(holder);
    expect(started(scene.pass(LIMITS.devices_retry_ms))).toHaveLength(1);
  });

  test("ends those that were used longest ago, superseded ones first, and no more than it needs", () => {
    const scene = new Scene();
    const first = idle(scene, A, policy("gpu-a"));
    scene.pass(10);
    const second = idle(scene, B, policy("gpu-b"));
    scene.pass(10);
    const third = idle(scene, "fn_d@1", policy("gpu-d"));
    scene.feed({ type: "group_retire", group: "fn_d@1" });
    scene.group(C, policy("gpu-c", 2));
    expect(removed(lacking(scene, C, 2)).slice(1)).toEqual([third, first]);
    expect(scene.state.instances.get(second)?.state).toBe("ready");
  });

  test("ends nothing where all of it would be too few, and its call is refused", () => {
    const scene = new Scene();
    const holder = idle(scene, A, policy("gpu-a"));
    scene.group(B, policy("gpu-b", 2));
    const effects = lacking(scene, B, 2);
    expect([removed(effects), refused(effects)]).toEqual([["i2"], ["CAPACITY_FULL"]]);
    expect(effects.find(({ type }) => type === "refuse")).not.toHaveProperty("retry_after");
    expect(gaveUp(effects)).toEqual([B]);
    expect(scene.state.instances.get(holder)?.state).toBe("ready");
  });

  test("ends nothing where minimums need all but too few", () => {
    const scene = new Scene();
    // Two stand idle and one of them may go: two are missing.
    const kept = idles(scene, A, 2, policy("gpu-a"));
    scene.group(A, policy("gpu-a", 1, { min_instances: 1 }));
    scene.group(B, policy("gpu-b", 2));
    const effects = lacking(scene, B, 2);
    expect([removed(effects), refused(effects)]).toEqual([["i3"], ["CAPACITY_FULL"]]);
    for (const id of kept) expect(scene.state.instances.get(id)?.state).toBe("ready");
    scene.removed("i3");
    expect(removed(lacking(scene, B, 1)).slice(1)).toEqual([kept[0]]);
  });

  test("ends nothing of busy instances, and is refused beside them", () => {
    const scene = new Scene();
    idle(scene, A, policy("gpu-a"));
    scene.call(A);
    scene.group(B, policy("gpu-b"));
    const effects = lacking(scene, B, 1);
    expect([removed(effects), refused(effects)]).toEqual([["i2"], ["CAPACITY_FULL"]]);
  });

  test("waits where an instance of it serves, or one is in cleanup", () => {
    const scene = new Scene();
    idle(scene, A, policy("gpu-a"));
    scene.call(A);
    const effects = lacking(scene, A, 1);
    expect([refused(effects), gaveUp(effects)]).toEqual([[], [A]]);
    expect(scene.freed("i1")).toMatchObject([{ type: "assign", instance: "i1", group: A }]);
    scene.finished("i1");
    scene.group(B, policy("gpu-b"));
    expect(refused(lacking(scene, B, 1))).toEqual([]);
  });

  test("is refused for what nothing makes free", () => {
    const scene = new Scene();
    idle(scene, A, policy("gpu-a"));
    scene.group(B, policy("gpu-b", 3));
    expect(refused(lacking(scene, B, null))).toEqual(["CAPACITY_FULL"]);
  });

  test("is refused at the deadline of its call with the lack, where it waited in vain", () => {
    const scene = new Scene();
    const holder = idle(scene, A, policy("gpu-a"));
    scene.group(B, policy("gpu-b"));
    const [first = ""] = started(scene.call(B, LIMITS.devices_retry_ms / 2));
    expect(removed(lack(scene, first, 1))).toContain(holder);
    const effects = scene.pass(LIMITS.devices_retry_ms);
    expect(effects).toContainEqual({
      type: "refuse",
      call: expect.any(Number),
      code: "CAPACITY_FULL",
      reason: "no devices",
    });
  });
});

describe("a limit of an owner", () => {
  test("is met by its own idle instances alone", () => {
    const scene = new Scene();
    const other = idle(scene, A, policy("gpu-a", 1, { owner: "ten_a" }));
    scene.pass(10);
    const own = idle(scene, B, policy("gpu-b", 1, { owner: "ten_b" }));
    scene.group(C, policy("gpu-c", 1, { owner: "ten_b" }));
    expect(removed(lacking(scene, C, 1, "QUOTA_EXCEEDED")).slice(1)).toEqual([own]);
    expect(scene.state.instances.get(other)?.state).toBe("ready");
    scene.group("fn_d@1", policy("gpu-d", 1, { owner: "ten_d" }));
    expect(refused(lacking(scene, "fn_d@1", 1, "QUOTA_EXCEEDED"))).toEqual(["QUOTA_EXCEEDED"]);
  });
});

describe("a version that takes over", () => {
  const FAMILY = { family: "fn_a", min_instances: 1 };

  test("gets the devices of an idle one of its function, although its minimum needs it", () => {
    const scene = new Scene();
    const [before = ""] = started(scene.group(A, policy("gpu-a", 1, FAMILY)));
    scene.started(before);
    scene.specialised(before);
    const [next = ""] = started(scene.group(A2, policy("gpu-b", 1, FAMILY)));
    expect(removed(lack(scene, next, 1))).toEqual([next, before]);
    // The earlier version does not start again before the later one has had its turn.
    expect(scene.removed(before)).toMatchObject([{ type: "start", group: A2 }]);
  });

  test("waits for a busy one, which goes on", () => {
    const scene = new Scene();
    idle(scene, A, policy("gpu-a", 1, { family: "fn_a" }));
    scene.call(A);
    scene.group(A2, policy("gpu-b", 1, { family: "fn_a" }));
    const effects = lacking(scene, A2, 1);
    expect([removed(effects), refused(effects)]).toEqual([["i2"], []]);
  });

  test("is taken over from by no earlier one", () => {
    const scene = new Scene();
    scene.group(A, policy("gpu-a", 1, { family: "fn_a" }));
    const [later = ""] = started(scene.group(A2, policy("gpu-b", 1, FAMILY)));
    scene.started(later);
    scene.specialised(later);
    const effects = lacking(scene, A, 1);
    expect([removed(effects), refused(effects)]).toEqual([["i2"], ["CAPACITY_FULL"]]);
  });
});

test("instances with devices are never cells, adopted ones neither", () => {
  const scene = new Scene();
  scene.feed({ type: "cells_set", target: 2 });
  scene.group(A, policy("gpu-a"));
  expect(removed(scene.adopted("old1", null, "gpu-a"))).toEqual(["old1"]);
  expect(scene.state.holders.size).toBe(1);
  scene.removed("old1");
  const [instance = ""] = started(scene.call(A)).filter((id) => scene.state.instances.get(id)?.group?.key === A);
  scene.feed({ type: "call_cancelled", call: 1 });
  expect(removed(scene.started(instance))).toEqual([]);
  expect(scene.specialised(instance)).not.toContainEqual(expect.objectContaining({ type: "remove" }));
  scene.feed({ type: "group_drop", group: A, reject: "deleted" });
  scene.removed(instance);
  expect([scene.state.holders.size, scene.state.lacking.size]).toEqual([0, 0]);
});
