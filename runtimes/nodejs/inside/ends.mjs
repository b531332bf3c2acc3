/**
 * The ends of the process that a handler causes: an exception that nothing catches, a rejection that nothing handles,
 * process.exit. The call that caused it, if that is known, is answered EXITING first. minit reports the other calls.
 */
import { RuntimeError, stackOf } from "./errors.mjs";

export function watchEnds(calls, wire) {
  process.on("uncaughtException", (error) => {
    // A function with a listener of its own decides for itself.
    if (process.listenerCount("uncaughtException") > 1) return;
    const call = calls.culprit();
    calls.output.error(call ?? undefined, stackOf(error));
    if (call !== null) calls.end(call, error);
    process.exit(1);
  });
  process.on("exit", (code) => {
    const call = calls.culprit();
    if (call !== null) {
      calls.end(call, new RuntimeError("ProcessExit", `the function ended its process with exit code ${code}`));
    }
    wire.flushLast();
  });
}
