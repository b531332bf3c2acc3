/** Every route of the concern nightly. */
import type { Caller } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { guideRoutes } from "../docs/guide.ts";
import { route } from "../http/route.ts";
import { accepted, acceptedOperation } from "../operations/schema.ts";
import { nightlyGuide } from "./guide.ts";
import { SAMPLES } from "./samples.ts";
import {
  buildProfile,
  byProfile,
  byVersion,
  byVersions,
  movedChannel,
  nightlyReadiness,
  profileList,
  profileRecord,
  profileUpdates,
  promoteProfile,
  releaseDetail,
  releaseDiff,
  releaseList,
  resolvedProfile,
  resolveQuery,
  rollbackProfile,
  updatesQuery,
} from "./schema.ts";
import { checkPlatform, nodePlatform, type Profiles } from "./service.ts";

export interface NightlyRoutesOptions {
  readonly profiles: Profiles;
}

const PROFILE = { profile: "rlm" };

export function nightlyRoutes(options: NightlyRoutesOptions) {
  const routes = [...findRoutes(options), ...releaseRoutes(options), ...changeRoutes(options)];
  const readiness = {
    schema: nightlyReadiness,
    example: SAMPLES.health,
    look: async (_caller: Caller) => options.profiles.readiness(),
  };
  return [...guideRoutes(nightlyGuide, routes, readiness), ...routes];
}

function findRoutes({ profiles }: NightlyRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/nightly/profiles",
      auth: "tenant",
      scope: "read",
      operation: "listProfiles",
      summary: "Lists the profiles of this node with their state, channels and sizes.",
      response: profileList,
      example: { response: { profiles: [SAMPLES.profile] } },
      handler: async ({ caller }) => ({ profiles: profiles.list(caller.is_operator) }),
    }),
    route({
      method: "GET",
      path: "/api/nightly/profiles/:profile",
      auth: "tenant",
      scope: "read",
      operation: "getProfile",
      summary: "Returns a profile with the progress of its build.",
      params: byProfile,
      response: profileRecord,
      errors: ["NOT_FOUND"],
      example: { params: PROFILE, response: SAMPLES.profile },
      handler: async ({ caller, params }) => profiles.get(params.profile, caller.is_operator),
    }),
    route({
      method: "GET",
      path: "/api/nightly/profiles/:profile/resolve",
      auth: "tenant",
      scope: "read",
      operation: "resolveProfile",
      summary: "Resolves a channel to the immutable reference of a release; the first use of latest builds it.",
      params: byProfile,
      query: resolveQuery,
      response: resolvedProfile,
      errors: ["NOT_FOUND", "START_FAILED", "QUEUE_FULL", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: { params: PROFILE, query: { channel: "latest" }, response: SAMPLES.resolved },
      // A build takes longer than existing clients wait for headers.
      early_status: () => 200,
      handler: async ({ caller, params: { profile }, query, signal }) => {
        const { channel, platform = nodePlatform() } = query;
        // Unknown profiles are 404 here: the path names a resource.
        profiles.find(profile, channel);
        checkPlatform(platform);
        const release = await profiles.ensure(caller.tenant_id, `${profile}:${channel}`, {
          signal,
          timeout_ms: LIMITS.profile_wait_ms,
        });
        const { version, oci_reference, oci_digest } = profiles.recordOf(release);
        return { profile, channel, platform, oci_reference, version, oci_digest };
      },
    }),
    route({
      method: "GET",
      path: "/api/nightly/profiles/:profile/updates",
      auth: "tenant",
      scope: "read",
      operation: "profileUpdates",
      summary: "Lists the packages of a profile for which the machine's apt sources offer newer versions.",
      params: byProfile,
      query: updatesQuery,
      response: profileUpdates,
      errors: ["NOT_FOUND", "FORBIDDEN", "START_FAILED", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: { params: PROFILE, response: SAMPLES.updates },
      handler: async ({ caller, params: { profile }, query: { refresh } }) => {
        if (refresh && !caller.is_operator) {
          throw new AppError("FORBIDDEN", "refresh: only the operator asks the sources again", {
            hint: "leave refresh out",
          });
        }
        const { version, checked_at, updates } = await profiles.updates(profile, refresh);
        return { profile, version, checked_at, updates: [...updates] };
      },
    }),
  ];
}

