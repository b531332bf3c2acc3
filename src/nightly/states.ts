/** The life of a profile on a node, for its current recipe. */
import { machine } from "../base/state-machine.ts";

export const PROFILE_STATES = ["absent", "building", "ready", "failed"] as const;
export type ProfileState = (typeof PROFILE_STATES)[number];
type ProfileVerb = "build" | "succeed" | "fail" | "cancel" | "recipe";

export const profileStates = machine<ProfileState, ProfileVerb>("profile", "absent", {
  absent: { build: "building" },
  building: { succeed: "ready", fail: "failed", cancel: "absent" },
  ready: { build: "building", recipe: "absent" },
  failed: { build: "building" },
});
