/** Hot path. Calls of a runtime that runs a command per call: the command's environment, and what its exit means. */
import { invariant } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { traceparentOf } from "../../base/trace.ts";
import type { ExecOutcome, InstanceMinit } from "../../engine/ports.ts";
import type { Calling } from "./calling.ts";
import { type Ending, oomText, type Served, timeoutText } from "./outcome.ts";

/** The shell's exit code for it, which minit follows. */
const COMMAND_NOT_FOUND = 127;
/** 128 + SIGKILL: what a handler that the kernel killed for memory ends with, itself or as the last command of a shell. */
const KILLED = 137;

/** The environment of one call: hearth's own names, then the function's, then the call's. */
export function callEnvironment({ call, environment, deadline_epoch_ms, api }: Calling): string[] {
  const { target, payload, trace } = call;
  const all: Record<string, string> = {
    ...target.environment,
    HEARTH_INVOCATION_ID: call.invocation_id,
    HEARTH_DEADLINE_MS: String(Math.round(deadline_epoch_ms)),
    TRACEPARENT: traceparentOf(trace),
  };
  if (trace.state !== null) all.TRACESTATE = trace.state;
  if (api !== null) {
    all.HEARTH_URL = api.url;
    all.HEARTH_KEY = api.token;
  }
  // A variable cannot hold a NUL, and above the bound the payload comes on standard input alone.
  if (Buffer.byteLength(payload) <= LIMITS.payload_variable_bytes_max && !payload.includes("\0")) {
    all.HEARTH_PAYLOAD = payload;
  }
  Object.assign(all, environment, call.environment);
  const list: string[] = [];
  for (const name in all) list.push(`${name}=${all[name]}`);
  return list;
}

/** Status and message of an exit. */
export function judge(
  exit: ExecOutcome,
  timeout_ms: number,
  oomKilled: boolean,
  memory_limit_mb: number,
): Pick<Ending, "status" | "error_message"> {
  if (exit.timed_out) return { status: "timeout", error_message: timeoutText(timeout_ms) };
  if (oomKilled) return { status: "failed", error_message: oomText(memory_limit_mb) };
  if (exit.spawn_failed) return { status: "failed", error_message: `cannot run the handler: ${exit.stderr.trim()}` };
  if (exit.exit_code === 0) return { status: "success", error_message: null };
  if (exit.signal !== 0) return { status: "failed", error_message: `killed by signal ${exit.signal}` };
  return { status: "failed", error_message: `exited with ${exit.exit_code}` };
}

/** Runs the command of a call. Rejects when the connection to minit ends. */
export async function runCommand(minit: InstanceMinit, calling: Calling): Promise<Served> {
  const { call, timeout_ms } = calling;
  const { record, argv, working_directory } = call.target;
  invariant(argv !== null, `runtime ${record.runtime} runs a command per call`);
  const exit = await minit.execSole({
    argv,
    environment: callEnvironment(calling),
    working_directory,
    timeout_ms,
    stdout_bytes_max: LIMITS.output_bytes_max,
    stderr_bytes_max: LIMITS.output_bytes_max,
    wipe: record.cleanup_on_exit,
    payload: call.payload,
  });
  const oomKilled = exit.exit_code !== 0 && !exit.timed_out && calling.hasOomKill() && exit.exit_code === KILLED;
  // A spawn that failed for anything but a missing command may be the instance's state: it is not trusted again.
  const isSpoiled = exit.spawn_failed && exit.exit_code !== COMMAND_NOT_FOUND;
  return {
    ending: {
      ...judge(exit, timeout_ms, oomKilled, record.memory_limit_mb),
      exit_code: exit.exit_code,
      result: null,
      stdout: exit.stdout,
      stderr: exit.stderr,
      stdout_truncated: exit.stdout_truncated,
      stderr_truncated: exit.stderr_truncated,
    },
    handler_ms: exit.handler_ms,
    reuse: !exit.timed_out && !oomKilled && !isSpoiled,
    idle: exit.idle,
  };
}
