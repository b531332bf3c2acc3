/** What became of a call, as the parts that serve calls say it and as the pool hands it on. */
import { LIMITS } from "../../base/limits.ts";
import type { InvocationRecord, InvocationTimings } from "../schema.ts";

/** A result of a handler: the JSON that it sent, and its value. */
export interface Result {
  readonly json: string;
  readonly value: InvocationRecord["result"];
}

/** What a record says of how the handler went. */
export interface Ending
  extends Pick<
    InvocationRecord,
    "status" | "exit_code" | "stdout" | "stderr" | "stdout_truncated" | "stderr_truncated" | "error_message"
  > {
  /** Null: there is none. */
  readonly result: Result | null;
}

/** What a record says of how the call went. */
export interface Outcome extends Ending, Pick<InvocationRecord, "cold_start"> {
  readonly instance_nonce: string;
  readonly timings: Omit<InvocationTimings, "total">;
}

/** An ending, and what it means for the instance. */
export interface Served {
  readonly ending: Ending;
  readonly handler_ms: number;
  /** False if the instance must not serve again. */
  readonly reuse: boolean;
  /** Resolves when the instance can take the next call. */
  readonly idle: Promise<void>;
}

/** Milliseconds with microsecond digits. */
export function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

export const IDLE: Promise<void> = Promise.resolve();

const SILENT = { stdout: "", stderr: "", stdout_truncated: false, stderr_truncated: false, result: null };

/** The ending of a call that failed before its handler could say anything. */
export function failedEnding(error_message: string, more: Partial<Ending> = {}): Ending {
  return { ...SILENT, status: "failed", exit_code: null, error_message, ...more };
}

export function timedOutEnding(timeout_ms: number, more: Partial<Ending> = {}): Ending {
  return { ...SILENT, exit_code: null, ...more, status: "timeout", error_message: timeoutText(timeout_ms) };
}

export const timeoutText = (timeout_ms: number): string => `timed out after ${timeout_ms / 1000} s`;
export const oomText = (memory_limit_mb: number): string => `killed: out of memory (limit ${memory_limit_mb} MiB)`;

/** An error message as a record keeps it. */
export function messageText(text: string): string {
  const max = LIMITS.error_message_length_max;
  return text.length <= max ? text : `${text.slice(0, max).toWellFormed()}…`;
}
