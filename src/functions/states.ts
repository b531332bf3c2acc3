/** The life of a function. `active` is the only state in which calls run; in `deploying` they wait. */
import { machine } from "../base/state-machine.ts";

export const FUNCTION_STATES = ["pending", "deploying", "active", "paused", "error", "deleting"] as const;
export type FunctionState = (typeof FUNCTION_STATES)[number];
export type FunctionVerb = "deploy" | "activate" | "fail" | "invoke" | "pause" | "update" | "delete";

export const functionStates = machine<FunctionState, FunctionVerb>("function", "pending", {
  pending: { deploy: "deploying", update: "pending", delete: "deleting" },
  // A deployment that a crash cut short may be asked for again.
  deploying: { deploy: "deploying", activate: "active", fail: "error", invoke: "deploying", delete: "deleting" },
  active: { deploy: "active", invoke: "active", update: "active", pause: "paused", delete: "deleting" },
  paused: { deploy: "deploying", update: "paused", delete: "deleting" },
  error: { deploy: "deploying", update: "error", pause: "paused", delete: "deleting" },
  deleting: {},
});
