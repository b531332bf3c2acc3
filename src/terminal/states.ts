/** The life of a terminal session. Whether a client is attached is its state; its shell runs in all but the last two. */
import { machine } from "../base/state-machine.ts";

export const TERMINAL_STATES = ["ready", "active", "idle", "terminated", "error"] as const;
export type TerminalState = (typeof TERMINAL_STATES)[number];
export type TerminalVerb = "attach" | "detach" | "end" | "fail";

export const terminalStates = machine<TerminalState, TerminalVerb>("terminal session", "ready", {
  // Nobody was attached yet.
  ready: { attach: "active", end: "terminated", fail: "error" },
  // Another client takes the place of the one that is attached.
  active: { attach: "active", detach: "idle", end: "terminated", fail: "error" },
  idle: { attach: "active", end: "terminated", fail: "error" },
  terminated: {},
  error: {},
});
