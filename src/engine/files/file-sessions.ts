/**
 * Files of a container or volume, by way of a small process that is jailed in that tree (`minit files`): this process
 * never resolves a path of theirs, because a container can swap a link at any moment (CVE-2018-15664). Links are
 * followed as they would be inside, the last one of a path only by `read`, `list` and `walk`.
 *
 * A session is one helper: it ends with `close`, with this process, or after ten idle minutes. Calls of one session are
 * answered in the order in which they were made; a reader that leaves a stream early ends its session.
 */
import { unlink } from "node:fs/promises";
import { join } from "node:path";
import { giveBack } from "../../base/buffer-memory.ts";
import type { Clock } from "../../base/clock.ts";
import { AppError, invariant } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type ReachedBound, Shares } from "../../base/shares.ts";
import type { TransferTurn, TransferTurns } from "../../base/transfer-turns.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { ArchiveBounds, ArchiveReader } from "../ports/archives.ts";
import type {
  Extracted,
  ExtractOptions,
  FileAttributes,
  FileContent,
  FileEntry,
  FileOwner,
  FilePath,
  FileSession,
  Files,
  FileType,
  FileWriter,
  OpenFiles,
  PackOptions,
  PathOptions,
  WalkEntry,
} from "../ports/files.ts";
import { findOwner } from "./accounts.ts";
import { extract, pack, readTar } from "./archive.ts";
import {
  CONTENT_BYTES_MAX,
  FILE_FLAG,
  FILE_FRAME,
  FileConnection,
  type FileFrame,
  pathText,
  TO_THE_END,
} from "./file-connection.ts";

export interface HelperOptions {
  readonly launcher: Pick<LauncherClient, "spawn">;
  /** The compiled helper. */
  readonly minit: string;
  /** Path of the tree, as the launcher sees it. */
  readonly root: string;
  /** Unix socket on which the helper listens until somebody connects. */
  readonly socket_path: string;
  readonly clock: Clock;
  /** The tenant's share of the daemon's thread; absent: it is not bounded. */
  readonly turn?: TransferTurn;
  /** Owner 0 inside is this outside. */
  readonly uid_base?: number;
}

/** The exit code of a helper that could not be jailed, less its errno. */
const EXIT_BASE = 64;
const ENOENT = 2;
const START_TIMEOUT_MS = 5_000;
const ENTRY_BYTES = 40;
const TYPES: Readonly<Record<number, FileType>> = {
  1: "fifo",
  2: "character_device",
  4: "directory",
  6: "block_device",
  8: "file",
  10: "symlink",
  12: "socket",
};

function entryOf({ body }: FileFrame): FileEntry {
  const mode = body.readUInt32LE(0);
  const name_end = ENTRY_BYTES + 3 + body.readUInt32LE(ENTRY_BYTES);
  const name_bytes = body.subarray(ENTRY_BYTES + 4, name_end);
  const target_bytes = body.subarray(name_end + 5, body.length - 1);
  const type = TYPES[mode >>> 12] ?? "unknown";
  return {
    name: name_bytes.toString("utf8"),
    name_bytes,
    type,
    size: Number(body.readBigUInt64LE(20)),
    mode: mode & 0o7777,
    mtime_ms: Number(body.readBigInt64LE(28)) * 1000 + body.readUInt32LE(36) / 1e6,
    uid: body.readUInt32LE(4),
    gid: body.readUInt32LE(8),
    target: type === "symlink" ? target_bytes.toString("utf8") : null,
    target_bytes,
    link_number: body.readUInt32LE(12),
    isLater: body.readUInt32LE(16) === 1,
  };
}

function attributeFlags(attributes: FileAttributes, options: PathOptions): number {
  return (
    (options.isBeneath === true ? FILE_FLAG.BENEATH : 0) |
    (attributes.mode === undefined ? 0 : FILE_FLAG.MODE) |
    (attributes.mtime_ms === undefined ? 0 : FILE_FLAG.MTIME) |
    (attributes.uid === undefined && attributes.gid === undefined ? 0 : FILE_FLAG.OWNER)
  );
}

/** Cuts content into pieces that fit a frame. */
function* pieces(content: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < content.length; at += CONTENT_BYTES_MAX) yield content.subarray(at, at + CONTENT_BYTES_MAX);
}

/** A file that is being written: pieces in, then `end` or `abort`. It has its name once `done` has resolved. */
class PieceWriter implements FileWriter {
  readonly #connection: FileConnection;
  readonly #id: number;
  readonly done: Promise<void>;

