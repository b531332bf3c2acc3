import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { IdleCpu, type IdleGroup } from "../../../src/functions/calls/idle-cpu.ts";
import { HandClock } from "../../pool/hand-clock.ts";

function scene() {
  const clock = new HandClock();
  const told: unknown[] = [];
  const idle = new IdleCpu({
    clock,
    onQuiet: (tenant_id, id) => told.push(["quiet", tenant_id, id]),
    onUsed: ({ function_name }, ms) => told.push(["used", function_name, ms]),
  });
  const group = (name: string): IdleGroup & { used_ms: number } => {
    const made = {
      tenant_id: `of-${name}`,
      function_name: name,
      used_ms: 100,
      usedMs: () => made.used_ms,
      limit: (isIdle: boolean) => void told.push([isIdle ? "limit" : "lift", name]),
    };
    return made;
  };
  const look = async () => {
    await clock.pass(LIMITS.idle_look_ms);
    return told.splice(0);
  };
  return { clock, idle, group, told, look };
}

describe("the processor time of an idle instance", () => {
  it("has a quota from the second look on, and is counted from the first", async () => {
    const { clock, idle, group, told, look } = scene();
    const a = group("a");
    idle.ended("i1", a);
    expect(await look()).toEqual([]);
    a.used_ms += 7;
    expect(await look()).toEqual([
      ["used", "a", 7],
      ["limit", "a"],
      ["quiet", "of-a", "i1"],
    ]);
    expect(clock.timer_count).toBe(0);
    a.used_ms += 5;
    idle.began("i1");
    expect(told.splice(0)).toEqual([
      ["lift", "a"],
      ["used", "a", 5],
    ]);
    idle.began("i1");
    expect(told).toEqual([]);
  });

  it("costs nothing between calls that follow each other", async () => {
    const { idle, group, told, look } = scene();
    const a = group("a");
    for (let n = 0; n < 10; n++) {
      idle.ended("i1", a);
      expect(await look()).toEqual([]);
      idle.began("i1");
    }
    expect(told).toEqual([]);
    expect(await look()).toEqual([]);
  });

  it("is lifted for the end of the instance, which counts as running until then", async () => {
    const { idle, group, told, look } = scene();
    idle.ended("i1", group("a"));
    idle.forget("i1");
    expect(told.splice(0)).toEqual([["quiet", "of-a", "i1"]]);
    idle.ended("i2", group("b"));
    await look();
    await look();
    idle.forget("i2");
    idle.forget("i2");
    expect(told.splice(0)).toEqual([["lift", "b"]]);
    expect(await look()).toEqual([]);
  });

  it("is limited for a bounded number at a look, the rest at the next ones", async () => {
    const { idle, group, told, look } = scene();
    const a = group("a");
    for (let n = 0; n < LIMITS.idle_limited_max + 1; n++) idle.ended(`i${n}`, a);
    const limited: number[] = [];
    for (let n = 0; n < 4; n++) limited.push((await look()).filter((one) => String(one) === "limit,a").length);
    expect(limited).toEqual([0, LIMITS.idle_limited_max, 0, 1]);
    a.used_ms += 1;
    idle.count();
    idle.count();
    // Every one of them, the last one at the second count.
    expect(told.filter((one) => String(one) === "used,a,1").length).toBe(LIMITS.idle_limited_max + 1);
  });
});
