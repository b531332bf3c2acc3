/**
 * Keeps the heap below the memory limit of the function, which is known only after V8 configured its heap. By default V8
 * lets the heap grow up to four times between two full collections. After each one, this sets how far it may grow, so that
 * garbage does not fill the memory that live objects need. The kernel enforces the limit itself.
 */
import { getHeapStatistics, setFlagsFromString } from "node:v8";

const MB = 1024 * 1024;
/** Share of the limit that the process may reach before a full collection. */
const SHARE = 0.85;
const PERCENT_MAX = 300;
const PERCENT_MIN = 10;

export function watchMemory(memory_limit_mb) {
  const target = memory_limit_mb * MB * SHARE;
  let percent_now = PERCENT_MAX;
  const adjust = () => {
    const { used_heap_size: live, total_heap_size } = getHeapStatistics();
    const outside = Math.max(0, process.memoryUsage.rss() - total_heap_size);
    const percent = Math.floor((Math.max(0, target - outside - live) / live) * 100);
    // Few values: each change of a flag makes V8 compute its hash of flags.
    const step = [PERCENT_MAX, 150, 80, 40, 20].find((value) => percent >= value) ?? PERCENT_MIN;
    if (step === percent_now) return;
    percent_now = step;
    setFlagsFromString(`--heap-growing-percent=${step}`);
  };
  // A full collection finds the object dead, a small one does not look for it.
  const registry = new FinalizationRegistry(() => {
    adjust();
    registry.register({}, null);
  });
  registry.register({}, null);
}
