/**
 * The tree that an archive of code becomes: what has which name, and the digest of all of it. It decides what an archive
 * may hold; `unpack.ts` makes the files. Paths are byte strings, one character a byte, without a leading slash.
 *
 * T1 A directory has entries; below a file or a link there is nothing. What has another entry's name replaces it, but never
 *    a directory by something else, nor something else by a directory.
 * T2 No link leads out of the tree, by whatever other links its target passes.
 * T3 The digest depends on paths, types, executable bits, contents and targets alone (base/tree-digest.ts).
 * T4 Memory is bounded by the number of entries and the bytes of their names.
 */
import { isUtf8 } from "node:buffer";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type DigestedEntry, rest, treeDigest } from "../base/tree-digest.ts";

interface TreeEntry extends DigestedEntry {
  readonly size: number;
}

const DIRECTORY: TreeEntry = { type: "d", content: "", size: 0 };
const NAME_BYTES_MAX = 255;
/** As Linux has it (MAXSYMLINKS): a path by way of more leads nowhere. */
const LINKS_FOLLOWED_MAX = 40;

/** A name as people see it. */
export function shownName(name: string): string {
  return Buffer.from(name.slice(0, 1_024), "latin1").toString("utf8").slice(0, 256);
}

export function refusal(name: string, why: string): AppError {
  return new AppError("INVALID_ARGUMENT", `archive entry ${shownName(name)} ${why}`);
}

function isText(name: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: ASCII is UTF-8 without a look.
  return /^[\x01-\x7f]*$/.test(name) || isUtf8(Buffer.from(name, "latin1"));
}

/**
 * Returns the path of a name, null where stripping leaves nothing. A leading `.` counts as a component, as in tar. Throws
 * INVALID_ARGUMENT for a name that is absolute, leads out, is too long or deep, or is not UTF-8.
 */
export function pathOf(entry: string, name: string, strip_components: number): string | null {
  if (name.includes("\0")) throw refusal(entry, "has a NUL in its name");
  if (!isText(name)) throw refusal(entry, "has a name that is not UTF-8");
  if (name.startsWith("/")) throw refusal(entry, "has an absolute name");
  const parts = name.split("/").filter((part) => part !== "");
  if (parts.includes("..")) throw refusal(entry, "leaves the archive with ..");
  const kept = parts.slice(strip_components).filter((part) => part !== ".");
  if (kept.length > LIMITS.archive_depth_max)
    throw refusal(entry, `is too deep (limit ${LIMITS.archive_depth_max} directories)`);
  const path = kept.join("/");
  if (path.length > LIMITS.path_bytes_max || kept.some((part) => part.length > NAME_BYTES_MAX))
    throw refusal(
      entry,
      `has a name that is too long (limit ${NAME_BYTES_MAX} bytes, ${LIMITS.path_bytes_max} in all)`,
    );
  return path === "" ? null : path;
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));

export class CodeTree {
  /** Without the root. */
  readonly #entries = new Map<string, TreeEntry>();
  readonly #links = new Set<string>();
  #names_bytes = 0;
  #size_bytes = 0;

  get entry_count(): number {
    return this.#entries.size;
  }

  /** Bytes of all files. */
  get size_bytes(): number {
    return this.#size_bytes;
  }

