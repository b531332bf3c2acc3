/**
 * The clock of an open-loop run, in a thread of its own: Node's timers step in whole milliseconds, which is as long as
 * a warm call takes. A futex wait ends within about 0.1 ms of its time and costs nothing while it lasts.
 */
import { parentPort, workerData } from "node:worker_threads";
import { machineMs } from "./clock.ts";
import { poissonArrivals } from "./stats.ts";

export interface PacerData {
  readonly rate_per_second: number;
  readonly length_ms: number;
  readonly seed: number;
  /** The first moment, on the machine's clock. */
  readonly start_ms: number;
}

const data = workerData as PacerData;
const never = new Int32Array(new SharedArrayBuffer(4));

for (const at_ms of poissonArrivals(data.rate_per_second, data.length_ms, data.seed)) {
  const due_ms = data.start_ms + at_ms;
  for (;;) {
    const wait_ms = due_ms - machineMs();
    if (wait_ms <= 0) break;
    Atomics.wait(never, 0, 0, wait_ms);
  }
  parentPort?.postMessage(due_ms);
}
parentPort?.postMessage(null);
