/** The states of a snapshot. Reads do not show one in `deleting`; its row is deleted after its files. */
import { machine } from "../base/state-machine.ts";

export const SNAPSHOT_STATES = ["creating", "ready", "deleting"] as const;
export type SnapshotState = (typeof SNAPSHOT_STATES)[number];
export type SnapshotVerb = "finish" | "pin" | "delete";

export const snapshotStates = machine<SnapshotState, SnapshotVerb>("snapshot", "creating", {
  creating: { finish: "ready" },
  ready: { pin: "ready", delete: "deleting" },
  deleting: {},
});
