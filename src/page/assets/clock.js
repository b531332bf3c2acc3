/** The browser's time, in one place, as the daemon has it in src/base/clock.ts. */

/**
 * @typedef {object} Clock
 * @property {() => number} epochMs wall clock, for ages of what the daemon has dated
 * @property {() => number} monotonicMs for durations
 * @property {(delay_ms: number, run: () => void) => () => void} after returns what cancels it
 */

/** @type {Clock} */
export const browserClock = {
  epochMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delay_ms, run) {
    const timer = setTimeout(run, delay_ms);
    return () => clearTimeout(timer);
  },
};
