/**
 * Keeps the heap below the memory limit of the function, which is known only after V8 configured its heap. By default V8
 * lets the heap grow up to four times between two full collections, so garbage would fill the memory that live objects
 * need. The kernel enforces the limit itself.
 */
import { setFlagsFromString } from "node:v8";

const PERCENT_MIN = 20;
const PERCENT_MAX = 40;
/** Large limits have room for more garbage beside the memory outside of the heap. */
const MB_PER_PERCENT = 25;
/**
 * Limits up to here have no room for the garbage of the time in which V8 marks beside the handler: with it, the kernel
 * killed one of two processes with 120 MB of live objects in 256 MB. The price is a pause of about 1 ms for each MB of live
 * objects in a full collection, on two loaded cores.
 */
const PAUSING_MB_MAX = 1024;

/**
 * Sets the growth. To be called when the module was loaded: these flags change V8's hash of flags, and Node compiles
 * built-in modules that load later without their code cache.
 */
export function limitGrowth(memory_limit_mb) {
  const percent = Math.floor(memory_limit_mb / MB_PER_PERCENT);
  setFlagsFromString(`--heap-growing-percent=${Math.min(PERCENT_MAX, Math.max(PERCENT_MIN, percent))}`);
  if (memory_limit_mb <= PAUSING_MB_MAX) setFlagsFromString("--no-incremental-marking");
}
