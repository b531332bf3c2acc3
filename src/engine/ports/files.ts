/** The engine's port: files of a container or volume, and archives into and out of them. */

import type { ArchiveBounds, ArchiveReader } from "./archives.ts";

/** A path in the tree; bytes if it is not UTF-8. */
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
  /** Name as UTF-8. Other bytes become replacement characters; `name_bytes` is exact. */
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
  /** Target of a symbolic link; null for any other entry. */
  readonly target: string | null;
  readonly target_bytes: Uint8Array;
  /** In a walk: number that all hard links of one file share, and true for every link after the first. */
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

/** As inside. */
export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

export interface PathOptions {
  /** The path begins at the base and never leads out of it; what is in its way is replaced. See `setBase`. */
  readonly isBeneath?: boolean;
}

export interface FileContent extends FileEntry {
  /** Content, read on demand. The consumer must read it to the end or close the session. */
  readonly stream: AsyncIterable<Uint8Array>;
}

/** One entry of a walk. The first link of a file has `content`, which the consumer must read to the end. */
export interface WalkEntry {
  readonly entry: FileEntry;
  readonly content: AsyncIterable<Uint8Array> | null;
}

/** A file that is being written: pieces in, then `end` or `abort`. It has its name once `done` has resolved. */
export interface FileWriter {
  readonly done: Promise<void>;
  /** Returns false after a failure: `done` has the error, and more pieces are useless. `sent`: all of it is on its way. */
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
  /** Returns the entry itself, or with `isFollowed` the entry that a link leads to. Rejects with NOT_FOUND. */
  stat(path: FilePath, isFollowed?: boolean): Promise<FileEntry>;
  /** Lists one page of a directory in the order of the bytes of names. `page` counts from 1. */
  list(request: {
    readonly path: FilePath;
    readonly page: number;
    readonly page_size: number;
  }): Promise<{ entries: FileEntry[]; total_count: number }>;
  /** Reads the bytes `start` up to but not including `end` of a regular file. */
  read(path: FilePath, range?: { readonly start?: number; readonly end?: number }): Promise<FileContent>;
  /**
   * Makes or replaces a regular file at once, missing directories too. A link is replaced, not followed. Pieces of an
   * iterable are the session's: it frees them when they are on their way.
   */
  write(path: FilePath, content: Uint8Array | AsyncIterable<Uint8Array>, attributes?: FileAttributes): Promise<void>;
  /** Writes a file in pieces. One file at a time: a later call ends an earlier one. Check `hasRoom` between pieces. */
  beginWrite(path: FilePath, attributes?: FileAttributes, options?: PathOptions): FileWriter;
  /** Writes a small file in one frame. */
  put(path: FilePath, content: Uint8Array, attributes?: FileAttributes, options?: PathOptions): Promise<void>;
  /** Makes a directory, with those above it; one that is there gets the attributes. */
  mkdir(path: FilePath, attributes?: FileAttributes, options?: PathOptions): Promise<void>;
  /** Removes an entry; a directory that is not empty only with `isRecursive`. Resolves to the number of removed entries. */
  remove(path: FilePath, isRecursive?: boolean): Promise<number>;
  /** Replaces the entry that has the new name, as rename(2) does. */
  rename(path: FilePath, new_path: FilePath): Promise<void>;
  symlink(path: FilePath, target: FilePath, attributes?: FileAttributes, options?: PathOptions): Promise<void>;
  /** Adds a hard link to an existing file. */
  link(path: FilePath, existing: FilePath, options?: PathOptions): Promise<void>;
  /** Changes the given attributes of a file or directory. */
  setAttributes(path: FilePath, attributes: FileAttributes, options?: PathOptions): Promise<void>;
  /**
   * Makes a directory (with those above it) the base of all paths with `isBeneath`. Below it a link leads on only to
   * what lies below it as well; any other that is in the way of a directory is replaced by one. `owner`: of each directory
   * that is made for the base or with `isBeneath`, root unless given. A directory that is there keeps its own.
   */
  setBase(path: FilePath, owner?: FileOwner): Promise<void>;
  /**
   * Resolves `<user>[:<group>]` by the tree's own /etc/passwd and /etc/group, as minit does for a container's commands:
   * names or numbers, without a group the user's primary one. Null: the tree has no such user or group.
   */
  findOwner(user: string): Promise<FileOwner | null>;
  /**
   * Yields all entries below a directory, or the one file at `path`, each directory before its entries. Pipes, sockets,
   * devices and the kernel's own file systems (/proc, /sys) are left out. A file that shrinks ends in zeros.
   */
  walk(path: FilePath, options?: { readonly withOthers?: boolean }): AsyncGenerator<WalkEntry, void, undefined>;
  /**
   * Unpacks an archive: tar, or tar in gzip. Rejects with INVALID_ARGUMENT for an invalid archive, STORAGE_FULL, or the
   * error of the source. The session stays usable unless it was lost; closing it cancels the extraction.
   */
  extract(source: AsyncIterable<Uint8Array>, options: ExtractOptions): Promise<Extracted>;
  /**
   * Packs the entries of a `walk` as tar: a directory's with names relative to it, or one file under its own name. A
   * consumer that stops early ends the session.
   */
  pack(path: FilePath, options?: PackOptions): AsyncIterable<Uint8Array>;
  /** True if more requests may be sent now; if not, wait for `room`. */
  readonly hasRoom: boolean;
  room(): Promise<void>;
}

export interface OpenFiles {
  readonly session: FileSession;
  /** Ends the session. Every caller must call it. */
  readonly close: () => void;
}

export interface ExtractOptions {
  /** Target directory, created if missing. */
  readonly path: FilePath;
  /** Number of leading components to strip from each name, as tar counts them; entries with no more are skipped. */
  readonly strip_components?: number;
  /** Keeps the numeric owners of the archive instead of `owner`. */
  readonly preserve_owner?: boolean;
  /** Of all that is made; root unless given. A directory that is there keeps its own. */
  readonly owner?: FileOwner;
  readonly onProgress?: (done: Extracted) => void;
}

export interface Extracted {
  readonly entry_count: number;
  /** Bytes of file contents. */
  readonly byte_count: number;
}

export interface PackOptions {
  readonly isGzip?: boolean;
}

export interface Files {
  /**
   * Opens a session on a tree for as long as `work` takes, which counts for the tenant. `uid_base` is the owner outside
   * that is owner 0 inside. Rejects with CAPACITY_FULL above the bound of all, with CONCURRENCY_LIMIT above the tenant's.
   */
  with<Result>(
    tenant_id: string,
    root: string,
    uid_base: number,
    work: (session: FileSession) => Promise<Result>,
  ): Promise<Result>;
  /** Opens a session for work that ends elsewhere, as a body that is being sent. */
  open(tenant_id: string, root: string, uid_base: number): Promise<OpenFiles>;
  /** Reads the entries of a tenant's tar, or tar in gzip, which it recognises by its first bytes. Touches no tree. */
  readTar(tenant_id: string, source: AsyncIterable<Uint8Array>, bounds: ArchiveBounds): Promise<ArchiveReader>;
}