  constructor(connection: FileConnection, id: number, done: Promise<unknown>) {
    this.#connection = connection;
    this.#id = id;
    this.done = done.then(() => {});
    // It is looked at when all is sent, and may fail long before.
    this.done.catch(() => {});
  }

  add(content: Uint8Array, sent?: () => void): boolean {
    const all = [...pieces(content)];
    for (const [i, piece] of all.entries()) {
      this.#connection.add(FILE_FRAME.DATA, this.#id, piece, i === all.length - 1 ? sent : undefined);
    }
    return this.#connection.isRunning(this.#id);
  }

  end(): void {
    this.#connection.add(FILE_FRAME.END, this.#id);
  }

  abort(): void {
    this.#connection.add(FILE_FRAME.ABORT, this.#id);
  }
}

export class HelperSession implements FileSession {
  readonly #connection: FileConnection;
  /** Of the helper. */
  readonly pid: number;

  private constructor(connection: FileConnection, pid: number) {
    this.#connection = connection;
    this.pid = pid;
  }

  /** Starts the helper and connects. Rejects with NOT_FOUND when there is no such tree. */
  static async open(options: HelperOptions): Promise<HelperSession> {
    const { launcher, minit, root, socket_path, clock, turn, uid_base = 0 } = options;
    const argv = [minit, "files", root, String(uid_base)];
    const started = await launcher.spawn({ argv, timeout_ms: START_TIMEOUT_MS, listen_paths: [socket_path] });
    try {
      if (started.exit_code === EXIT_BASE + ENOENT) throw new AppError("NOT_FOUND", "no such tree of files");
      if (started.exit_code !== 0 || started.timed_out) {
        throw new AppError("INTERNAL", `no file helper for ${root}: ${started.stderr.trim()}`);
      }
      return new HelperSession(await FileConnection.connect(socket_path, clock, turn), Number(started.stdout));
    } finally {
      await unlink(socket_path).catch(() => {});
    }
  }

  get isOpen(): boolean {
    return this.#connection.isOpen;
  }

  /** Ends the helper; what has no answer yet rejects. */
  close(): void {
    this.#connection.close();
  }

  async stat(path: FilePath, isFollowed = false): Promise<FileEntry> {
    const flags = isFollowed ? FILE_FLAG.FOLLOW : 0;
    const found: FileEntry[] = [];
    await this.#connection.call(FILE_FRAME.STAT, { path, flags }, (frame) => found.push(entryOf(frame)));
    const [entry] = found;
    if (entry === undefined) throw new AppError("NOT_FOUND", `${pathText(path)}: no such file or directory`);
    return entry;
  }

