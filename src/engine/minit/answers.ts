/**
 * What minit answers, read from its frames: its greeting and the end of a command. The other end's description of the
 * same is runtimes/minit/protocol.h. Throws INTERNAL where it is not what minit sends.
 */
import { AppError } from "../../base/errors.ts";
import type { ExitAnswer } from "../ports/commands.ts";

/** The version that both ends must speak. */
export const PROTOCOL_VERSION = 2;

/** What minit says of itself when a connection is made. */
export interface Greeting {
  /** Random per boot of the container. */
  readonly nonce: string;
  /** Nothing runs, nothing else is connected that could start something, and no call spoiled the instance. */
  readonly isIdle: boolean;
}

const READY_BYTES = 24;
const EXIT_BYTES = 44;

const TIMED_OUT = 1;
const STDOUT_TRUNCATED = 2;
const STDERR_TRUNCATED = 4;
const SPAWN_FAILED = 8;
const CANCELLED = 32;

export function readGreeting(body: Buffer): Greeting {
  if (body.length < READY_BYTES || body.readUInt32LE(0) !== PROTOCOL_VERSION) {
    throw new AppError("INTERNAL", "protocol version mismatch");
  }
  return { nonce: body.toString("hex", 4, 20), isIdle: body.readUInt32LE(20) === 0 };
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
