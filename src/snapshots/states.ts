/** The life of a snapshot. From `deleting` on nobody sees it; its row goes when its files are gone. */
import { machine } from "../base/state-machine.ts";

export const SNAPSHOT_STATES = ["creating", "ready", "deleting"] as const;
export type SnapshotState = (typeof SNAPSHOT_STATES)[number];
export type SnapshotVerb = "finish" | "pin" | "delete";

export const snapshotStates = machine<SnapshotState, SnapshotVerb>("snapshot", "creating", {
  creating: { finish: "ready" },
  ready: { pin: "ready", delete: "deleting" },
  deleting: {},
});
