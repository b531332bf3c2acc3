/**
 * A resident process on this machine, without a container: starts the program of a runtime with a socket as descriptor
 * 3, speaks the frames of runtimes/minit/protocol.h with it, and applies the rules of minit: it kills the process with
 * SIGKILL if the process breaks the protocol, closes the socket, or lets a call pass its timeout.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BindHead, CallHead } from "../../runtimes/envelope.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { eventually } from "./native.ts";
import { requestOf } from "./resident-requests.ts";

/** Types of frames, as protocol.h has them. */
export const CALL = { open: 0x60, begin: 0x61, chunk: 0x62, end: 0x63, result: 0x64, log: 0x65 } as const;

const FRAME_HEAD_BYTES = 9;
const CHUNK_BYTES_MAX = 64 * 1024;
const HANG_UP_MS = 100;
const CONTENT_HEAD_BYTES_MAX = 8;
const STREAMS = { 1: "stdout", 2: "stderr" } as const;

/** The end of a call. `cancelled`, `timed_out`: the process ended before it answered; `status` is null then. */
export interface Answer {
  /** Of the request, in the frames. */
  readonly id: number;
  readonly ended: "answered" | "cancelled" | "timed_out";
  /** A `STATUS` of runtimes/envelope.ts. */
  readonly status: number | null;
  readonly content: Buffer;
  readonly stdout: string;
  readonly stderr: string;
  /** True if the process sent more than 1 MiB of result, or 1 MiB of output. */
  readonly is_truncated: boolean;
}

/** The end of the process. `broken`: what it did against the protocol, or null. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly broken: string | null;
}

export interface CallOptions {
  /** After this time the process is killed, as minit does it. 20 s by default. */
  readonly kill_after_ms?: number;
  /** Content bytes of each frame of the request; 64 KiB by default. */
  readonly chunk_bytes?: number;
}

interface InFlight {
  readonly resolve: (answer: Answer) => void;
  readonly timer: NodeJS.Timeout;
  readonly parts: Buffer[];
  readonly output: { stdout: Buffer[]; stderr: Buffer[] };
  result_left: number;
  log_left: number;
  is_truncated: boolean;
}

/** Returns the bytes of one frame. */
export function frameOf(type: number, id: number, ...parts: readonly Uint8Array[]): Buffer {
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  const body = Buffer.concat(parts);
  head.writeUInt32LE(FRAME_HEAD_BYTES - 4 + body.length, 0);
  head.writeUInt8(type, 4);
  head.writeUInt32LE(id, 5);
  return Buffer.concat([head, body]);
}

const words = (...values: readonly number[]): Buffer => Buffer.from(Uint32Array.from(values).buffer);

export class ResidentProcess {
  readonly child: ChildProcess;
  /** An empty directory of this process, which `end` removes. It is its TMPDIR. */
  readonly directory: string;
  readonly ended: Promise<ProcessEnd>;
  readonly #own = { stdout: "", stderr: "" };
  /** Descriptors 1 and 2 of the process are these files, of which `at` bytes were read. */
  readonly #files: { readonly name: "stdout" | "stderr"; readonly fd: number; at: number }[];
  /** Output of calls after their answers, by the id of the request. It is in `own` too. */
  readonly late = new Map<number, string>();
  /** Frames that came from the process so far. */
  frame_count = 0;
  isOpen = false;
  #broken: string | null = null;
  #nextId = 1;
  #received: Buffer = Buffer.alloc(0);
  readonly #calls = new Map<number, InFlight>();
  readonly #socket: Socket;

