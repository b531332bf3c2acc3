/**
 * Reads minit's answers from its frames: the greeting, the result of a call, the end of a command or resident process.
 * runtimes/minit/protocol.h describes the same frames. Throws INTERNAL if a frame is not what minit sends.
 */
import { AppError } from "../../base/errors.ts";
import type { ExitAnswer } from "../ports/commands.ts";
import type { CallOutcome, ResidentEnd } from "../ports/residents.ts";

/** The version that both ends must speak. */
export const PROTOCOL_VERSION = 2;

/** State of a minit when a connection is made. */
export interface Greeting {
  /** Random per boot of the container. */
  readonly nonce: string;
  /** True if nothing runs, nothing else is connected that could start something, and no call spoiled the instance. */
  readonly isIdle: boolean;
  /** True if a resident process is open that no connection has. */
  readonly hasResident: boolean;
  /** True if it knows MAIN_ATTACH, and commands with a user of their own: an earlier version of minit knows neither. */
  readonly knowsAttach: boolean;
  readonly knowsUser: boolean;
}

const READY_BYTES = 24;
const EXIT_BYTES = 44;
const RESULT_HEAD_BYTES = 16;

const BUSY = 1;
const SPOILED = 2;
const RESIDENT = 4;
const ATTACH = 8;
const USER = 16;

const TIMED_OUT = 1;
const STDOUT_TRUNCATED = 2;
const RESULT_TRUNCATED = 2;
const STDERR_TRUNCATED = 4;
const SPAWN_FAILED = 8;
const CANCELLED = 32;
const BROKEN = 64;

export function readGreeting(body: Buffer): Greeting {
  if (body.length < READY_BYTES || body.readUInt32LE(0) !== PROTOCOL_VERSION) {
    throw new AppError("INTERNAL", "protocol version mismatch");
  }
  const flags = body.readUInt32LE(20);
  return {
    nonce: body.toString("hex", 4, 20),
    isIdle: (flags & (BUSY | SPOILED)) === 0,
    hasResident: (flags & RESIDENT) !== 0,
    knowsAttach: (flags & ATTACH) !== 0,
    knowsUser: (flags & USER) !== 0,
  };
}

export function readExit(body: Buffer): ExitAnswer {
  if (body.length < EXIT_BYTES) throw new AppError("INTERNAL", `invalid exit frame of ${body.length} bytes`);
  const flags = body.readUInt32LE(8);
  return {
    exit_code: body.readUInt32LE(0),
    signal: body.readUInt32LE(4),
    timed_out: (flags & TIMED_OUT) !== 0,
    stdout_truncated: (flags & STDOUT_TRUNCATED) !== 0,
    stderr_truncated: (flags & STDERR_TRUNCATED) !== 0,
    spawn_failed: (flags & SPAWN_FAILED) !== 0,
    cancelled: (flags & CANCELLED) !== 0,
    duration_ms: Number(body.readBigUInt64LE(16)) / 1000,
    cpu_ms: Number(body.readBigUInt64LE(24)) / 1000,
    memory_peak_kb: Number(body.readBigUInt64LE(32)),
  };
}

export function readResidentEnd(body: Buffer): ResidentEnd {
  return { ...readExit(body), is_broken: (body.readUInt32LE(8) & BROKEN) !== 0 };
}

/** Reads a CALL_RESULT frame: the outcome, and in place of the whole result its last bytes. */
export function readCallResult(body: Buffer): CallOutcome {
  if (body.length < RESULT_HEAD_BYTES) throw new AppError("INTERNAL", `a result of ${body.length} bytes`);
  const flags = body.readUInt32LE(0);
  return {
    status: body.readUInt32LE(4),
    timed_out: (flags & TIMED_OUT) !== 0,
    cancelled: (flags & CANCELLED) !== 0,
    result: body.subarray(RESULT_HEAD_BYTES),
    result_truncated: (flags & RESULT_TRUNCATED) !== 0,
    // The log has the flag of standard error.
    log_truncated: (flags & STDERR_TRUNCATED) !== 0,
    handler_ms: Number(body.readBigUInt64LE(8)) / 1000,
  };
}

/** Returns the text of an ERROR frame, which follows its errno. */
export function readRefusal(body: Buffer): string {
  return body.toString("utf8", 8, body.length - 1);
}
