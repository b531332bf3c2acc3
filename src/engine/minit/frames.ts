/**
 * The framing shared by minit and the launcher: u32 length (of all that follows), u8 type, u32 id, body;
 * integers little-endian. A `str` is a u32 length that counts one trailing NUL, then the bytes: C reads it in place.
 * The other end's description of the same is runtimes/minit/protocol.h.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

/** Bytes before a frame's body: length, type, id. */
export const FRAME_HEAD_BYTES = 9;
/** Part of the head that the length field counts. */
const COUNTED_HEAD_BYTES = 5;

export const FRAME = {
  PING: 0x01,
  EXEC: 0x02,
  STDIN: 0x03,
  STDIN_CLOSE: 0x04,
  KILL: 0x05,
  SHUTDOWN: 0x06,
  RUN: 0x07,
  RESIZE: 0x08,
  SIGNAL_PID: 0x09,
  SERVE: 0x0a,
  SERVE_TAKE: 0x0b,
  MAIN_ATTACH: 0x0c,
  READY: 0x80,
  PONG: 0x81,
  STARTED: 0x82,
  STDOUT: 0x83,
  STDERR: 0x84,
  EXIT: 0x85,
  IDLE: 0x86,
  ERROR: 0x87,
  SIGNALLED: 0x88,
  SPAWN: 0x11,
  NETNS_ADD: 0x12,
  NETNS_CUT: 0x13,
  STAT_IN_ROOT: 0x14,
  LAUNCHER_PING: 0x15,
  NETNS_REMOVE: 0x16,
  ATTACH: 0x17,
  SPAWNED: 0x91,
  NETNS: 0x92,
  STAT: 0x94,
  LAUNCHER_PONG: 0x95,
  ATTACHED: 0x97,
  STORAGE_OPEN: 0x20,
  STORAGE_CLOSE: 0x21,
  STORAGE_CREATE: 0x22,
  STORAGE_SNAPSHOT: 0x23,
  STORAGE_DELETE: 0x24,
  STORAGE_LIMIT: 0x25,
  STORAGE_USAGE: 0x26,
  STORAGE_LIST: 0x27,
  OVERLAY_MOUNT: 0x28,
  UNMOUNT: 0x29,
  STORAGE_RENAME: 0x2a,
  STORAGE_SNAPSHOTS: 0x2b,
  LSTAT_IN_ROOT: 0x2f,
  CALL_OPEN: 0x60,
  CALL_BEGIN: 0x61,
  CALL_CHUNK: 0x62,
  CALL_END: 0x63,
  CALL_RESULT: 0x64,
  CALL_LOG: 0x65,
  STORED: 0xa0,
} as const;

/** Writes one frame's body into a buffer of exactly the right size. */
export class FrameWriter {
  readonly buffer: Buffer;
  #at = FRAME_HEAD_BYTES;

  /** `body_bytes`: the body's size, known before (use `strBytes`). Refuses one above the frame bound. */
  constructor(type: number, id: number, body_bytes: number) {
    if (body_bytes > LIMITS.frame_bytes_max) {
      throw new AppError("BODY_TOO_LARGE", `frame too large: ${body_bytes} bytes (limit ${LIMITS.frame_bytes_max})`);
    }
    this.buffer = Buffer.allocUnsafe(FRAME_HEAD_BYTES + body_bytes);
    this.buffer.writeUInt32LE(COUNTED_HEAD_BYTES + body_bytes, 0);
    this.buffer[4] = type;
    this.buffer.writeUInt32LE(id, 5);
  }

