/**
 * A worker thread that turns a commit of a pack into a tar of its files. The task is a named export; piscina calls it by name.
 *
 * W1. No name of the tree is ever a path of this machine: names are text in the tar, and what unpacks that is jailed.
 * W2. A tree may have the same one in it many times. Entries, depth and bytes of the tar have bounds.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { AppError, type ErrorCode, errorText } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import { layerEnd, padding, tarHeader } from "../layer-tar.ts";
import { type GitObject, Pack } from "./pack.ts";
import { COMMIT } from "./source.ts";

export interface TreeTask {
  readonly pack: string;
  readonly target: string;
  readonly commit: string;
  /** Whose content the tar has; empty for all. */
  readonly directory: string;
  /** Of the tar. */
  readonly bytes_max: number;
}

export interface MadeTree {
  readonly size_bytes: number;
  /** Directories of other repositories, which are empty: the first of them, and their number. */
  readonly submodules: readonly string[];
  readonly submodules_count: number;
}

export type TreeAnswer = MadeTree | { readonly failure: { readonly code: ErrorCode; readonly message: string } };

/** As Linux has them. */
const NAME_BYTES_MAX = 255;
const LINK_BYTES_MAX = 4_095;
const ID_BYTES = 20;
const WRITE_BYTES = 1024 * 1024;
const SUBMODULES_SHOWN_MAX = 10;
const TAGS_MAX = 8;
/** Kinds of entries: the digits of their mode but the last three, in octal. */
const DIRECTORY = "40";
const SUBMODULE = "160";
const LINK = "120";
const FILE = "100";

/** Makes a tar. An AppError would lose its class on the way out of a thread. */
export async function makeTree(task: TreeTask): Promise<TreeAnswer> {
  try {
    const pack = new Pack(task.pack);
    try {
      return new Writing(pack, task).run();
    } finally {
      pack.close();
    }
  } catch (error) {
    return { failure: { code: error instanceof AppError ? error.code : "INTERNAL", message: errorText(error) } };
  }
}

interface TreeEntry {
  readonly kind: string;
  readonly isExecutable: boolean;
  /** As bytes: one character a byte. */
  readonly name: string;
  readonly id: string;
}

const invalid = (message: string): AppError => new AppError("INVALID_ARGUMENT", message);
const tooMany = (): AppError => invalid(`too many files in a git repository (limit ${LIMITS.build_files_max})`);
const shown = (bytes: string): string => Buffer.from(bytes, "latin1").toString("utf8").slice(0, 200);

/** The entries of a tree. Throws INVALID_ARGUMENT for names that are none of a file, or that two of them have. */
export function entriesOf(content: Buffer): TreeEntry[] {
  const entries: TreeEntry[] = [];
  const names = new Set<string>();
  for (let at = 0; at < content.length; ) {
    const space = content.indexOf(0x20, at);
    const end = content.indexOf(0, space);
    if (space < 0 || end < 0 || end + 1 + ID_BYTES > content.length) throw invalid("corrupt tree of git");
    const mode = content.toString("latin1", at, space);
    const name = content.toString("latin1", space + 1, end);
    if (!/^[0-7]{5,6}$/.test(mode)) throw invalid("corrupt tree of git");
    const isName = name !== "" && name !== "." && name !== ".." && name.toLowerCase() !== ".git" && !name.includes("/");
    if (!isName || name.length > NAME_BYTES_MAX)
      throw invalid(`name not allowed in a git repository: '${shown(name)}'`);
    if (names.has(name)) throw invalid(`two files of a git repository have one name: '${shown(name)}'`);
    if (names.size >= LIMITS.build_files_max) throw tooMany();
    names.add(name);
    const kind = mode.slice(0, -3);
    const isExecutable = (Number.parseInt(mode.slice(-3), 8) & 0o100) !== 0;
    entries.push({ kind, isExecutable, name, id: content.toString("hex", end + 1, end + 1 + ID_BYTES) });
    at = end + 1 + ID_BYTES;
  }
  return entries;
}

class Writing {
  readonly #pack: Pack;
  readonly #task: TreeTask;
  readonly #file: number;
  readonly #submodules: string[] = [];
  #submodules_count = 0;
  #entries_count = 0;
  #size_bytes = 0;
  #waiting: Buffer[] = [];
  #waiting_bytes = 0;
  #mtime = 0;

  constructor(pack: Pack, task: TreeTask) {
    this.#pack = pack;
    this.#task = task;
    this.#file = openSync(task.target, "wx", 0o600);
  }

