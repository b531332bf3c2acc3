/**
 * Memory outside of V8's heap, given back at once. V8 looks at what waits there to be collected when it is some 64 MB
 * (kExternalAllocationSoftLimit), which is what a stream of large pieces would grow to.
 */

/** A smaller piece may lie in memory that Node shares out (`Buffer.poolSize`). */
const OWN_BYTES_MIN = 8 * 1024;

/** Frees a piece that is all of its memory, and leaves any other. Nobody may look at it any more. */
export function giveBack({ buffer, byteLength }: Uint8Array): void {
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  if (isWhole && byteLength >= OWN_BYTES_MIN) buffer.transfer(0);
}
