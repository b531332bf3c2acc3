/**
 * Counts the bytes of files in an archive of the daemon as it passes, in GNU's tar format (engine/files/tar.ts). Keeps of
 * each piece only the rest of a header.
 */
export const BLOCK_BYTES = 512;

export class TarBytes {
  bytes = 0;
  #head = Buffer.alloc(0);
  /** Of an entry's content and what fills it up, still to come. */
  #skip = 0;

  add(piece: Uint8Array): void {
    for (let at = 0; at < piece.length; ) {
      const passed = Math.min(this.#skip, piece.length - at);
      this.#skip -= passed;
      at += passed;
      const taken = piece.subarray(at, at + BLOCK_BYTES - this.#head.length);
      this.#head = Buffer.concat([this.#head, taken]);
      at += taken.length;
      if (this.#head.length < BLOCK_BYTES) return;
      this.#header(this.#head);
      this.#head = Buffer.alloc(0);
    }
  }

  #header(block: Buffer): void {
    const size = numberOf(block.subarray(124, 136));
    // A long name (L, K) stands in an entry of its own, and is no file.
    if (block[156] === 0x30) this.bytes += size;
    this.#skip = Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;
  }
}

/** Returns the number of a header's field: octal digits, or where those are too few, base 256. */
export function numberOf(field: Buffer): number {
  if ((field[0] ?? 0) & 0x80) return field.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0);
  return Number.parseInt(field.toString("latin1"), 8) || 0;
}
