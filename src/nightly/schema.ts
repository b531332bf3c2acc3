/** Shapes of the concern nightly: profiles, their releases and channels, and what differs between releases. */
import { z } from "zod";
import { epochSeconds, queryFlag } from "../base/schema.ts";
import { CHANNELS } from "./catalog.ts";
import { PROFILE_STATES } from "./states.ts";

const ABOUT = {
  version: "Version of the release: the id of the recipe, and a digest of all package versions.",
  size: "Bytes of all layers, unpacked.",
  own: "Bytes of the layers above the profile below it.",
  reference: "Immutable reference of the release, for POST /api/oci/images/pull and for containers with oci: true.",
};

const profileName = z.string().meta({ description: "Name of the profile.", examples: ["rlm"] });
const version = z
  .string()
  .max(64)
  .meta({ description: ABOUT.version, examples: ["0e40e259648c-3fa1c2d4"] });
const channel = z.enum(CHANNELS);

export const byProfile = z.object({ profile: profileName });
export const byVersion = z.object({ profile: profileName, version });
export const byVersions = z.object({ profile: profileName, version, other: version });

export const resolveQuery = z.object({
  channel: channel
    .default("latest")
    .describe("latest: the newest release of the recipe of this daemon. stable: the release that the operator chose."),
  platform: z
    .string()
    .max(64)
    .optional()
    .meta({ description: "Platform as linux/<architecture>. Default: that of the node.", examples: ["linux/amd64"] }),
});

export const profileRecord = z
  .object({
    profile: z.string().describe("Name, which is also a value of image of a container."),
    title: z.string().describe("Short title."),
    description: z.string().describe("Purpose and content in a sentence."),
    from: z.string().nullable().describe("Profile whose image lies below; null: none."),
    state: z
      .enum(PROFILE_STATES)
      .describe(
        "absent: its first use builds it. building: a build runs. ready: it has a release. failed: the last build failed and no release is there.",
      ),
    progress_pct: z.int().nullable().describe("Progress of the build, in percent; null if none runs."),
    message: z.string().nullable().describe("Current step of the build; null if none runs."),
    recipe_id: z.string().describe("Digest of the recipe, its files, the profiles below, and pinned versions."),
    channels: z
      .object({
        latest: z.string().nullable().describe("Version of the newest release of this recipe."),
        stable: z.string().nullable().describe("Version that the operator chose."),
      })
      .describe("Versions that the channels name; null: none yet."),
    size_bytes: z.int().nullable().describe(`${ABOUT.size} Of latest; null without one.`),
    own_bytes: z.int().nullable().describe(`${ABOUT.own} Of latest; null without one.`),
    package_count: z.int().nullable().describe("Packages of latest; null without one."),
    release_count: z.int().describe("Releases in the image store."),
    disk_bytes: z.int().describe("Bytes of the own layers of all releases."),
    tools: z.array(z.string()).describe("Programs that the image promises."),
    updates: z
      .object({
        checked_at: epochSeconds.describe("Time of the last question to the machine's apt sources."),
        count: z.int().describe("Packages of latest for which they offer a newer version."),
        security_count: z.int().describe("Those of them that come from a security archive."),
      })
      .nullable()
      .describe("Null: not asked yet."),
    last_failure: z
      .object({
        failed_at: epochSeconds.describe("Time of the failure."),
        failures_count: z.int().describe("Failures in a row."),
        retry_after: z.int().describe("Seconds until the next use may start a build."),
        error: z.string().nullable().describe("The cause; null unless the operator asks."),
        hint: z.string().nullable().describe("Its remedy, if there is a known one; null unless the operator asks."),
        log: z.string().nullable().describe("End of the log; null unless the operator asks."),
      })
      .nullable()
      .describe("The last build if it failed."),
  })
  .meta({ id: "Profile" });
export type ProfileRecord = z.output<typeof profileRecord>;

export const profileList = z.object({ profiles: z.array(profileRecord).describe("All profiles of this node.") });

export const releaseRecord = z
  .object({
    profile: z.string().describe("Name of the profile."),
    version: z.string().describe(ABOUT.version),
    channels: z.array(channel).describe("Channels that name this release."),
    recipe_id: z.string().describe("Recipe of which it was built."),
    suite: z.string().describe("Debian suite of its packages."),
    platform: z.string().describe("Platform as linux/<architecture>."),
    oci_reference: z.string().describe(ABOUT.reference),
    oci_digest: z.string().describe("Digest of its manifest."),
    image_id: z.string().describe("Id of its image: the digest of its configuration."),
    base_version: z.string().nullable().describe("Release of the profile below; null: there is none."),
    created_at: epochSeconds.describe("Time of the build."),
    size_bytes: z.int().describe(ABOUT.size),
    own_bytes: z.int().describe(ABOUT.own),
    package_count: z.int().describe("Packages, those of the profiles below included."),
  })
  .meta({ id: "ProfileRelease" });
