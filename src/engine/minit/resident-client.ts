/**
 * The resident process of one instance over the connection of its MinitClient: starts it or takes it over, sends calls,
 * gathers results.
 * Frames from minit are untrusted as everywhere: each result is bounded by its request's cap, a frame of no call is
 * dropped. runtimes/minit/protocol.h describes the protocol and what ends a process.
 *
 * Invariants:
 * D1 `opened`, `ended` and each call settle exactly once.
 * D2 A call holds at most twice the cap of its result, in however small pieces it comes. Nothing waits here: the socket
 *    buffers bytes that minit does not take yet, at most the payloads of `concurrency` calls.
 * D3 `tail` holds at most LIMITS.resident_tail_bytes.
 * D4 Of calls that were answered, it keeps `onLate` of the newest `late_calls_kept_max`, and nothing else.
 */
import { AppError } from "../../base/errors.ts";
import { GatheredOutput, OutputTail } from "../../base/gathered-output.ts";
import { LIMITS } from "../../base/limits.ts";
import type { OutputStream } from "../ports/commands.ts";
import type {
  CallListener,
  CallOutcome,
  CallRequest,
  Resident,
  ResidentEnd,
  ServeRequest,
} from "../ports/residents.ts";
import { readCallResult, readRefusal, readResidentEnd } from "./answers.ts";
import { bareFrame, FRAME, FrameWriter, strBytes, strsBytes } from "./frames.ts";

/** CALL_CHUNK_MAX of protocol.h. */
const CHUNK_BYTES_MAX = 64 * 1024;
const FLAG_MORE = 1;
const LOG_OF_STDOUT = 1;
const SIGKILL = 9;

interface InFlight {
  /** Not the request: its payload is free once it is written. */
  readonly result_bytes_max: number;
  readonly listener: CallListener;
  readonly resolve: (outcome: CallOutcome) => void;
  readonly reject: (error: AppError) => void;
  /** Empty if a listener takes the chunks. */
  readonly result: GatheredOutput;
  bytes: number;
}

export type OnLog = (stream: OutputStream, chunk: Buffer) => void;

/** The part of the connection that a resident process uses. */
export interface Wire {
  write(frame: Buffer): void;
  nextId(): number;
}

function serveFrame(id: number, request: ServeRequest): Buffer {
  const { argv, environment, working_directory, concurrency, open_timeout_ms } = request;
  const bytes = 10 + strBytes(working_directory) + strsBytes(argv) + strsBytes(environment);
  const frame = new FrameWriter(FRAME.SERVE, id, bytes);
  frame.u32(open_timeout_ms).u16(concurrency).u16(argv.length).u16(environment.length);
  return frame.str(working_directory).strs(argv).strs(environment).buffer;
}

/** Returns the frames of one call's request: a single one if the payload fits. */
function callFrames(id: number, { payload, ...request }: CallRequest): Buffer[] {
  const first = payload.subarray(0, CHUNK_BYTES_MAX);
  const hasMore = first.length < payload.length;
  const begin = new FrameWriter(FRAME.CALL_BEGIN, id, 16 + first.length);
  begin
    .u32(hasMore ? FLAG_MORE : 0)
    .u32(request.timeout_ms)
    .u32(request.result_bytes_max)
    .u32(request.log_bytes_max)
    .raw(first);
  const frames = [begin.buffer];
  for (let at = CHUNK_BYTES_MAX; at < payload.length; at += CHUNK_BYTES_MAX) {
    const chunk = payload.subarray(at, at + CHUNK_BYTES_MAX);
    frames.push(new FrameWriter(FRAME.CALL_CHUNK, id, chunk.length).raw(chunk).buffer);
  }
  if (hasMore) frames.push(bareFrame(FRAME.CALL_END, id));
  return frames;
}

export class ResidentClient implements Resident {
  readonly opened: Promise<{ readonly pid: number; readonly open_ms: number }>;
  readonly ended: Promise<ResidentEnd>;
  readonly #wire: Wire;
  readonly #id: number;
  readonly #onLog: OnLog | null;
  readonly #opened = Promise.withResolvers<{ readonly pid: number; readonly open_ms: number }>();
  readonly #ended = Promise.withResolvers<ResidentEnd>();
  readonly #calls = new Map<number, InFlight>();
  /** By id of the call; the newest at the end (D4). */
  readonly #answered = new Map<
    number,
    { readonly onLate: (chunk: Buffer) => boolean; bytes: number; writes: number }
  >();
  readonly #tail = new OutputTail(LIMITS.resident_tail_bytes);
  #lost: AppError | null = null;

