/** Output within a cap: all of it (`GatheredOutput`) or its end (`OutputTail`). */
import { AppError } from "./errors.ts";

const EMPTY = Buffer.alloc(0);

/** One stream's output of a command, or the result of a call. A single piece, the usual case, is kept as it came. */
export class GatheredOutput {
  readonly #bytes_max: number;
  #buffer: Buffer = EMPTY;
  #bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  /** Holds at most twice the cap, in however small pieces it comes. Throws INTERNAL above the cap. */
  add(body: Buffer): void {
    const bytes = this.#bytes + body.length;
    if (bytes > this.#bytes_max) {
      throw new AppError("INTERNAL", `output above the requested ${this.#bytes_max} bytes`);
    }
    if (this.#bytes === 0) {
      this.#buffer = body;
    } else {
      if (bytes > this.#buffer.length) {
        const larger = Buffer.allocUnsafe(Math.max(bytes, Math.min(this.#bytes_max, 2 * this.#buffer.length)));
        this.#buffer.copy(larger, 0, 0, this.#bytes);
        this.#buffer = larger;
      }
      body.copy(this.#buffer, this.#bytes);
    }
    this.#bytes = bytes;
  }

  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#bytes);
  }

  text(): string {
    return this.#bytes === 0 ? "" : this.#buffer.toString("utf8", 0, this.#bytes);
  }
}

/** Keeps the last bytes of endless output. */
export class OutputTail {
  readonly #bytes_max: number;
  #buffer: Buffer = EMPTY;
  #bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  /** Copies what it keeps. Holds at most twice the cap; time is linear in the bytes, however small the pieces are. */
  add(piece: Buffer): void {
    const kept = piece.subarray(-this.#bytes_max);
    if (this.#buffer.length === 0) this.#buffer = Buffer.allocUnsafeSlow(2 * this.#bytes_max);
    if (this.#bytes + kept.length > this.#buffer.length) {
      const begin = Math.max(0, this.#bytes - this.#bytes_max);
      this.#buffer.copyWithin(0, begin, this.#bytes);
      this.#bytes -= begin;
    }
    kept.copy(this.#buffer, this.#bytes);
    this.#bytes += kept.length;
  }

  /** Returns the text without a character that was cut at its beginning. */
  text(): string {
    let at = Math.max(0, this.#bytes - this.#bytes_max);
    const end = Math.min(at + 3, this.#bytes);
    while (at < end && ((this.#buffer[at] ?? 0) & 0xc0) === 0x80) at++;
    return this.#buffer.toString("utf8", at, this.#bytes);
  }
}
