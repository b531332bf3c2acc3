/**
 * The parts of an OCI archive on the disk, each under the digest that its bytes have.
 *
 * A1. A file is named by 64 hexadecimal digits alone: no name of the archive becomes a path.
 * A2. A blob is kept only if its bytes have the digest of its name.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, readFile, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { giveBack } from "../../base/buffer-memory.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ArchiveEntry, ArchiveReader } from "../../engine/ports.ts";
import { digestOf, type FetchedManifest } from "../registry/client.ts";
import type { ImageSource } from "../registry/source.ts";

const BLOB = /^blobs\/sha256\/([0-9a-f]{64})$/;
const INDEX = "index.json";

export interface ArchiveFiles {
  readonly index: FetchedManifest;
  /** The parts that the index leads to. A manifest is found by its digest; any other name means the index. */
  readonly source: ImageSource;
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
  const sizes = new Map<string, number>();
  const written = { bytes: 0, unchecked_bytes: 0 };
  let index: FetchedManifest | null = null;
  await checkDisk(directory);
  for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
    const name = safeName(entry);
    const [, hex] = BLOB.exec(name) ?? [];
    if (name !== INDEX && hex === undefined) continue;
    if (entry.type !== "file") throw invalid(`has ${name} as a ${entry.type}, not as a file`);
    if (hex === undefined) {
      if (index !== null) throw invalid(`has ${name} twice`);
      index = await indexOf(entry, reader);
    } else {
      if (sizes.has(hex)) throw invalid(`has ${name} twice`);
      sizes.set(hex, entry.size);
      await keepBlob(reader, join(directory, hex), hex, written, { reserve, signal });
    }
    signal.throwIfAborted();
  }
  if (index === null) {
    throw new AppError("INVALID_ARGUMENT", "the archive has no index.json: it is not an OCI archive", {
      hint: "send what hearth save, buildah push oci-archive: or skopeo copy oci-archive: writes",
    });
  }
  return { index, source: sourceOf(directory, index, sizes) };
}

function invalid(problem: string): AppError {
  return new AppError("IMAGE_INVALID", `the archive ${problem}`);
}

/** Returns the name without a leading `./`. Rejects names that lead out of the archive. */
function safeName({ name }: ArchiveEntry): string {
  const parts = name.split("/");
  if (name.startsWith("/") || parts.includes("..")) {
    throw invalid(`has an entry that leads out of it: ${name.slice(0, 100).replace(/[^\x21-\x7e]/g, "?")}`);
  }
  return parts.filter((part) => part !== "" && part !== ".").join("/");
}

async function indexOf({ size }: ArchiveEntry, reader: ArchiveReader): Promise<FetchedManifest> {
  const { manifest_bytes_max } = LIMITS;
  if (size > manifest_bytes_max) throw invalid(`has an index.json of ${size} bytes (limit ${manifest_bytes_max})`);
  const bytes = Buffer.from(await reader.content());
  return { bytes, media_type: "", digest: digestOf(bytes) };
}

/** A2. */
async function keepBlob(
  reader: ArchiveReader,
  path: string,
  hex: string,
  written: { bytes: number; unchecked_bytes: number },
  { reserve, signal }: Keeping,
): Promise<void> {
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
  if (hash.digest("hex") !== hex) throw invalid(`has a blob that differs from its digest: sha256:${hex}`);
}

async function checkDisk(directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const { image_disk_free_bytes_min } = LIMITS;
  if (bavail * bsize >= image_disk_free_bytes_min) return;
  throw new AppError("CAPACITY_FULL", `no disk space for the archive (${image_disk_free_bytes_min} bytes stay free)`);
}

function sourceOf(directory: string, index: FetchedManifest, sizes: ReadonlyMap<string, number>): ImageSource {
  const pathOf = (digest: string, subject: string, size: number | null): string => {
    const hex = digest.replace(/^sha256:/, "");
    const found = sizes.get(hex);
    if (found === undefined) throw invalid(`lacks ${subject}`);
    if (size !== null && found !== size) throw invalid(`has ${subject} of ${found} bytes, not ${size}`);
    return join(directory, hex);
  };
  return {
    manifest: async (name, subject) => {
      if (!name.startsWith("sha256:")) return index;
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
