/**
 * Imports: images whose configuration and layers are files of this machine, such as results of builds. They arrive as pulls do:
 * each layer passes the check of layers, buildah takes the image from a server on loopback, and the tenant's limits hold.
 *
 * M1. A layer may be named without a file only if an image has it that the tenant may use. The store finds it by its diff_id; if it
 *     is gone meanwhile, the import fails with WRONG_STATE, and the caller may try again with a file.
 */
import { createReadStream } from "node:fs";
import { z } from "zod";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { ImageArrivals } from "./arrivals.ts";
import type { Intake } from "./intake.ts";
import { DIGEST, parseReference } from "./reference.ts";
import { digestOf } from "./registry/client.ts";
import { layerKey, type RegistryGateway } from "./registry/gateway.ts";
import type { ImageContent } from "./registry/manifests.ts";
import type { ImageSource } from "./registry/source.ts";
import type { TenantImages } from "./service.ts";

export interface LocalLayer {
  /** `sha256:` and 64 hex digits, of the uncompressed tar. */
  readonly diff_id: string;
  /** Of the uncompressed tar. */
  readonly size_bytes: number;
  /** Absolute path of the uncompressed tar, the daemon's own; null: an image that the tenant may use has the layer (M1). */
  readonly path: string | null;
}

export interface LocalImage {
  readonly tenant_id: string;
  /** Complete. */
  readonly reference: string;
  /** OCI image configuration; its diff_ids are those of `layers`, in order. */
  readonly config_json: Buffer;
  readonly layers: readonly LocalLayer[];
  readonly event_type: "built" | "committed" | "loaded";
  /** True if the image lies below files of the tenant, which may then use its layers without a row for it (M1). */
  readonly hasBase?: boolean;
  /** The caller's, who releases it. */
  readonly intake: Intake;
  readonly signal: AbortSignal;
}

export interface ImportsOptions {
  readonly tenant_images: TenantImages;
  readonly arrivals: ImageArrivals;
  readonly gateway: RegistryGateway;
}

const OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json";
const OCI_CONFIG = "application/vnd.oci.image.config.v1+json";
const OCI_LAYER = "application/vnd.oci.image.layer.v1.tar";
/** Bytes of a file in one read. */
const READ_BYTES = 256 * 1024;

const Config = z.object({
  os: z.string(),
  architecture: z.string(),
  variant: z.string().nullish(),
  rootfs: z.object({ diff_ids: z.array(z.string().regex(DIGEST)) }),
});

export class ImageImports {
  readonly #options: ImportsOptions;

  constructor(options: ImportsOptions) {
    this.#options = options;
  }

  /**
   * Brings an image into the store and gives the tenant a row for it. Rejects with IMAGE_INVALID, QUOTA_EXCEEDED, NOT_FOUND for a
   * layer without a file that the tenant lacks, WRONG_STATE (M1), CAPACITY_FULL, TIMEOUT, and the signal's reason.
   */
  async import(image: LocalImage): Promise<{ readonly reference: string; readonly image_id: string }> {
    const { tenant_images, arrivals, gateway } = this.#options;
    const { tenant_id, reference, event_type, layers, intake, signal } = image;
    const { content, platform } = contentOf(image);
    const nameless = layers.flatMap(({ diff_id, path }) => (path === null ? [diff_id] : []));
    const [lacking] = image.hasBase === true ? [] : await tenant_images.lackingLayers(tenant_id, nameless);
    if (lacking !== undefined) throw new AppError("NOT_FOUND", `layer ${lacking} not in an image of the tenant`);
    try {
      const source = await gateway.openLocal({
        reference: parseReference(reference),
        content,
        source: filesOf(layers),
        unpacked_bytes_max: intake.bytes_max,
        onUnpacked: (bytes) => intake.layers(bytes),
        onProgress: () => {},
        signal,
      });
      const known_layers = new Set(nameless.map((diff_id) => layerKey({ digest: diff_id, diff_id })));
      // No registry signs what this daemon makes.
      const { accepting_policy: policy_file } = source;
      const destination = { tenant_id, reference, event_type };
      await arrivals.take({ ...destination, source, platform, policy_file, known_layers, intake, signal });
    } finally {
      // The reference may have named another image before, and a refused image has no row.
      void tenant_images.free();
    }
    return { reference, image_id: content.config_digest.replace(/^sha256:/, "") };
  }
}

/** Returns the image as a registry would have it. Throws IMAGE_INVALID. */
function contentOf({ reference, config_json: config, layers: files }: LocalImage) {
  const invalid = (problem: string) => new AppError("IMAGE_INVALID", `image ${reference} ${problem}`);
  const { image_layers_max, registry_config_bytes_max } = LIMITS;
  if (files.length > image_layers_max) throw invalid(`has ${files.length} layers (limit ${image_layers_max})`);
  if (config.length > registry_config_bytes_max) {
    throw invalid(`has a configuration of ${config.length} bytes (limit ${registry_config_bytes_max})`);
  }
  const parsed = Config.safeParse(jsonOf(config));
  if (!parsed.success) throw invalid("has an invalid configuration");
  const { os, architecture, variant, rootfs } = parsed.data;
  if (rootfs.diff_ids.join() !== files.map(({ diff_id }) => diff_id).join()) {
    throw invalid("has other layers than its configuration names");
  }
  const layers = files.map(({ diff_id, size_bytes }) => ({
    ...{ digest: diff_id, diff_id, size: size_bytes },
    media_type: OCI_LAYER,
  }));
  const config_digest = digestOf(config);
  const document = {
    schemaVersion: 2,
    mediaType: OCI_MANIFEST,
    config: { mediaType: OCI_CONFIG, digest: config_digest, size: config.length },
    layers: layers.map(({ media_type, digest, size }) => ({ mediaType: media_type, digest, size })),
  };
  const bytes = Buffer.from(JSON.stringify(document));
  const manifest = { bytes, media_type: OCI_MANIFEST, digest: digestOf(bytes) };
  const content: ImageContent = { digest: manifest.digest, manifest, config_digest, config, layers };
  return { content, platform: { os, architecture, variant: variant ? variant : null } };
}

/** Returns the value of a JSON text, undefined for any other text. */
function jsonOf(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/** Only layers are asked for: the rest is in memory. */
function filesOf(layers: readonly LocalLayer[]): ImageSource {
  const paths = new Map(layers.map(({ diff_id, path }) => [diff_id, path]));
  const missing = (subject: string) => new AppError("WRONG_STATE", `${subject} not in the image store any more`);
  return {
    manifest: async (_, subject) => {
      throw missing(subject);
    },
    blob: async (_, subject) => {
      throw missing(subject);
    },
    async *stream({ digest }, subject) {
      const path = paths.get(digest) ?? null;
      if (path === null) throw missing(subject);
      yield* createReadStream(path, { highWaterMark: READ_BYTES });
    },
  };
}