export type ReleaseRecord = z.output<typeof releaseRecord>;

export const releaseList = z.object({
  releases: z.array(releaseRecord).describe("Releases in the store, newest first."),
});

export const packageRecord = z
  .object({
    name: z.string().describe("Name of the package."),
    version: z.string().describe("Version."),
    architecture: z.string().describe("Architecture."),
    source: z.string().describe("Source package."),
    licences: z
      .array(z.string())
      .describe("Licences that its copyright file names; empty: none in a machine-readable form."),
    size_kb: z.int().describe("Installed size in KiB; 0: unknown."),
    kind: z.enum(["deb", "npm"]).describe("deb: a Debian package. npm: a package of the npm registry."),
  })
  .meta({ id: "ProfilePackage" });

export const releaseDetail = releaseRecord
  .extend({ packages: z.array(packageRecord).describe("All packages, by name.") })
  .meta({ id: "ProfileReleaseDetail" });

export const resolvedProfile = z
  .object({
    profile: z.string().describe("Name of the profile."),
    channel: channel.describe("Channel that was asked for."),
    platform: z.string().describe("Platform of the image."),
    oci_reference: z.string().describe(ABOUT.reference),
    version: z.string().describe(ABOUT.version),
    oci_digest: z.string().describe("Digest of its manifest."),
  })
  .meta({ id: "ResolvedProfile" });

const named = z.object({ name: z.string().describe("Package."), version: z.string().describe("Version.") });

export const releaseDiff = z
  .object({
    profile: z.string().describe("Name of the profile."),
    version: z.string().describe("Release that is compared."),
    other: z.string().describe("Release with which it is compared."),
    added: z.array(named).describe("Packages of other that the release lacks."),
    removed: z.array(named).describe("Packages of the release that other lacks."),
    changed: z
      .array(
        z.object({
          name: z.string().describe("Package."),
          from: z.string().describe("Version in the release."),
          to: z.string().describe("Version in other."),
        }),
      )
      .describe("Packages of both with different versions."),
    size_delta_bytes: z.int().describe("Size of other less that of the release."),
  })
  .meta({ id: "ProfileReleaseDiff" });
export type ReleaseDiff = z.output<typeof releaseDiff>;

export const packageUpdate = z
  .object({
    name: z.string().describe("Package."),
    version: z.string().describe("Version in the release."),
    new_version: z.string().describe("Version that the machine's apt sources offer."),
    origin: z.string().describe("Origin and suite of the offer, as apt writes them."),
    is_security: z.boolean().describe("True if it comes from a security archive."),
  })
  .meta({ id: "PackageUpdate" });
export type PackageUpdate = z.output<typeof packageUpdate>;

export const updatesQuery = z.object({
  refresh: queryFlag().describe(
    "true: asks the sources now. Operator only; otherwise an answer of the last hour counts.",
  ),
});

export const profileUpdates = z
  .object({
    profile: z.string().describe("Name of the profile."),
    version: z.string().describe("Release that is compared with the sources: that of latest."),
    checked_at: epochSeconds.describe("Time of the question."),
    updates: z.array(packageUpdate).describe("Newer packages, by name."),
  })
  .meta({ id: "ProfileUpdates" });

export const buildProfile = z
  .object({
    rebuild: z
      .boolean()
      .default(false)
      .describe(
        "True: also if there is a release; each profile below gets a new one too. The packages are those of now.",
      ),
  })
  .meta({ id: "BuildProfile" });

export const promoteProfile = z
  .object({
    channel: channel.describe("Channel to move."),
    version: version.describe("Release that the channel shall name. latest takes releases of the current recipe only."),
  })
  .meta({ id: "PromoteProfile" });

export const rollbackProfile = z
  .object({ channel: channel.describe("Channel that returns to its earlier release.") })
  .meta({ id: "RollbackProfile" });

export const movedChannel = z
  .object({
    success: z.literal(true).describe("Always true."),
    message: z.string().describe("Result in words."),
    profile: z.string().describe("Name of the profile."),
    channel: channel.describe("Channel that was moved."),
    version: z.string().describe("Version that it names now."),
    previous_version: z.string().nullable().describe("Version that it named before; null: none."),
  })
  .meta({ id: "MovedChannel" });

export const nightlyReadiness = z
  .object({
    status: z.enum(["ok", "degraded"]).describe("ok: profiles can be resolved."),
    concern: z.literal("nightly").describe("The concern."),
    profile_count: z.int().describe("Profiles of this node."),
    ready_count: z.int().describe("Those with a release."),
    reason: z.string().nullable().describe("Reason why it is degraded, otherwise null."),
  })
  .meta({ id: "NightlyReadiness" });