  /** A `request` of null takes over the process that serves. `onLog` takes output that belongs to no call. */
  constructor(wire: Wire, request: ServeRequest | null, onLog: OnLog | null) {
    this.#wire = wire;
    this.#id = wire.nextId();
    this.#onLog = onLog;
    this.opened = this.#opened.promise;
    this.ended = this.#ended.promise;
    // A caller that awaits only one of them must not get an unhandled rejection of the other.
    this.opened.catch(() => {});
    this.ended.catch(() => {});
    wire.write(request === null ? bareFrame(FRAME.SERVE_TAKE, this.#id) : serveFrame(this.#id, request));
  }

  call(request: CallRequest, listener: CallListener = {}): Promise<CallOutcome> {
    if (this.#lost !== null) return Promise.reject(this.#lost);
    const id = this.#wire.nextId();
    return new Promise((resolve, reject) => {
      const { result_bytes_max } = request;
      const result = new GatheredOutput(result_bytes_max);
      this.#calls.set(id, { result_bytes_max, listener, resolve, reject, result, bytes: 0 });
      for (const frame of callFrames(id, request)) this.#wire.write(frame);
    });
  }

  get tail(): string {
    return this.#tail.text();
  }

  kill(): void {
    if (this.#lost === null) this.#wire.write(new FrameWriter(FRAME.KILL, this.#id, 4).u32(SIGKILL).buffer);
  }

  /** Rejects everything that is pending: the connection or the process has ended. */
  lose(error: AppError): void {
    this.#lost ??= error;
    this.#opened.reject(error);
    this.#ended.reject(error);
    for (const call of this.#calls.values()) call.reject(error);
    this.#calls.clear();
  }

  /** Takes a frame that belongs to no command. Throws if it is not what minit sends. */
  frame(type: number, id: number, body: Buffer): void {
    if (id === this.#id) {
      if (type === FRAME.CALL_OPEN) {
        this.#opened.resolve({ pid: body.readUInt32LE(0), open_ms: Number(body.readBigUInt64LE(4)) / 1000 });
      } else if (type === FRAME.EXIT) this.#exit(body);
      else if (type === FRAME.ERROR) this.lose(refusalOf("process", body));
      return;
    }
    if (type === FRAME.CALL_LOG && id === 0) {
      const chunk = body.subarray(1);
      this.#tail.add(chunk);
      this.#onLog?.(streamOf(body), Buffer.from(chunk));
      return;
    }
    const call = this.#calls.get(id);
    if (call === undefined) {
      if (type === FRAME.CALL_LOG) this.#late(id, body);
      return;
    }
    if (type === FRAME.CALL_LOG) call.listener.onLog?.(streamOf(body), Buffer.from(body.subarray(1)));
    else if (type === FRAME.CALL_CHUNK) this.#take(call, body);
    else if (type === FRAME.CALL_RESULT) this.#settle(id, call, body);
    else if (type === FRAME.ERROR) {
      this.#calls.delete(id);
      call.reject(refusalOf("call", body));
    }
  }

  #take(call: InFlight, bytes: Buffer): void {
    if (bytes.length === 0) return;
    call.bytes += bytes.length;
    if (call.bytes > call.result_bytes_max) throw new AppError("INTERNAL", "a result is above its cap");
    // The buffer is the reader's.
    const own = Buffer.from(bytes);
    if (call.listener.onChunk === undefined) call.result.add(own);
    else call.listener.onChunk(own);
  }

  #settle(id: number, call: InFlight, body: Buffer): void {
    const outcome = readCallResult(body);
    this.#take(call, outcome.result);
    this.#calls.delete(id);
    this.#keep(id, call.listener);
    call.resolve({ ...outcome, result: call.result.bytes() });
  }

  /** D4. */
  #keep(id: number, { onLate }: CallListener): void {
    if (onLate === undefined) return;
    this.#answered.set(id, { onLate, bytes: 0, writes: 0 });
    if (this.#answered.size <= LIMITS.late_calls_kept_max) return;
    for (const oldest of this.#answered.keys()) {
      this.#answered.delete(oldest);
      break;
    }
  }

  /** Output that the process gives to an answered call. It is the process's last words too. */
  #late(id: number, body: Buffer): void {
    const chunk = body.subarray(1);
    this.#tail.add(chunk);
    const call = this.#answered.get(id);
    if (call === undefined || call.writes >= LIMITS.late_outputs_max) return;
    const kept = Buffer.from(chunk.subarray(0, LIMITS.late_output_bytes_max - call.bytes));
    call.bytes += kept.length;
    if (kept.length > 0 && call.onLate(kept)) call.writes += 1;
  }

  #exit(body: Buffer): void {
    this.#ended.resolve(readResidentEnd(body));
    this.lose(new AppError("INTERNAL", "the resident process has ended"));
  }
}

function streamOf(body: Buffer): OutputStream {
  return body.readUInt8(0) === LOG_OF_STDOUT ? "stdout" : "stderr";
}

function refusalOf(what: string, body: Buffer): AppError {
  return new AppError("INTERNAL", `minit refused the ${what}: ${readRefusal(body)}`);
}
