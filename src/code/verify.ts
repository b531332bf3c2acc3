/** Reads a tree back from the disk: what a machine without power wrote last may be there in part. */
import { createHash } from "node:crypto";
import type { FileSession, WalkEntry } from "../engine/ports.ts";
import { CodeTree } from "./tree.ts";

const OWNER_EXECUTES = 0o100;

const latin1 = ({ buffer, byteOffset, length }: Uint8Array): string =>
  Buffer.from(buffer, byteOffset, length).toString("latin1");

async function add(tree: CodeTree, names: Map<number, string>, { entry, content }: WalkEntry): Promise<void> {
  const path = latin1(entry.name_bytes);
  if (entry.type === "directory") {
    tree.addDirectory(path);
  } else if (entry.type === "symlink") {
    tree.addLink(path, latin1(entry.target_bytes));
  } else if (entry.isLater) {
    tree.addName(path, names.get(entry.link_number) ?? "");
  } else {
    const sum = createHash("sha256");
    for await (const piece of content ?? []) sum.update(piece);
    tree.addFile(path, (entry.mode & OWNER_EXECUTES) !== 0, sum.digest("binary"), entry.size);
    if (entry.link_number > 0) names.set(entry.link_number, path);
  }
}

/** Returns the digest of the files that are there. Rejects with INVALID_ARGUMENT for a tree that no upload makes. */
export async function digestOnDisk(session: FileSession): Promise<string> {
  const tree = new CodeTree();
  const names = new Map<number, string>();
  for await (const entry of session.walk("/")) await add(tree, names, entry);
  return tree.digest();
}
