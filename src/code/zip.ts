/**
 * Reads a zip as a sequence of entries. yauzl reads the list of entries, which alone counts; this file reads contents, and
 * holds them to the size and the checksum that the list names.
 *
 * Z1 Every read lies within the archive, and nothing is larger in memory than `SMALL_BYTES` and one piece.
 * Z2 Modes and symbolic links are those of unix where the archive was made on one; other systems' files get 644.
 */
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { crc32, createInflateRaw, inflateRawSync } from "node:zlib";
import yauzl from "yauzl";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { ArchiveEntry, ArchiveReader } from "../engine/ports.ts";
import { refusal } from "./tree.ts";

/** Bytes of an archive that its reader finds by their position. */
export interface ArchiveBytes {
  readonly size: number;
  /** Reads `length` bytes, all of which are there. */
  read(position: number, length: number): Promise<Buffer>;
  close(): Promise<void>;
}

/** Entries up to this are unpacked in one step. */
const SMALL_BYTES = 64 * 1024;
const PIECE_BYTES = 64 * 1024;
/** Most bytes that deflate adds to content that it cannot shrink, with a margin. */
const DEFLATE_GROWTH_BYTES = 1_024;
const STORED = 0;
const DEFLATED = 8;
/** Systems by the upper byte of `versionMadeBy`. */
const DOS = 0;
const UNIX = new Set([3, 19]);
const TYPE_BITS = 0o170000;
const TYPES = new Map<number, ArchiveEntry["type"]>([
  [0, "file"],
  [0o100000, "file"],
  [0o040000, "directory"],
  [0o120000, "symlink"],
]);

function corrupt(cause: unknown): unknown {
  if (cause instanceof AppError) return cause;
  return new AppError("INVALID_ARGUMENT", `corrupt or unsupported zip archive: ${errorText(cause)}`, { cause });
}

/** Gives yauzl the bytes that it asks for, a piece at a time: most of what it reads is small and in order (Z1). */
class Window extends yauzl.RandomAccessReader {
  readonly #bytes: ArchiveBytes;
  #at = 0;
  #piece: Buffer = Buffer.alloc(0);

  constructor(bytes: ArchiveBytes) {
    super();
    this.#bytes = bytes;
  }

  override read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
    callback: (error: Error | null) => void,
  ): void {
    this.#read(position, length).then(
      (bytes) => {
        bytes.copy(buffer, offset);
        callback(null);
      },
      (error) => callback(error),
    );
  }

  override close(callback: (error: Error | null) => void): void {
    callback(null);
  }

  async #read(position: number, length: number): Promise<Buffer> {
    const { size } = this.#bytes;
    if (!Number.isSafeInteger(position) || position < 0 || position + length > size)
      throw new AppError("INVALID_ARGUMENT", "corrupt zip archive: an offset lies beyond its end");
    const start = position - this.#at;
    if (start >= 0 && start + length <= this.#piece.length) return this.#piece.subarray(start, start + length);
    this.#piece = await this.#bytes.read(position, Math.min(size - position, Math.max(length, PIECE_BYTES)));
    this.#at = position;
    return this.#piece.subarray(0, length);
  }
}

class ZipReader implements ArchiveReader {
  readonly #bytes: ArchiveBytes;
  readonly #zip: yauzl.ZipFile;
  readonly #entries: AsyncIterator<yauzl.Entry>;
  #entry: yauzl.Entry | null = null;
  #name = "";
  #pieces: AsyncGenerator<Buffer, void, undefined> | null = null;

  constructor(bytes: ArchiveBytes, zip: yauzl.ZipFile) {
    this.#bytes = bytes;
    this.#zip = zip;
    this.#entries = zip.eachEntry();
  }

  async next(): Promise<ArchiveEntry | null> {
    await this.#endPieces();
    try {
      const next = await this.#entries.next();
      if (next.done === true) return null;
      this.#entry = next.value;
      return await this.#shown(next.value);
    } catch (error) {
      throw corrupt(error);
    }
  }

  async piece(): Promise<Buffer | null> {
    try {
      this.#pieces ??= this.#content();
      const next = await this.#pieces.next();
      return next.done === true ? null : next.value;
    } catch (error) {
      throw corrupt(error);
    }
  }

