/** Every route of the image concern. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import type { Caller } from "../base/caller.ts";
import { guideRoutes } from "../docs/guide.ts";
import { route } from "../http/route.ts";
import { acceptedOperation, executionField } from "../operations/schema.ts";
import { buildRoutes } from "./builds/routes.ts";
import type { Builds } from "./builds/service.ts";
import { contextRoutes } from "./contexts/routes.ts";
import type { BuildContexts } from "./contexts/service.ts";
import { registryRoutes } from "./credentials/routes.ts";
import type { RegistryCredentials } from "./credentials/service.ts";
import { imagesGuide } from "./guide.ts";
import { loadRoutes } from "./loads/routes.ts";
import type { ImageLoads } from "./loads/service.ts";
import type { Pulls } from "./pulls.ts";
import { SAMPLES } from "./samples.ts";
import {
  deletedImage,
  deleteImage,
  imageDetail,
  imageHistory,
  imageList,
  imageQuery,
  imageRecord,
  imagesReadiness,
  listImages,
  prunedImages,
  pruneImages,
  pulledImage,
  pullImage,
  tagImage,
  updateImage,
} from "./schema.ts";
import type { TenantImages } from "./service.ts";
import { type TransferRoutesOptions, transferRoutes } from "./transfer-routes.ts";

export interface ImageRoutesOptions extends TransferRoutesOptions {
  readonly images: TenantImages;
  readonly pulls: Pulls;
  readonly registry_credentials: RegistryCredentials;
  readonly contexts: BuildContexts;
  readonly builds: Builds;
  readonly loads: ImageLoads;
}

const BY_REFERENCE = { reference: "alpine:3.20" };
const PULL_ERRORS = [
  "FORBIDDEN",
  "NOT_FOUND",
  "QUOTA_EXCEEDED",
  "IMAGE_INVALID",
  "REGISTRY_FAILED",
  "RATE_LIMITED",
  "CAPACITY_FULL",
  "QUEUE_FULL",
  "SHUTTING_DOWN",
  "TIMEOUT",
  "WRONG_STATE",
] as const;

export function imageRoutes(options: ImageRoutesOptions) {
  const routes = [
    ...pullRoutes(options),
    ...findRoutes(options),
    ...changeRoutes(options),
    ...contextRoutes(options),
    ...buildRoutes(options),
    ...transferRoutes(options),
    ...loadRoutes(options),
    ...registryRoutes(options.registry_credentials),
  ];
  const readiness = {
    schema: imagesReadiness,
    example: SAMPLES.health,
    look: ({ tenant_id }: Caller) => options.images.readiness(tenant_id),
  };
  return [...guideRoutes(imagesGuide, routes, readiness), ...routes];
}

function pullRoutes({ images, pulls, operations }: ImageRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/oci/images/pull",
      auth: "tenant",
      scope: "write",
      operation: "pullImage",
      summary: "Pulls an image from a registry; responds when the tenant has it.",
      // The headers leave early for clients that wait 30 s for them.
      early_status: ({ execution }) => (execution === "async" ? null : 200),
      late_refusal: ({ error }) => ({ success: false, image: null, error_message: error }),
      query: z.object({ execution: executionField }),
      body: pullImage,
      response: pulledImage,
      other: { status: 202, response: acceptedOperation, example: SAMPLES.handle },
      errors: PULL_ERRORS,
      example: { body: BY_REFERENCE, response: { success: true, image: SAMPLES.image, error_message: null } },
      handler: async ({ caller, query, body, signal }) => {
        const { tenant_id } = caller;
        const execution = query.execution ?? "sync";
        const operation = await pulls.accept(caller, body);
        const answer = await operations.answer(tenant_id, operation, {
          execution,
          signal,
          finished: async ({ target_resource_id }) => ({
            success: true,
            image: await images.get(tenant_id, target_resource_id ?? ""),
            error_message: null,
          }),
        });
        if (execution === "async" || !(answer instanceof Answer)) return answer;
        const error_message = `the pull continues as operation ${operation.operation_id}`;
        return { success: false, image: null, error_message };
      },
    }),
  ];
}

function findRoutes({ images }: ImageRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/oci/images",
      auth: "tenant",
      scope: "read",
      operation: "listImages",
      summary: "Lists the tenant's images and those that the operator shares, newest first.",
      query: listImages,
      response: imageList,
      example: { response: { images: [SAMPLES.listed], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("images", await images.list(request.caller.tenant_id, request.query, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/oci/images/inspect",
      auth: "tenant",
      scope: "read",
      operation: "inspectImage",
      summary: "Returns an image with its layers, its manifest and its configuration.",
      query: imageQuery,
      response: imageDetail,
      errors: ["NOT_FOUND"],
      example: {
        query: BY_REFERENCE,
        response: {
          image: SAMPLES.image,
          layers: [SAMPLES.layer],
          manifest_json: SAMPLES.manifest_json,
          config_json: SAMPLES.config_json,
        },
      },
      handler: ({ caller, query }) => images.inspect(caller.tenant_id, query.reference),
    }),
    route({
      method: "GET",
      path: "/api/oci/images/history",
      auth: "tenant",
      scope: "read",
      operation: "imageHistory",
      summary: "Returns the build steps of an image with the sizes of their layers.",
      query: imageQuery,
      response: imageHistory,
      errors: ["NOT_FOUND"],
      example: { query: BY_REFERENCE, response: { history: [SAMPLES.history] } },
      handler: async ({ caller, query }) => ({ history: await images.history(caller.tenant_id, query.reference) }),
    }),
  ];
}

function changeRoutes({ builds, images }: ImageRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/oci/images/tag",
      auth: "tenant",
      scope: "write",
      operation: "tagImage",
      summary: "Gives an image an additional reference.",
      body: tagImage,
      response: imageRecord,
      errors: ["NOT_FOUND", "QUOTA_EXCEEDED", "WRONG_STATE"],
      example: { body: { ...BY_REFERENCE, target: "acme/base:1" }, response: SAMPLES.tagged },
      handler: ({ caller, body }) => images.tag(caller.tenant_id, body.reference, body.target),
    }),
    route({
      method: "PATCH",
      path: "/api/oci/images",
      auth: "operator",
      scope: "admin",
      operation: "updateImage",
      summary: "Shares an image of the operator with all tenants, or ends that.",
      body: updateImage,
      response: imageRecord,
      errors: ["NOT_FOUND"],
      example: { body: { ...BY_REFERENCE, is_shared: true }, response: SAMPLES.shared },
      handler: ({ caller, body }) => images.share(caller.tenant_id, body.reference, body.is_shared),
    }),
    route({
      method: "POST",
      path: "/api/oci/images/prune",
      auth: "tenant",
      scope: "write",
      operation: "pruneImages",
      summary: "Deletes the tenant's images that nothing uses, but for shared ones, and its build cache if asked.",
      body: pruneImages,
      response: prunedImages,
      example: { body: { older_than_seconds: 0 }, response: SAMPLES.pruned },
      handler: async ({ caller: { tenant_id }, body: { older_than_seconds, build_cache } }) => {
        const build_cache_count = build_cache ? await builds.pruneCache(tenant_id, older_than_seconds) : 0;
        return { ...(await images.deleteUnused(tenant_id, older_than_seconds)), build_cache_count };
      },
    }),
    route({
      method: "DELETE",
      path: "/api/oci/images",
      auth: "tenant",
      scope: "write",
      operation: "deleteImage",
      summary: "Deletes a reference, and the image if nothing else of the tenant uses it.",
      query: deleteImage,
      response: deletedImage,
      errors: ["FORBIDDEN", "NOT_FOUND", "IN_USE"],
      example: { query: BY_REFERENCE, response: SAMPLES.deleted },
      handler: async ({ caller, query }) => {
        const reference = await images.delete(caller.tenant_id, query.reference, query.prune_layers);
        return { success: true as const, message: "image deleted", reference };
      },
    }),
  ];
}
