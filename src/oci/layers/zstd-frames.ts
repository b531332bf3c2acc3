/**
 * The borders of zstd frames (RFC 8878). A layer may have many frames, as zstd:chunked does. Node's decompressor ends a
 * stream at the end of a frame if more bytes follow in the same write, so each write must end there too.
 *
 * Z1 No piece has bytes of two frames. A piece ends at a frame's end, or at the end of the bytes that are there.
 * Z2 Only the structure is read: contents and checksums are the decompressor's.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

const MAGIC = 0xfd2fb528;
const SKIPPABLE = 0x184d2a50;
/** Bytes of the content's size, by its flag. */
const CONTENT_SIZE_BYTES = [0, 2, 4, 8];
const BLOCK_HEAD_BYTES = 3;
const BLOCK_RLE = 1;
const BLOCK_RESERVED = 3;
const CHECKSUM_BYTES = 4;
/** The longest part of a head: window and size of the content. */
const HEAD_BYTES_MAX = 9;

type Part = "magic" | "skippable" | "descriptor" | "head" | "block";

function refusal(why: string): AppError {
  return new AppError("IMAGE_INVALID", `zstd data ${why}`);
}

export class ZstdFrames {
  #part: Part = "magic";
  readonly #head = Buffer.alloc(HEAD_BYTES_MAX);
  #have = 0;
  #wanted = 4;
  /** Bytes of contents to pass over. */
  #passing = 0;
  #isLast = false;
  #hasChecksum = false;
  #isSingle = false;
  #frames_left: number = LIMITS.layer_zstd_frames_max;

  /** True between two frames. */
  get isComplete(): boolean {
    return this.#part === "magic" && this.#have === 0;
  }

  /** Yields successive parts of `bytes` (Z1). Throws IMAGE_INVALID for what is no zstd, or needs too much memory. */
  *pieces(bytes: Uint8Array): Generator<Uint8Array> {
    let begin = 0;
    for (let at = 0; at < bytes.length; ) {
      if (this.#passing > 0) {
        const passed = Math.min(this.#passing, bytes.length - at);
        at += passed;
        this.#passing -= passed;
      } else {
        this.#head[this.#have++] = bytes[at++] ?? 0;
        if (this.#have === this.#wanted) this.#advance();
      }
      if (this.#passing > 0 || !this.#isLast) continue;
      this.#isLast = false;
      this.#expect("magic", 4);
      yield bytes.subarray(begin, at);
      begin = at;
    }
    if (begin < bytes.length) yield bytes.subarray(begin);
  }

  #expect(part: Part, wanted: number): void {
    this.#part = part;
    this.#have = 0;
    this.#wanted = wanted;
  }

  #advance(): void {
    const head = this.#head;
    if (this.#part === "magic") {
      const magic = head.readUInt32LE(0);
      if (this.#frames_left-- === 0) throw refusal(`has too many frames (limit ${LIMITS.layer_zstd_frames_max})`);
      if (magic === MAGIC) this.#expect("descriptor", 1);
      else if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE) this.#expect("skippable", 4);
      else throw refusal(`has no frame at its end: ${head.toString("hex", 0, 4)}`);
    } else if (this.#part === "skippable") {
      this.#passing = head.readUInt32LE(0);
      this.#isLast = true;
    } else if (this.#part === "descriptor") {
      this.#readDescriptor(head[0] ?? 0);
    } else if (this.#part === "head") {
      this.#checkWindow();
      this.#expect("block", BLOCK_HEAD_BYTES);
    } else {
      this.#readBlock(head.readUIntLE(0, BLOCK_HEAD_BYTES));
    }
  }

  #readDescriptor(descriptor: number): void {
    const size_flag = descriptor >> 6;
    this.#isSingle = (descriptor & 0x20) !== 0;
    this.#hasChecksum = (descriptor & 0x04) !== 0;
    const size_bytes = size_flag === 0 && this.#isSingle ? 1 : (CONTENT_SIZE_BYTES[size_flag] ?? 0);
    if ((descriptor & 0x03) !== 0) throw refusal("needs a dictionary");
    this.#expect("head", (this.#isSingle ? 0 : 1) + size_bytes);
  }

  /** A frame in one segment has its content as window. */
  #checkWindow(): void {
    const bytes = this.#isSingle ? this.#contentSize() : this.#windowSize();
    const bytes_max = 2 ** LIMITS.layer_zstd_window_log_max;
    if (bytes > bytes_max) throw refusal(`needs a window of ${bytes} bytes (limit ${bytes_max} bytes)`);
  }

  #windowSize(): number {
    const byte = this.#head[0] ?? 0;
    const base = 2 ** (10 + (byte >> 3));
    return base + (base / 8) * (byte & 0x07);
  }

  #contentSize(): number {
    if (this.#wanted === 1) return this.#head[0] ?? 0;
    if (this.#wanted === 2) return this.#head.readUInt16LE(0) + 256;
    if (this.#wanted === 4) return this.#head.readUInt32LE(0);
    return Number(this.#head.readBigUInt64LE(0));
  }

  #readBlock(head: number): void {
    const type = (head >> 1) & 0x03;
    if (type === BLOCK_RESERVED) throw refusal("is corrupt: a block of a reserved type");
    this.#passing = type === BLOCK_RLE ? 1 : head >> 3;
    this.#isLast = (head & 1) === 1;
    if (this.#isLast && this.#hasChecksum) this.#passing += CHECKSUM_BYTES;
    this.#have = 0;
  }
}
