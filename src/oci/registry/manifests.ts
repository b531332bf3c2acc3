/**
 * From a reference to the one image that it means on a platform: indexes, manifests and configurations of a registry, which may be
 * hostile. Nothing is used before its digest, size and shape are checked.
 *
 * M1. A document is an index or a manifest, never both: another program could read it the other way (CVE-2021-41190).
 * M2. No layer or configuration has URLs of its own: whoever pulls would fetch them beside the gateway, from wherever they point.
 * M3. Every program reads the same in a manifest: no name of a field is there twice, or in another spelling. Go, in which buildah is
 *     written, takes `URLs` for `urls`, and joins what two fields of one name have.
 * M4. The configuration names the platform that was asked for, and one diff_id for each layer.
 */
import { z } from "zod";
import { AppError, errorText } from "../../base/errors.ts";
import { checkShape } from "../../base/json-shape.ts";
import { fitOf, type Platform, platformText } from "../platform.ts";
import { DIGEST, type ImageReference, referenceText } from "../reference.ts";
import type { RegistryLimits } from "./authorization.ts";
import { digestOf, type FetchedManifest, INDEX_TYPES, MANIFEST_TYPES } from "./client.ts";
import { lacking } from "./failures.ts";
import type { ImageSource } from "./source.ts";

/** Layers that containers/storage unpacks. */
const LAYER_TYPES: readonly string[] = [
  "application/vnd.oci.image.layer.v1.tar",
  "application/vnd.oci.image.layer.v1.tar+gzip",
  "application/vnd.oci.image.layer.v1.tar+zstd",
  "application/vnd.docker.image.rootfs.diff.tar",
  "application/vnd.docker.image.rootfs.diff.tar.gzip",
  "application/vnd.docker.image.rootfs.diff.tar.zstd",
];
const ALL_TYPES = [...INDEX_TYPES, ...MANIFEST_TYPES];
const OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPES: readonly string[] = [
  "application/vnd.oci.image.config.v1+json",
  "application/vnd.docker.container.image.v1+json",
];

export interface LayerDescriptor {
  readonly digest: string;
  readonly size: number;
  readonly media_type: string;
  /** Of the uncompressed layer, as the configuration has it. */
  readonly diff_id: string;
}

/** One image for one platform, but for its layers. */
export interface ImageContent {
  /** Digest that the reference names: of an index or of the manifest. */
  readonly digest: string;
  readonly manifest: FetchedManifest;
  readonly config_digest: string;
  readonly config: Buffer;
  /** From the lowest on; one may be there twice. */
  readonly layers: readonly LayerDescriptor[];
}

const Descriptor = z.object({
  mediaType: z.string().max(255),
  digest: z.string().regex(DIGEST, "digest is not sha256: and 64 lower-case hex digits"),
  size: z.int().nonnegative(),
  urls: z.array(z.unknown()).nullish(),
});
const FoundPlatform = z.object({
  os: z.string().max(64).default(""),
  architecture: z.string().max(64).default(""),
  variant: z.string().max(64).nullish(),
});
const IndexEntry = Descriptor.extend({ platform: FoundPlatform.nullish() });
const Manifest = z.object({ config: Descriptor, layers: z.array(Descriptor) });
const Config = FoundPlatform.extend({ rootfs: z.object({ diff_ids: z.array(z.string().regex(DIGEST)).default([]) }) });

/** Fields of manifests and indexes that some program reads. */
const FIELDS: readonly string[] = [
  ...["schemaVersion", "mediaType", "artifactType", "config", "layers", "manifests", "subject", "annotations"],
  ...["digest", "size", "urls", "data", "platform", "os", "architecture", "variant", "features", "os.version"],
  ...["os.features", "name", "tag", "fsLayers", "history", "signatures", "blobSum", "v1Compatibility"],
];
const FIELDS_BY_FOLDED: ReadonlyMap<string, string> = new Map(FIELDS.map((name) => [folded(name), name]));
const [QUOTE, BACKSLASH, COLON] = [0x22, 0x5c, 0x3a];

type IndexEntry = z.infer<typeof IndexEntry>;
type Json = Readonly<Record<string, unknown>>;

export interface ResolveOptions {
  readonly source: ImageSource;
  readonly limits: RegistryLimits;
  readonly reference: ImageReference;
  readonly platform: Platform;
}

/**
 * Fetches and checks all of an image but its layers. Rejects with IMAGE_INVALID, NOT_FOUND for a platform that the image lacks, and
 * as the client does.
 */
export async function resolveImage(options: ResolveOptions): Promise<ImageContent> {
  const { source, limits, reference } = options;
  const name = `image ${referenceText(reference)}`;
  const top = await source.manifest(reference.digest ?? reference.tag ?? "", name);
  if (reference.digest !== null && top.digest !== reference.digest) throw invalid(name, "differs from its digest");
  let found = top;
  for (let depth = 0; ; depth++) {
    const document = documentOf(found, name);
    if (!isIndex(document)) return imageOf(options, name, top.digest, typed(found, document), document);
    if (depth >= limits.index_depth_max) {
      throw invalid(name, `has indexes inside indexes (limit ${limits.index_depth_max})`);
    }
    const entry = chosenEntry(document, options, name);
    const part = `manifest ${entry.digest}`;
    found = await source.manifest(entry.digest, part).catch((error) => {
      throw lacking(error, part);
    });
    if (found.digest !== entry.digest)
      throw invalid(name, `has a manifest that differs from its digest: ${entry.digest}`);
    if (found.bytes.length !== entry.size)
      throw invalid(name, `has a manifest that differs from its size: ${entry.digest}`);
  }
}

