/** The digest of a folder's code as the daemon computes it of an upload: code that the daemon has is not sent again. */
import { createHash } from "node:crypto";
import { type DigestedEntry, rest, SCRIPT_START, treeDigest } from "../../base/tree-digest.ts";
import type { Code, CodeEntry } from "./files.ts";
import { contentOf } from "./tar-writer.ts";

/** Bytes that are hashed before other work has its turn: keys and the bar of `hearth dev`. */
const SLICE_BYTES = 8 * 1024 * 1024;

/** Reads all files. Throws Failure for one that cannot be read, or that changes meanwhile. */
export async function digestOf({ root, entries }: Code): Promise<string> {
  const digested = new Map<string, DigestedEntry>();
  let left_bytes = SLICE_BYTES;
  for (const entry of entries) {
    digested.set(Buffer.from(entry.path).toString("latin1"), digestedEntry(root, entry));
    left_bytes -= entry.size_bytes + entry.path.length;
    if (left_bytes > 0) continue;
    left_bytes = SLICE_BYTES;
    await rest();
  }
  return treeDigest(digested);
}

function digestedEntry(root: string, { path, type, isExecutable, size_bytes, target }: CodeEntry): DigestedEntry {
  if (type === "folder") return { type: "d", content: "" };
  if (type === "link") return { type: "l", content: Buffer.from(target).toString("latin1") };
  const sum = createHash("sha256");
  let start = "";
  for (const piece of contentOf(root, path, size_bytes)) {
    if (start.length < SCRIPT_START.length) start += piece.toString("latin1", 0, SCRIPT_START.length - start.length);
    sum.update(piece);
  }
  return { type: isExecutable || start === SCRIPT_START ? "x" : "f", content: sum.digest("binary") };
}
