/**
 * Copies of files into the root of a stage. Both sides are sessions of `minit files`, each jailed in its tree: a link on either
 * side leads nowhere else.
 *
 * C1. A directory is copied by its content. A file keeps its name, unless the target is a name of its own.
 * C2. Owner: root, or that of the source for files of a stage or an image, or the one that is asked for. Modes and times stay.
 *     Directories that the target needs have the owner that is asked for. One that is there stays as it is.
 * C3. A link in the place of the target is written through. A link in the place of an entry of a copied directory is replaced.
 */
import { AppError } from "../../base/errors.ts";
import type { FileAttributes, FileEntry, FileSession } from "../../engine/ports.ts";
import { archiveIn, type Decompress } from "./archives.ts";
import { changedMode } from "./mode.ts";
import {
  absent,
  asPath,
  entriesOf,
  type Ignored,
  readText,
  type SourceEntry,
  shown,
  type Walked,
} from "./source-files.ts";

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

export interface CopyRequest {
  readonly from: FileSession;
  readonly to: FileSession;
  /** Relative to the root of `from`, as bytes. */
  readonly path: string;
  /** Absolute, as bytes, without a slash at its end: empty for the root. */
  readonly target: string;
  /** The target is a directory, whatever is there. */
  readonly is_directory: boolean;
  /** Null: that of each file. */
  readonly owner: Owner | null;
  /** As `--chmod` has it; null: that of each entry. */
  readonly mode: string | null;
  /** An archive is unpacked, with what decompresses some of them; null: it is a file as any other. */
  readonly unpack: Decompress | null;
  readonly ignored: Ignored;
  readonly walked: Walked;
  readonly signal: AbortSignal;
}

/** Content up to this goes with its request in one frame. */
const SMALL_BYTES = 64 * 1024;
const ACCOUNTS_BYTES_MAX = 4 * 1024 * 1024;
/** As Linux has it. */
const LINKS_MAX = 40;
const ROOT: Owner = { uid: 0, gid: 0 };

/** Copies one source. Throws INVALID_ARGUMENT, STORAGE_FULL. */
export async function copy(request: CopyRequest): Promise<void> {
  const { from, to, path, target, is_directory, owner } = request;
  const source = await from.stat(at(path), true);
  if (source.type === "directory") {
    await ensureDirectory(to, parentOf(target), owner ?? ROOT, 0o755);
    await ensureDirectory(to, target, owner ?? ownerOf(source), modeOf(request, source));
    await new Copying(request, target).run();
    return;
  }
  if (source.type !== "file") throw new AppError("INVALID_ARGUMENT", `cannot copy a ${source.type}`);
  const archive = request.unpack === null ? null : await archiveIn(from, path, request.unpack);
  if (archive !== null) {
    await ensureDirectory(to, target, owner ?? ROOT, 0o755);
    await to.extract(archive, { path: at(target), preserve_owner: true });
    return;
  }
  const isInside = is_directory || (await to.stat(at(target), true).catch(absent))?.type === "directory";
  await ensureDirectory(to, isInside ? target : parentOf(target), owner ?? ROOT, 0o755);
  const name = path.split("/").at(-1) ?? "";
  await new Copying(request, await behindLinks(to, isInside ? `${target}/${name}` : target)).run();
}

function modeOf({ mode }: Pick<CopyRequest, "mode">, entry: Pick<FileEntry, "mode" | "type">): number {
  return mode === null ? entry.mode : changedMode(mode, entry.mode, entry.type === "directory");
}

/** Copies one source with the directories of its path behind the first `base_depth` of them, which are made as in the source. */
export async function copyWithParents(request: CopyRequest, base_depth: number): Promise<void> {
  const { from, to, path, target, owner } = request;
  const parts = path.split("/").filter((part) => part !== "");
  const isDirectory = (await from.stat(at(path), true)).type === "directory";
  await ensureDirectory(to, target, owner ?? ROOT, 0o755);
  for (let depth = base_depth + 1; depth < parts.length; depth++) {
    const source = await from.stat(at(parts.slice(0, depth).join("/")), true);
    const own = [target, ...parts.slice(base_depth, depth)].join("/");
    await ensureDirectory(to, own, owner ?? ownerOf(source), modeOf(request, source));
  }
  const kept = parts.slice(base_depth, isDirectory ? undefined : -1);
  await copy({ ...request, target: [target, ...kept].join("/"), is_directory: true });
}

/** Removes links on the way to a target, and at it: directories and files of a layer of its own would hide them. */
export async function removeLinks(to: FileSession, target: string): Promise<void> {
  const parts = target.split("/").filter((part) => part !== "");
  for (let depth = 1; depth <= parts.length; depth++) {
    const path = parts.slice(0, depth).join("/");
    const found = await to.stat(asPath(path)).catch(absent);
    if (found === null) return;
    if (found.type === "symlink") await to.remove(asPath(path));
  }
}

/** Writes a small file of its own. */
export async function writeText(
  to: FileSession,
  path: string,
  text: string,
  { owner, mode }: { readonly owner: Owner | null; readonly mode: number | null },
): Promise<void> {
  await ensureDirectory(to, parentOf(path), owner ?? ROOT, 0o755);
  const content = Buffer.from(text, "utf8");
  await to.write(asPath(await behindLinks(to, path)), content, { mode: mode ?? 0o644, ...(owner ?? {}), mtime_ms: 0 });
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));

