/**
 * The files of the image store, read-only: its lists of images, layers and working containers, manifests and configurations.
 * containers/storage replaces each list as a whole, so a reader sees one state of it.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ImageDescription, StoredLayer } from "../ports/images.ts";

export interface ImageRow {
  readonly id: string;
  readonly names?: readonly string[];
  /** The topmost layer; none in an image without layers. */
  readonly layer?: string;
}

export interface LayerRow {
  readonly id: string;
  readonly parent?: string;
  readonly created: string;
  /** Digests of the layer as it came, and of its tar. Layers of working containers have none. */
  readonly "compressed-diff-digest"?: string;
  readonly "diff-digest"?: string;
  readonly "diff-size"?: number;
  /** `incomplete`: it is being unpacked, or its unpacking was ended. */
  readonly flags?: { readonly incomplete?: boolean };
}

export interface ContainerRow {
  readonly id: string;
  readonly layer: string;
}

export interface LayerPlace {
  /** Its files. */
  readonly directory: string;
  /** The record of its tar: layer-split.ts. */
  readonly split: string;
  /** Digest of its tar; null: the store does not know it. */
  readonly diff_id: string | null;
}

interface ManifestLayer {
  readonly digest: string;
  readonly size: number;
  readonly mediaType?: string;
}

const MANIFEST = "manifest";
const ID = /^[0-9a-f]{64}$/;

export class StoreFiles {
  readonly #root: string;

  /** `list_file`: where the store lists its images. */
  constructor(list_file: string) {
    this.#root = dirname(dirname(list_file));
  }

  images(): Promise<readonly ImageRow[]> {
    return this.#list<ImageRow>("overlay-images/images.json");
  }

  layers(): Promise<readonly LayerRow[]> {
    return this.#list<LayerRow>("overlay-layers/layers.json");
  }

  containers(): Promise<readonly ContainerRow[]> {
    return this.#list<ContainerRow>("overlay-containers/containers.json");
  }

  /** Returns the row of an image by its id. Rejects with NOT_FOUND. */
  async image(id: string): Promise<ImageRow> {
    const row = ID.test(id) ? (await this.images()).find((image) => image.id === id) : undefined;
    if (row === undefined) throw missing(id);
    return row;
  }

  /** Returns the configuration of an image by its id. Rejects with NOT_FOUND, or IMAGE_INVALID if it is too large. */
  async config(id: string): Promise<string> {
    await this.image(id);
    return (await this.#file(id, `sha256:${id}`)).toString();
  }

  /** Returns the directories of the layers of an image, the topmost first. None if one of them is not in the store. */
  async layerPaths({ layer }: ImageRow): Promise<readonly string[]> {
    const chain = chainOf(await this.layers(), layer);
    const isWhole = chain[0]?.parent === undefined && chain.every(({ flags }) => flags?.incomplete !== true);
    return isWhole ? chain.toReversed().map(({ id }) => join(this.#root, "overlay", id, "diff")) : [];
  }

  /** Returns where the layers of an image lie, the lowest first. Rejects with NOT_FOUND for an image or a layer that the store lacks. */
  async storedLayers(id: string): Promise<readonly LayerPlace[]> {
    const { layer } = await this.image(id);
    const chain = chainOf(await this.layers(), layer);
    const isWhole = chain[0]?.parent === undefined && chain.every(({ flags }) => flags?.incomplete !== true);
    if (!isWhole || (layer !== undefined && chain.length === 0)) throw missing(id);
    return chain.map((row) => ({
      directory: join(this.#root, "overlay", row.id, "diff"),
      split: join(this.#root, "overlay-layers", `${row.id}.tar-split.gz`),
      diff_id: row["diff-digest"] ?? null,
    }));
  }

  /** Rejects with NOT_FOUND. */
  async describe(id: string): Promise<ImageDescription> {
    const row = await this.image(id);
    const manifest = await this.#file(id, MANIFEST);
    const config = await this.#file(id, `sha256:${id}`);
    const chain = chainOf(await this.layers(), row.layer);
    const listed = manifestLayers(manifest.toString());
    const layers = listed.map((layer, i): StoredLayer => {
      const stored = listed.length === chain.length ? chain[i] : undefined;
      return {
        digest: layer.digest,
        size_bytes: layer.size,
        uncompressed_size: stored?.["diff-size"] ?? null,
        diff_id: stored?.["diff-digest"] ?? null,
        media_type: layer.mediaType ?? "",
      };
    });
    return {
      id,
      manifest_digest: `sha256:${createHash("sha256").update(manifest).digest("hex")}`,
      manifest_json: manifest.toString(),
      config_json: config.toString(),
      size_bytes: chain.reduce((sum, layer) => sum + (layer["diff-size"] ?? 0), 0),
      layers,
    };
  }

  /** A list that no process has written yet is empty. */
  async #list<Row>(path: string): Promise<readonly Row[]> {
    try {
      return JSON.parse(await readFile(join(this.#root, path), "utf8")) as readonly Row[];
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw error;
    }
  }

  async #file(id: string, key: string): Promise<Buffer> {
    const bytes = await readFile(join(this.#root, "overlay-images", id, fileName(key)));
    if (bytes.length <= LIMITS.image_document_bytes_max) return bytes;
    throw new AppError(
      "IMAGE_INVALID",
      `${key === MANIFEST ? "manifest" : "configuration"} of image ${id} too large: ${bytes.length} bytes (limit ${LIMITS.image_document_bytes_max} bytes)`,
    );
  }
}

function missing(id: string): AppError {
  return new AppError("NOT_FOUND", `image not in the store: ${id.slice(0, 64)}`);
}

/** Names of files by their keys, as containers/storage has them (`makeBigDataBaseName`). */
function fileName(key: string): string {
  return /^[.0-9a-z]*$/.test(key) ? key : `=${Buffer.from(key).toString("base64")}`;
}

/** A layer and those below it, the lowest first. */
export function chainOf(layers: readonly LayerRow[], top: string | undefined): LayerRow[] {
  const byId = new Map(layers.map((layer) => [layer.id, layer]));
  const chain: LayerRow[] = [];
  for (let at = byId.get(top ?? ""); at !== undefined; at = byId.get(at.parent ?? "")) chain.unshift(at);
  return chain;
}

/** Manifests of Docker's version 1 list no layers in this way. */
function manifestLayers(text: string): readonly ManifestLayer[] {
  const manifest = JSON.parse(text) as { readonly layers?: readonly ManifestLayer[] };
  return manifest.layers ?? [];
}
