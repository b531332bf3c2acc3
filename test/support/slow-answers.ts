/**
 * Gives vitest's main process ten minutes for each answer to a test worker, in place of one. The bound is fixed in vitest 3
 * (birpc), counts while a worker waits for a command, and ends the whole run: all files that follow are dropped.
 */
const ANSWER_MS = 60_000;
const ALLOWED_MS = 600_000;

type Timers = { isPatient?: boolean; setTimeout: (work: () => void, after_ms?: number, ...rest: unknown[]) => unknown };

const symbol = Object.getOwnPropertySymbols(globalThis).find(({ description }) => description === "vitest:SAFE_TIMERS");
const timers = symbol === undefined ? undefined : (globalThis as unknown as Record<symbol, Timers | undefined>)[symbol];
if (timers !== undefined && timers.isPatient !== true) {
  timers.isPatient = true;
  const { setTimeout: original } = timers;
  timers.setTimeout = (work, after_ms, ...rest) =>
    original(work, after_ms === ANSWER_MS ? ALLOWED_MS : after_ms, ...rest);
}
