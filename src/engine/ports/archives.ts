/** The engine's port: archives as a sequence of entries, for a consumer that decides what becomes of each. */

/** One entry. Names are byte strings, one character a byte: a name that is not UTF-8 stays as it is. */
export interface ArchiveEntry {
  readonly type: "file" | "directory" | "symlink" | "link";
  readonly name: string;
  /** Target of a symbolic link, name of the first entry of a hard link. */
  readonly link: string;
  /** Bytes of content; 0 of any entry but a file. */
  readonly size: number;
  /** Permission bits, set-uid, set-gid and sticky. */
  readonly mode: number;
}

/** Rejects with INVALID_ARGUMENT for an invalid archive, or with the error of the source. */
export interface ArchiveReader {
  /** Returns the next entry, null at the end of the source. Skips the rest of the last entry's content. */
  next(): Promise<ArchiveEntry | null>;
  /** Returns the next piece of the entry's content, null at its end. The caller owns a piece that is all of its memory. */
  piece(): Promise<Uint8Array | null>;
  /** Returns all of the entry's content. For a size that the caller has checked. */
  content(): Promise<Uint8Array>;
  /** Gives up the source. Every caller must call it. */
  close(): Promise<void>;
}

export interface ArchiveBounds {
  /** Bytes of the unpacked archive, headers included. */
  readonly bytes_max: number;
  readonly entries_max: number;
}
