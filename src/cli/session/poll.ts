/**
 * Looking again and again, until Ctrl-C, which is how such a command is meant to end: it then exits with 0. The pause
 * is Node's own: a timer of the clock does not keep the process alive, and here nothing else does.
 */
import { setTimeout as pause } from "node:timers/promises";
import { LIMITS } from "../../base/limits.ts";
import { EXIT } from "./failure.ts";
import type { Session } from "./session.ts";

export const pauseBetween = (): Promise<void> => pause(LIMITS.cli_poll_interval_ms);

/** One look after the other, for good; what a look throws ends it. */
export async function eachPoll(session: Session, look: () => Promise<void>): Promise<never> {
  session.interrupt_exit_code = EXIT.success;
  for (;;) {
    await look();
    await pauseBetween();
  }
}
