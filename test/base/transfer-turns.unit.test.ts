/** Turns of file transfers: a tenant's streams share one bound in each turn of the event loop. */
import { expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { TransferTurns } from "../../src/base/transfer-turns.ts";

const CHUNK = 64 * 1024;

/** Turns of the event loop that end while `work` goes on. */
async function turnsDuring(work: Promise<unknown>): Promise<number> {
  let count = 0;
  let isOver = false;
  void work.then(() => {
    isOver = true;
  });
  while (!isOver) {
    await new Promise((resolve) => setImmediate(resolve));
    count++;
  }
  return count;
}

it("bounds the bytes of all streams of a tenant together, and lets another tenant move its own", async () => {
  const turns = new TransferTurns();
  const stream = async (chunks: number) => {
    const turn = turns.of("a");
    for (let i = 0; i < chunks; i++) await turn.take(CHUNK);
  };
  const [streams, chunks] = [16, 8];
  const moving = Promise.all(Array.from({ length: streams }, () => stream(chunks)));
  expect(turns.of("a").isSpent).toBe(true);
  expect(turns.of("b").isSpent).toBe(false);
  expect(await turnsDuring(moving)).toBeGreaterThanOrEqual((streams * chunks * CHUNK) / LIMITS.file_turn_bytes - 1);
});

it("holds up nobody who moves less than the bound in a turn", async () => {
  const turn = new TransferTurns().of("a");
  for (let i = 0; i < 10; i++) {
    turn.count(LIMITS.file_turn_bytes - 1);
    expect(turn.isSpent).toBe(false);
    await new Promise((resolve) => setImmediate(resolve));
  }
  turn.count(LIMITS.file_turn_bytes);
  expect(turn.isSpent).toBe(true);
  await turn.take(0);
  expect(turn.isSpent).toBe(false);
});
