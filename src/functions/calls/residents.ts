/**
 * Calls of a runtime whose instances have a resident process: the requests of runtimes/envelope.ts, and what the
 * answers mean. What the process sends is untrusted: its results are parsed and bounded here.
 */
import { type BindHead, type CallHead, COMMAND_EXITED, type ErrorContent, STATUS } from "../../../runtimes/index.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { GatheredOutput } from "../../base/gathered-output.ts";
import { checkNumbers, exactValue } from "../../base/json-numbers.ts";
import { checkShape } from "../../base/json-shape.ts";
import { JsonText } from "../../base/json-text.ts";
import { LIMITS } from "../../base/limits.ts";
import { traceparentOf } from "../../base/trace.ts";
import type { CallListener, CallOutcome, Resident, ResidentEnd } from "../../engine/ports.ts";
import type { Prepared } from "../target.ts";
import type { Calling } from "./calling.ts";
import {
  type Ending,
  failedEnding,
  IDLE,
  messageText,
  oomText,
  type Result,
  type Served,
  timedOutEnding,
} from "./outcome.ts";

const HEAD_LENGTH_BYTES = 4;
const MEGABYTE = 1024 * 1024;
const EMPTY = Buffer.alloc(0);

function envelope(head: BindHead | CallHead, body: string): Buffer {
  const text = JSON.stringify(head);
  const head_bytes = Buffer.byteLength(text);
  const buffer = Buffer.allocUnsafe(HEAD_LENGTH_BYTES + head_bytes + Buffer.byteLength(body));
  buffer.writeUInt32LE(head_bytes, 0);
  buffer.write(text, HEAD_LENGTH_BYTES);
  buffer.write(body, HEAD_LENGTH_BYTES + head_bytes);
  return buffer;
}

function bindHead(target: Prepared, environment: Readonly<Record<string, string>>, wantsCache: boolean): BindHead {
  const { record, working_directory } = target;
  return {
    ...(wantsCache ? { code_cache: true } : {}),
    type: "bind",
    handler: record.handler,
    protocol: record.protocol,
    function_id: record.id,
    function_name: record.name,
    version: record.version,
    memory_limit_mb: record.memory_limit_mb,
    timeout_ms: record.timeout_seconds * 1000,
    concurrency: record.instance_concurrency,
    cleanup: record.reset_between_calls,
    working_directory: working_directory === "" ? "/" : working_directory,
    environment: { ...target.environment, ...environment },
  };
}

function callHead({ call, deadline_epoch_ms, api }: Calling): CallHead {
  const { trace, environment, http } = call;
  return {
    type: "call",
    invocation_id: call.invocation_id,
    deadline_ms: Math.round(deadline_epoch_ms),
    traceparent: traceparentOf(trace),
    ...(trace.state === null ? {} : { tracestate: trace.state }),
    ...(Object.keys(environment).length === 0 ? {} : { environment }),
    ...(api === null ? {} : { api }),
    ...(http === undefined ? {} : { http }),
  };
}

/** The output of one call. minit bounds the sum of both streams. */
class Output implements CallListener {
  readonly onLate: (chunk: Buffer) => boolean;
  readonly #stdout = new GatheredOutput(LIMITS.output_bytes_max);
  readonly #stderr = new GatheredOutput(LIMITS.output_bytes_max);

  /** `onLate` takes output after the answer. */
  constructor(onLate: (text: string) => boolean = () => false) {
    this.onLate = (chunk) => onLate(chunk.toString());
  }

