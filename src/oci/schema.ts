/** Shapes of the image concern: requests, image records, and an image's layers and history. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement, epochSeconds, nextCursor, pageQuery, queryFlag, text, whole } from "../base/schema.ts";

const ABOUT = {
  reference:
    "Reference of the image: [<registry>/]<repository>[:<tag>][@<digest>]. Without a registry it is docker.io, without a tag latest.",
  stored: "Reference of the image, or its id.",
  is_shared: "True if the operator shares the image with all tenants.",
};

const reference = text(LIMITS.image_reference_length_max).min(1);

const byReference = { reference: reference.meta({ description: ABOUT.stored, examples: ["alpine:3.20"] }) };

const credentials = {
  registry_username: text(LIMITS.registry_username_length_max)
    .min(1)
    .nullish()
    .describe(
      "User name for the registry, in place of stored credentials; requires registry_password. The daemon does not store it.",
    ),
  registry_password: text(LIMITS.registry_password_length_max)
    .min(1)
    .nullish()
    .describe("Password or token for the registry. The daemon does not store it."),
};

/** One of the two alone is a mistake. */
function checkCredentials(
  {
    registry_username: name,
    registry_password: password,
  }: { registry_username?: string | null | undefined; registry_password?: string | null | undefined },
  context: z.RefinementCtx,
): void {
  if ((name ?? null) === null ? (password ?? null) === null : (password ?? null) !== null) return;
  const path = [(name ?? null) === null ? "registry_username" : "registry_password"];
  context.addIssue({ code: "invalid_type", expected: "string", path, input: undefined });
}

export const pullImage = z
  .object({
    reference: reference.describe(
      `${ABOUT.reference} With the operator's key, containers-storage:<reference> takes an image from the local store.`,
    ),
    force: z
      .boolean()
      .default(false)
      .describe("True: asks the registry also if the reference has a digest and the tenant has the image."),
    platform: text(LIMITS.image_platform_length_max)
      .nullish()
      .describe("Platform to select from an index, as linux/<architecture>[/<variant>]. Default: that of the node."),
    ...credentials,
  })
  .superRefine(checkCredentials)
  .meta({ id: "PullImage" });
export type PullImage = z.output<typeof pullImage>;

export const pushImage = z
  .object({
    reference: reference.describe(ABOUT.stored),
    target: reference
      .nullish()
      .describe("Reference to push to, with a tag and without a digest. Default: the reference of the image."),
    ...credentials,
  })
  .superRefine(checkCredentials)
  .meta({ id: "PushImage" });
export type PushImage = z.output<typeof pushImage>;

export const pushedImage = z
  .object({
    success: z.boolean().describe("False if the push failed after the headers had left; error_message has the reason."),
    reference: z.string().nullable().describe("Complete reference of the image; null if the push failed."),
    target: z.string().nullable().describe("Complete reference in the registry; null if the push failed."),
    manifest_digest: z
      .string()
      .nullable()
      .describe(
        "Digest of the manifest in the registry, which may differ from that of a pull; null if the push failed.",
      ),
    error_message: z.string().nullable().describe("Reason if the push failed, otherwise null."),
  })
  .meta({ id: "PushedImage" });

export const listImages = pageQuery.extend({
  filter: text(LIMITS.image_reference_length_max)
    .optional()
    .describe("Only images whose reference contains this text."),
  include_digests: queryFlag().describe("true: records have manifest_digest and config_digest."),
});

export const imageQuery = z.object(byReference);

export const deleteImage = z.object({
  ...byReference,
  prune_layers: z
    .enum(["true", "false"])
    .default("true")
    .transform((value) => value === "true")
    .describe("false: responds before the daemon frees layers that no image needs any more."),
});

export const tagImage = z
  .object({
    reference: reference.describe(ABOUT.stored),
    target: reference.describe("Additional reference, with a tag and without a digest. It replaces an equal one."),
  })
  .meta({ id: "TagImage" });

export const updateImage = z
  .object({ reference: reference.describe(ABOUT.stored), is_shared: z.boolean().describe(ABOUT.is_shared) })
  .meta({ id: "UpdateImage" });

