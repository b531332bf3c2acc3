/**
 * Frames on descriptor 3 (minit/protocol.h, "A resident process"). Answers gather in one buffer, which is written once per turn of
 * the loop, after all microtasks. Output is written at once.
 *
 * W1 A frame is either complete in the buffer or written: nothing mixes with the rest of a frame that the kernel refused.
 * W2 While the kernel refuses bytes, at most LOG_PENDING_MAX bytes of output gather. Output above it is dropped.
 */
import { writeSync } from "node:fs";
import { Socket } from "node:net";

const DESCRIPTOR = 3;
const HEAD_BYTES = 9;
/** A head, at most 8 bytes before the content, and 64 KiB of content. */
const FRAME_BYTES_MAX = HEAD_BYTES + 8 + 64 * 1024;
const CHUNK_BYTES_MAX = 64 * 1024;
const OUT_BYTES = 128 * 1024;
const LOG_PENDING_MAX = 4 * 1024 * 1024;
/** Waits of a millisecond for a full socket when the process ends, and for output. */
const LAST_WAITS_MAX = 200;
const LOG_WAITS_MAX = 1000;

const VERSION = 1;
const OPEN = 0x60;
const BEGIN = 0x61;
const CHUNK = 0x62;
const END = 0x63;
const RESULT = 0x64;
const LOG = 0x65;
const MORE = 1;

export class Wire {
  #socket;
  #onRequest;
  #afterFlush;
  /** Bytes of a frame that is not complete yet. */
  #rest = null;
  /** Requests in several frames: id → their parts. */
  #parts = new Map();
  #out = Buffer.allocUnsafeSlow(OUT_BYTES);
  #end = 0;
  #isScheduled = false;
  /** The kernel took a part of the last write: the socket has the rest. */
  #isBlocked = false;
  /** The log frame at the end of the buffer, which can grow. */
  #log = { at: -1, id: 0, stream: 0 };
  #flush = () => this.flush();
  #arm = () => process.nextTick(this.#flush);

  /**
   * `onRequest` gets the id, and the buffer that holds the request from `start` to `end` until it returns. A function that it returns
   * replaces the program: it gets one that makes frames of the request and of all that came.
   */
  constructor(onRequest, afterFlush) {
    this.#onRequest = onRequest;
    this.#afterFlush = afterFlush;
    const input = Buffer.allocUnsafeSlow(FRAME_BYTES_MAX);
    const callback = (length) => {
      this.#take(input, length);
      return true;
    };
    this.#socket = new Socket({ fd: DESCRIPTOR, readable: true, writable: true, onread: { buffer: input, callback } });
    // minit is gone, or wants the process to be.
    this.#socket.on("error", () => process.reallyExit(1)).on("close", () => process.reallyExit(0));
  }

  /** Begins, or goes on with the frames that an earlier program of the process has left. */
  open(left) {
    if (left !== null) {
      this.#take(left, left.length);
      return;
    }
    const at = this.#begin(OPEN, 0, 4);
    this.#out.writeUInt32LE(VERSION, at);
    this.flush();
  }

  /** Answers with JSON text, with nothing if it is empty, or with bytes. */
  answer(id, status, text) {
    // A character of UTF-16 has at most three bytes in UTF-8.
    if (typeof text !== "string") this.#answerBytes(id, status, text);
    else if (text.length * 3 > CHUNK_BYTES_MAX) this.#answerBytes(id, status, Buffer.from(text));
    else {
      const start = this.#begin(RESULT, id, 4 + text.length * 3) - HEAD_BYTES;
      const out = this.#out;
      out.writeUInt32LE(status, start + HEAD_BYTES);
      const length = text === "" ? 0 : out.utf8Write(text, start + HEAD_BYTES + 4);
      out.writeUInt32LE(HEAD_BYTES + length, start);
      this.#end = start + HEAD_BYTES + 4 + length;
    }
    this.#schedule();
  }

  /** True if the kernel has all answers. */
  get isFlushed() {
    return this.#end === 0 && !this.#isBlocked;
  }

