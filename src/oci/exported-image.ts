/**
 * An exported image as registries and archives have it: an OCI manifest of our own over the configuration as it is stored. Docker's
 * configuration fits as well: it has all fields of OCI's, so each image keeps its id and its health check.
 */
import type { ExportedImage } from "../engine/ports.ts";
import { digestOf } from "./registry/client.ts";

export const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
export const INDEX_TYPE = "application/vnd.oci.image.index.v1+json";
const CONFIG_TYPE = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip";

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

export function manifestOf({ config, layers }: Pick<ExportedImage, "config" | "layers">): Buffer {
  const manifest = {
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    config: descriptorOf(CONFIG_TYPE, config),
    layers: layers.map(({ digest, size_bytes }) => ({ mediaType: LAYER_TYPE, digest, size: size_bytes })),
  };
  return Buffer.from(JSON.stringify(manifest));
}

export function descriptorOf(mediaType: string, bytes: Uint8Array): Descriptor {
  return { mediaType, digest: digestOf(bytes), size: bytes.length };
}
