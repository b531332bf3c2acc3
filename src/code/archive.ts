/**
 * The bytes of an archive as a client sends them: how fast they must come, how many there may be, and which format they
 * have. tar and tar in gzip are read as they come. A zip has its list of entries at the end: it is held in memory while it
 * is small, then in a file of the data directory that has no name.
 *
 * B1 A client sends at least `spool_bytes_min` in each `upload_stall_ms` that the daemon waits for it.
 * B2 A file loses its name as soon as it is open, so no end of the daemon leaves one. `begin` removes a name that a crash
 *    left.
 * B3 It grows within the bound of the tenant's temporary files, of which its bytes are reserved first.
 */
import { type FileHandle, mkdir, open, rm } from "node:fs/promises";
import { giveBack } from "../base/buffer-memory.ts";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Reservation, Reservations } from "../base/reservations.ts";
import { paced } from "../base/upload-pace.ts";
import type { ArchiveReader, Files } from "../engine/ports.ts";
import { type ArchiveBytes, readZip } from "./zip.ts";

/** First bytes of a zip: an entry, or the end of one without entries. */
const ZIP_HEADS = ["PK\x03\x04", "PK\x05\x06"];
const HEAD_BYTES = 4;

export interface CodeArchivesOptions {
  /** Its own, for zips that do not fit the memory: it is emptied first. */
  readonly directory: string;
  /** B3. */
  readonly temporary: Reservations;
  readonly ids: Ids;
  readonly clock: Clock;
  readonly files: () => Files;
}

export class CodeArchives {
  readonly #directory: string;
  readonly #temporary: Reservations;
  readonly #ids: Ids;
  readonly #clock: Clock;
  readonly #files: () => Files;

  constructor({ directory, temporary, ids, clock, files }: CodeArchivesOptions) {
    this.#directory = directory;
    this.#temporary = temporary;
    this.#ids = ids;
    this.#clock = clock;
    this.#files = files;
  }

  /** Before the first archive (B2). */
  async begin(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
  }

  /** Resolves when the format is known. Rejects with INVALID_ARGUMENT, BODY_TOO_LARGE, REQUEST_TIMEOUT, QUOTA_EXCEEDED, CAPACITY_FULL. */
  async open(tenant_id: string, source: AsyncIterable<Uint8Array>): Promise<ArchiveReader> {
    const pieces = paced(source, {
      clock: this.#clock,
      bytes_max: LIMITS.code_archive_bytes_max,
      what: "archive",
    });
    const first: Uint8Array[] = [];
    let head = Buffer.alloc(0);
    while (head.length < HEAD_BYTES) {
      const next = await pieces.next();
      if (next.done === true) break;
      head = Buffer.concat([head, next.value.subarray(0, HEAD_BYTES)]);
      first.push(next.value);
    }
    if (head.length === 0) throw new AppError("INVALID_ARGUMENT", "the archive is empty: send a tar, tar.gz or zip");
    const all = chain(first, pieces);
    if (ZIP_HEADS.includes(head.toString("latin1", 0, HEAD_BYTES))) return readZip(await this.#hold(tenant_id, all));
    return this.#files().readTar(tenant_id, all, {
      bytes_max: LIMITS.code_stream_bytes_max,
      entries_max: LIMITS.code_entries_max,
    });
  }

  async #hold(tenant_id: string, source: AsyncIterable<Uint8Array>): Promise<ArchiveBytes> {
    const parts: Uint8Array[] = [];
    let size = 0;
    let file: FileHandle | null = null;
    let reservation: Reservation | null = null;
    try {
      for await (const piece of source) {
        if (file === null && size + piece.length > LIMITS.code_memory_bytes) {
          reservation = await this.#temporary.open(tenant_id);
          await reservation.reach(size);
          file = await this.#file();
          await write(file, Buffer.concat(parts), 0);
        }
        await reservation?.reach(size + piece.length);
        if (file === null) parts.push(Buffer.from(piece));
        else await write(file, piece, size);
        size += piece.length;
        giveBack(piece);
      }
    } catch (error) {
      await file?.close();
      reservation?.release();
      throw error;
    }
    return file === null ? inMemory(Buffer.concat(parts)) : inFile(file, size, reservation);
  }

  /** B2. */
  async #file(): Promise<FileHandle> {
    const path = `${this.#directory}/${this.#ids.next("zip")}`;
    const file = await open(path, "wx+", 0o600);
    await rm(path).catch(async (error) => {
      await file.close();
      throw error;
    });
    return file;
  }
}

async function* chain(
  first: readonly Uint8Array[],
  rest: AsyncGenerator<Uint8Array, void, undefined>,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* first;
    yield* rest;
  } finally {
    await rest.return();
  }
}

async function write(file: FileHandle, bytes: Uint8Array, at: number): Promise<void> {
  try {
    for (let done = 0; done < bytes.length; ) {
      done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOSPC") throw cause;
    throw new AppError("CAPACITY_FULL", "no space for the upload in the data directory", { cause });
  }
}

export function inMemory(bytes: Buffer): ArchiveBytes {
  return {
    size: bytes.length,
    read: async (position, length) => bytes.subarray(position, position + length),
    close: async () => {},
  };
}

function inFile(file: FileHandle, size: number, reservation: Reservation | null): ArchiveBytes {
  return {
    size,
    async read(position, length) {
      const bytes = Buffer.allocUnsafeSlow(length);
      for (let at = 0; at < length; ) {
        const { bytesRead } = await file.read(bytes, at, length - at, position + at);
        if (bytesRead === 0) throw new AppError("INTERNAL", "a held zip is shorter than what was written");
        at += bytesRead;
      }
      return bytes;
    },
    close: async () => {
      await file.close();
      reservation?.release();
    },
  };
}
