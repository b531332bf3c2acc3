/**
 * An image as buildah is given it: by its own manifest, or by one that names the same layers uncompressed, by their diff_ids.
 * Then buildah decompresses nothing, and finds in the store what it has of them.
 */
import { digestOf, type FetchedManifest } from "./client.ts";
import type { ImageContent, LayerDescriptor } from "./manifests.ts";

export interface ServedImage {
  readonly manifest: FetchedManifest;
  /** True if the layers leave as uncompressed tars. */
  readonly isPlain: boolean;
  /** Each layer by the name that the manifest has for it. */
  readonly layers: ReadonlyMap<string, LayerDescriptor>;
}

const OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json";
/** By the type of the image's own manifest: readers of a configuration go by it. */
const PLAIN_TYPES: Readonly<Record<string, readonly [config: string, layer: string]>> = {
  [OCI_MANIFEST]: ["application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"],
  "application/vnd.docker.distribution.manifest.v2+json": [
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar",
  ],
};
/** The size is known when the layer is decompressed. buildah takes what arrives. */
const UNKNOWN_SIZE = 0;

/** By its own manifest. */
export function ownImage({ manifest, layers }: ImageContent): ServedImage {
  return { manifest, isPlain: false, layers: new Map(layers.map((layer) => [layer.digest, layer])) };
}

export function plainImage({ manifest, config, config_digest, layers }: ImageContent): ServedImage {
  const media_type = manifest.media_type in PLAIN_TYPES ? manifest.media_type : OCI_MANIFEST;
  const [config_type = "", layer_type = ""] = PLAIN_TYPES[media_type] ?? [];
  const document = {
    schemaVersion: 2,
    mediaType: media_type,
    config: { mediaType: config_type, digest: config_digest, size: config.length },
    layers: layers.map(({ diff_id }) => ({ mediaType: layer_type, digest: diff_id, size: UNKNOWN_SIZE })),
  };
  const bytes = Buffer.from(JSON.stringify(document));
  return {
    manifest: { bytes, media_type, digest: digestOf(bytes) },
    isPlain: true,
    // Of several with one diff_id the first is served; the others are proven.
    layers: new Map(layers.toReversed().map((layer) => [layer.diff_id, layer])),
  };
}