  onLog(stream: "stdout" | "stderr", chunk: Buffer): void {
    (stream === "stdout" ? this.#stdout : this.#stderr).add(chunk);
  }

  texts({ log_truncated }: Pick<CallOutcome, "log_truncated">): Texts {
    const [stdout, stderr] = [this.#stdout.text(), this.#stderr.text()];
    // minit does not tell which of the two it cut.
    const stdout_truncated = log_truncated && stdout !== "";
    return { stdout, stderr, stdout_truncated, stderr_truncated: log_truncated && stderr !== "" };
  }
}

type Texts = Pick<Ending, "stdout" | "stderr" | "stdout_truncated" | "stderr_truncated">;

interface Failure {
  /** The type alone if the process says no more. Never empty. */
  readonly message: string;
  /** Its command ended by itself, whatever call did it. */
  readonly isEnd: boolean;
}

/** A failure that the process reports. */
function reported(content: Buffer): Failure {
  try {
    const { type, message } = JSON.parse(content.toString()) as Partial<ErrorContent>;
    const name = String(type ?? "").trim() || "Error";
    const text = String(message ?? "");
    const whole = text.trim() === "" ? name : name === "Error" ? text : `${name}: ${text}`;
    return { message: messageText(whole), isEnd: name === COMMAND_EXITED };
  } catch {
    const text = `the handler failed with an unreadable error: ${content.toString("utf8", 0, 200)}`;
    return { message: messageText(text), isEnd: false };
  }
}

/** Why a process ended that served calls. */
export function endText(end: ResidentEnd, oomKilled: boolean, memory_limit_mb: number): string {
  if (oomKilled) return oomText(memory_limit_mb);
  if (end.is_broken) return "the process of the instance closed descriptor 3, or wrote to it";
  if (end.signal !== 0) return `the process of the instance was killed by signal ${end.signal}`;
  return `the process of the instance exited with ${end.exit_code}`;
}

/**
 * The message for a call whose process ended, and its streams: never without the end of the output, unless the kernel ended it for
 * memory. That is the call's own output, or if there is none, the newest output of the process that belonged to no call.
 */
function lastWords(
  message: string,
  oomKilled: boolean,
  { texts, tail }: { readonly texts: Texts; readonly tail: string },
): Texts & { readonly message: string } {
  const own = texts.stderr.trim() || texts.stdout.trim();
  const output = (own || tail.trim()).slice(-LIMITS.end_output_length_max).toWellFormed();
  return {
    ...texts,
    stderr: own === "" ? tail : texts.stderr,
    message: oomKilled ? message : messageText(output === "" ? `${message}, without output` : `${message}: ${output}`),
  };
}

/** Returns the result, or what is wrong with it. */
function checked(content: Buffer): Pick<Ending, "result"> | { readonly complaint: string } {
  if (content.length === 0) return { result: null };
  try {
    checkShape(content, "the result");
    const value = exactValue(content) as Result["value"];
    if (value instanceof JsonText) checkNumbers(content, "the result");
    return { result: { json: content.toString(), value } };
  } catch (error) {
    return { complaint: error instanceof AppError ? errorText(error) : "the result is not JSON" };
  }
}

export interface Loaded {
  readonly load_ms: number;
  /** Why the function cannot run in this instance, with its output; null: it can. */
  readonly fault: Ending | null;
  /** The code cache that the process made, empty if it made none; null if it was not asked. */
  readonly made: Buffer | null;
}

/**
 * Binds a process to a version. `cache`: its code cache, empty if the process shall make one; null: the version has none.
 * Rejects when the connection to minit ends.
 */
export async function bindResident(
  resident: Resident,
  target: Prepared,
  environment: Readonly<Record<string, string>>,
  hasOomKill: () => boolean,
  cache: Buffer | null,
): Promise<Loaded> {
  const output = new Output();
  const isMaker = cache?.length === 0;
  // No variable holds the payload, so its memory is free while the process loads the function.
  const answer = await resident.call(
    {
      payload: Buffer.concat([envelope(bindHead(target, environment, isMaker), ""), cache ?? EMPTY]),
      ...BOUNDS,
      timeout_ms: LIMITS.load_timeout_ms,
    },
    output,
  );
  const { handler_ms: load_ms } = answer;
  if (answer.status === STATUS.returned && !answer.cancelled && !answer.timed_out) {
    // A part of a cache is worth nothing.
    const made = answer.result_truncated ? EMPTY : answer.result;
    return { load_ms, fault: null, made: isMaker ? made : null };
  }
  const texts = output.texts(answer);
  const failed = (message: string, exit_code: number | null, streams = texts) => ({
    load_ms,
    made: null,
    fault: failedEnding(`cannot load the handler: ${message}`, { ...streams, exit_code }),
  });
  if (answer.timed_out) return failed(`not loaded after ${LIMITS.load_timeout_ms / 1000} s`, null);
  const { memory_limit_mb } = target.record;
  if (!answer.cancelled) return failed(hasOomKill() ? oomText(memory_limit_mb) : reported(answer.result).message, null);
  const end = await resident.ended;
  const oomKilled = hasOomKill();
  const text = endText(end, oomKilled, memory_limit_mb);
  const { message, ...streams } = lastWords(text, oomKilled, { texts, tail: resident.tail });
  return failed(message, end.exit_code, streams);
}

const BOUNDS = { result_bytes_max: LIMITS.result_bytes_max, log_bytes_max: LIMITS.output_bytes_max };

/** Calls the handler in a process that is bound to its version. Rejects when the connection to minit ends. */
export async function callResident(resident: Resident, calling: Calling): Promise<Served> {
  const { call, timeout_ms } = calling;
  const { onLate } = calling;
  const output = new Output(onLate);
  const payload = envelope(callHead(calling), call.payload);
  const answer = await resident.call({ payload, ...BOUNDS, timeout_ms: timeout_ms + LIMITS.resident_grace_ms }, output);
  const texts = output.texts(answer);
  const served = (ending: Ending, reuse: boolean): Served => ({
    ending,
    handler_ms: answer.handler_ms,
    reuse,
    idle: IDLE,
  });
  if (answer.timed_out) return served(timedOutEnding(timeout_ms, texts), false);
  if (answer.cancelled) {
    const end = await resident.ended;
    const { exit_code } = end;
    if (end.timed_out) {
      const error_message = "cancelled: another call passed its deadline, and the process of the instance ended";
      return served({ ...failedEnding(error_message, texts), status: "cancelled" }, false);
    }
    const oomKilled = calling.hasOomKill();
    const text = endText(end, oomKilled, call.target.record.memory_limit_mb);
    const { message, ...streams } = lastWords(text, oomKilled, { texts, tail: resident.tail });
    return served(failedEnding(message, { ...streams, exit_code }), false);
  }
  if (answer.status === STATUS.timed_out) return served(timedOutEnding(timeout_ms, texts), false);
  if (answer.status !== STATUS.returned) {
    const oomKilled = answer.status === STATUS.exiting && calling.hasOomKill();
    const failure = reported(answer.result);
    const text = oomKilled ? oomText(call.target.record.memory_limit_mb) : failure.message;
    const { message, ...streams } = failure.isEnd
      ? lastWords(text, oomKilled, { texts, tail: resident.tail })
      : { message: text, ...texts };
    return served(failedEnding(message, { ...streams, exit_code: 1 }), answer.status === STATUS.failed);
  }
  const found = answer.result_truncated
    ? { complaint: `the result is larger than ${LIMITS.result_bytes_max / MEGABYTE} MiB` }
    : checked(answer.result);
  if ("complaint" in found) return served(failedEnding(found.complaint, { ...texts, exit_code: 1 }), false);
  return served({ ...texts, status: "success", exit_code: 0, result: found.result, error_message: null }, true);
}