  async content(): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let piece = await this.piece(); piece !== null; piece = await this.piece()) parts.push(piece);
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }

  async close(): Promise<void> {
    await this.#endPieces();
    this.#zip.close();
    await this.#bytes.close();
  }

  async #endPieces(): Promise<void> {
    const pieces = this.#pieces;
    this.#pieces = null;
    await pieces?.return();
  }

  async #shown(entry: yauzl.Entry): Promise<ArchiveEntry> {
    const { fileNameRaw, versionMadeBy, externalFileAttributes, uncompressedSize, compressionMethod } = entry;
    const system = versionMadeBy >>> 8;
    const raw = fileNameRaw.toString("latin1");
    const name = system === DOS ? raw.replaceAll("\\", "/") : raw;
    this.#name = name;
    const mode = UNIX.has(system) ? externalFileAttributes >>> 16 : 0o644;
    const type = name.endsWith("/") ? "directory" : TYPES.get(mode & TYPE_BITS);
    if (type === undefined) throw refusal(name, "is a device, a pipe or a socket");
    if (entry.isEncrypted()) throw refusal(name, "is encrypted");
    if (compressionMethod !== STORED && compressionMethod !== DEFLATED)
      throw refusal(name, `has an unsupported compression method: ${compressionMethod}`);
    const shown = { type, name, link: "", size: type === "file" ? uncompressedSize : 0, mode: mode & 0o7777 };
    if (type !== "symlink") return shown;
    if (uncompressedSize > LIMITS.path_bytes_max) throw refusal(name, "is a symbolic link without a valid target");
    return { ...shown, link: (await this.content()).toString("latin1") };
  }

  /** The content of the entry that was read last. */
  async *#content(): AsyncGenerator<Buffer, void, undefined> {
    const entry = this.#entry;
    if (entry === null || entry.uncompressedSize === 0) return;
    const { uncompressedSize: size, compressedSize, compressionMethod } = entry;
    const { fileDataStart } = await this.#zip.readLocalFileHeaderPromise(entry, { minimal: true });
    if (compressionMethod === STORED && compressedSize !== size) throw refusal(this.#name, "has two different sizes");
    let [left, sum] = [size, 0];
    for await (const piece of this.#unpacked(fileDataStart, compressedSize, compressionMethod, size)) {
      left -= piece.length;
      if (left < 0) break;
      sum = crc32(piece, sum);
      yield piece;
    }
    if (left !== 0) throw refusal(this.#name, `has another size than the archive says (${size} bytes)`);
    if (sum !== entry.crc32) throw refusal(this.#name, "is damaged: its checksum is wrong");
  }

  async *#unpacked(start: number, bytes: number, method: number, size: number): AsyncGenerator<Buffer> {
    if (method === STORED) {
      yield* this.#range(start, bytes);
    } else if (size <= SMALL_BYTES) {
      if (bytes > size + DEFLATE_GROWTH_BYTES) throw refusal(this.#name, "has two different sizes");
      const packed = await this.#bytes.read(start, bytes);
      yield inflateRawSync(packed, { maxOutputLength: SMALL_BYTES + 1 });
    } else {
      const inflate = createInflateRaw({ chunkSize: PIECE_BYTES });
      const done = pipeline(Readable.from(this.#range(start, bytes)), inflate);
      // The reader of the output sees the failure.
      done.catch(() => {});
      yield* inflate as AsyncIterable<Buffer>;
    }
  }

  async *#range(start: number, bytes: number): AsyncGenerator<Buffer> {
    for (let at = start; at < start + bytes; at += PIECE_BYTES) {
      yield await this.#bytes.read(at, Math.min(PIECE_BYTES, start + bytes - at));
    }
  }
}

/** Reads a zip, whose bytes are closed with the reader. Rejects with INVALID_ARGUMENT, and then they are closed too. */
export async function readZip(bytes: ArchiveBytes): Promise<ArchiveReader> {
  try {
    const options = { lazyEntries: true, decodeStrings: false, validateEntrySizes: true, autoClose: false };
    const zip = await yauzl.fromRandomAccessReaderPromise(new Window(bytes), bytes.size, options);
    if (zip.entryCount > LIMITS.code_entries_max)
      throw new AppError(
        "INVALID_ARGUMENT",
        `too many entries in the archive: ${zip.entryCount} (limit ${LIMITS.code_entries_max})`,
      );
    return new ZipReader(bytes, zip);
  } catch (error) {
    await bytes.close();
    throw corrupt(error);
  }
}