function invalid(name: string, problem: string): AppError {
  return new AppError("IMAGE_INVALID", `${name} ${problem}`);
}

/** Returns the first complaint of a schema, with the place in the document. */
function complaint({ issues: [issue] }: z.ZodError): string {
  return `${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`.slice(0, 200);
}

/** Returns the object of a JSON text, null for any other. Its depth and values are bounded: they would hold the event loop. */
function jsonObject(bytes: Buffer, name: string): Json | null {
  try {
    checkShape(bytes, "a document");
  } catch (error) {
    throw invalid(name, `has ${errorText(error)}`);
  }
  try {
    const value: unknown = JSON.parse(bytes.toString());
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : null;
  } catch {
    return null;
  }
}

function documentOf({ bytes, media_type }: FetchedManifest, name: string): Json {
  const document = jsonObject(bytes, name);
  if (document === null) throw invalid(name, "has a manifest that is not a JSON object");
  checkNames(bytes, document, name);
  if (document.schemaVersion === 1 || document.fsLayers !== undefined) {
    throw invalid(
      name,
      "has a manifest of schema version 1, which is not supported: build it again with a current tool",
    );
  }
  const shape = isIndex(document) ? INDEX_TYPES : MANIFEST_TYPES;
  const isBoth = document.manifests !== undefined && (document.layers !== undefined || document.config !== undefined);
  const others = [media_type, document.mediaType].filter((type) => isOneOf(ALL_TYPES, type) && !isOneOf(shape, type));
  if (isBoth || others.length > 0) throw invalid(name, "has a manifest whose media type contradicts its content");
  return document;
}

/** As Go compares names of fields: the long s and the sign of Kelvin are letters of ASCII to it. */
function folded(name: string): string {
  return name.replaceAll("\u017f", "s").replaceAll("\u212a", "k").toLowerCase();
}

/** M3. */
function checkNames(bytes: Buffer, document: Json, name: string): void {
  let count = 0;
  const visit = (value: unknown, isMap: boolean): void => {
    if (typeof value !== "object" || value === null) return;
    if (Array.isArray(value)) {
      for (const one of value) visit(one, false);
      return;
    }
    for (const [key, inner] of Object.entries(value)) {
      count++;
      const field = FIELDS_BY_FOLDED.get(folded(key));
      if (!isMap && field !== undefined && field !== key) {
        throw invalid(name, `has a manifest with another spelling of the field ${field}`);
      }
      // Names of annotations are anybody's.
      visit(inner, !isMap && key === "annotations");
    }
  };
  visit(document, false);
  if (count !== membersCount(bytes)) throw invalid(name, "has a manifest with two fields of one name");
}

/** Number of members of all objects in a JSON text, equal names counted each. */
function membersCount(json: Buffer): number {
  let count = 0;
  let isText = false;
  for (let at = 0; at < json.length; at++) {
    const byte = json[at];
    if (byte === QUOTE) isText = !isText;
    else if (isText && byte === BACKSLASH) at++;
    else if (!isText && byte === COLON) count++;
  }
  return count;
}

function isOneOf(types: readonly string[], type: unknown): type is string {
  return typeof type === "string" && types.includes(type);
}

function isIndex(document: Json): boolean {
  return Array.isArray(document.manifests);
}

/** Returns the manifest with the media type to serve it with: its own, or that of the registry. */
function typed(manifest: FetchedManifest, { mediaType }: Json): FetchedManifest {
  const types = [mediaType, manifest.media_type].filter((type) => isOneOf(MANIFEST_TYPES, type));
  return { ...manifest, media_type: types[0] ?? OCI_MANIFEST };
}

/** Returns the entry for the asked platform: the best that fits, of equal ones the first. */
function chosenEntry(document: Json, { limits, platform, reference }: ResolveOptions, name: string): IndexEntry {
  const listed = document.manifests as readonly unknown[];
  if (listed.length > limits.index_manifests_max) {
    throw invalid(name, `has an index of ${listed.length} manifests (limit ${limits.index_manifests_max})`);
  }
  const parsed = z.array(IndexEntry).safeParse(listed);
  if (!parsed.success) throw invalid(name, `has an invalid index: ${complaint(parsed.error)}`);
  // Attestations are manifests of no platform.
  const entries = parsed.data.filter((entry) => entry.platform?.os !== "unknown" && isManifest(entry));
  const fitting = entries
    .map((entry) => ({ entry, fit: entry.platform == null ? null : fitOf(platform, foundPlatform(entry.platform)) }))
    .filter(({ fit }) => fit !== null)
    .toSorted((a, b) => (a.fit ?? 0) - (b.fit ?? 0));
  const [only] = entries;
  // Without a platform the configuration decides.
  const chosen = fitting[0]?.entry ?? (entries.length === 1 && only?.platform == null ? only : undefined);
  if (chosen !== undefined) return chosen;
  const platforms = entries.flatMap((entry) =>
    entry.platform == null ? [] : [platformText(foundPlatform(entry.platform))],
  );
  throw noPlatform(reference, platform, [...new Set(platforms)], limits);
}

