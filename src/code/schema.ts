/** Shapes of functions' code. */

/** The code of a tenant, named by its content. */
export interface CodeRecord {
  /** SHA-256 of the tree in hexadecimal digits, see tree.ts. */
  readonly digest: string;
  /** Bytes of all files. */
  readonly size_bytes: number;
  /** Files, directories and links. */
  readonly entry_count: number;
  /** Time of the latest upload, in epoch seconds. */
  readonly created_at: number;
}

export interface PutOptions {
  /** Number of leading components to strip from each name; entries with no more are skipped. */
  readonly strip_components?: number;
}
