/**
 * Memory outside of V8's heap, given back at once. V8 looks at what waits there to be collected when it is some 64 MB
 * (kExternalAllocationSoftLimit), which is what a stream of large pieces would grow to.
 */

/**
 * Frees a piece that is all of its memory, and leaves any other: it may lie in what Node shares out to small pieces
 * (`Buffer.poolSize`). Nobody may look at it any more.
 */
export function giveBack({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}

/**
 * Frees memory of `bytes` with the last of the parts that were given out of it, one after the other, and leaves it where
 * more is to come. The same for all parts of it. Only where that memory is nobody else's.
 */
export function giveBackLast({ buffer, byteOffset, byteLength }: Uint8Array, bytes: number): void {
  const isLast = buffer.byteLength === bytes && byteOffset + byteLength === bytes;
  if (isLast && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
