/** Contents of a tree of code, and the comparison of two trees. */
import { createHash } from "node:crypto";
import type { FileEntry, FileSession } from "../engine/ports.ts";

/** One path that differs. */
export interface FileDifference {
  readonly path: string;
  readonly change: "added" | "removed" | "changed";
}

export interface TreeDifference {
  /** By path. */
  readonly files: readonly FileDifference[];
  /** True if more paths differ than were asked for. */
  readonly is_truncated: boolean;
}

/** A text for each path but directories. Equal entries have equal texts. */
export type Contents = ReadonlyMap<string, string>;

/** Reads a tree whole. Time grows with its size: it hashes all files. */
export async function readContents(session: FileSession): Promise<Contents> {
  const contents = new Map<string, string>();
  for await (const { entry, content } of session.walk("/")) {
    if (entry.type === "directory") continue;
    const hash = createHash("sha256");
    if (content !== null) for await (const piece of content) hash.update(piece);
    contents.set(entry.name, `${kindOf(entry)} ${entry.target ?? hash.digest("hex")}`);
  }
  return contents;
}

const EXECUTABLE = 0o111;

function kindOf({ type, mode }: FileEntry): string {
  return type === "file" && (mode & EXECUTABLE) !== 0 ? "executable" : type;
}

/** Compares two trees and names at most `max` paths. */
export function compare(from: Contents, to: Contents, max: number): TreeDifference {
  const files: FileDifference[] = [];
  for (const path of [...new Set([...from.keys(), ...to.keys()])].sort()) {
    const [before, after] = [from.get(path), to.get(path)];
    if (before === after) continue;
    const change = before === undefined ? "added" : after === undefined ? "removed" : "changed";
    files.push({ path, change });
    if (files.length > max) return { files: files.slice(0, max), is_truncated: true };
  }
  return { files, is_truncated: false };
}