function isManifest({ mediaType }: IndexEntry): boolean {
  return INDEX_TYPES.includes(mediaType) || MANIFEST_TYPES.includes(mediaType);
}

function foundPlatform({ os, architecture, variant }: z.infer<typeof FoundPlatform>): Platform {
  return { os, architecture, variant: variant ? variant : null };
}

function noPlatform(
  reference: ImageReference,
  asked: Platform,
  found: readonly string[],
  limits: RegistryLimits,
): AppError {
  const shown = found.slice(0, limits.platforms_shown_max).map((text) => text.replace(/[^\x21-\x7e]/g, "?"));
  const has = shown.length === 0 ? "no platform" : shown.join(", ");
  return new AppError(
    "NOT_FOUND",
    `image ${referenceText(reference)} does not support ${platformText(asked)} (it supports ${has})`,
    {
      details: { expected: shown, received: platformText(asked) },
      reason_code: "PLATFORM_NOT_FOUND",
      hint: "choose another image, or another platform",
    },
  );
}

async function imageOf(
  options: ResolveOptions,
  name: string,
  digest: string,
  manifest: FetchedManifest,
  document: Json,
): Promise<ImageContent> {
  const { source, limits } = options;
  const count = Array.isArray(document.layers) ? document.layers.length : 0;
  if (count > limits.image_layers_max) throw invalid(name, `has ${count} layers (limit ${limits.image_layers_max})`);
  const parsed = Manifest.safeParse(document);
  if (!parsed.success) throw invalid(name, `has an invalid manifest: ${complaint(parsed.error)}`);
  const { config, layers } = parsed.data;
  if (!CONFIG_TYPES.includes(config.mediaType)) {
    const type = config.mediaType.replace(/[^\x21-\x7e]/g, "?");
    throw invalid(name, `is no image for containers: its configuration has the type ${type}`);
  }
  if (config.size > limits.registry_config_bytes_max) {
    throw invalid(name, `has a configuration of ${config.size} bytes (limit ${limits.registry_config_bytes_max})`);
  }
  if (config.urls != null) throw invalid(name, "has a configuration that lies at URLs of its own");
  checkLayers(layers, name, limits);
  const bytes = await source.blob(config, `configuration ${config.digest}`);
  const diff_ids = checkedConfig(bytes, options, name, layers.length);
  const named = new Map(layers.map(({ digest }, i) => [digest, diff_ids[i]]));
  const liar = layers.find(({ digest }, i) => named.get(digest) !== diff_ids[i]);
  if (liar !== undefined) throw invalid(name, `has a layer of two diff_ids: ${liar.digest}`);
  return {
    digest,
    manifest,
    config_digest: digestOf(bytes),
    config: bytes,
    layers: layers.map((layer, i) => ({
      digest: layer.digest,
      size: layer.size,
      media_type: layer.mediaType,
      diff_id: diff_ids[i] ?? "",
    })),
  };
}

function checkLayers(layers: readonly z.infer<typeof Descriptor>[], name: string, limits: RegistryLimits): void {
  for (const { mediaType, digest, urls } of layers) {
    if (urls != null && urls.length > 0) throw invalid(name, `has a layer that lies at URLs of its own: ${digest}`);
    if (!LAYER_TYPES.includes(mediaType)) {
      throw invalid(name, `has a layer of an unknown type: ${mediaType.replace(/[^\x21-\x7e]/g, "?")}`);
    }
  }
  const bytes = layers.reduce((sum, { size }) => sum + size, 0);
  if (bytes > limits.image_bytes_max)
    throw invalid(name, `has ${bytes} bytes of layers (limit ${limits.image_bytes_max})`);
  const sizes = new Map(layers.map(({ digest, size }) => [digest, size]));
  const liar = layers.find(({ digest, size }) => sizes.get(digest) !== size);
  if (liar !== undefined) throw invalid(name, `has a layer of two sizes: ${liar.digest}`);
}

/** Returns the diff_ids of a configuration (M4). */
function checkedConfig(bytes: Buffer, options: ResolveOptions, name: string, layers_count: number): readonly string[] {
  const { platform, reference, limits } = options;
  const parsed = Config.safeParse(jsonObject(bytes, name));
  if (!parsed.success) throw invalid(name, `has an invalid configuration: ${complaint(parsed.error)}`);
  const found = foundPlatform(parsed.data);
  if (fitOf(platform, found) === null) throw noPlatform(reference, platform, [platformText(found)], limits);
  const { diff_ids } = parsed.data.rootfs;
  if (diff_ids.length !== layers_count) {
    throw invalid(name, `has ${layers_count} layers, but ${diff_ids.length} diff_ids in its configuration`);
  }
  return diff_ids;
}