export const imageRecord = z
  .object({
    id: z.string().describe("Id of the image: the digest of its configuration."),
    tenant_id: z.string().describe("Id of the tenant that owns the image."),
    reference: z.string().describe("Complete reference."),
    registry: z.string().describe("Registry of the reference."),
    repository: z.string().describe("Repository of the reference."),
    tag: z.string().nullable().describe("Tag of the reference; null if it has a digest."),
    manifest_digest: z
      .string()
      .nullable()
      .describe("Digest of the manifest; null in lists without include_digests=true."),
    config_digest: z
      .string()
      .nullable()
      .describe("Digest of the configuration; null in lists without include_digests=true."),
    size_bytes: z.int().describe("Size of the unpacked layers."),
    architecture: z.string().describe("Architecture, such as amd64."),
    os: z.string().describe("Operating system: linux."),
    entrypoint: z.array(z.string()).nullable().describe("Entry point; null if the image has none."),
    default_cmd: z.array(z.string()).nullable().describe("Default command or arguments; null if the image has none."),
    env: z.array(z.string()).describe("Environment variables as NAME=value."),
    working_dir: z.string().nullable().describe("Working directory; null if the image has none."),
    exposed_ports: z.array(z.string()).describe("Ports such as 80/tcp; the daemon publishes none of them by itself."),
    volumes: z.array(z.string()).describe("Paths that the image declares as volumes."),
    labels: z.record(z.string(), z.string()).describe("Labels of the image."),
    user_spec: z.string().nullable().describe("User of the image, as user[:group]; null means root."),
    created_at: epochSeconds
      .nullable()
      .describe("Time of the build, in seconds since the Unix epoch; null if unknown."),
    pulled_at: epochSeconds.describe("Time of the last pull or tag, in seconds since the Unix epoch."),
    last_used_at: epochSeconds
      .nullable()
      .describe(
        "Time when the last container or function version was made of it; null: never, or an image of another tenant.",
      ),
    ref_count: z.int().describe("Number of the tenant's containers and function versions that use the image."),
    is_shared: z.boolean().describe(ABOUT.is_shared),
  })
  .meta({ id: "Image" });
export type ImageRecord = Readonly<z.output<typeof imageRecord>>;

export const pulledImage = z
  .object({
    success: z.boolean().describe("False if the pull failed after the headers had left; error_message has the reason."),
    image: imageRecord.nullable().describe("The image; null if the pull failed."),
    error_message: z.string().nullable().describe("Reason if the pull failed, otherwise null."),
  })
  .meta({ id: "PulledImage" });

export const imageList = z
  .object({ images: z.array(imageRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "ImageList" });

const layer = z.object({
  digest: z.string().describe("Digest of the layer as in the manifest."),
  size_bytes: z.int().describe("Size of the layer as in the manifest."),
  uncompressed_size: z.int().nullable().describe("Size of the unpacked layer; null if unknown."),
  media_type: z.string().describe("Media type of the layer."),
});
export type Layer = Readonly<z.output<typeof layer>>;

export const imageDetail = z
  .object({
    image: imageRecord,
    layers: z.array(layer).describe("Layers, the lowest first."),
    manifest_json: z.string().describe("The manifest as stored."),
    config_json: z.string().describe("The configuration as stored."),
  })
  .meta({ id: "ImageDetail" });

const historyEntry = z.object({
  created_at: epochSeconds.nullable().describe("Time of the step, in seconds since the Unix epoch; null if unknown."),
  created_by: z.string().describe("Build step; empty if unknown."),
  comment: z.string().describe("Comment of the builder; may be empty."),
  empty_layer: z.boolean().describe("True if the step made no layer."),
  size_bytes: z
    .int()
    .describe(
      "Bytes of the step's own unpacked layer; 0 without one. The steps of a build of this daemon share one layer: of each, the bytes on the disk that it added.",
    ),
});
export type HistoryEntry = Readonly<z.output<typeof historyEntry>>;

export const imageHistory = z
  .object({ history: z.array(historyEntry).describe("Build steps, the first one first.") })
  .meta({ id: "ImageHistory" });

export const deletedImage = acknowledgement
  .extend({ reference: z.string().describe("Reference that was deleted.") })
  .meta({ id: "DeletedImage" });

export const pruneImages = z
  .object({
    older_than_seconds: whole(0, LIMITS.image_prune_age_seconds_max)
      .default(0)
      .describe("Only what was last pulled or used at least this long ago."),
    build_cache: z
      .boolean()
      .default(false)
      .describe(
        "Deletes the tenant's build cache, too: kept steps, and cache mounts that no build uses at the moment.",
      ),
  })
  .meta({ id: "PruneImages" });

export const prunedImages = z
  .object({
    success: z.literal(true).describe("Always true."),
    images: z
      .array(
        z.object({
          reference: z.string().describe("Reference that was deleted."),
          id: z.string().describe("Id of its image."),
          size_bytes: z.int().describe("Size of the unpacked layers of the image."),
        }),
      )
      .describe("References that were deleted, the oldest first."),
    freed_bytes: z
      .int()
      .describe(
        "Size of the unpacked images that the tenant lost, as image_mb_max counts them; shared layers may stay.",
      ),
    build_cache_count: z.int().describe("Entries of the build cache that were deleted."),
  })
  .meta({ id: "PrunedImages" });

export const imagesReadiness = z
  .object({
    status: z.enum(["ok", "degraded"]).describe("degraded: the image store does not answer; see reason."),
    concern: z.literal("oci").describe("Concern of this health report."),
    image_count: z.int().describe("Number of the tenant's images."),
    reason: z.string().nullable().describe("Reason if the status is degraded, otherwise null."),
  })
  .meta({ id: "ImagesHealth" });
