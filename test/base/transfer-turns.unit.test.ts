/** Turns of bulk transfers: a tenant's streams share one bound in each turn of the event loop, and one in each second beside others. */
import { Readable } from "node:stream";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { TransferTurns } from "../../src/base/transfer-turns.ts";
import { readTar } from "../../src/engine/files/archive.ts";
import { entry } from "../support/layer-bytes.ts";

const CHUNK = 64 * 1024;
const CHUNK_MS = (CHUNK * 1_000) / LIMITS.shared_transfer_bytes_per_second;

/** A clock that stands until somebody waits, and then is where that wait ends. */
function jumpingClock(): Clock & { pass(ms: number): void } {
  let now_ms = 1_000_000;
  return {
    ...systemClock,
    monotonicMs: () => now_ms,
    after(delay_ms, run) {
      const end_ms = now_ms + delay_ms;
      const immediate = setImmediate(() => {
        now_ms = Math.max(now_ms, end_ms);
        run();
      });
      return () => clearImmediate(immediate);
    },
    pass(ms) {
      now_ms += ms;
    },
  };
}

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
  const turns = new TransferTurns(jumpingClock());
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
  const turn = new TransferTurns(jumpingClock()).of("a");
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

/** Milliseconds of the clock that 16 streams of a tenant take for 8 chunks each. */
async function streaming(clock: Clock, turns: TransferTurns, tenant_id: string): Promise<number> {
  const begun_ms = clock.monotonicMs();
  const stream = async () => {
    for (let i = 0; i < 8; i++) await turns.of(tenant_id).take(CHUNK);
  };
  await Promise.all(Array.from({ length: 16 }, stream));
  return clock.monotonicMs() - begun_ms;
}

it("bounds the bytes of a tenant in each second while another tenant sends requests", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("b", clock.monotonicMs());
  turns.seen("a", clock.monotonicMs());
  expect(await streaming(clock, turns, "a")).toBeGreaterThanOrEqual((16 * 8 - 2) * CHUNK_MS);
});

it("lets a tenant alone move as fast as it can, once the other was silent for a while", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("a", clock.monotonicMs());
  expect(await streaming(clock, turns, "a")).toBe(0);
  turns.seen("b", clock.monotonicMs());
  clock.pass(LIMITS.shared_transfer_ms);
  turns.seen("a", clock.monotonicMs());
  expect(await streaming(clock, turns, "a")).toBe(0);
});

it("does not wait for bytes that another tenant moves", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("a", clock.monotonicMs());
  turns.seen("b", clock.monotonicMs());
  for (let i = 0; i < 100; i++) turns.of("a").count(CHUNK);
  expect(turns.of("a").isSpent).toBe(true);
  expect(turns.of("b").isSpent).toBe(false);
});

it("counts what is moved in any case, and makes the next take wait for it", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("b", clock.monotonicMs());
  const turn = turns.of("a");
  const begun_ms = clock.monotonicMs();
  turn.count(100 * CHUNK);
  await turn.take(CHUNK);
  expect(clock.monotonicMs() - begun_ms).toBeGreaterThanOrEqual(100 * CHUNK_MS);
});

it("counts an archive as what it unpacks to", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("b", clock.monotonicMs());
  const begun_ms = clock.monotonicMs();
  const size = 16 * 1024 * 1024;
  const archive = gzipSync(entry({ name: "zeros", content: Buffer.alloc(size) }));
  const bounds = { bytes_max: 2 * size, entries_max: 10 };
  const reader = await readTar(Readable.from([archive]), bounds, turns.of("a"));
  await reader.next();
  let bytes = 0;
  for (let piece = await reader.piece(); piece !== null; piece = await reader.piece()) bytes += piece.length;
  await reader.close();
  expect(bytes).toBe(size);
  expect(clock.monotonicMs() - begun_ms).toBeGreaterThanOrEqual((size / CHUNK - 2) * CHUNK_MS);
});

it("lets work that holds much pass without a wait for what is not paid, which the next take waits for", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("b", clock.monotonicMs());
  const turn = turns.of("a");
  const begun_ms = clock.monotonicMs();
  const passing = (async () => {
    for (let i = 0; i < 100; i++) await turn.pass(CHUNK);
  })();
  expect(await turnsDuring(passing)).toBeGreaterThanOrEqual((100 * CHUNK) / LIMITS.file_turn_bytes - 1);
  expect(clock.monotonicMs()).toBe(begun_ms);
  await turn.take(0);
  expect(clock.monotonicMs() - begun_ms).toBeGreaterThanOrEqual(100 * CHUNK_MS - 1);
});

it("forgets what is not paid when the others are silent", async () => {
  const clock = jumpingClock();
  const turns = new TransferTurns(clock);
  turns.seen("b", clock.monotonicMs());
  const turn = turns.of("a");
  const begun_ms = clock.monotonicMs();
  turn.count(10_000 * CHUNK);
  await turn.take(CHUNK);
  expect(clock.monotonicMs() - begun_ms).toBeLessThanOrEqual(LIMITS.shared_transfer_ms + 100);
  expect(turn.isSpent).toBe(false);
});
