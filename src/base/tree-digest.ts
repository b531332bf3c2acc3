/**
 * The digest of a tree of code, which the daemon and its clients compute alike: the SHA-256 of the line `hearth code 1` and
 * the SHA-256 of each entry, sorted. An entry is `<type> <path> NUL <content>`. It depends on neither times, owners nor the
 * order of an archive.
 */
import { createHash, hash } from "node:crypto";
import { LIMITS } from "./limits.ts";

/** Directory, file, executable file (as one that begins with `#!` always is) or symbolic link. */
export type TreeEntryType = "d" | "f" | "x" | "l";

export interface DigestedEntry {
  readonly type: TreeEntryType;
  /** SHA-256 of a file as 32 characters, target of a link, nothing of a directory; one character a byte. */
  readonly content: string;
}

export const SCRIPT_START = "#!";
const BUCKET_COUNT = 256;

/** Lets other work of the event loop have its turn. */
export const rest = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** `entries`: by path, one character a byte, without a leading slash. Resolves to hexadecimal digits. */
export async function treeDigest(entries: ReadonlyMap<string, DigestedEntry>): Promise<string> {
  const buckets: string[][] = Array.from({ length: BUCKET_COUNT }, () => []);
  let hashed_count = 0;
  for (const [path, { type, content }] of entries) {
    const sum = hash("sha256", Buffer.from(`${type} ${path}\0${content}`, "latin1"), "binary");
    buckets[sum.charCodeAt(0)]?.push(sum);
    if (++hashed_count % LIMITS.code_slice_count === 0) await rest();
  }
  const all = createHash("sha256").update("hearth code 1\n");
  for (const [i, bucket] of buckets.entries()) {
    all.update(bucket.sort().join(""), "latin1");
    if (i % 16 === 15 && entries.size > LIMITS.code_slice_count) await rest();
  }
  return all.digest("hex");
}
