/**
 * Bytes that come in pieces, held until they are whole. A single piece, the usual case, is kept as it came. Small
 * ones are put together: each Buffer costs some 400 bytes beside its content, and a client may send one byte at a time.
 */

/** A piece of this size is kept as it is: what it costs beside its content is little. */
const LARGE_BYTES = 4 * 1024;
const BLOCK_BYTES = 16 * 1024;

export class ChunkList {
  #whole: Buffer[] = [];
  #block: Buffer | null = null;
  #used = 0;
  #bytes = 0;

  /** Number of Buffers held. */
  get count(): number {
    return this.#whole.length + (this.#block === null ? 0 : 1);
  }

  /** Takes a piece that nobody else changes. */
  add(piece: Buffer): void {
    this.#bytes += piece.length;
    if (piece.length >= LARGE_BYTES || this.count === 0) {
      this.#closeBlock();
      this.#whole.push(piece);
      return;
    }
    for (let at = 0; at < piece.length; ) {
      this.#block ??= Buffer.allocUnsafeSlow(BLOCK_BYTES);
      const copied = piece.copy(this.#block, this.#used, at);
      at += copied;
      this.#used += copied;
      if (this.#used === BLOCK_BYTES) this.#closeBlock();
    }
  }

  /** All of them, one after the other. */
  bytes(): Buffer {
    this.#closeBlock();
    const [first] = this.#whole;
    return first !== undefined && this.#whole.length === 1 ? first : Buffer.concat(this.#whole, this.#bytes);
  }

  clear(): void {
    this.#whole = [];
    this.#block = null;
    this.#used = 0;
    this.#bytes = 0;
  }

  /** A block that is not full is cut to what it holds. */
  #closeBlock(): void {
    if (this.#block === null) return;
    this.#whole.push(this.#used === BLOCK_BYTES ? this.#block : Buffer.from(this.#block.subarray(0, this.#used)));
    this.#block = null;
    this.#used = 0;
  }
}
