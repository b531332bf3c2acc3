/**
 * One stream's output of a command, or the result of a call, held to its cap. A single piece, the usual case, is kept as
 * it came.
 */
import { AppError } from "../../base/errors.ts";

const EMPTY = Buffer.alloc(0);

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
