/**
 * Reader of one encoded envelope: the reader of protobufjs with bounds.
 *
 * R1. At most a given number of fields is read, so the time and memory of one envelope are bounded.
 * R2. A 64-bit number above 2^53 - 1 ends with an error: JavaScript numbers hold no larger ones exactly.
 * R3. Text that is not UTF-8 ends with an error.
 */
import protobuf from "protobufjs/minimal.js";
import { LIMITS } from "../../base/limits.ts";

const REPLACEMENT = "\ufffd";
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes are no envelope. The caller makes the refusal, which names the field at `pos`. */
export class MalformedError extends Error {
  override readonly name = "MalformedError";
}

export class EnvelopeReader extends protobuf.BufferReader {
  #field_count = 0;
  readonly #bytes: Buffer;
  readonly #fields_max: number;

  constructor(bytes: Buffer, fields_max: number) {
    super(bytes);
    this.#bytes = bytes;
    this.#fields_max = fields_max;
  }

  override tag(): number {
    if (++this.#field_count > this.#fields_max)
      throw new MalformedError(`has too many fields (limit ${this.#fields_max})`);
    return super.tag();
  }

  // Typed as Long, which the package of that name would return.
  override uint64(): never {
    let value = 0;
    let factor = 1;
    for (let count = 1; ; count++) {
      if (this.pos >= this.len) throw new MalformedError("is truncated");
      if (count > 10) throw new MalformedError("is not a valid number");
      const byte = this.#bytes[this.pos++] ?? 0;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) break;
      factor *= 128;
    }
    if (value > Number.MAX_SAFE_INTEGER) throw new MalformedError("is above 2^53 - 1");
    return value as never;
  }

  override stringVerify(): string {
    const length = this.size();
    const begin = this.pos;
    const end = begin + length;
    if (end > this.len) throw new MalformedError("is truncated");
    this.pos = end;
    const text = this.#bytes.toString("utf8", begin, end);
    // The decoder replaces invalid bytes by this character, which valid text may contain too.
    return text.includes(REPLACEMENT) ? decoded(this.#bytes.subarray(begin, end)) : text;
  }

  override skipType(wireType: number, depth = 0, fieldNumber?: number): protobuf.Reader {
    if (depth > LIMITS.icc_envelope_depth_max)
      throw new MalformedError(`is nested too deeply (limit ${LIMITS.icc_envelope_depth_max} levels)`);
    return super.skipType(wireType, depth, fieldNumber);
  }
}

function decoded(bytes: Buffer): string {
  try {
    return strict.decode(bytes);
  } catch (cause) {
    throw new MalformedError("is not valid UTF-8", { cause });
  }
}
