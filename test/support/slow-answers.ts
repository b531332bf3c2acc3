/**
 * Loaded before vitest in each test worker: gives vitest's main process ten minutes for each answer, in place of one. That bound
 * is fixed in vitest 3 (birpc). It counts while a worker waits for a command or the machine is busy, and ends the whole run: all
 * files that follow are dropped.
 */
const ANSWER_MS = 60_000;
const ALLOWED_MS = 600_000;

const original = globalThis.setTimeout;
const patient = (work: (...args: unknown[]) => void, after_ms?: number, ...args: unknown[]) => {
  const isAnswer = after_ms === ANSWER_MS && /node_modules\/vitest\/dist\/chunks\//.test(new Error().stack ?? "");
  return original(work, isAnswer ? ALLOWED_MS : after_ms, ...args);
};
globalThis.setTimeout = Object.defineProperties(
  patient,
  Object.getOwnPropertyDescriptors(original),
) as unknown as typeof setTimeout;
