/**
 * Preloaded into a daemon (`--import`): its wall clock is off by as many milliseconds as the file in HEARTH_TEST_CLOCK
 * says, at every look. Monotonic time and timers are left alone, as when an administrator sets the clock.
 */
import { readFileSync } from "node:fs";

const file = process.env.HEARTH_TEST_CLOCK ?? "";
const RealDate = Date;
const now = (): number => RealDate.now() + Number(readFileSync(file, "utf8"));

class ShiftedDate extends RealDate {
  constructor(...given: [] | [number | string | Date]) {
    super(given[0] ?? now());
  }

  static override now(): number {
    return now();
  }
}

globalThis.Date = ShiftedDate as DateConstructor;
