/**
 * The images of an archive: those that the index of an OCI layout names, or those of `manifest.json` as `docker save` and programs like it
 * write it (github.com/moby/moby, image/spec/v1.2.md). An archive that has both is an OCI layout.
 *
 * I1. Entries of an index for no platform are no images: programs that build put their attestations there.
 * I2. Entries of an index with the same name, or without one with the same tag, are one image for several platforms.
 * I3. An image of `docker save` gets a manifest of its own, which names the parts by what they hold. Its id is that of its configuration.
 */
import { open } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { AppError } from "../../base/errors.ts";
import { checkShape } from "../../base/json-shape.ts";
import { LIMITS } from "../../base/limits.ts";
import { digestOf, type FetchedManifest } from "../registry/client.ts";
import type { ImageSource } from "../registry/source.ts";
import { type ArchiveFiles, type ArchivePart, sourceOf } from "./archive-files.ts";

export interface ArchivedImage {
  /** References, complete or not. None if the archive does not name it. */
  readonly names: readonly string[];
  /** Of an image whose name is a tag alone; otherwise null. */
  readonly tag: string | null;
  readonly source: ImageSource;
}

const TAG = /^\w[\w.-]{0,127}$/;
const OCI_INDEX = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar";
/** First bytes of compressed layers. */
const COMPRESSIONS: readonly (readonly [suffix: string, sign: string])[] = [
  [".gzip", "1f8b08"],
  [".zstd", "28b52ffd"],
];

const Reference = z.string().max(LIMITS.image_reference_length_max);
const Word = z.string().max(LIMITS.image_reference_length_max);
const Index = z.object({
  manifests: z
    .array(
      z.looseObject({
        annotations: z.record(z.string(), Reference).nullish(),
        platform: z.looseObject({ os: Word.nullish() }).nullish(),
      }),
    )
    .max(LIMITS.index_manifests_max),
});
const Path = z.string().max(LIMITS.path_bytes_max);
const DockerManifest = z.array(
  z.object({
    Config: Path,
    RepoTags: z.array(Reference).nullish(),
    Layers: z.array(Path).max(LIMITS.image_layers_max),
  }),
);

/** Throws INVALID_ARGUMENT for an archive without images or with too many, IMAGE_INVALID for a malformed one. */
export async function imagesOf(files: ArchiveFiles): Promise<readonly ArchivedImage[]> {
  const found = files.index === null ? await dockerImages(files) : ociImages(files, files.index);
  checkCount(found.length);
  if (found.length > 0) return found;
  throw new AppError("INVALID_ARGUMENT", "the archive has no image");
}

function checkCount(count: number): void {
  const limit = LIMITS.image_archive_images_max;
  if (count <= limit) return;
  throw new AppError("INVALID_ARGUMENT", `too many images in the archive: ${count} (limit ${limit})`);
}

/** Images by their names (I2). A tag alone names no image. */
function ociImages(files: ArchiveFiles, bytes: Buffer): readonly ArchivedImage[] {
  const { manifests } = parsed(bytes, Index, "index.json");
  const groups = new Map<string, { readonly name: string; readonly tag: string; readonly own: typeof manifests }>();
  for (const one of manifests) {
    if (isAttestation(one)) continue;
    const tag = one.annotations?.["org.opencontainers.image.ref.name"] ?? "";
    const name = one.annotations?.["io.containerd.image.name"] ?? (/[/:]/.test(tag) ? tag : "");
    const key = JSON.stringify(name === "" ? [name, tag] : [name]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { name, tag, own: [one] });
    else group.own.push(one);
  }
  return [...groups.values()].map(({ name, tag, own }) => {
    const isWhole = own.length === manifests.length;
    const index = isWhole
      ? bytes
      : Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: OCI_INDEX, manifests: own }));
    const source = sourceOf(files, fetched(index, ""));
    return { names: name === "" ? [] : [name], tag: name === "" && TAG.test(tag) ? tag : null, source };
  });
}

/** I1. */
function isAttestation({ annotations, platform }: z.infer<typeof Index>["manifests"][number]): boolean {
  return platform?.os === "unknown" || annotations?.["vnd.docker.reference.type"] === "attestation-manifest";
}

async function dockerImages(files: ArchiveFiles): Promise<readonly ArchivedImage[]> {
  const { docker_manifest } = files;
  if (docker_manifest === null) {
    throw new AppError(
      "INVALID_ARGUMENT",
      "the archive has no index.json and no manifest.json: it is no archive of images",
      {
        hint: "send what hearth save, docker save, podman save or buildah push writes; make an image of a root file system by a build: FROM scratch, ADD <archive> /",
      },
    );
  }
  const images: ArchivedImage[] = [];
  const listed = parsed(docker_manifest, DockerManifest, "manifest.json");
  // Before a file of each layer is opened.
  checkCount(listed.length);
  for (const { Config, RepoTags, Layers } of listed) {
    const layers: object[] = [];
    for (const name of Layers) {
      const part = files.part(name, "layer");
      layers.push(descriptor(`${DOCKER_LAYER}${await compressionOf(files, part)}`, part));
    }
    const config = descriptor(DOCKER_CONFIG, files.part(Config, "configuration"));
    const manifest = { schemaVersion: 2, mediaType: DOCKER_MANIFEST, config, layers };
    const top = fetched(Buffer.from(JSON.stringify(manifest)), DOCKER_MANIFEST);
    images.push({ names: [...new Set(RepoTags ?? [])], tag: null, source: sourceOf(files, top) });
  }
  return images;
}

const descriptor = (mediaType: string, { hex, size }: ArchivePart) => ({ mediaType, digest: `sha256:${hex}`, size });

const fetched = (bytes: Buffer, media_type: string): FetchedManifest => ({
  bytes,
  media_type,
  digest: digestOf(bytes),
});

async function compressionOf({ directory }: ArchiveFiles, { hex }: ArchivePart): Promise<string> {
  const file = await open(join(directory, hex), "r");
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
    const head = buffer.toString("hex", 0, bytesRead);
    return COMPRESSIONS.find(([, sign]) => head.startsWith(sign))?.[0] ?? "";
  } finally {
    await file.close();
  }
}

function parsed<Shape>(bytes: Buffer, shape: z.ZodType<Shape>, name: string): Shape {
  const found = shape.safeParse(jsonOf(bytes));
  if (found.success) return found.data;
  const [issue] = found.error.issues;
  // The first part of the path is a field of the shape, or a number, and no key that the archive chose.
  const problem = issue === undefined || issue.path.length === 0 ? "" : `: ${String(issue.path[0])}: ${issue.message}`;
  throw new AppError("IMAGE_INVALID", `the archive has an invalid ${name}${problem}`);
}

function jsonOf(bytes: Buffer): unknown {
  try {
    checkShape(bytes, "a document");
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}