  async list(request: {
    readonly path: FilePath;
    readonly page: number;
    readonly page_size: number;
  }): Promise<{ entries: FileEntry[]; total_count: number }> {
    const entries: FileEntry[] = [];
    const offset = (request.page - 1) * request.page_size;
    const asked = { path: request.path, offset, length: request.page_size };
    invariant(offset >= 0 && request.page_size <= LIMITS.file_page_size_max, "a page has a number and a bounded size");
    const onFrame = (frame: FileFrame) => void entries.push(entryOf(frame));
    const total_count = await this.#connection.call(FILE_FRAME.LIST, asked, onFrame).catch(async (error) => {
      throw (await this.#isNoDirectory(error, request.path)) ? notDirectory(request.path) : error;
    });
    return { entries, total_count };
  }

  /** True if a listing failed because of the path itself: ENOTDIR is also the failure of a parent. */
  async #isNoDirectory(error: unknown, path: FilePath): Promise<boolean> {
    if (!(error instanceof AppError) || !error.message.endsWith("(ENOTDIR)")) return false;
    const found = await this.stat(path, true).catch(() => null);
    return found !== null && found.type !== "directory";
  }

  async read(path: FilePath, range: { readonly start?: number; readonly end?: number } = {}): Promise<FileContent> {
    const { start = 0, end = TO_THE_END } = range;
    const flags = FILE_FLAG.FOLLOW;
    const asked = { path, flags, offset: start, length: Math.max(0, end - start) };
    const frames = this.#connection.frames(FILE_FRAME.READ, asked);
    const first = await frames.next();
    if (first.done === true) throw new AppError("INTERNAL", "the file helper sent no response to a read");
    async function* stream() {
      for await (const { body } of frames) yield body;
    }
    return { ...entryOf(first.value), stream: stream() };
  }

  async write(
    path: FilePath,
    content: Uint8Array | AsyncIterable<Uint8Array>,
    attributes: FileAttributes = {},
  ): Promise<void> {
    const writer = this.beginWrite(path, attributes);
    try {
      const isWhole = content instanceof Uint8Array;
      for await (const bytes of isWhole ? [content] : content) {
        let isWanted = true;
        for (const piece of pieces(bytes)) {
          const isLast = piece.byteOffset + piece.length === bytes.byteOffset + bytes.length;
          isWanted = writer.add(piece, isLast && !isWhole ? () => giveBack(bytes) : undefined);
          if (!this.hasRoom) await this.room();
        }
        if (!isWanted) break;
      }
    } catch (error) {
      writer.abort();
      throw error;
    }
    writer.end();
    await writer.done;
  }

  beginWrite(path: FilePath, attributes: FileAttributes = {}, options: PathOptions = {}): FileWriter {
    const flags = attributeFlags(attributes, options) | FILE_FLAG.PARENTS | FILE_FLAG.MORE;
    const request = { mode: 0o644, ...attributes, flags: flags | FILE_FLAG.MODE, path };
    const { id, done } = this.#connection.start(FILE_FRAME.WRITE, request);
    return new PieceWriter(this.#connection, id, done);
  }

  async put(path: FilePath, content: Uint8Array, attributes: FileAttributes = {}, options: PathOptions = {}) {
    invariant(content.length <= CONTENT_BYTES_MAX, "what is put fits a frame");
    const flags = attributeFlags(attributes, options) | FILE_FLAG.PARENTS | FILE_FLAG.MODE;
    await this.#connection.call(FILE_FRAME.WRITE, { mode: 0o644, ...attributes, flags, path, content });
  }

  async mkdir(path: FilePath, attributes: FileAttributes = {}, options: PathOptions = {}): Promise<void> {
    const flags = attributeFlags(attributes, options) | FILE_FLAG.PARENTS;
    await this.#connection.call(FILE_FRAME.MKDIR, { ...attributes, flags, path });
  }

  remove(path: FilePath, isRecursive = false): Promise<number> {
    return this.#connection.call(FILE_FRAME.REMOVE, { path, flags: isRecursive ? FILE_FLAG.RECURSIVE : 0 });
  }

  async rename(path: FilePath, new_path: FilePath): Promise<void> {
    await this.#connection.call(FILE_FRAME.RENAME, { path, other: new_path, flags: FILE_FLAG.PARENTS });
  }

  async symlink(path: FilePath, target: FilePath, attributes: FileAttributes = {}, options: PathOptions = {}) {
    const flags = attributeFlags(attributes, options) | FILE_FLAG.PARENTS;
    await this.#connection.call(FILE_FRAME.SYMLINK, { ...attributes, flags, path, other: target });
  }

  async link(path: FilePath, existing: FilePath, options: PathOptions = {}): Promise<void> {
    const flags = attributeFlags({}, options) | FILE_FLAG.PARENTS;
    await this.#connection.call(FILE_FRAME.LINK, { path, other: existing, flags });
  }

  async setAttributes(path: FilePath, attributes: FileAttributes, options: PathOptions = {}): Promise<void> {
    await this.#connection.call(FILE_FRAME.ATTRIBUTES, {
      ...attributes,
      path,
      flags: attributeFlags(attributes, options),
    });
  }

  async setBase(path: FilePath, owner: Partial<FileOwner> = {}): Promise<void> {
    await this.#connection.call(FILE_FRAME.BASE, { ...owner, path, flags: attributeFlags(owner, {}) });
  }

  findOwner(user: string): Promise<FileOwner | null> {
    return findOwner(this, user);
  }

  async *walk(path: FilePath, { withOthers = false } = {}): AsyncGenerator<WalkEntry, void, undefined> {
    const flags = withOthers ? FILE_FLAG.OTHERS : 0;
    const frames = this.#connection.frames(FILE_FRAME.WALK, { path, flags });
    async function* content(size: number): AsyncGenerator<Uint8Array, void, undefined> {
      for (let left = size; left > 0; ) {
        const next = await frames.next();
        if (next.done === true) throw new AppError("INTERNAL", "file shorter than announced");
        left -= next.value.body.length;
        yield next.value.body;
      }
    }
    try {
      for (let next = await frames.next(); next.done !== true; next = await frames.next()) {
        if (next.value.type !== FILE_FRAME.ENTRY) throw new AppError("INTERNAL", "content of an entry was left out");
        const entry = entryOf(next.value);
        const hasContent = entry.type === "file" && !entry.isLater && entry.size > 0;
        yield { entry, content: hasContent ? content(entry.size) : null };
      }
    } finally {
      await frames.return();
    }
  }

  extract(source: AsyncIterable<Uint8Array>, options: ExtractOptions): Promise<Extracted> {
    return extract(this, source, options);
  }

  pack(path: FilePath, options: PackOptions = {}): AsyncIterable<Uint8Array> {
    return pack(this, path, options);
  }

  get hasRoom(): boolean {
    return this.#connection.hasRoom;
  }

  room(): Promise<void> {
    return this.#connection.room();
  }
}

