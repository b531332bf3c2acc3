/** Turns at cache mounts: who waits for whom, in which order, and what a command that gives up leaves. */
import { expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { CacheTurns } from "../../../src/oci/builds/cache-turns.ts";

const NEVER = new AbortController().signal;

function commands() {
  const turns = new CacheTurns();
  const begun: string[] = [];
  const take = async (name: string, sharing: "shared" | "locked" | "private", signal: AbortSignal = NEVER) => {
    const turn = await turns.take("key", sharing, signal);
    begun.push(`${name}${turn.number}`);
    return turn;
  };
  return { turns, begun, take };
}
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

it("lets several share a mount, and one alone have it, in the order in which they came", async () => {
  const { begun, take } = commands();
  const [a, b] = [await take("a", "shared"), await take("b", "shared")];
  const c = take("c", "locked");
  const d = take("d", "shared");
  a.end();
  a.end();
  await settled();
  expect(begun).toEqual(["a0", "b0"]);
  b.end();
  const locked = await c;
  await settled();
  expect(begun).toEqual(["a0", "b0", "c0"]);
  locked.end();
  (await d).end();
  (await take("e", "locked")).end();
  expect(begun).toEqual(["a0", "b0", "c0", "d0", "e0"]);
});

it("gives a command that needs its own the first that nobody has", async () => {
  const { begun, take } = commands();
  const a = await take("a", "shared");
  const b = await take("b", "private");
  await take("c", "private");
  b.end();
  await take("d", "private");
  a.end();
  await take("e", "private");
  expect(begun).toEqual(["a0", "b1", "c2", "d1", "e0"]);
});

it("forgets a command that gives up, and lets those behind it begin", async () => {
  const { begun, take } = commands();
  const gone = new AbortController();
  const a = await take("a", "shared");
  const b = take("b", "locked", gone.signal);
  const c = take("c", "shared");
  gone.abort(new Error("cancelled"));
  await expect(b).rejects.toThrow("cancelled");
  (await c).end();
  a.end();
  await expect(take("d", "locked", gone.signal)).rejects.toThrow("cancelled");
  (await take("e", "locked")).end();
  expect(begun).toEqual(["a0", "c0", "e0"]);
});

it("lets no more wait than builds run", async () => {
  const { take } = commands();
  await take("a", "locked");
  for (let i = 0; i < LIMITS.builds_max; i++) void take(`${i}`, "locked");
  await expect(take("more", "locked")).rejects.toThrow(/too many commands wait/);
});