  run(): MadeTree {
    try {
      const { tree, seconds } = this.#commit(this.#task.commit);
      this.#mtime = seconds;
      this.#tree(this.#directory(tree), "", 0);
      this.#put(layerEnd());
      this.#flush();
    } finally {
      closeSync(this.#file);
    }
    return {
      size_bytes: this.#size_bytes,
      submodules: this.#submodules,
      submodules_count: this.#submodules_count,
    };
  }

  /** The tree of a commit, and the time of the commit. */
  #commit(id: string): { readonly tree: string; readonly seconds: number } {
    let found = this.#pack.object(id);
    for (let count = 0; found.type === "tag" && count < TAGS_MAX; count++) {
      found = this.#pack.object(/^object ([0-9a-f]{40})$/m.exec(found.content.toString("latin1", 0, 100))?.[1] ?? "");
    }
    if (found.type !== "commit") throw invalid(`${id} is no commit: it is a ${found.type}`);
    const text = found.content.toString("latin1", 0, WRITE_BYTES).split("\n\n", 1)[0] ?? "";
    const tree = /^tree ([0-9a-f]{40})$/m.exec(text)?.[1] ?? "";
    if (!COMMIT.test(tree)) throw invalid("corrupt commit of git");
    const seconds = Number(/^committer .* (\d{1,11}) [+-]\d+$/m.exec(text)?.[1] ?? 0);
    return { tree, seconds };
  }

  #directory(tree: string): GitObject {
    let found = this.#object(tree, "tree");
    const parts = Buffer.from(this.#task.directory, "utf8").toString("latin1").split("/");
    for (const part of parts.filter((one) => one !== "")) {
      const entry = entriesOf(found.content).find(({ name }) => name === part);
      if (entry?.kind !== DIRECTORY) throw invalid(`the commit has no directory '${this.#task.directory}'`);
      found = this.#object(entry.id, "tree");
    }
    return found;
  }

  #object(id: string, type: GitObject["type"]): GitObject {
    const found = this.#pack.object(id);
    if (found.type !== type) throw invalid(`corrupt tree of git: ${id} is no ${type}`);
    return found;
  }

  #tree({ content }: GitObject, prefix: string, depth: number): void {
    if (depth > LIMITS.build_git_depth_max) {
      throw invalid(`directories of a git repository too deep (limit ${LIMITS.build_git_depth_max})`);
    }
    const entries = entriesOf(content);
    // Those of all trees on the way are held.
    this.#entries_count += entries.length;
    if (this.#entries_count > LIMITS.build_files_max) throw tooMany();
    for (const entry of entries) {
      const name = `${prefix}${entry.name}`;
      if (name.length > LIMITS.path_bytes_max) throw invalid(`path too long: '${shown(name)}'`);
      this.#entry(entry, name, depth);
    }
  }

  #entry({ kind, isExecutable, id }: TreeEntry, name: string, depth: number): void {
    const common = { name, mtime: this.#mtime };
    if (kind === DIRECTORY || kind === SUBMODULE) {
      this.#put(tarHeader({ ...common, type: "5", mode: 0o755 }));
      if (kind === DIRECTORY) {
        this.#tree(this.#object(id, "tree"), `${name}/`, depth + 1);
        return;
      }
      this.#submodules_count++;
      if (this.#submodules.length < SUBMODULES_SHOWN_MAX) this.#submodules.push(shown(name));
      return;
    }
    const { content } = this.#object(id, "blob");
    if (kind === LINK) {
      if (content.length === 0 || content.length > LINK_BYTES_MAX || content.includes(0)) {
        throw invalid(`target of a link not usable: '${shown(name)}'`);
      }
      this.#put(tarHeader({ ...common, type: "2", mode: 0o777, link: content.toString("latin1") }));
    } else if (kind === FILE) {
      this.#put(tarHeader({ ...common, type: "0", mode: isExecutable ? 0o755 : 0o644, size: content.length }));
      this.#put(content);
      this.#put(padding(content.length));
    } else {
      throw invalid(`kind of a file in a git repository not known: '${shown(name)}'`);
    }
  }

  #put(bytes: Buffer): void {
    const { bytes_max } = this.#task;
    this.#size_bytes += bytes.length;
    if (this.#size_bytes > bytes_max) throw invalid(`files of the commit too large (limit ${bytes_max} bytes)`);
    if (this.#waiting_bytes + bytes.length > WRITE_BYTES) this.#flush();
    this.#waiting.push(bytes);
    this.#waiting_bytes += bytes.length;
  }

  #flush(): void {
    const bytes = this.#waiting.length === 1 ? (this.#waiting[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#waiting_bytes = 0;
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
  }
}
