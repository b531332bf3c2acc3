/** The life of an operation. It only ever moves on: what has ended stays as it ended. */
import { machine } from "../base/state-machine.ts";

export const OPERATION_STATUSES = [
  "accepted",
  "queued",
  "running",
  "succeeded",
  "failed",
  "cancelled",
  "timed_out",
] as const;
export type OperationStatus = (typeof OPERATION_STATUSES)[number];
export type OperationVerb = "queue" | "start" | "succeed" | "fail" | "cancel" | "expire";

export const operationStates = machine<OperationStatus, OperationVerb>("operation", "accepted", {
  accepted: { queue: "queued", start: "running", fail: "failed", cancel: "cancelled", expire: "timed_out" },
  queued: { start: "running", fail: "failed", cancel: "cancelled", expire: "timed_out" },
  // One that a restart has cut short is started again.
  running: { start: "running", succeed: "succeeded", fail: "failed", cancel: "cancelled", expire: "timed_out" },
  succeeded: {},
  failed: {},
  cancelled: {},
  timed_out: {},
});

export function hasEnded(status: OperationStatus): boolean {
  return Object.keys(operationStates.table[status]).length === 0;
}
