/** What a terminal showed while nobody looked: the newest bytes up to a bound, in memory that is taken when there are any. */
export class Backlog {
  readonly #bytes_max: number;
  #ring: Buffer | null = null;
  /** Where the next byte goes. */
  #end = 0;
  #length = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  get length(): number {
    return this.#length;
  }

  add(chunk: Buffer): void {
    this.#ring ??= Buffer.allocUnsafe(this.#bytes_max);
    const newest = chunk.subarray(Math.max(0, chunk.length - this.#bytes_max));
    const before_end = newest.copy(this.#ring, this.#end);
    newest.copy(this.#ring, 0, before_end);
    this.#end = (this.#end + newest.length) % this.#bytes_max;
    this.#length = Math.min(this.#bytes_max, this.#length + newest.length);
  }

  /** All of it, oldest first; nothing is left. */
  take(): Buffer {
    const ring = this.#ring;
    if (ring === null) return Buffer.alloc(0);
    const begin = (this.#end - this.#length + this.#bytes_max) % this.#bytes_max;
    const isWrapped = begin + this.#length > this.#bytes_max;
    const bytes = isWrapped
      ? Buffer.concat([ring.subarray(begin), ring.subarray(0, this.#end)])
      : ring.subarray(begin, begin + this.#length);
    this.clear();
    return bytes;
  }

  clear(): void {
    this.#ring = null;
    this.#end = 0;
    this.#length = 0;
  }
}