  /** Writes output of a call, or of the instance with id 0, unless the kernel has refused bytes for a second. */
  log(id, stream, bytes) {
    for (let from = 0; from < bytes.length; ) {
      if (this.#end >= CHUNK_BYTES_MAX && !this.#isBlocked) this.#write(LOG_WAITS_MAX);
      if (this.#end > LOG_PENDING_MAX) return;
      from += this.#appendLog(id, stream, bytes, from);
    }
    if (!this.#isBlocked) this.#write(LOG_WAITS_MAX);
  }

  /** Writes what has gathered, unless the kernel refuses bytes. */
  flush() {
    this.#isScheduled = false;
    if (this.#end > 0 && !this.#isBlocked) this.#write();
    this.#afterFlush();
  }

  /** Writes what has gathered before the process ends, with a bounded wait. Does nothing while a rest is queued (W1). */
  flushLast() {
    for (let at = 0, waits = 0; !this.#isBlocked && at < this.#end && waits < LAST_WAITS_MAX; ) {
      const written = tryWrite(this.#out, at, this.#end);
      if (written < 0) return;
      at += written;
      if (at >= this.#end) this.#end = 0;
      else if (written === 0) {
        pause();
        waits++;
      }
    }
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // Microtasks that stand in line already, such as the ends of other calls, come first.
    queueMicrotask(this.#arm);
  }

  /** Writes what has gathered, the rest later; before, it waits `waits_max` milliseconds for a full socket. */
  #write(waits_max = 0) {
    const end = this.#end;
    this.#end = 0;
    this.#log.at = -1;
    let written = tryWrite(this.#out, 0, end);
    for (let waits = 0; written >= 0 && written < end && waits < waits_max; waits++) {
      pause();
      written += Math.max(0, tryWrite(this.#out, written, end));
    }
    if (written === end) return;
    this.#isBlocked = true;
    // The socket reports the errors of descriptor 3 as well.
    this.#socket.write(Buffer.from(this.#out.subarray(Math.max(0, written), end)), () => {
      this.#isBlocked = false;
      this.#flush();
      if (!this.#isBlocked && this.#out.length > OUT_BYTES) this.#out = Buffer.allocUnsafeSlow(OUT_BYTES);
    });
  }

  /** Makes room, writes the head of a frame with `length` bytes of content, and returns the position of its content. */
  #begin(type, id, length) {
    const start = this.#reserve(HEAD_BYTES + length);
    const out = this.#out;
    out.writeUInt32LE(HEAD_BYTES - 4 + length, start);
    out[start + 4] = type;
    out.writeUInt32LE(id, start + 5);
    this.#end = start + HEAD_BYTES + length;
    this.#log.at = -1;
    return start + HEAD_BYTES;
  }

  #reserve(length) {
    if (this.#end + length > this.#out.length && !this.#isBlocked) this.#write();
    if (this.#end + length > this.#out.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(this.#out.length * 2, this.#end + length));
      this.#out.copy(grown, 0, 0, this.#end);
      this.#out = grown;
    }
    return this.#end;
  }

  #answerBytes(id, status, bytes) {
    let from = 0;
    for (; bytes.length - from > CHUNK_BYTES_MAX; from += CHUNK_BYTES_MAX) {
      const at = this.#begin(CHUNK, id, CHUNK_BYTES_MAX);
      bytes.copy(this.#out, at, from, from + CHUNK_BYTES_MAX);
    }
    const at = this.#begin(RESULT, id, 4 + bytes.length - from);
    this.#out.writeUInt32LE(status, at);
    bytes.copy(this.#out, at + 4, from);
  }

  /** Adds bytes to the last frame if it is of the same output, else to a new one. Returns how many it took. */
  #appendLog(id, stream, bytes, from) {
    const log = this.#log;
    const isSame = log.at >= 0 && log.id === id && log.stream === stream;
    const held = isSame ? this.#end - log.at - HEAD_BYTES - 1 : 0;
    const length = Math.min(bytes.length - from, CHUNK_BYTES_MAX - held);
    if (isSame && length > 0 && this.#end + length <= this.#out.length) {
      bytes.copy(this.#out, this.#end, from, from + length);
      this.#end += length;
      this.#out.writeUInt32LE(this.#end - log.at - 4, log.at);
      return length;
    }
    const most = Math.min(bytes.length - from, CHUNK_BYTES_MAX);
    const at = this.#begin(LOG, id, 1 + most);
    this.#out[at] = stream;
    bytes.copy(this.#out, at + 1, from, from + most);
    log.at = at - HEAD_BYTES;
    log.id = id;
    log.stream = stream;
    return most;
  }

  #take(input, length) {
    const bytes = this.#rest === null ? input : Buffer.concat([this.#rest, input.subarray(0, length)]);
    const end = this.#rest === null ? length : bytes.length;
    this.#rest = null;
    let at = 0;
    while (end - at >= HEAD_BYTES) {
      const next = at + 4 + bytes.readUInt32LE(at);
      if (next > end) break;
      const id = bytes.readUInt32LE(at + 5);
      const onward = this.#takeFrame(bytes[at + 4], id, bytes, at + HEAD_BYTES, next);
      at = next;
      if (onward !== undefined) onward(this.#framesFrom(bytes.subarray(at, end)));
    }
    if (at < end) this.#rest = Buffer.from(bytes.subarray(at, end));
  }

  #takeFrame(type, id, bytes, start, end) {
    if (type === BEGIN) {
      // Flags, then the timeout: requests carry their deadline.
      const body = start + 8;
      if ((bytes[start] & MORE) === 0) return this.#onRequest(id, bytes, body, end);
      this.#parts.set(id, [Buffer.from(bytes.subarray(body, end))]);
      return;
    }
    const parts = this.#parts.get(id);
    if (parts === undefined) return;
    if (type === CHUNK) parts.push(Buffer.from(bytes.subarray(start, end)));
    else if (type === END) {
      this.#parts.delete(id);
      const request = Buffer.concat(parts);
      return this.#onRequest(id, request, 0, request.length);
    }
  }

  /** Returns a function of a request that makes frames of it, of requests that are not complete, and of what came after them. */
  #framesFrom(unread) {
    return (id, request) => {
      const frames = [frameOf(BEGIN, id, [Buffer.alloc(8), request])];
      for (const [other, [first, ...more]] of this.#parts) {
        const begin = Buffer.alloc(8);
        begin[0] = MORE;
        frames.push(frameOf(BEGIN, other, [begin, first]), ...more.map((part) => frameOf(CHUNK, other, [part])));
      }
      return Buffer.concat([...frames, unread]);
    };
  }
}

function frameOf(type, id, contents) {
  const head = Buffer.alloc(HEAD_BYTES);
  const length = contents.reduce((sum, { length }) => sum + length, 0);
  head.writeUInt32LE(HEAD_BYTES - 4 + length);
  head[4] = type;
  head.writeUInt32LE(id, 5);
  return Buffer.concat([head, ...contents]);
}

/** Waits for a millisecond. */
export function pause() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
}

/** Returns how many bytes the kernel took, -1 if the descriptor is unusable. */
function tryWrite(bytes, start, end) {
  try {
    return writeSync(DESCRIPTOR, bytes, start, end - start);
  } catch (error) {
    return error.code === "EAGAIN" ? 0 : -1;
  }
}
