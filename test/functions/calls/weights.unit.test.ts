import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { sharesOf, Weights } from "../../../src/functions/calls/weights.ts";
import { HandClock } from "../../pool/hand-clock.ts";

const running = (counts: Readonly<Record<string, number>>) =>
  new Map(
    Object.entries(counts).map(([tenant, count]) => [
      tenant,
      new Set(Array.from({ length: count }, (_, i) => `${tenant}${i}`)),
    ]),
  );

describe("shares of the processor", () => {
  it("are equal for tenants, whatever the number of their calls", () => {
    const shares = sharesOf(running({ a: 8, b: 1, c: 3 }));
    const sums = new Map<string, number>();
    for (const [id, share] of shares) sums.set(id.slice(0, 1), (sums.get(id.slice(0, 1)) ?? 0) + share);
    expect(shares.size).toBe(12);
    for (const sum of sums.values()) expect(sum).toBeCloseTo(1);
  });

  it("are not changed for a tenant that runs calls alone", () => {
    expect(sharesOf(running({ a: 100 })).size).toBe(0);
    expect(sharesOf(running({})).size).toBe(0);
  });
});

describe("weights of instances", () => {
  function scene() {
    const clock = new HandClock();
    const written: [string, number][] = [];
    const weights = new Weights(clock, (id, share) => written.push([id, share]));
    const tick = async () => {
      await clock.pass(LIMITS.weights_interval_ms);
      return written.splice(0);
    };
    return { weights, tick, written };
  }

  it("follow the calls that run, and only changed ones are written", async () => {
    const { weights, tick } = scene();
    for (const id of ["a1", "a2"]) weights.began("a", id);
    expect(await tick()).toEqual([]);
    weights.began("b", "b1");
    expect(await tick()).toEqual([
      ["a1", 0.5],
      ["a2", 0.5],
    ]);
    expect(await tick()).toEqual([]);
    weights.ended("a", "a2");
    expect(await tick()).toEqual([["a1", 1]]);
    weights.ended("b", "b1");
    weights.began("a", "a2");
    expect(await tick()).toEqual([]);
  });

  it("are small at once for an instance whose idle work is limited, and whole again before its next call", async () => {
    const { weights, tick, written } = scene();
    weights.began("a", "a1");
    weights.rested("a1");
    weights.ended("a", "a1");
    expect(written.splice(0)).toEqual([["a1", LIMITS.idle_share]]);
    weights.woke("a1");
    weights.began("a", "a1");
    expect(written.splice(0)).toEqual([["a1", 1]]);
    weights.began("b", "b1");
    expect(await tick()).toEqual([]);
  });

  it("are written in bounded numbers, the rest at the next time", async () => {
    const { weights, tick } = scene();
    const count = LIMITS.weights_written_max + 1;
    for (let i = 0; i < count; i++) weights.began("a", `a${i}`);
    weights.began("b", "b1");
    expect((await tick()).length).toBe(LIMITS.weights_written_max);
    expect((await tick()).length).toBe(1);
    expect(await tick()).toEqual([]);
  });
});
