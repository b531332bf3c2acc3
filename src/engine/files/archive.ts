/**
 * Archives into and out of a tree, as streams: tar, and tar in gzip, which is known by its first bytes. The tree is a
 * `FileSession`: nothing here touches a file.
 *
 * Rules for an archive below its `path`:
 * R1 Nothing outside of it. Absolute names lose their slash, a `..` refuses the archive; links below `path` are
 *    followed only where they lead to what is below it too, and any other in the way of an entry is replaced.
 * R2 A hard link only to what the archive or an earlier one put below `path`. Symbolic links are made as they are.
 * R3 Files, directories and links; devices, pipes and sparse files refuse the archive.
 * R4 Modes are kept with set-uid bits, times too. What is made belongs to `owner`, or with `preserve_owner` to whom the archive
 *    says; a directory that is there keeps its owner, unless the archive says another.
 * R5 An entry replaces what has its name, but a directory only by a directory, which keeps the rest.
 * A refusal names the entry; what came before it stays.
 */
import { pipeline, Readable, type Transform } from "node:stream";
import { createGunzip, createGzip } from "node:zlib";
import { giveBack, giveBackLast } from "../../base/buffer-memory.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { TransferTurn } from "../../base/transfer-turns.ts";
import type { ArchiveBounds, ArchiveReader } from "../ports/archives.ts";
import type { Extracted, ExtractOptions, FileAttributes, FilePath, FileSession, PackOptions } from "../ports/files.ts";
import { nameText, type TarEntry, TarReader, tarComment, tarEnd, tarHeader, tarPadding } from "./tar.ts";

/** Content up to this goes with its request in one frame. */
const SMALL_BYTES = 64 * 1024;
/** Size of the pieces that gzip's output is gathered to. */
const PIECE_BYTES = 64 * 1024;
/** Smallest piece of an archive that is sent. The helper's pieces, which are larger, are sent as they are. */
const PIECE_BYTES_MIN = 32 * 1024;
/** Of the comments of an archive (pax, `comment`) that name what it has not: a pipe, a socket or a device. */
const LEFT_OUT = "left out: ";
const BENEATH = { isBeneath: true };

function refusal(entry: string, why: string): AppError {
  return new AppError("INVALID_ARGUMENT", `archive entry ${nameText(entry)} ${why}`);
}

/** A name below the path, null where stripping leaves nothing of it. A leading `.` counts as a component, as in tar. */
function stripped(entry: string, name: string, strip_components: number): string | null {
  const parts = name.split("/").filter((part) => part !== "");
  if (parts.includes("..")) throw refusal(entry, "leaves the target directory with ..");
  const kept = parts.slice(strip_components).filter((part) => part !== ".");
  if (kept.length > LIMITS.archive_depth_max)
    throw refusal(entry, `is too deep (limit ${LIMITS.archive_depth_max} directories)`);
  const path = kept.join("/");
  if (path.length > LIMITS.path_bytes_max)
    throw refusal(entry, `has a name that is too long (limit ${LIMITS.path_bytes_max} bytes)`);
  return path === "" ? null : path;
}

async function* chain(first: readonly Uint8Array[], rest: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* first;
    for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}

/** The archive's bytes, unpacked where they begin as gzip does. */
async function plain(source: AsyncIterable<Uint8Array>): Promise<AsyncGenerator<Uint8Array>> {
  const rest = source[Symbol.asyncIterator]();
  const first: Uint8Array[] = [];
  let head = Buffer.alloc(0);
  while (head.length < 2) {
    const next = await rest.next();
    if (next.done === true) break;
    first.push(next.value);
    head = Buffer.concat([head, next.value.subarray(0, 2)]);
  }
  const bytes = chain(first, rest);
  return head[0] === 0x1f && head[1] === 0x8b ? gunzip(bytes) : bytes;
}

/** Gives back what it has taken in. */
function freeing<Zlib extends Transform>(zlib: Zlib): Zlib {
  const transform = zlib._transform.bind(zlib);
  zlib._transform = (piece, encoding, done) =>
    transform(piece, encoding, (error, data) => {
      giveBack(piece);
      done(error, data);
    });
  return zlib;
}

/** Copies zlib's output, which are successive parts of one buffer, into memory of its own and gives the buffer back. */
async function* whole(parts: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  for await (const part of parts) {
    const piece = Buffer.allocUnsafeSlow(part.length);
    piece.set(part);
    giveBackLast(part, PIECE_BYTES);
    yield piece;
  }
}

/** Runs bytes through zlib, whose chunks are PIECE_BYTES long, and frees the memory of both at once. */
function through(source: AsyncIterable<Uint8Array>, zlib: Transform): AsyncGenerator<Uint8Array> {
  // A failure ends the reader's loop, so the callback has nothing to do.
  return whole(pipeline(Readable.from(source), freeing(zlib), () => {}));
}