  private constructor(argv: readonly string[], environment: Readonly<Record<string, string>>) {
    this.directory = mkdtempSync(join(tmpdir(), "resident-"));
    const [command = "", ...rest] = argv.map((word) => word.replaceAll("{directory}", this.directory));
    this.#files = (["stdout", "stderr"] as const).map((name) => {
      const path = `${this.directory}.${name}`;
      const fd = openSync(path, "a+");
      rmSync(path);
      return { name, fd, at: 0 };
    });
    this.child = spawn(command, rest, {
      cwd: this.directory,
      env: { PATH: process.env.PATH ?? "", TMPDIR: this.directory, ...environment },
      stdio: ["ignore", ...this.#files.map(({ fd }) => fd), "pipe"],
    });
    this.#socket = this.child.stdio[3] as Socket;
    this.#socket.on("data", (bytes: Buffer) => this.#take(bytes));
    this.#socket.on("error", () => {});
    this.#socket.on("close", () => {
      // As minit does, it takes a socket that ends just before its process for the end of the process.
      setTimeout(() => {
        if (!this.#isEnded()) this.#break("closed descriptor 3");
      }, HANG_UP_MS);
    });
    this.ended = new Promise((resolve) => {
      this.child.once("error", (cause) => resolve({ code: null, signal: null, broken: cause.message }));
      this.child.once("exit", (code, signal) => {
        // A child of the process may hold descriptor 3 open: what the process sent is read, then the calls end.
        setImmediate(() => {
          this.#endCalls("cancelled", null);
          resolve({ code, signal, broken: this.#broken });
        });
      });
    });
  }

  /** Starts a process without waiting. `{directory}` in argv is replaced by its directory. */
  static start(argv: readonly string[], environment: Readonly<Record<string, string>> = {}): ResidentProcess {
    return new ResidentProcess(argv, environment);
  }

  /** Starts a process and waits for CALL_OPEN. */
  static async open(
    argv: readonly string[],
    environment: Readonly<Record<string, string>> = {},
  ): Promise<ResidentProcess> {
    const resident = new ResidentProcess(argv, environment);
    await eventually("the process to open", () => resident.isOpen || resident.#isEnded());
    if (!resident.isOpen) throw new Error(`the process ended before it opened: ${resident.own.stderr}`);
    return resident;
  }

  /**
   * Output that belongs to no call: frames with id 0, and what the process's own descriptors 1 and 2 got while not exactly one
   * call was in flight.
   */
  get own(): { readonly stdout: string; readonly stderr: string } {
    this.#drain();
    return this.#own;
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  get inFlight(): number {
    return this.#calls.size;
  }

  /** Binds the process to a function. */
  bind(head: BindHead, options: CallOptions = {}): Promise<Answer> {
    return this.request(requestOf(head), options);
  }

  /** Sends a call. The payload is the body as it is. */
  call(head: CallHead, payload: Uint8Array | string = "", options: CallOptions = {}): Promise<Answer> {
    return this.request(requestOf(head, payload), options);
  }

  /** Sends a request of any content. */
  request(content: Buffer, options: CallOptions = {}): Promise<Answer> {
    const chunk_bytes = options.chunk_bytes ?? CHUNK_BYTES_MAX;
    const kill_after_ms = options.kill_after_ms ?? 20_000;
    const id = this.#nextId++;
    const answer = new Promise<Answer>((resolve) => {
      const timer = setTimeout(() => this.#late(id), kill_after_ms);
      const output = { stdout: [], stderr: [] };
      const bounds = { result_left: LIMITS.result_bytes_max, log_left: LIMITS.output_bytes_max, is_truncated: false };
      this.#drain();
      this.#calls.set(id, { resolve, timer, parts: [], output, ...bounds });
    });
    const hasMore = content.length > chunk_bytes;
    const frames = [frameOf(CALL.begin, id, words(hasMore ? 1 : 0, kill_after_ms), content.subarray(0, chunk_bytes))];
    for (let at = chunk_bytes; at < content.length; at += chunk_bytes) {
      frames.push(frameOf(CALL.chunk, id, content.subarray(at, at + chunk_bytes)));
    }
    if (hasMore) frames.push(frameOf(CALL.end, id));
    this.send(Buffer.concat(frames));
    if (this.#isEnded()) this.#endCalls("cancelled", null);
    return answer;
  }

  /** Sends bytes as they are. */
  send(bytes: Buffer): void {
    this.#socket.write(bytes);
  }

  /** Stops reading, so that the process sees a full socket; `resume` reads on. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Kills the process and removes its directory. */
  async end(): Promise<ProcessEnd> {
    this.child.kill("SIGKILL");
    const ended = await this.ended;
    this.#socket.destroy();
    this.#drain();
    for (const { fd } of this.#files.splice(0)) closeSync(fd);
    rmSync(this.directory, { recursive: true, force: true });
    return ended;
  }

  #isEnded(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null || this.child.pid === undefined;
  }

  #keep(stream: "stdout" | "stderr", bytes: Buffer): void {
    this.#own[stream] = (this.#own[stream] + bytes.toString()).slice(-1_000_000);
  }

  /** Reads what descriptors 1 and 2 got. It belongs to the only call in flight, else to the process. */
  #drain(): void {
    for (const file of this.#files) {
      const bytes = Buffer.alloc(CHUNK_BYTES_MAX);
      for (let read = -1; read !== 0; file.at += read) {
        read = readSync(file.fd, bytes, 0, bytes.length, file.at);
        const [sole] = this.#calls.values();
        if (sole === undefined || this.#calls.size > 1) this.#keep(file.name, bytes.subarray(0, read));
        else this.#log(sole, file.name, Buffer.from(bytes.subarray(0, read)));
      }
    }
  }

  #log(call: InFlight, stream: "stdout" | "stderr", bytes: Buffer): void {
    if (bytes.length > call.log_left) call.is_truncated = true;
    call.output[stream].push(bytes.subarray(0, call.log_left));
    call.log_left -= Math.min(bytes.length, call.log_left);
  }

  #break(why: string): void {
    this.#broken ??= why;
    this.child.kill("SIGKILL");
  }

  #late(id: number): void {
    this.child.kill("SIGKILL");
    this.#endCalls("cancelled", id);
  }

  #endCalls(ended: "cancelled" | "timed_out", late: number | null): void {
    for (const [id, call] of this.#calls) this.#settle(id, call, id === late ? "timed_out" : ended, null);
  }

  #settle(id: number, call: InFlight, ended: Answer["ended"], status: number | null): void {
    this.#drain();
    clearTimeout(call.timer);
    this.#calls.delete(id);
    const [stdout, stderr] = [call.output.stdout, call.output.stderr].map((parts) => Buffer.concat(parts).toString());
    const content = Buffer.concat(call.parts);
    call.resolve({
      id,
      ended,
      status,
      content,
      stdout: stdout ?? "",
      stderr: stderr ?? "",
      is_truncated: call.is_truncated,
    });
  }

  #take(bytes: Buffer): void {
    this.#received = this.#received.length === 0 ? bytes : Buffer.concat([this.#received, bytes]);
    let at = 0;
    while (this.#broken === null && this.#received.length - at >= 4) {
      const length = this.#received.readUInt32LE(at);
      const most = FRAME_HEAD_BYTES - 4 + CONTENT_HEAD_BYTES_MAX + CHUNK_BYTES_MAX;
      if (length < FRAME_HEAD_BYTES - 4 || length > most) {
        this.#break(`a frame of ${length} bytes`);
        return;
      }
      if (this.#received.length - at < 4 + length) break;
      const frame = this.#received.subarray(at, at + 4 + length);
      at += 4 + length;
      this.frame_count++;
      const wrong = this.#takeFrame(frame.readUInt8(4), frame.readUInt32LE(5), frame.subarray(FRAME_HEAD_BYTES));
      if (wrong !== null) this.#break(wrong);
    }
    this.#received = this.#received.subarray(at);
  }

  /** Returns what is wrong with a frame, or null. */
  #takeFrame(type: number, id: number, body: Buffer): string | null {
    if (type === CALL.open) {
      if (this.isOpen || id !== 0 || body.length !== 4 || body.readUInt32LE() !== 1) return "a wrong CALL_OPEN";
      this.isOpen = true;
      return null;
    }
    if (!this.isOpen) return "a frame before CALL_OPEN";
    const call = this.#calls.get(id);
    if (type === CALL.log) return this.#takeLog(id, call, body);
    if (call === undefined) return `a frame of type ${type} for call ${id}, which is not in flight`;
    if (type !== CALL.chunk && type !== CALL.result) return `a frame of type ${type}`;
    if (type === CALL.result && body.length < 4) return "a CALL_RESULT without a status";
    const bytes = type === CALL.result ? body.subarray(4) : body;
    if (bytes.length > CHUNK_BYTES_MAX) return `${bytes.length} bytes of content in one frame`;
    if (bytes.length > call.result_left) call.is_truncated = true;
    call.parts.push(bytes.subarray(0, call.result_left));
    call.result_left -= Math.min(bytes.length, call.result_left);
    if (type === CALL.result) this.#settle(id, call, "answered", body.readUInt32LE());
    return null;
  }

  #takeLog(id: number, call: InFlight | undefined, body: Buffer): string | null {
    const stream = STREAMS[body[0] as 1 | 2];
    const bytes = body.subarray(1);
    if (stream === undefined || bytes.length > CHUNK_BYTES_MAX) return "a wrong CALL_LOG";
    if (id === 0) this.#keep(stream, bytes);
    else if (call === undefined) {
      // The daemon knows which call it was, and adds it to its record.
      if (id >= this.#nextId) return `output of call ${id}, which never began`;
      this.#keep(stream, bytes);
      this.late.set(id, (this.late.get(id) ?? "") + bytes.toString());
    } else this.#log(call, stream, bytes);
    return null;
  }
}