type Spawner = Pick<LauncherClient, "spawn">;

export interface FileSessionsOptions {
  /** Does work with the launcher in use, and with the next one where that died meanwhile. */
  readonly withLauncher: <Result>(work: (launcher: Spawner) => Promise<Result>) => Promise<Result>;
  readonly minit: string;
  /** For sockets, each of which is there for a moment. */
  readonly directory: string;
  readonly clock: Clock;
  readonly turns: TransferTurns;
  /** Control groups of tenants; null: helpers stay in that of the launcher. */
  readonly groups: HelperGroups | null;
}

export interface HelperGroups {
  /** Moves a helper into the group of its tenant's helpers. */
  enterHelper(tenant_id: string, pid: number): Promise<void>;
  /** Once for each helper that entered, after its end. */
  leaveHelper(tenant_id: string): void;
}

/**
 * Sessions within a bound: each is a process with two megabytes of buffers. One that lasts shares the processor as its tenant's
 * containers do, and ends at its deadline: a sparse file of a terabyte takes no disk.
 */
export class FileSessions implements Files {
  readonly #options: FileSessionsOptions;
  readonly #shares = new Shares({ each_max: LIMITS.file_sessions_per_tenant_max, all_max: LIMITS.file_sessions_max });
  #next_number = 1;

  constructor(options: FileSessionsOptions) {
    this.#options = options;
  }

  async with<Result>(
    tenant_id: string,
    root: string,
    uid_base: number,
    work: (session: FileSession) => Promise<Result>,
  ): Promise<Result> {
    const { session, close } = await this.open(tenant_id, root, uid_base);
    try {
      return await work(session);
    } finally {
      close();
    }
  }

  readTar(tenant_id: string, source: AsyncIterable<Uint8Array>, bounds: ArchiveBounds): Promise<ArchiveReader> {
    return readTar(source, bounds, this.#options.turns.of(tenant_id));
  }

  /** Short calls do not pay for a move. The returned function follows the end of the helper. */
  #enterGroup(tenant_id: string, session: HelperSession): () => void {
    const { groups, clock } = this.#options;
    if (groups === null) return () => {};
    let isInside = false;
    const cancel = clock.after(LIMITS.file_group_after_ms, () => {
      if (!session.isOpen) return;
      isInside = true;
      void groups.enterHelper(tenant_id, session.pid);
    });
    return () => {
      cancel();
      if (isInside) clock.after(LIMITS.file_group_rest_ms, () => groups.leaveHelper(tenant_id));
      isInside = false;
    };
  }

  async open(tenant_id: string, root: string, uid_base: number, mounter: Spawner | null = null): Promise<OpenFiles> {
    // `mounter`: the launcher that sees the tree, if no other does.
    const give = this.#shares.take(tenant_id, tooMany);
    const { withLauncher, minit, directory, clock, turns } = this.#options;
    const begin = (launcher: Spawner) => {
      const socket_path = join(directory, `files-${this.#next_number++}.sock`);
      return HelperSession.open({
        launcher,
        minit,
        root,
        socket_path,
        clock,
        uid_base,
        turn: turns.of(tenant_id),
      });
    };
    try {
      const session = await (mounter === null ? withLauncher(begin) : begin(mounter));
      const leave = this.#enterGroup(tenant_id, session);
      const cancel = clock.after(LIMITS.file_session_ms_max, () => session.close());
      const close = () => {
        cancel();
        session.close();
        leave();
        give();
      };
      return { session, close };
    } catch (error) {
      give();
      throw error;
    }
  }
}

function tooMany(reached: ReachedBound): AppError {
  return reached === "each_max"
    ? new AppError(
        "CONCURRENCY_LIMIT",
        `too many file transfers of the tenant (limit ${LIMITS.file_sessions_per_tenant_max})`,
        {
          retry_after: 1,
        },
      )
    : new AppError("CAPACITY_FULL", `too many file transfers (limit ${LIMITS.file_sessions_max})`, { retry_after: 1 });
}

const notDirectory = (path: FilePath): AppError =>
  new AppError("INVALID_ARGUMENT", `${pathText(path)}: is not a directory (ENOTDIR)`);
