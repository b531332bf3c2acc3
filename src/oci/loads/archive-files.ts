/**
 * The parts of an archive of images on the disk, each under the digest that its bytes have: an OCI layout, or what `docker save` writes.
 * archive-images.ts reads which images they are.
 *
 * A1. A file is named by 64 hexadecimal digits, and by no others until they are known: no name of the archive becomes a path.
 * A2. A blob is kept only if its bytes have the digest of its name. Other parts are found by their name in the archive.
 * A3. A link is another name of a part in the archive. Nothing is made of it on the disk.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, readFile, rename, statfs } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { giveBack } from "../../base/buffer-memory.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ArchiveEntry, ArchiveReader } from "../../engine/ports.ts";
import { digestOf, type FetchedManifest } from "../registry/client.ts";
import type { ImageSource } from "../registry/source.ts";

const BLOB = /^blobs\/sha256\/([0-9a-f]{64})$/;
const INDEX = "index.json";
const MANIFEST = "manifest.json";
/** Files of `docker save` that no image needs. */
const UNUSED = /^(?:oci-layout|repositories|(?:.*\/)?(?:VERSION|json))$/;
const LINKS_MAX = 8;

/** A part on the disk. */
export interface ArchivePart {
  /** 64 hexadecimal digits, its name in the directory. */
  readonly hex: string;
  readonly size: number;
}

export interface ArchiveFiles {
  readonly directory: string;
  /** Of an OCI layout; null: the archive has none. */
  readonly index: Buffer | null;
  /** `manifest.json` of `docker save`; null: the archive has none. */
  readonly docker_manifest: Buffer | null;
  /** Sizes of all parts, by their digits. */
  readonly sizes: ReadonlyMap<string, number>;
  /** The part that has a name in the archive, or that a link of this name leads to. Throws IMAGE_INVALID if there is none. */
  part(name: string, subject: string): ArchivePart;
}

interface Keeping {
  /** Called before bytes are written, with the bytes of all blobs. Rejects if there may not be as many. */
  readonly reserve: (bytes: number) => Promise<void>;
  readonly signal: AbortSignal;
}

/** Keeps the blobs of an archive in a directory. Rejects with IMAGE_INVALID, INVALID_ARGUMENT, CAPACITY_FULL, and as `reserve` does. */
export async function keepArchive(
  reader: ArchiveReader,
  directory: string,
  { reserve, signal }: Keeping,
): Promise<ArchiveFiles> {
  const parts = new Map<string, ArchivePart>();
  const links = new Map<string, string>();
  const documents = new Map<string, Buffer>();
  const written = { bytes: 0, unchecked_bytes: 0 };
  await checkDisk(directory);
  for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
    const name = safeName(entry.name);
    if (entry.type === "directory" || UNUSED.test(name)) continue;
    const earlier = parts.get(name);
    if (links.has(name) || documents.has(name) || (earlier !== undefined && entry.type !== "file"))
      throw invalid(`has ${shown(name)} twice`);
    const [, hex = null] = BLOB.exec(name) ?? [];
    if (entry.type !== "file") {
      if (hex !== null || name === INDEX || name === MANIFEST) {
        throw invalid(`has ${name} as a ${entry.type}, not as a file`);
      }
      links.set(name, entry.type === "symlink" ? posix.join(posix.dirname(name), entry.link) : safeName(entry.link));
    } else if (name === INDEX || name === MANIFEST) {
      documents.set(name, await documentOf(name, entry, reader));
    } else {
      const path = join(directory, "part");
      const found = await keepPart(reader, path, written, { reserve, signal });
      if (hex !== null && found !== hex) throw invalid(`has a blob that differs from its digest: sha256:${hex}`);
      // Some programs write a layer once for each image.
      if (earlier !== undefined && earlier.hex !== found) throw invalid(`has ${shown(name)} twice, with other bytes`);
      await rename(path, join(directory, found));
      parts.set(name, { hex: found, size: entry.size });
    }
    signal.throwIfAborted();
  }
  return {
    directory,
    index: documents.get(INDEX) ?? null,
    docker_manifest: documents.get(MANIFEST) ?? null,
    sizes: new Map(parts.values().map(({ hex, size }) => [hex, size])),
    part: (name, subject) => {
      let at = safeName(name);
      for (let count = 0; count < LINKS_MAX && links.has(at); count++) at = links.get(at) ?? "";
      const found = parts.get(at);
      if (found === undefined) throw invalid(`lacks ${subject}: ${shown(name)}`);
      return found;
    },
  };
}

