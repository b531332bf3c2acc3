/**
 * Hot path. One connection to the minit of one instance: starts a command, gathers its output, says when it ended and
 * when the instance can take the next call. What minit sends is untrusted: lengths are bounded by the reader, output
 * by the caps that the call named, and an answer to nothing is dropped.
 *
 * Invariants:
 * C1 Each exec settles exactly once: with its exit, or with an error when the connection ends.
 * C2 `idle` of a sole exec settles after its outcome, and rejects when the connection ends first.
 */
import { connect, type Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { bareFrame, FRAME, FrameReader, FrameWriter, strBytes, strsBytes } from "./frames.ts";

const FLAG_SOLE = 1;
const FLAG_WIPE = 8;
const PROTOCOL_VERSION = 1;

const EXIT_TIMED_OUT = 1;
const EXIT_STDOUT_TRUNCATED = 2;
const EXIT_STDERR_TRUNCATED = 4;
const EXIT_SPAWN_FAILED = 8;

export interface ExecRequest {
  readonly argv: readonly string[];
  /** `NAME=value` */
  readonly environment: readonly string[];
  readonly working_directory: string;
  readonly timeout_ms: number;
  readonly stdout_bytes_max: number;
  readonly stderr_bytes_max: number;
  /** Empty /tmp and /dev/shm afterwards. */
  readonly wipe: boolean;
  readonly stdin: string;
}

export interface ExecOutcome {
  /** 0 to 255; 128 + signal when a signal ended it; 127 command not found, 126 not executable. */
  readonly exit_code: number;
  readonly signal: number;
  readonly timed_out: boolean;
  readonly spawn_failed: boolean;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
  readonly stdout: string;
  readonly stderr: string;
  /** From the spawn to the exit, as minit saw it. */
  readonly handler_ms: number;
  readonly cpu_ms: number;
  readonly memory_peak_kb: number;
  /** Resolves when the instance can take the next call (C2). */
  readonly idle: Promise<void>;
}

interface Running {
  stdout: Buffer[];
  stderr: Buffer[];
  resolve(outcome: ExecOutcome): void;
  reject(error: Error): void;
  idle: PromiseWithResolvers<void> | null;
}

function joined(parts: Buffer[]): string {
  const [first] = parts;
  if (first === undefined) return "";
  return parts.length === 1 ? first.toString("utf8") : Buffer.concat(parts).toString("utf8");
}

export class MinitClient {
  readonly #socket: Socket;
  readonly #running = new Map<number, Running>();
  readonly #pings = new Map<number, () => void>();
  readonly #reader: FrameReader;
  #next_id = 1;
  #closed: Error | null = null;
  #onReady: ((nonce: string) => void) | null = null;
  #onClosed: () => void = () => {};

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#reader = new FrameReader((type, id, payload) => this.#frame(type, id, payload));
    socket.on("data", (chunk) => {
      try {
        this.#reader.push(chunk);
      } catch (cause) {
        socket.destroy(new AppError("INTERNAL", `minit sent a malformed frame: ${errorText(cause)}`));
      }
    });
    socket.on("error", (error) => {
      this.#closed ??= error;
    });
    socket.on("close", () => this.#end());
  }

  /** Connects and waits for minit's READY, within `timeout_ms`. Rejects with START_FAILED. */
  static async connect(
    path: string,
    timeout_ms: number,
    clock: Clock,
  ): Promise<{ client: MinitClient; nonce: string }> {
    const client = new MinitClient(connect(path));
    const ready = Promise.withResolvers<string>();
    client.#onReady = ready.resolve;
    client.onClosed(() => ready.reject(client.#lost()));
    const cancel = clock.after(timeout_ms, () => {
      ready.reject(new AppError("START_FAILED", `minit did not answer within ${timeout_ms} ms`));
    });
    try {
      const nonce = await ready.promise;
      return { client, nonce };
    } catch (cause) {
      client.close();
      throw new AppError("START_FAILED", `no minit: ${errorText(cause)}`, { cause });
    } finally {
      cancel();
      client.onClosed(() => {});
    }
  }

  /** Calls `listener` once when the connection ends, however it ends. One listener; a later one replaces it. */
  onClosed(listener: () => void): void {
    this.#onClosed = listener;
  }

  get isOpen(): boolean {
    return this.#closed === null && !this.#socket.destroyed;
  }

  /** Runs a command that owns the whole instance. Rejects only when the connection ends (C1). */
  execSole(request: ExecRequest): Promise<ExecOutcome> {
    if (!this.isOpen) return Promise.reject(this.#lost());
    const id = this.#next_id++ >>> 0;
    const stdin_bytes = Buffer.byteLength(request.stdin);
    const frame = new FrameWriter(
      FRAME.EXEC,
      id,
      20 + strBytes(request.working_directory) + strsBytes(request.argv) + strsBytes(request.environment) + stdin_bytes,
    );
    frame
      .u32(FLAG_SOLE | (request.wipe ? FLAG_WIPE : 0))
      .u32(request.timeout_ms)
      .u32(request.stdout_bytes_max)
      .u32(request.stderr_bytes_max)
      .u16(request.argv.length)
      .u16(request.environment.length)
      .str(request.working_directory);
    for (const text of request.argv) frame.str(text);
    for (const text of request.environment) frame.str(text);
    if (stdin_bytes > 0) frame.text(request.stdin);
    return new Promise((resolve, reject) => {
      this.#running.set(id, { stdout: [], stderr: [], resolve, reject, idle: null });
      this.#socket.write(frame.buffer);
    });
  }

  /** Resolves when minit answers. Rejects when it does not within `timeout_ms`. */
  ping(timeout_ms: number, clock: Clock): Promise<void> {
    if (!this.isOpen) return Promise.reject(this.#lost());
    const id = this.#next_id++ >>> 0;
    return new Promise((resolve, reject) => {
      const cancel = clock.after(timeout_ms, () => {
        this.#pings.delete(id);
        reject(new AppError("INTERNAL", `minit did not answer a ping within ${timeout_ms} ms`));
      });
      this.#pings.set(id, () => {
        cancel();
        resolve();
      });
      this.#socket.write(bareFrame(FRAME.PING, id));
    });
  }

  /** Asks minit to kill everything and exit: the quickest way to end a container. */
  shutdown(): void {
    if (this.isOpen) this.#socket.write(bareFrame(FRAME.SHUTDOWN, 0));
  }

  close(): void {
    this.#socket.destroy();
  }

  #lost(): AppError {
    const reason = this.#closed === null ? "it closed the connection" : errorText(this.#closed);
    return new AppError("INTERNAL", `lost the connection to minit: ${reason}`);
  }

  #end(): void {
    const error = this.#lost();
    this.#closed ??= error;
    const running = [...this.#running.values()];
    this.#running.clear();
    for (const exec of running) {
      if (exec.idle === null) exec.reject(error);
      else exec.idle.reject(error);
    }
    this.#onClosed();
  }

  #frame(type: number, id: number, payload: Buffer): void {
    if (type === FRAME.READY) {
      if (payload.length < 20 || payload.readUInt32LE(0) !== PROTOCOL_VERSION) {
        this.#socket.destroy(new AppError("INTERNAL", "minit speaks another protocol version"));
        return;
      }
      this.#onReady?.(payload.toString("hex", 4, 20));
      this.#onReady = null;
      return;
    }
    if (type === FRAME.PONG) {
      this.#pings.get(id)?.();
      this.#pings.delete(id);
      return;
    }
    const exec = this.#running.get(id);
    if (exec === undefined) return;
    if (type === FRAME.STDOUT) exec.stdout.push(payload);
    else if (type === FRAME.STDERR) exec.stderr.push(payload);
    else if (type === FRAME.EXIT) this.#exit(exec, payload);
    else if (type === FRAME.IDLE) {
      this.#running.delete(id);
      exec.idle?.resolve();
    } else if (type === FRAME.ERROR) {
      this.#running.delete(id);
      exec.reject(new AppError("INTERNAL", `minit refused the command (errno ${payload.readUInt32LE(0)})`));
    }
  }

  #exit(exec: Running, payload: Buffer): void {
    if (exec.idle !== null || payload.length < 44) return;
    exec.idle = Promise.withResolvers<void>();
    // Who is not interested in the idle state must not see an unhandled rejection when the instance dies first.
    exec.idle.promise.catch(() => {});
    const flags = payload.readUInt32LE(8);
    exec.resolve({
      exit_code: payload.readUInt32LE(0),
      signal: payload.readUInt32LE(4),
      timed_out: (flags & EXIT_TIMED_OUT) !== 0,
      spawn_failed: (flags & EXIT_SPAWN_FAILED) !== 0,
      stdout_truncated: (flags & EXIT_STDOUT_TRUNCATED) !== 0,
      stderr_truncated: (flags & EXIT_STDERR_TRUNCATED) !== 0,
      stdout: joined(exec.stdout),
      stderr: joined(exec.stderr),
      handler_ms: Number(payload.readBigUInt64LE(16)) / 1000,
      cpu_ms: Number(payload.readBigUInt64LE(24)) / 1000,
      memory_peak_kb: Number(payload.readBigUInt64LE(32)),
      idle: exec.idle.promise,
    });
    exec.stdout = [];
    exec.stderr = [];
  }
}