  /** Paths of all directories, the root's being empty, each after those above it. */
  *directories(): Generator<string> {
    yield "";
    for (const [path, { type }] of this.#entries) if (type === "d") yield path;
  }

  /** Throws INVALID_ARGUMENT if the path cannot become a file or link (T1). Adds the directories above it. */
  checkPlace(path: string): void {
    this.#checkParents(path);
    if (this.#entries.get(path)?.type === "d") throw refusal(path, "is a directory earlier in the archive");
  }

  /** After `checkPlace`. `sha256`: 32 characters. */
  addFile(path: string, isExecutable: boolean, sha256: string, size: number): void {
    this.#set(path, { type: isExecutable ? "x" : "f", content: sha256, size });
  }

  /** After `checkPlace`. */
  addLink(path: string, target: string): void {
    if (target === "" || target.includes("\0") || !isText(target) || target.length > LIMITS.path_bytes_max)
      throw refusal(path, "is a symbolic link without a valid target");
    this.#names_bytes += target.length;
    this.#set(path, { type: "l", content: target, size: 0 });
    this.#links.add(path);
  }

  /** Adds another name of a file, after `checkPlace`. Throws INVALID_ARGUMENT if there is no such file. */
  addName(path: string, existing: string): void {
    const entry = this.#entries.get(existing);
    if (entry === undefined || (entry.type !== "f" && entry.type !== "x"))
      throw refusal(path, "is a hard link to something that is not a file earlier in the archive");
    this.#set(path, entry);
  }

  /** Returns true if the directory is new. Throws INVALID_ARGUMENT (T1). */
  addDirectory(path: string): boolean {
    this.#checkParents(path);
    const entry = this.#entries.get(path);
    if (entry === undefined) this.#set(path, DIRECTORY);
    else if (entry.type !== "d") throw refusal(path, "is no directory earlier in the archive");
    return entry === undefined;
  }

  /** T2. Throws INVALID_ARGUMENT. */
  async checkLinks(): Promise<void> {
    const budget = { left: LIMITS.code_link_work_max };
    let looked_count = 0;
    for (const path of this.#links) {
      const target = this.#entries.get(path)?.content ?? "";
      if (!this.#isInside(parentOf(path), target, budget))
        throw refusal(path, `is a link that leads out of the archive: ${shownName(target)}`);
      if (budget.left < 0) throw refusal(path, "is a link whose path passes too many others");
      if (++looked_count % LIMITS.code_slice_count === 0) await rest();
    }
  }

  /** T3. */
  digest(): Promise<string> {
    return treeDigest(this.#entries);
  }

  #set(path: string, entry: TreeEntry): void {
    const before = this.#entries.get(path);
    if (before === undefined) this.#names_bytes += path.length;
    else if (before.type === "l") this.#links.delete(path);
    this.#size_bytes += entry.size - (before?.size ?? 0);
    if (this.#size_bytes > LIMITS.code_bytes_max)
      throw refusal(path, `exceeds the size of code (limit ${LIMITS.code_bytes_max} bytes)`);
    this.#entries.set(path, entry);
    if (this.#entries.size > LIMITS.code_entries_max)
      throw refusal(path, `exceeds the number of entries of code (limit ${LIMITS.code_entries_max})`);
    if (this.#names_bytes > LIMITS.code_names_bytes_max)
      throw refusal(path, `exceeds the bytes of all names (limit ${LIMITS.code_names_bytes_max})`);
  }

  #checkParents(path: string): void {
    for (let end = path.indexOf("/"); end >= 0; end = path.indexOf("/", end + 1)) {
      const parent = path.slice(0, end);
      const type = this.#entries.get(parent)?.type;
      if (type === undefined) this.#set(parent, DIRECTORY);
      else if (type === "l") throw refusal(path, `lies below the link ${shownName(parent)}`);
      else if (type !== "d") throw refusal(path, `lies below the file ${shownName(parent)}`);
    }
  }

  /** Returns true if the target of a link in `directory` stays in the tree. Takes its work from the budget. */
  #isInside(directory: string, target: string, budget: { left: number }): boolean {
    let at = directory;
    let followed_count = 0;
    const left = [target];
    for (let text = left.pop(); text !== undefined && budget.left >= 0; text = left.pop()) {
      if (text.startsWith("/")) return false;
      const slash = text.indexOf("/");
      const part = slash < 0 ? text : text.slice(0, slash);
      if (slash >= 0) left.push(text.slice(slash + 1).replace(/^\/+/, ""));
      budget.left -= at.length + text.length + 1;
      if (part === "" || part === ".") continue;
      if (part === "..") {
        if (at === "") return false;
        at = parentOf(at);
        continue;
      }
      const next = at === "" ? part : `${at}/${part}`;
      const entry = this.#entries.get(next);
      if (entry?.type !== "l") at = next;
      else if (++followed_count > LINKS_FOLLOWED_MAX) return true;
      else left.push(entry.content);
    }
    return true;
  }
}