async function* gunzip(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* through(source, createGunzip({ chunkSize: PIECE_BYTES }));
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    if (!code.startsWith("Z_")) throw cause;
    throw new AppError("INVALID_ARGUMENT", `corrupt or truncated gzip data: ${errorText(cause)}`, { cause });
  }
}

/** Returns INVALID_ARGUMENT for a call that failed because of the archive's content, whatever the call's code says. */
function ofArchive(error: unknown): unknown {
  const isItsFault = error instanceof AppError && ["NOT_FOUND", "NAME_TAKEN", "NOT_EMPTY"].includes(error.code);
  return isItsFault ? new AppError("INVALID_ARGUMENT", `archive entry ${error.message}`, { cause: error }) : error;
}

class Extraction {
  readonly #session: FileSession;
  readonly #reader: TarReader;
  readonly #options: ExtractOptions;
  /** What the archive holds, which its limits bound. */
  #entry_count = 0;
  #byte_count = 0;
  /** What of it was unpacked: not entries of which stripping leaves nothing. */
  readonly #unpacked = { entry_count: 0, byte_count: 0 };
  #failure: unknown = null;
  #last: Promise<void> = Promise.resolve();
  /** Directories around the current entry, whose times are set when nothing more is put into them. */
  readonly #around: { name: string; mtime_ms: number }[] = [];

  constructor(session: FileSession, source: AsyncIterator<Uint8Array>, options: ExtractOptions) {
    this.#session = session;
    this.#reader = new TarReader(source);
    this.#options = options;
  }

  async run(): Promise<Extracted> {
    for (let entry = await this.#reader.next(); entry !== null; entry = await this.#reader.next()) {
      await this.#add(entry);
      this.#options.onProgress?.({ ...this.#unpacked });
      if (!this.#session.hasRoom) await this.#session.room();
      this.#check();
    }
    this.#leave("");
    await this.#last;
    this.#check();
    await this.#reader.drain();
    return { ...this.#unpacked };
  }

  async #add(entry: TarEntry): Promise<void> {
    this.#entry_count++;
    this.#byte_count += entry.size;
    if (this.#entry_count > LIMITS.archive_entries_max) {
      throw refusal(entry.name, `exceeds the number of entries (limit ${LIMITS.archive_entries_max})`);
    }
    if (this.#byte_count > LIMITS.archive_bytes_max) {
      throw refusal(
        entry.name,
        `of ${entry.size} bytes exceeds the size of an archive (limit ${LIMITS.archive_bytes_max} bytes)`,
      );
    }
    const { strip_components = 0, preserve_owner = false, owner: given = {} } = this.#options;
    const name = stripped(entry.name, entry.name, strip_components);
    // The entry of the directory itself, `./`, counts unless it is stripped.
    if (name !== null || strip_components === 0) {
      this.#unpacked.entry_count++;
      this.#unpacked.byte_count += entry.size;
    }
    if (name === null) return;
    this.#leave(name);
    const path = Buffer.from(name, "latin1");
    const owner = preserve_owner ? { uid: entry.uid, gid: entry.gid } : given;
    if (preserve_owner && (!isOwner(entry.uid) || !isOwner(entry.gid)))
      throw refusal(entry.name, "has an owner that does not exist here");
    const attributes: FileAttributes = { mode: entry.mode, ...owner };
    const timed: FileAttributes = { ...attributes, mtime_ms: entry.mtime_ms };
    if (entry.type === "directory") {
      // One that is made gets the base's owner, and one that is there keeps its own.
      this.#follow(this.#session.mkdir(path, preserve_owner ? attributes : { mode: entry.mode }, BENEATH));
      this.#around.push({ name, mtime_ms: entry.mtime_ms });
    } else if (entry.type === "symlink") {
      const target = Buffer.from(entry.link, "latin1");
      this.#follow(this.#session.symlink(path, target, { ...owner, mtime_ms: entry.mtime_ms }, BENEATH));
    } else if (entry.type === "link") {
      const first = stripped(entry.name, entry.link, strip_components);
      if (first === null) throw refusal(entry.name, "is a link to a target outside the path");
      this.#follow(this.#session.link(path, Buffer.from(first, "latin1"), BENEATH));
    } else if (entry.size <= SMALL_BYTES) {
      this.#follow(this.#session.put(path, await this.#reader.content(), timed, BENEATH));
    } else {
      await this.#write(path, timed);
    }
  }

  async #write(path: Uint8Array, attributes: FileAttributes): Promise<void> {
    const writer = this.#session.beginWrite(path, attributes, BENEATH);
    this.#follow(writer.done);
    for (let piece = await this.#reader.piece(); piece !== null; piece = await this.#reader.piece()) {
      if (!writer.add(piece, () => giveBack(piece))) break;
      if (!this.#session.hasRoom) await this.#session.room();
    }
    writer.end();
  }

  /** Requests are not waited for one by one; the first that fails ends the extraction at the next look. */
  #follow(request: Promise<void>): void {
    this.#last = request.catch((error: unknown) => {
      this.#failure ??= ofArchive(error);
    });
  }

  #check(): void {
    if (this.#failure !== null) throw this.#failure;
  }

  #leave(name: string): void {
    for (let top = this.#around.at(-1); top !== undefined; top = this.#around.at(-1)) {
      if (name.startsWith(`${top.name}/`)) return;
      this.#around.pop();
      const path = Buffer.from(top.name, "latin1");
      // Something of the same name may have come after it: then there is no such directory any more.
      const set = this.#session.setAttributes(path, { mtime_ms: top.mtime_ms }, BENEATH);
      this.#last = set.catch((error: unknown) => {
        if (!this.#session.isOpen) this.#failure ??= error;
      });
    }
  }
}

