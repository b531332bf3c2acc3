/**
 * One connection to a `minit files`: requests out, answers in, with both directions held back by whoever is slower.
 * `file-sessions.ts` gives the frames their meaning; runtimes/minit/protocol.h describes them for the other end.
 *
 * Invariants:
 * A1 Each call settles exactly once: with its answer, or with an error when the connection ends.
 * A2 Nothing gathers here: the socket is not read while an answer's reader lags behind by `file_buffer_bytes`, and
 *    `room` holds back a writer while that much waits to go out, or too many answers are awaited.
 * A3 A helper that moves nothing for `file_stall_ms` while it is waited for has failed: the connection ends. It is not
 *    waited for while an answer's reader takes nothing, nor while content of a file that is being written is to come.
 */
import { connect, type Socket } from "node:net";
import { constants } from "node:os";
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { AppError, type ErrorCode, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type TransferTurn, UNBOUNDED_TURN } from "../../base/transfer-turns.ts";
import { FRAME_HEAD_BYTES } from "../minit/frames.ts";
import type { FilePath } from "../ports/files.ts";

export const FILE_FRAME = {
  BASE: 0x40,
  STAT: 0x41,
  LIST: 0x42,
  READ: 0x43,
  WRITE: 0x44,
  DATA: 0x45,
  END: 0x46,
  ABORT: 0x47,
  MKDIR: 0x48,
  REMOVE: 0x49,
  RENAME: 0x4a,
  SYMLINK: 0x4b,
  LINK: 0x4c,
  ATTRIBUTES: 0x4d,
  WALK: 0x4e,
  DONE: 0xc0,
  ENTRY: 0xc1,
  BYTES: 0xc2,
  PROGRESS: 0xc3,
} as const;

export const FILE_FLAG = {
  BENEATH: 1,
  PARENTS: 2,
  FOLLOW: 4,
  RECURSIVE: 8,
  MODE: 16,
  OWNER: 32,
  MTIME: 64,
  MORE: 128,
  OTHERS: 256,
} as const;

/** One request's struct and names; what is absent is zero or empty. */
export interface FileRequest {
  readonly flags?: number;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime_ms?: number;
  readonly offset?: number;
  readonly length?: number;
  readonly path: FilePath;
  readonly other?: FilePath;
  readonly content?: Uint8Array;
}

export interface FileFrame {
  readonly type: number;
  readonly body: Buffer;
}

const READ_BYTES = 64 * 1024;
/** Largest body of an answer: a piece of content, or an entry with the longest possible names. */
const ANSWER_BYTES_MAX = 64 * 1024;
const HEAD_BYTES = 44;
/** Content of one frame; the other end takes a little more for the names beside it. */
export const CONTENT_BYTES_MAX = 256 * 1024;
/** `length` of a request that ends where the file does. */
export const TO_THE_END = Number.MAX_SAFE_INTEGER;

const ERRNO_NAMES = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));

/** Meaning of a failed system call for the caller who named the path. */
const MEANINGS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  ENOENT: ["NOT_FOUND", "no such file or directory"],
  ENOTDIR: ["INVALID_ARGUMENT", "a parent is not a directory"],
  EISDIR: ["INVALID_ARGUMENT", "is a directory"],
  ELOOP: ["INVALID_ARGUMENT", "is a symbolic link, or has too many on its path"],
  EINVAL: ["INVALID_ARGUMENT", "does not name an entry of a directory"],
  ENAMETOOLONG: ["INVALID_ARGUMENT", "name too long"],
  EXDEV: ["INVALID_ARGUMENT", "leads to another file system"],
  EOPNOTSUPP: ["INVALID_ARGUMENT", "is neither a file nor a directory"],
  EACCES: ["INVALID_ARGUMENT", "is in a file system of the kernel"],
  EPERM: ["INVALID_ARGUMENT", "operation not permitted"],
  EROFS: ["INVALID_ARGUMENT", "is on a read-only file system"],
  EBUSY: ["INVALID_ARGUMENT", "something is mounted on it"],
  EOVERFLOW: ["INVALID_ARGUMENT", "no such owner in the container"],
  EFBIG: ["INVALID_ARGUMENT", "file too large"],
  EMLINK: ["INVALID_ARGUMENT", "too many hard links"],
  EEXIST: ["NAME_TAKEN", "already exists"],
  ENOTEMPTY: ["NOT_EMPTY", "directory not empty"],
  ENOSPC: ["STORAGE_FULL", "no space left"],
  EDQUOT: ["STORAGE_FULL", "no space left"],
  ECANCELED: ["INTERNAL", "cancelled"],
};

