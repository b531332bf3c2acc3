/** The engine's port: files of a container or volume, and archives into and out of them. */

/** A path in the tree; bytes where it is no UTF-8. */
export type FilePath = string | Uint8Array;

export type FileType =
  | "file"
  | "directory"
  | "symlink"
  | "fifo"
  | "socket"
  | "character_device"
  | "block_device"
  | "unknown";

export interface FileEntry {
  /** As UTF-8; a name that is none shows replacement characters, `name_bytes` is the name. */
  readonly name: string;
  readonly name_bytes: Uint8Array;
  readonly type: FileType;
  readonly size: number;
  /** Permission bits, set-uid, set-gid and sticky. */
  readonly mode: number;
  readonly mtime_ms: number;
  /** As inside. */
  readonly uid: number;
  readonly gid: number;
  /** Of a symbolic link. */
  readonly target: string | null;
  readonly target_bytes: Uint8Array;
  /** Of a walk: what the names of one file with several have in common, and whether this is a later one. */
  readonly link_number: number;
  readonly isLater: boolean;
}

export interface FileAttributes {
  readonly mode?: number;
  readonly mtime_ms?: number;
  /** As inside. Root unless given. */
  readonly uid?: number;
  readonly gid?: number;
}

export interface PathOptions {
  /** The path begins at the base and never leads out of it; what is in its way is replaced. See `setBase`. */
  readonly isBeneath?: boolean;
}

export interface FileContent extends FileEntry {
  /** As it is taken; must be taken, or the session closed. */
  readonly stream: AsyncIterable<Uint8Array>;
}

/** One entry of a walk. `content` is there for a file whose content has not come before, and must be taken then. */
export interface WalkEntry {
  readonly entry: FileEntry;
  readonly content: AsyncIterable<Uint8Array> | null;
}

/** A file that is being written: pieces in, then `end` or `abort`. It has its name once `done` has resolved. */
export interface FileWriter {
  readonly done: Promise<void>;
  /** False: it has failed already, `done` says why, and nothing more is needed. `sent`: all of it is on its way. */
  add(content: Uint8Array, sent?: () => void): boolean;
  end(): void;
  abort(): void;
}

/**
 * Files of one tree. Links are followed as they would be inside, the last one of a path only by `read`, `list` and `walk`.
 * Calls of one session are answered in the order in which they were made; a reader that leaves a stream early ends its
 * session.
 */
export interface FileSession {
  readonly isOpen: boolean;
  /** Of the entry itself, or of the entry that a link leads to. Rejects with NOT_FOUND. */
  stat(path: FilePath, isFollowed?: boolean): Promise<FileEntry>;
  /** One page of a directory in the order of the bytes of names. `page` counts from 1. */
  list(request: {
    readonly path: FilePath;
    readonly page: number;
    readonly page_size: number;
  }): Promise<{ entries: FileEntry[]; total_count: number }>;
  /** Bytes `start` up to but not including `end` of a regular file. */
  read(path: FilePath, range?: { readonly start?: number; readonly end?: number }): Promise<FileContent>;
  /**
   * Makes or replaces a regular file at once, missing directories too. A link is replaced, not followed. Pieces of an
   * iterable are the session's: it frees them when they are on their way.
   */
  write(path: FilePath, content: Uint8Array | AsyncIterable<Uint8Array>, attributes?: FileAttributes): Promise<void>;
  /** The same in pieces. One file at a time: a later call ends an earlier one. Mind `hasRoom` between the pieces. */
  beginWrite(path: FilePath, attributes?: FileAttributes, options?: PathOptions): FileWriter;
  /** A small file in one frame. */
  put(path: FilePath, content: Uint8Array, attributes?: FileAttributes, options?: PathOptions): Promise<void>;
  /** Makes a directory, with those above it; one that is there gets the attributes. */
  mkdir(path: FilePath, attributes?: FileAttributes, options?: PathOptions): Promise<void>;
  /** Removes an entry; a directory that is not empty only with `isRecursive`. Resolves to the number of removed entries. */
  remove(path: FilePath, isRecursive?: boolean): Promise<number>;
  /** Replaces the entry that has the new name, as rename(2) does. */
  rename(path: FilePath, new_path: FilePath): Promise<void>;
  symlink(path: FilePath, target: FilePath, attributes?: FileAttributes, options?: PathOptions): Promise<void>;
  /** Another name for a file that is there. */
  link(path: FilePath, existing: FilePath, options?: PathOptions): Promise<void>;
  /** Changes the given attributes of a file or directory. */
  setAttributes(path: FilePath, attributes: FileAttributes, options?: PathOptions): Promise<void>;
  /**
   * Makes a directory (with those above it) the base of all paths with `isBeneath`. Below it a link leads on only to
   * what lies below it as well; any other that is in the way of a directory is replaced by one.
   */
  setBase(path: FilePath): Promise<void>;
  /**
   * All entries below a directory, or the one file at `path`, each directory before what is in it. Pipes, sockets and
   * devices are left out, and so is what the kernel makes up (/proc, /sys). A file that shrinks ends in zeros.
   */
  walk(path: FilePath): AsyncGenerator<WalkEntry, void, undefined>;
  /**
   * Unpacks an archive: tar, or tar in gzip. Rejects with INVALID_ARGUMENT for what is wrong with it, STORAGE_FULL, or
   * what the source threw. The session stays usable unless it was lost; closing it is the way to give up in the middle.
   */
  extract(source: AsyncIterable<Uint8Array>, options: ExtractOptions): Promise<Extracted>;
  /**
   * A directory's content as tar, with names relative to it, or one file under its own name; what `walk` leaves out is
   * left out. Whoever stops taking it early ends the session.
   */
  pack(path: FilePath, options?: PackOptions): AsyncIterable<Uint8Array>;
  /** True if more may be asked for at once without gathering here; if not, wait for `room`. */
  readonly hasRoom: boolean;
  room(): Promise<void>;
}

export interface OpenFiles {
  readonly session: FileSession;
  /** Must be called. */
  readonly close: () => void;
}

export interface ExtractOptions {
  /** A directory, made where it is missing. */
  readonly path: FilePath;
  /** Leading components taken off each name, as tar counts them; an entry with no more than those is passed over. */
  readonly strip_components?: number;
  /** Numbers as in the archive instead of root. */
  readonly preserve_owner?: boolean;
  readonly onProgress?: (done: Extracted) => void;
}

export interface Extracted {
  readonly entry_count: number;
  /** Content of files. */
  readonly byte_count: number;
}

export interface PackOptions {
  readonly isGzip?: boolean;
}

export interface Files {
  /**
   * Opens a session on a tree for as long as `work` takes. `tenant_id`: whom it counts for; `uid_base`: owner 0 inside is
   * this outside. Rejects with CAPACITY_FULL above the bound of all, with CONCURRENCY_LIMIT above the tenant's.
   */
  with<Result>(
    tenant_id: string,
    root: string,
    uid_base: number,
    work: (session: FileSession) => Promise<Result>,
  ): Promise<Result>;
  /** The same for work whose end lies elsewhere, as a body that is being sent. */
  open(tenant_id: string, root: string, uid_base: number): Promise<OpenFiles>;
}
