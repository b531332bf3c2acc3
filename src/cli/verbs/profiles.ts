/** The verbs of profiles, as they are described; what they do is loaded when one is called. */
import type { Group } from "../session/verb.ts";

export const PROFILES: Group = {
  name: "profiles",
  summary: "curated images: list, build, show, promote, compare",
  verbs: [
    {
      name: "list",
      aliases: ["ls"],
      summary: "list profiles with their state and channels",
      examples: ["hearth profiles list"],
      load: async () => (await import("../profiles/profiles.ts")).listProfiles,
    },
    {
      name: "show",
      words: ["<image-profile>"],
      summary: "show a profile and its releases",
      examples: ["hearth profiles show rlm"],
      load: async () => (await import("../profiles/profiles.ts")).showProfile,
    },
    {
      name: "build",
      words: ["<image-profile>"],
      summary: "build a release ahead of its first use (operator)",
      more: "Ctrl-C cancels the build. With --rebuild, the profile and those below it get new releases with the packages of now.",
      flags: [{ flags: "--rebuild", about: "build also if there is a release" }],
      examples: ["hearth profiles build rlm", "hearth profiles build amp --rebuild"],
      load: async () => (await import("../profiles/profiles.ts")).buildProfile,
    },
    {
      name: "promote",
      words: ["<image-profile>", "<channel>", "<release>"],
      summary: "let a channel name a release (operator)",
      examples: ["hearth profiles promote rlm stable aff86b1b1fee-23a826b2"],
      load: async () => (await import("../profiles/profiles.ts")).promoteProfile,
    },
    {
      name: "rollback",
      words: ["<image-profile>", "<channel>"],
      summary: "return a channel to the release that it named before (operator)",
      examples: ["hearth profiles rollback rlm stable"],
      load: async () => (await import("../profiles/profiles.ts")).rollbackProfile,
    },
    {
      name: "diff",
      words: ["<image-profile>", "[release]", "[other-release]"],
      summary: "compare the packages of two releases (default: the newest two)",
      examples: ["hearth profiles diff rlm"],
      load: async () => (await import("../profiles/profiles.ts")).diffProfile,
    },
    {
      name: "updates",
      words: ["<image-profile>"],
      summary: "list packages for which the machine's apt sources offer newer versions",
      flags: [{ flags: "--refresh", about: "ask the sources now (operator)" }],
      examples: ["hearth profiles updates prod"],
      load: async () => (await import("../profiles/profiles.ts")).profileUpdates,
    },
  ],
};
