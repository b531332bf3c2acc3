/**
 * Exceptions that nothing catches, rejections that nothing handles, and process.exit. Each belongs to the call in whose
 * asynchronous context it happens.
 *
 * E1 The call that caused it is answered EXITING, and the daemon ends the process after its other calls. With no other call in
 *    flight the process ends itself.
 * E2 One that belongs to no call in flight ends nothing: not the module's, not that of a call that was answered. It goes to the
 *    record of that call, or to the output of the instance.
 * E3 One of the module while it is loaded is the answer to the bind.
 */
import { RuntimeError, stackOf } from "./errors.mjs";

/** Names what did something outside of the calls in flight. */
function originOf(call) {
  if (call === undefined || call.isBind) return "the module, outside of any call";
  return `invocation ${call.head.invocation_id}, after its answer`;
}

/** Writes to the record of a call that was answered, or to the output of the instance. */
function tell(output, call, text) {
  if (call === undefined || call.isBind) output.error(undefined, text);
  else output.late(call, text);
}

export function watchEnds(calls, wire) {
  process.on("uncaughtException", (error) => {
    // A function with a listener of its own decides for itself.
    if (process.listenerCount("uncaughtException") > 1) return;
    const call = calls.current();
    if (call === undefined || call.isDone) {
      tell(calls.output, call, `uncaught in ${originOf(call)}: ${stackOf(error)}`);
      return;
    }
    calls.output.error(call, stackOf(error));
    calls.end(call, error);
    if (calls.isSequential) process.exit(1);
  });
  process.on("exit", (code) => {
    const own = calls.current();
    const call = own === undefined ? calls.sole() : own.isDone ? null : own;
    if (call !== null) {
      calls.end(call, new RuntimeError("ProcessExit", `the function ended its process with exit code ${code}`));
    } else if (!calls.isIdle) {
      tell(calls.output, own, `process.exit(${code}) in ${originOf(own)}\n`);
    }
    wire.flushLast();
  });
}