  u8(value: number): this {
    this.buffer[this.#at] = value;
    this.#at += 1;
    return this;
  }

  u16(value: number): this {
    this.#at = this.buffer.writeUInt16LE(value, this.#at);
    return this;
  }

  u32(value: number): this {
    this.#at = this.buffer.writeUInt32LE(value, this.#at);
    return this;
  }

  /** A whole number up to 2^53. */
  u64(value: number): this {
    this.#at = this.buffer.writeBigUInt64LE(BigInt(value), this.#at);
    return this;
  }

  str(text: string): this {
    const bytes = this.buffer.write(text, this.#at + 4);
    this.buffer.writeUInt32LE(bytes + 1, this.#at);
    this.#at += 4 + bytes;
    this.buffer[this.#at] = 0;
    this.#at += 1;
    return this;
  }

  strs(texts: readonly string[]): this {
    for (const text of texts) this.str(text);
    return this;
  }

  raw(bytes: Uint8Array): this {
    this.buffer.set(bytes, this.#at);
    this.#at += bytes.length;
    return this;
  }

  /** Writes `text` without length or NUL. */
  text(text: string): this {
    this.#at += this.buffer.write(text, this.#at);
    return this;
  }
}

/** The bytes that `text` takes as a `str`. */
export function strBytes(text: string): number {
  return 5 + Buffer.byteLength(text);
}

/** The sum over a list of `str`s. */
export function strsBytes(texts: readonly string[]): number {
  let bytes = 0;
  for (const text of texts) bytes += strBytes(text);
  return bytes;
}

export function bareFrame(type: number, id: number): Buffer {
  return new FrameWriter(type, id, 0).buffer;
}

/** `body` is valid only during the call; keep a copy of what must stay. */
export type OnFrame = (type: number, id: number, body: Buffer) => void;

const NOT_IN_PIECES = (): boolean => false;

/** Cuts a byte stream into frames. Holds at most one incomplete frame, bounded by `frame_bytes_max`. */
export class FrameReader {
  readonly #onFrame: OnFrame;
  readonly #isInPieces: (type: number) => boolean;
  #parts: Buffer[] = [];
  #held_bytes = 0;
  #wanted_bytes = 0;
  /** Type and id of a frame that is handed on in pieces, and the number of its bytes that are still to come. */
  #piece = { type: 0, id: 0, left_bytes: 0 };

  /**
   * Frames of a type for which `isInPieces` holds are handed on as their bytes come, in one call or several, without
   * being put together first: for those that are a stream themselves.
   */
  constructor(onFrame: OnFrame, isInPieces: (type: number) => boolean = NOT_IN_PIECES) {
    this.#onFrame = onFrame;
    this.#isInPieces = isInPieces;
  }

  /** Takes the next piece. Throws on a length that no peer of ours sends: the connection must be closed then. */
  push(received: Buffer): void {
    const { type, id, left_bytes } = this.#piece;
    let chunk = received;
    if (left_bytes > 0) {
      const bytes = Math.min(left_bytes, received.length);
      this.#piece.left_bytes -= bytes;
      this.#onFrame(type, id, received.subarray(0, bytes));
      if (bytes === received.length) return;
      chunk = received.subarray(bytes);
    }
    if (this.#held_bytes === 0) {
      this.#drain(chunk);
      return;
    }
    this.#parts.push(chunk);
    this.#held_bytes += chunk.length;
    if (this.#held_bytes < this.#wanted_bytes) return;
    const whole = Buffer.concat(this.#parts, this.#held_bytes);
    this.#parts = [];
    this.#held_bytes = 0;
    this.#drain(whole);
  }

  #drain(buffer: Buffer): void {
    let at = 0;
    let wanted = FRAME_HEAD_BYTES;
    while (buffer.length - at >= FRAME_HEAD_BYTES) {
      const counted = buffer.readUInt32LE(at);
      if (counted < COUNTED_HEAD_BYTES || counted > LIMITS.frame_bytes_max + 65_536) {
        throw new AppError("INTERNAL", `frame length out of range: ${counted}`);
      }
      const end = at + 4 + counted;
      if (end > buffer.length) {
        if (this.#startPiece(buffer, at, end)) return;
        wanted = 4 + counted;
        break;
      }
      this.#onFrame(buffer[at + 4] ?? 0, buffer.readUInt32LE(at + 5), buffer.subarray(at + FRAME_HEAD_BYTES, end));
      at = end;
    }
    if (at < buffer.length) {
      const rest = at === 0 ? buffer : buffer.subarray(at);
      this.#parts.push(rest);
      this.#held_bytes = rest.length;
      this.#wanted_bytes = wanted;
    }
  }

  /** Hands on the first piece of the incomplete frame at `at`. False: its type does not come in pieces. */
  #startPiece(buffer: Buffer, at: number, end: number): boolean {
    const type = buffer[at + 4] ?? 0;
    if (!this.#isInPieces(type)) return false;
    const id = buffer.readUInt32LE(at + 5);
    this.#piece = { type, id, left_bytes: end - buffer.length };
    if (buffer.length > at + FRAME_HEAD_BYTES) this.#onFrame(type, id, buffer.subarray(at + FRAME_HEAD_BYTES));
    return true;
  }
}