export function pathText(path: FilePath): string {
  const text = typeof path === "string" ? path : Buffer.from(path).toString("utf8");
  return text === "" ? "/" : text.slice(0, 256);
}

function failure(errno: number, path: FilePath): AppError {
  const name = ERRNO_NAMES.get(errno) ?? `errno ${errno}`;
  const [code, text] = MEANINGS[name] ?? ["INTERNAL", "the file system refused"];
  return new AppError(code, `${pathText(path)}: ${text} (${name})`);
}

function nameBytes(path: FilePath): Uint8Array {
  const bytes = typeof path === "string" ? Buffer.from(path) : path;
  if (bytes.length > LIMITS.path_bytes_max) {
    throw new AppError("INVALID_ARGUMENT", `path too long: ${bytes.length} bytes (limit ${LIMITS.path_bytes_max})`);
  }
  if (bytes.includes(0)) throw new AppError("INVALID_ARGUMENT", "path must not contain a NUL");
  return bytes;
}

function frameHead(buffer: Buffer, type: number, id: number, body_bytes: number): void {
  buffer.writeUInt32LE(body_bytes + FRAME_HEAD_BYTES - 4, 0);
  buffer[4] = type;
  buffer.writeUInt32LE(id, 5);
}

function putName(buffer: Buffer, at: number, bytes: Uint8Array): number {
  buffer.writeUInt32LE(bytes.length + 1, at);
  buffer.set(bytes, at + 4);
  const end = at + 4 + bytes.length;
  buffer[end] = 0;
  return end + 1;
}

/** Halves of what is a 64-bit integer on the wire. */
function putLarge(buffer: Buffer, at: number, value: number): void {
  const high = Math.floor(value / 2 ** 32);
  buffer.writeUInt32LE(value - high * 2 ** 32, at);
  buffer.writeInt32LE(high, at + 4);
}

function requestFrame(type: number, id: number, request: FileRequest): Buffer {
  const path = nameBytes(request.path);
  const other = nameBytes(request.other ?? "");
  const content = request.content;
  const body_bytes = HEAD_BYTES + 10 + path.length + other.length + (content?.length ?? 0);
  const frame = Buffer.allocUnsafe(FRAME_HEAD_BYTES + body_bytes);
  frameHead(frame, type, id, body_bytes);
  const mtime_s = Math.floor((request.mtime_ms ?? 0) / 1000);
  const mtime_ns = Math.floor(((request.mtime_ms ?? 0) - mtime_s * 1000) * 1e6);
  const head = frame.subarray(FRAME_HEAD_BYTES);
  head.writeUInt32LE(request.flags ?? 0, 0);
  head.writeUInt32LE(request.mode ?? 0, 4);
  head.writeUInt32LE(request.uid ?? 0, 8);
  head.writeUInt32LE(request.gid ?? 0, 12);
  putLarge(head, 16, mtime_s);
  head.writeUInt32LE(mtime_ns, 24);
  putLarge(head, 28, request.offset ?? 0);
  putLarge(head, 36, request.length ?? 0);
  const at = putName(head, putName(head, HEAD_BYTES, path), other);
  if (content !== undefined) head.set(content, at);
  return frame;
}

/** Returns the memory of a frame that waits; an empty one takes some too. */
function weight(frame: FileFrame): number {
  return frame.body.length + 64;
}

interface Call {
  readonly path: FilePath;
  /** Takes ENTRY and BYTES. */
  readonly onFrame: ((frame: FileFrame) => void) | null;
  resolve(count: number): void;
  reject(error: Error): void;
}

export class FileConnection {
  readonly #socket: Socket;
  readonly #turn: TransferTurn;
  readonly #clock: Clock;
  readonly #calls = new Map<number, Call>();
  /** The incoming frame: its head, then its body. */
  readonly #head = Buffer.alloc(FRAME_HEAD_BYTES);
  #head_bytes = 0;
  #body: Buffer | null = null;
  #body_bytes = 0;
  #next_id = 1;
  /** The file that is being written and whose end has not been sent. */
  #open_id = 0;
  #failure: Error | null = null;
  #cancelWatch: CancelTimer | null = null;
  #moved_ms = 0;
  /** Bytes of answers that no reader has taken yet (A2). */
  #unread_bytes = 0;
  #waiting: PromiseWithResolvers<void> | null = null;