function releaseRoutes({ profiles }: NightlyRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/nightly/profiles/:profile/releases",
      auth: "tenant",
      scope: "read",
      operation: "listReleases",
      summary: "Lists the releases of a profile in the image store, newest first.",
      params: byProfile,
      response: releaseList,
      errors: ["NOT_FOUND"],
      example: { params: PROFILE, response: { releases: [SAMPLES.release] } },
      handler: async ({ params }) => ({ releases: profiles.releases(params.profile) }),
    }),
    route({
      method: "GET",
      path: "/api/nightly/profiles/:profile/releases/:version",
      auth: "tenant",
      scope: "read",
      operation: "getRelease",
      summary: "Returns a release with its packages and their licences.",
      params: byVersion,
      response: releaseDetail,
      errors: ["NOT_FOUND"],
      example: { params: { ...PROFILE, version: "{version}" }, response: SAMPLES.detail },
      handler: async ({ params }) => profiles.detail(params.profile, params.version),
    }),
    route({
      method: "GET",
      path: "/api/nightly/profiles/:profile/releases/:version/diff/:other",
      auth: "tenant",
      scope: "read",
      operation: "diffReleases",
      summary: "Compares the packages of two releases of a profile.",
      params: byVersions,
      response: releaseDiff,
      errors: ["NOT_FOUND"],
      example: { params: SAMPLES.ids, response: SAMPLES.diff },
      handler: async ({ params }) => profiles.diff(params.profile, params.version, params.other),
    }),
  ];
}

function changeRoutes({ profiles }: NightlyRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/nightly/profiles/:profile/build",
      auth: "operator",
      scope: "admin",
      operation: "buildProfile",
      summary: "Builds a release of a profile, and of each profile below that has none; responds with an operation.",
      params: byProfile,
      body: buildProfile,
      status: 202,
      response: acceptedOperation,
      errors: ["NOT_FOUND", "QUEUE_FULL", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: { params: PROFILE, body: { rebuild: false }, response: SAMPLES.handle },
      handler: async ({ caller, params, body }) =>
        accepted(await profiles.build(caller.tenant_id, params.profile, body.rebuild)),
    }),
    route({
      method: "POST",
      path: "/api/nightly/profiles/:profile/promote",
      auth: "operator",
      scope: "admin",
      operation: "promoteProfile",
      summary: "Lets a channel name a release.",
      params: byProfile,
      body: promoteProfile,
      response: movedChannel,
      errors: ["NOT_FOUND", "START_FAILED", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: {
        params: PROFILE,
        body: { channel: "stable", version: SAMPLES.ids.version },
        response: SAMPLES.moved,
      },
      handler: async ({ params: { profile }, body: { channel, version } }) => {
        const moved = await profiles.promote(profile, channel, version);
        return { success: true as const, message: `${channel} moved`, profile, channel, ...moved };
      },
    }),
    route({
      method: "POST",
      path: "/api/nightly/profiles/:profile/rollback",
      auth: "operator",
      scope: "admin",
      operation: "rollbackProfile",
      summary: "Returns a channel to the release that it named before.",
      params: byProfile,
      body: rollbackProfile,
      response: movedChannel,
      errors: ["NOT_FOUND", "WRONG_STATE", "START_FAILED", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: { params: PROFILE, body: { channel: "stable" }, response: SAMPLES.moved },
      handler: async ({ params: { profile }, body: { channel } }) => {
        const moved = await profiles.rollback(profile, channel);
        return { success: true as const, message: `${channel} moved back`, profile, channel, ...moved };
      },
    }),
  ];
}