/** C3. The path that a chain of links at `path` leads to, whatever is there. The session resolves it inside of its root. */
async function behindLinks(to: FileSession, path: string): Promise<string> {
  let found = path;
  for (let count = 0; count <= LINKS_MAX; count++) {
    const entry = await to.stat(at(found)).catch(absent);
    if (entry?.type !== "symlink") return found;
    const target = Buffer.from(entry.target_bytes).toString("latin1");
    found = target.startsWith("/") ? target : `${parentOf(found)}/${target}`;
  }
  throw new AppError("INVALID_ARGUMENT", `too many symbolic links: '${shown(path)}' (limit ${LINKS_MAX})`);
}

/** The root has no name of its own. */
const at = (path: string): Uint8Array => asPath(path === "" ? "/" : path);

/** Makes a directory with those above it, which get the owner too. One that is there stays as it is. */
export async function ensureDirectory(to: FileSession, path: string, owner: Owner, mode: number): Promise<void> {
  const isThere = async (one: string) => (await to.stat(at(one), true).catch(absent))?.type === "directory";
  if (path === "" || (await isThere(path))) return;
  for (let end = path.indexOf("/", 1); end >= 0; end = path.indexOf("/", end + 1)) {
    const above = path.slice(0, end);
    if (!(await isThere(above))) await to.mkdir(asPath(above), { mode: 0o755, ...owner });
  }
  await to.mkdir(asPath(path), { mode, ...owner });
}

/** Resolves `user[:group]`, names by the accounts of the root that is copied into. */
export async function resolveOwner(to: FileSession, text: string): Promise<Owner> {
  const [user = "", group = null] = text.split(":", 2);
  const uid = await idOf(to, "etc/passwd", user);
  return { uid, gid: group === null ? uid : await idOf(to, "etc/group", group) };
}

async function idOf(to: FileSession, file: string, name: string): Promise<number> {
  if (/^\d{1,5}$/.test(name) && Number(name) < 65_536) return Number(name);
  const text = (await readText(to, file, ACCOUNTS_BYTES_MAX)) ?? "";
  const line = text.split("\n").find((one) => one.startsWith(`${name}:`));
  const id = Number(line?.split(":")[2] ?? Number.NaN);
  if (name !== "" && Number.isInteger(id) && id >= 0 && id < 65_536) return id;
  throw new AppError(
    "INVALID_ARGUMENT",
    `unknown name or number: '${name.slice(0, 100)}' (names: /${file}; numbers: below 65536)`,
  );
}

const ownerOf = ({ uid, gid }: FileEntry): Owner => ({ uid, gid });

class Copying {
  readonly #request: CopyRequest;
  readonly #target: string;
  readonly #first_names = new Map<number, string>();
  readonly #directories: { readonly path: string; readonly mtime_ms: number }[] = [];
  #failure: unknown = null;
  #last: Promise<void> = Promise.resolve();

  constructor(request: CopyRequest, target: string) {
    this.#request = request;
    this.#target = target;
  }

  async run(): Promise<void> {
    const { from, to, path, ignored, walked, signal } = this.#request;
    for await (const source of entriesOf(from, path, ignored, walked)) {
      signal.throwIfAborted();
      await this.#add(source);
      if (!to.hasRoom) await to.room();
      if (this.#failure !== null) throw this.#failure;
    }
    // Nothing more is put into them now; the deepest first.
    for (const { path, mtime_ms } of this.#directories.reverse()) {
      this.#follow(to.setAttributes(asPath(path), { mtime_ms }));
      if (!to.hasRoom) await to.room();
    }
    await this.#last;
    if (this.#failure !== null) throw this.#failure;
  }

  async #add({ entry, path: relative, content }: SourceEntry): Promise<void> {
    const { to } = this.#request;
    const path = relative === "" ? this.#target : `${this.#target}/${relative}`;
    const attributes: FileAttributes = {
      mode: modeOf(this.#request, entry),
      ...(this.#request.owner ?? ownerOf(entry)),
    };
    if (entry.type === "directory") {
      this.#follow(to.mkdir(asPath(path), attributes));
      this.#directories.push({ path, mtime_ms: entry.mtime_ms });
    } else if (entry.type === "symlink") {
      const { mode: _mode, ...owner } = attributes;
      await this.#makeRoom(path);
      this.#follow(to.symlink(asPath(path), entry.target_bytes, { ...owner, mtime_ms: entry.mtime_ms }));
    } else if (entry.isLater) {
      await this.#makeRoom(path);
      this.#follow(to.link(asPath(path), asPath(this.#first_names.get(entry.link_number) ?? path)));
    } else {
      if (entry.link_number > 0) this.#first_names.set(entry.link_number, path);
      await this.#file(path, entry, content, { ...attributes, mtime_ms: entry.mtime_ms });
    }
  }

  /** A link is made only where nothing has its name. A directory is no link's to replace. */
  async #makeRoom(path: string): Promise<void> {
    const { to } = this.#request;
    const found = await to.stat(asPath(path)).catch(absent);
    if (found !== null && found.type !== "directory") await to.remove(asPath(path));
  }

  async #file(path: string, entry: FileEntry, content: SourceEntry["content"], attributes: FileAttributes) {
    const { to } = this.#request;
    if (entry.size <= SMALL_BYTES) {
      const parts: Uint8Array[] = [];
      if (content !== null) for await (const piece of content) parts.push(piece);
      this.#follow(to.put(asPath(path), Buffer.concat(parts), attributes));
      return;
    }
    const writer = to.beginWrite(asPath(path), attributes);
    this.#follow(writer.done);
    if (content !== null) {
      for await (const piece of content) {
        writer.add(piece);
        if (!to.hasRoom) await to.room();
      }
    }
    writer.end();
  }

  /** Requests are not waited for one by one: their answers come in order, so the last one is that of all. */
  #follow(request: Promise<void>): void {
    this.#last = request.catch((error: unknown) => {
      this.#failure ??= error;
    });
  }
}
