/** The life of a volume. What is being deleted is shown until it is gone, and can be used by nobody. */
import { machine } from "../base/state-machine.ts";

export const VOLUME_STATUSES = ["active", "cleanup_pending"] as const;
export type VolumeStatus = (typeof VOLUME_STATUSES)[number];

export const volumeStates = machine<VolumeStatus, "delete">("volume", "active", {
  active: { delete: "cleanup_pending" },
  cleanup_pending: {},
});