  private constructor(socket: Socket, clock: Clock, turn: TransferTurn) {
    this.#socket = socket;
    this.#turn = turn;
    this.#clock = clock;
    socket.on("drain", () => this.#changed());
    socket.on("error", (error) => {
      this.#failure ??= error;
    });
    socket.on("close", () => this.#end());
  }

  /** Rejects with INTERNAL when nobody listens at `path`. */
  static connect(path: string, clock: Clock, turn: TransferTurn = UNBOUNDED_TURN): Promise<FileConnection> {
    let take = (_: Buffer) => {};
    const callback = (bytes: number, buffer: Uint8Array) => {
      take(Buffer.from(buffer.buffer, buffer.byteOffset, bytes));
      return true;
    };
    const socket = connect({ path, onread: { buffer: Buffer.allocUnsafeSlow(READ_BYTES), callback } });
    return new Promise((resolve, reject) => {
      const refused = (cause: Error) =>
        reject(new AppError("INTERNAL", `no file helper: ${errorText(cause)}`, { cause }));
      socket.once("error", refused);
      socket.once("connect", () => {
        socket.off("error", refused);
        const connection = new FileConnection(socket, clock, turn);
        take = (bytes) => connection.#take(bytes);
        resolve(connection);
      });
    });
  }

  get isOpen(): boolean {
    return this.#failure === null && !this.#socket.destroyed;
  }

  /** Ends the connection, and with it the helper and all calls that wait. */
  close(reason: Error = new AppError("INTERNAL", "the file session is closed")): void {
    this.#failure ??= reason;
    this.#socket.destroy();
  }

  /** Sends a request. Resolves to the count of its answer; frames before that go to `onFrame`. */
  call(type: number, request: FileRequest, onFrame: ((frame: FileFrame) => void) | null = null): Promise<number> {
    return this.start(type, request, onFrame).done;
  }

  start(
    type: number,
    request: FileRequest,
    onFrame: ((frame: FileFrame) => void) | null = null,
  ): { id: number; done: Promise<number> } {
    if (!this.isOpen) return { id: 0, done: Promise.reject(this.#lost()) };
    const id = this.#next_id++ >>> 0;
    const frame = requestFrame(type, id, request);
    this.#restart();
    const done = new Promise<number>((resolve, reject) => {
      this.#calls.set(id, { path: request.path, onFrame, resolve, reject });
    });
    if (((request.flags ?? 0) & FILE_FLAG.MORE) !== 0) this.#open_id = id;
    this.#write(frame);
    return { id, done };
  }

  /**
   * More frames of a call: its content, or its end. Dropped when the call has its answer. `sent` is called when the
   * content is on its way.
   */
  add(type: number, id: number, content: Uint8Array | null = null, sent?: () => void): void {
    if (!this.isOpen || !this.#calls.has(id)) return;
    this.#restart();
    if (type !== FILE_FRAME.DATA) this.#open_id = 0;
    const head = Buffer.allocUnsafe(FRAME_HEAD_BYTES);
    frameHead(head, type, id, content?.length ?? 0);
    this.#write(head);
    if (content !== null) this.#write(content, sent);
  }

  /** Returns true until the call is answered. */
  isRunning(id: number): boolean {
    return this.#calls.has(id);
  }

  /** True if more may be written now; if not, wait for `room`. */
  get hasRoom(): boolean {
    return !this.#turn.isSpent && this.#isTaken;
  }

  /** True while the helper takes what it is sent. */
  get #isTaken(): boolean {
    return this.#socket.writableLength < LIMITS.file_buffer_bytes && this.#calls.size < LIMITS.file_calls_max;
  }

  /** Resolves when there is room again, or the connection has ended. Waits once for the tenant's turn: what is written counts. */
  async room(): Promise<void> {
    const isFull = () => this.isOpen && !this.#isTaken;
    while (isFull()) await this.#change();
    if (this.isOpen && this.#turn.isSpent) await this.#turn.take(0);
    while (isFull()) await this.#change();
  }

  /** The ENTRY and BYTES frames of a request as they are taken; a reader that stops early ends the connection. */
  async *frames(type: number, request: FileRequest): AsyncGenerator<FileFrame, void, undefined> {
    const frames: FileFrame[] = [];
    let wake = Promise.withResolvers<void>();
    let isOver = false;
    let error: unknown = null;
    const call = this.call(type, request, (frame) => {
      frames.push(frame);
      this.#unread(weight(frame));
      wake.resolve();
    });
    const over = () => {
      isOver = true;
      wake.resolve();
    };
    call.then(over, (cause: unknown) => {
      error = cause;
      over();
    });
    try {
      for (;;) {
        const frame = frames.shift();
        if (frame !== undefined) {
          this.#unread(-weight(frame));
          await this.#turn.take(weight(frame));
          yield frame;
        } else if (isOver) {
          if (error !== null) throw error;
          return;
        } else {
          wake = Promise.withResolvers<void>();
          await wake.promise;
        }
      }
    } finally {
      if (!isOver) this.close();
    }
  }

  #write(bytes: Uint8Array, sent?: () => void): void {
    this.#turn.count(bytes.length);
    // Requests of one turn of the event loop leave in one write: archives of small files send little else.
    if (this.#socket.writableCorked === 0) {
      this.#socket.cork();
      setImmediate(() => this.#socket.uncork());
    }
    this.#socket.write(bytes, sent);
    if (this.#cancelWatch === null) this.#watch(LIMITS.file_stall_ms);
  }

  /** True if the next move is the helper's (A3). */
  get #isAwaited(): boolean {
    if (this.#socket.isPaused()) return false;
    const open_count = this.#calls.has(this.#open_id) ? 1 : 0;
    return this.#calls.size > open_count || this.#socket.writableLength > 0;
  }

  /** Before something is asked of a helper that had nothing to do. */
  #restart(): void {
    if (!this.#isAwaited) this.#moved_ms = this.#clock.monotonicMs();
  }

  /** A3. One timer for all calls, set anew only when it fires. */
  #watch(delay_ms: number): void {
    this.#cancelWatch = this.#clock.after(delay_ms, () => {
      this.#cancelWatch = null;
      if (this.#calls.size === 0 || !this.isOpen) return;
      const still_ms = this.#isAwaited ? this.#clock.monotonicMs() - this.#moved_ms : 0;
      if (still_ms < LIMITS.file_stall_ms) this.#watch(LIMITS.file_stall_ms - still_ms);
      else this.close(new AppError("INTERNAL", `the file helper did not respond for ${LIMITS.file_stall_ms} ms`));
    });
  }

  #unread(bytes: number): void {
    this.#unread_bytes += bytes;
    if (this.#unread_bytes > LIMITS.file_buffer_bytes) {
      this.#socket.pause();
    } else if (this.#socket.isPaused()) {
      this.#moved_ms = this.#clock.monotonicMs();
      this.#socket.resume();
    }
  }

  #change(): Promise<void> {
    this.#waiting ??= Promise.withResolvers<void>();
    return this.#waiting.promise;
  }

  #changed(): void {
    this.#moved_ms = this.#clock.monotonicMs();
    this.#waiting?.resolve();
    this.#waiting = null;
  }

  #lost(): AppError {
    if (this.#failure instanceof AppError) return this.#failure;
    const reason = this.#failure === null ? "it exited" : errorText(this.#failure);
    return new AppError("INTERNAL", `lost the file helper: ${reason}`);
  }

  #end(): void {
    const error = this.#lost();
    this.#failure ??= error;
    this.#cancelWatch?.();
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const call of calls) call.reject(error);
    this.#changed();
  }

  /**
   * One read's bytes, which are overwritten by the next. Each body gets memory of its own, once: what a large file
   * leaves behind is collected late, so there is to be little of it.
   */
  #take(bytes: Buffer): void {
    this.#moved_ms = this.#clock.monotonicMs();
    for (let at = 0; at < bytes.length && this.isOpen; ) {
      if (this.#body === null) {
        const copied = bytes.copy(this.#head, this.#head_bytes, at);
        at += copied;
        this.#head_bytes += copied;
        if (this.#head_bytes < FRAME_HEAD_BYTES) return;
        this.#head_bytes = 0;
        const body_bytes = this.#head.readUInt32LE(0) - (FRAME_HEAD_BYTES - 4);
        if (body_bytes < 0 || body_bytes > ANSWER_BYTES_MAX) {
          this.close(new AppError("INTERNAL", "the file helper violated the protocol"));
          return;
        }
        this.#body = Buffer.allocUnsafe(body_bytes);
        this.#body_bytes = 0;
      }
      const copied = bytes.copy(this.#body, this.#body_bytes, at);
      at += copied;
      this.#body_bytes += copied;
      if (this.#body_bytes < this.#body.length) return;
      const body = this.#body;
      this.#body = null;
      this.#frame(this.#head[4] ?? 0, this.#head.readUInt32LE(5), body);
    }
  }

  #frame(type: number, id: number, body: Buffer): void {
    const call = this.#calls.get(id);
    if (call === undefined || type === FILE_FRAME.PROGRESS) return;
    if (type !== FILE_FRAME.DONE) {
      call.onFrame?.({ type, body });
      return;
    }
    this.#calls.delete(id);
    const errno = body.readUInt32LE(0);
    if (errno === 0) call.resolve(Number(body.readBigUInt64LE(4)));
    else call.reject(failure(errno, call.path));
    if (this.#waiting !== null) this.#changed();
  }
}
