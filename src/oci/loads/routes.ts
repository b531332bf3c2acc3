/** The route that takes archives of images. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { text } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import { SAMPLES } from "../samples.ts";
import { imageRecord } from "../schema.ts";
import type { TenantImages } from "../service.ts";
import type { ImageLoads } from "./service.ts";

const loadQuery = z.object({
  reference: text(LIMITS.image_reference_length_max)
    .min(1)
    .optional()
    .meta({
      description: "Reference of the one image in the archive. Default: the names that the archive has.",
      examples: ["acme/app:1"],
    }),
});

const loadedImage = z
  .object({
    success: z.literal(true).describe("True: the tenant has the images."),
    image: imageRecord.describe("The first of `images`."),
    images: z.array(imageRecord).describe("One for each name in the archive."),
  })
  .meta({ id: "LoadedImage" });

export interface LoadRoutesOptions {
  readonly images: TenantImages;
  readonly loads: ImageLoads;
}

export function loadRoutes({ images, loads }: LoadRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/oci/images/load",
      auth: "tenant",
      scope: "write",
      operation: "loadImage",
      summary: "Loads the images of an archive (OCI or docker save); responds when the tenant has them.",
      query: loadQuery,
      upload: { bytes_max: LIMITS.image_archive_bytes_max, content: ["application/x-tar", "application/gzip"] },
      response: loadedImage,
      errors: [
        ...(["BODY_TOO_LARGE", "REQUEST_TIMEOUT", "CONCURRENCY_LIMIT", "CAPACITY_FULL", "QUOTA_EXCEEDED"] as const),
        ...(["IMAGE_INVALID", "NOT_FOUND", "QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT", "WRONG_STATE"] as const),
      ],
      example: {
        query: { reference: "acme/app:1" },
        response: { success: true, image: SAMPLES.image, images: [SAMPLES.image] },
      },
      handler: async ({ caller: { tenant_id }, query, stream, signal }) => {
        const references = await loads.load({ tenant_id, reference: query.reference ?? null, archive: stream, signal });
        const loaded = await Promise.all(references.map((reference) => images.get(tenant_id, reference)));
        return { success: true as const, image: loaded[0] as (typeof loaded)[number], images: loaded };
      },
    }),
  ];
}
