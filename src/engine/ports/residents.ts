/** The engine's port: the resident process of an instance, which serves calls, one or several at a time. */
import type { ExitAnswer, OutputStream } from "./commands.ts";

export interface ServeRequest {
  readonly argv: readonly string[];
  /** `NAME=value` */
  readonly environment: readonly string[];
  readonly working_directory: string;
  /** Maximum number of calls in flight, 1 to `LIMITS.resident_calls_max`. */
  readonly concurrency: number;
  /** Time limit from the start until the process is open. */
  readonly open_timeout_ms: number;
}

export interface CallRequest {
  readonly payload: Uint8Array;
  /** 0 for none. At the deadline the process ends, and with it all its calls. */
  readonly timeout_ms: number;
  /** Bytes that are kept; the rest is dropped and flagged. */
  readonly result_bytes_max: number;
  readonly log_bytes_max: number;
}

export interface CallListener {
  /** Takes a piece of the result as it comes. Without it the pieces are gathered in the outcome. */
  onChunk?(chunk: Buffer): void;
  /** Takes log lines of the call, and standard output and error while no other call is in flight. */
  onLog?(stream: OutputStream, chunk: Buffer): void;
  /**
   * Takes output that the process gives to this call after its result: at most `late_output_bytes_max`, while the call is one of the
   * newest `late_calls_kept_max`. Returns true if the piece costs a write, which it may do `late_outputs_max` times.
   */
  onLate?(chunk: Buffer): boolean;
}

export interface CallOutcome {
  /** 0: the handler returned. Otherwise it failed, and the result is its error. */
  readonly status: number;
  /** The call passed its deadline. */
  readonly timed_out: boolean;
  /** The process ended before the result, for another reason than this call's deadline. The call may have had effects. */
  readonly cancelled: boolean;
  readonly result: Buffer;
  readonly result_truncated: boolean;
  readonly log_truncated: boolean;
  /** Time from minit's frame to the process until its result. */
  readonly handler_ms: number;
}

export interface ResidentEnd extends ExitAnswer {
  /** The process was ended at the deadline of a call, or of its start. */
  readonly timed_out: boolean;
  /** The process sent a frame that the protocol does not allow, or closed its socket. */
  readonly is_broken: boolean;
}

/**
 * A resident process. After its end, for any reason, the instance is not used again. It outlives a daemon that ends while no
 * call is in flight: it blocks on output and frames, until `Engine.boot` takes it over.
 */
export interface Resident {
  /** Resolves when the process takes calls. Rejects with INTERNAL when it ends before. */
  readonly opened: Promise<{ readonly pid: number; readonly open_ms: number }>;
  /** Resolves when no process of the instance is left. Rejects with INTERNAL when the connection ends before. */
  readonly ended: Promise<ResidentEnd>;
  /** The newest 4 KiB of output that belonged to no call, as text. */
  readonly tail: string;
  /**
   * Calls the handler. Legal once `opened` has resolved and while fewer than `concurrency` calls are in flight. Rejects
   * with INTERNAL when minit refuses the call or the connection ends.
   */
  call(request: CallRequest, listener?: CallListener): Promise<CallOutcome>;
  /** Kills the process and everything that it started. Calls in flight are cancelled. */
  kill(): void;
}