const shown = (name: string): string => name.slice(0, 100).replace(/[^\x21-\x7e]/g, "?");

function invalid(problem: string): AppError {
  return new AppError("IMAGE_INVALID", `the archive ${problem}`);
}

/** Returns the name without a leading `./`. Throws IMAGE_INVALID for names that lead out of the archive. */
function safeName(name: string): string {
  const parts = name.split("/");
  if (name.startsWith("/") || parts.includes("..")) throw invalid(`has an entry that leads out of it: ${shown(name)}`);
  return parts.filter((part) => part !== "" && part !== ".").join("/");
}

async function documentOf(name: string, { size }: ArchiveEntry, reader: ArchiveReader): Promise<Buffer> {
  const { manifest_bytes_max } = LIMITS;
  if (size > manifest_bytes_max) throw invalid(`has ${name} of ${size} bytes (limit ${manifest_bytes_max} bytes)`);
  return Buffer.from(await reader.content());
}

/** Returns the digits of the digest. */
async function keepPart(
  reader: ArchiveReader,
  path: string,
  written: { bytes: number; unchecked_bytes: number },
  { reserve, signal }: Keeping,
): Promise<string> {
  const hash = createHash("sha256");
  const file = await open(path, "wx", 0o600);
  try {
    for (let piece = await reader.piece(); piece !== null; piece = await reader.piece()) {
      signal.throwIfAborted();
      written.bytes += piece.length;
      await reserve(written.bytes);
      hash.update(piece);
      await file.writeFile(piece);
      written.unchecked_bytes += piece.length;
      giveBack(piece);
      if (written.unchecked_bytes < LIMITS.image_disk_check_bytes) continue;
      written.unchecked_bytes = 0;
      await checkDisk(dirname(path));
    }
  } finally {
    await file.close();
  }
  return hash.digest("hex");
}

async function checkDisk(directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const { image_disk_free_bytes_min } = LIMITS;
  if (bavail * bsize >= image_disk_free_bytes_min) return;
  throw new AppError("CAPACITY_FULL", `no disk space for the archive (${image_disk_free_bytes_min} bytes stay free)`);
}

/** The parts of an archive as a source. A manifest is found by its digest; any other name means `top`. */
export function sourceOf({ directory, sizes }: ArchiveFiles, top: FetchedManifest): ImageSource {
  const pathOf = (digest: string, subject: string, size: number | null): string => {
    const hex = digest.replace(/^sha256:/, "");
    const found = sizes.get(hex);
    if (found === undefined) throw invalid(`lacks ${subject}`);
    if (size !== null && found !== size) throw invalid(`has ${subject} of ${found} bytes, not ${size}`);
    return join(directory, hex);
  };
  return {
    manifest: async (name, subject) => {
      if (!name.startsWith("sha256:")) return top;
      const path = pathOf(name, subject, null);
      const size = sizes.get(name.replace(/^sha256:/, "")) ?? 0;
      const { manifest_bytes_max } = LIMITS;
      if (size > manifest_bytes_max) throw invalid(`has ${subject} of ${size} bytes (limit ${manifest_bytes_max})`);
      const bytes = await readFile(path);
      return { bytes, media_type: "", digest: digestOf(bytes) };
    },
    // The caller has checked the size that it asks for.
    blob: async ({ digest, size }, subject) => readFile(pathOf(digest, subject, size)),
    async *stream({ digest, size }, subject) {
      yield* createReadStream(pathOf(digest, subject, size), { highWaterMark: LIMITS.image_load_read_bytes });
    },
  };
}