function isOwner(id: number): boolean {
  return Number.isInteger(id) && id >= 0 && id < 2 ** 32 - 1;
}

/**
 * Unpacks an archive. Rejects with INVALID_ARGUMENT for what is wrong with it, STORAGE_FULL, or what the source threw.
 * The session stays usable unless it was lost; closing it is the way to give up in the middle.
 */
export async function extract(
  session: FileSession,
  source: AsyncIterable<Uint8Array>,
  options: ExtractOptions,
): Promise<Extracted> {
  await session.setBase(options.path, options.preserve_owner === true ? undefined : options.owner);
  const bytes = await plain(source);
  try {
    return await new Extraction(session, bytes, options).run();
  } finally {
    await bytes.return(undefined);
  }
}

/** Yields the pieces in the turns of the tenant that they belong to. */
async function* inTurns(
  source: AsyncGenerator<Uint8Array>,
  turn: TransferTurn,
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const piece of source) {
    await turn.take(piece.length);
    yield piece;
  }
}

/** Reads an archive of a tenant, whose turn it is, for a consumer of its entries. */
export async function readTar(
  source: AsyncIterable<Uint8Array>,
  bounds: ArchiveBounds,
  turn: TransferTurn,
): Promise<ArchiveReader> {
  const bytes = inTurns(await plain(source), turn);
  const reader = new TarReader(bytes, bounds);
  return {
    next: async () => {
      const entry = await reader.next();
      if (entry === null) await reader.drain();
      return entry;
    },
    piece: () => reader.piece(),
    content: () => reader.content(),
    close: async () => void (await bytes.return(undefined)),
  };
}

/** Yields pieces of a useful size whatever comes. */
async function* gathered(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of source) {
    parts.push(part);
    bytes += part.length;
    if (bytes < PIECE_BYTES_MIN) continue;
    yield parts.length === 1 ? part : Buffer.concat(parts);
    parts = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(parts);
}

async function* entries(session: FileSession, path: FilePath): AsyncGenerator<Buffer, void, undefined> {
  const first_names = new Map<number, string>();
  let others_count = 0;
  for await (const { entry, content } of session.walk(path, { withOthers: true })) {
    const name = Buffer.from(entry.name_bytes).toString("latin1");
    if (entry.type !== "file" && entry.type !== "directory" && entry.type !== "symlink") {
      others_count++;
      if (others_count <= LIMITS.archive_others_named_max) yield tarComment(`${LEFT_OUT}${entry.type} ${name}`);
      continue;
    }
    const first = first_names.get(entry.link_number);
    if (entry.link_number > 0 && !entry.isLater) first_names.set(entry.link_number, name);
    yield tarHeader({
      type: entry.isLater ? "link" : entry.type,
      name: entry.type === "directory" ? `${name}/` : name,
      link: entry.isLater ? (first ?? "") : Buffer.from(entry.target_bytes).toString("latin1"),
      size: content === null ? 0 : entry.size,
      mode: entry.mode,
      uid: entry.uid,
      gid: entry.gid,
      mtime_ms: entry.mtime_ms,
    });
    if (content === null) continue;
    for await (const bytes of content) yield bytes as Buffer;
    yield tarPadding(entry.size);
  }
  const unnamed_count = others_count - LIMITS.archive_others_named_max;
  if (unnamed_count > 0) yield tarComment(`${LEFT_OUT}${unnamed_count} more`);
  yield tarEnd();
}

/**
 * A directory's content as tar, with names relative to it, or one file under its own name; what `walk` leaves out is
 * left out. A consumer that stops early ends the session.
 */
export function pack(session: FileSession, path: FilePath, options: PackOptions = {}): AsyncIterable<Uint8Array> {
  const tar = gathered(entries(session, path));
  if (options.isGzip !== true) return tar;
  return through(tar, createGzip({ chunkSize: PIECE_BYTES, level: 1 }));
}
