/**
 * Files that a COPY takes: the paths that its sources match, and the entries below them. The tree is a `FileSession`, in which
 * no link leads out: a context, the root of a stage or of an image.
 *
 * F1. The digest of a source and its copy walk the same entries in the same way: a key says what a copy would do.
 */
import { createHash } from "node:crypto";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { FileEntry, FileSession } from "../../engine/ports.ts";
import { componentMatcher, ignoreMatcher, type MatchBudget } from "./glob.ts";

/** True for a path, as bytes, that .dockerignore leaves out. */
export type Ignored = (path: string) => boolean;

/** Entries that the sources of one COPY have had so far, however many names lead to the same directory. */
export interface Walked {
  count: number;
}

export interface SourceEntry {
  readonly entry: FileEntry;
  /** Relative to the source, as bytes: one character a byte. Empty for a source that is no directory. */
  readonly path: string;
  readonly content: AsyncIterable<Uint8Array> | null;
}

export const toBytes = (text: string): string => Buffer.from(text, "utf8").toString("latin1");
export const asPath = (bytes: string): Uint8Array => Buffer.from(bytes, "latin1");
/** The root has no name of its own. */
const at = (bytes: string): Uint8Array => asPath(bytes === "" ? "/" : bytes);
export const shown = (bytes: string): string => Buffer.from(bytes, "latin1").toString("utf8").slice(0, 256);
export const nothing: Ignored = () => false;

/** Reads the patterns at the top of a context. Throws INVALID_ARGUMENT. */
export async function ignoredOf(session: FileSession, buildfile: string, budget: MatchBudget): Promise<Ignored> {
  for (const name of [`${buildfile}.dockerignore`, ".dockerignore"]) {
    const text = await readText(session, name, LIMITS.build_ignore_bytes_max);
    if (text === null) continue;
    const patterns = toBytes(text)
      .split(/\r?\n/)
      .filter((line) => line.trim() !== "");
    if (patterns.length > LIMITS.build_ignore_patterns_max) {
      throw new AppError("INVALID_ARGUMENT", `${name}: too many patterns (limit ${LIMITS.build_ignore_patterns_max})`);
    }
    return ignoreMatcher(patterns, budget);
  }
  return nothing;
}

/** The text of a small file; null: there is none. Throws INVALID_ARGUMENT above `bytes_max`. */
export async function readText(session: FileSession, path: string, bytes_max: number): Promise<string | null> {
  const entry = await session.stat(path, true).catch(absent);
  if (entry === null) return null;
  if (entry.type !== "file") throw new AppError("INVALID_ARGUMENT", `${path} is not a file`);
  if (entry.size > bytes_max) {
    throw new AppError("INVALID_ARGUMENT", `${path} too large: ${entry.size} bytes (limit ${bytes_max} bytes)`);
  }
  const { stream } = await session.read(path, { end: bytes_max });
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString("utf8");
}

/** Marks in a source where the part of its path begins that is kept. */
export const PIVOT = "/./";

/** A source of a COPY: a pattern, and how many directories of a path that it matches are not kept. */
export interface CopySource {
  readonly pattern: string;
  readonly base_depth: number;
}

export function copySource(source: string): CopySource {
  const [base = "", kept] = source.split(PIVOT);
  if (kept === undefined) return { pattern: source, base_depth: 0 };
  return { pattern: [base, kept].filter((part) => part !== "").join("/"), base_depth: partsOf(base).length };
}

const partsOf = (path: string): string[] => path.split("/").filter((part) => part !== "");

/** What is left out of a path that a COPY takes, by .dockerignore and by its own patterns (F1). */
export function leftOut(
  { excludes, has_parents }: { readonly excludes: readonly string[]; readonly has_parents: boolean },
  path: string,
  { base_depth }: CopySource,
  { ignored, budget }: { readonly ignored: Ignored; readonly budget: MatchBudget },
): Ignored {
  if (excludes.length === 0) return ignored;
  const isExcluded = ignoreMatcher(excludes.map(toBytes), budget);
  const depth = has_parents ? base_depth : partsOf(path).length;
  return (whole) =>
    ignored(whole) || isExcluded(partsOf(whole).slice(depth).join("/") || (partsOf(whole).at(-1) ?? ""));
}

export function absent(error: unknown): null {
  if (error instanceof AppError && error.code === "NOT_FOUND") return null;
  throw error;
}

/**
 * The paths that a source matches, in order, as bytes. A link that a glob matched is taken as it is and never followed: a path has one
 * spelling. `isDeep`: `**` is any number of directories. Throws INVALID_ARGUMENT if a source without a pattern is missing, or for too many.
 */
export async function matches(
  session: FileSession,
  source: string,
  ignored: Ignored,
  budget: MatchBudget,
  signal: AbortSignal,
  isDeep = false,
): Promise<readonly string[]> {
  let found = [""];
  let isMatched = false;
  for (const part of toBytes(source)
    .split("/")
    .filter((one) => one !== "")) {
    const isGlob = /[*?[\\]/.test(part);
    const next: string[] = [];
    if (isDeep && part === "**") {
      found = await directoriesBelow(session, found, signal);
      isMatched = true;
      continue;
    }
    for (const parent of found) {
      signal.throwIfAborted();
      const prefix = parent === "" ? "" : `${parent}/`;
      if (isGlob) {
        const isMatch = componentMatcher(part, budget);
        for (const name of await namesIn(session, parent, !isMatched)) if (isMatch(name)) next.push(`${prefix}${name}`);
      } else if (await isThere(session, parent, `${prefix}${part}`, !isMatched)) {
        next.push(`${prefix}${part}`);
      }
      if (next.length > LIMITS.build_files_max) throw tooMany();
    }
    found = next;
    isMatched ||= isGlob;
  }
  // An ignored directory may hold what an exception keeps: the walk tells.
  const kept: string[] = [];
  for (const path of found) {
    signal.throwIfAborted();
    const isKept = path === "" || !ignored(path) || (await session.stat(at(path), true)).type === "directory";
    if (isKept) kept.push(path);
  }
  // A pattern may match nothing, and then nothing is copied.
  if (kept.length === 0 && !isMatched) {
    throw new AppError("INVALID_ARGUMENT", `no such file: '${shown(toBytes(source))}'`);
  }
  return kept;
}

/** The paths and all directories below them. */
async function directoriesBelow(
  session: FileSession,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<string[]> {
  const found = [...paths];
  for (const path of found) {
    signal.throwIfAborted();
    for (const name of await namesIn(session, path, path === "")) {
      const own = path === "" ? name : `${path}/${name}`;
      if ((await session.stat(asPath(own)).catch(absent))?.type === "directory") found.push(own);
      if (found.length > LIMITS.build_files_max) throw tooMany();
    }
  }
  return found;
}

/** `isFollowed`: the parent may be a link. */
async function isThere(session: FileSession, parent: string, path: string, isFollowed: boolean): Promise<boolean> {
  if (!isFollowed && (await session.stat(at(parent)).catch(absent))?.type !== "directory") return false;
  return (await session.stat(asPath(path)).catch(absent)) !== null;
}

/** `isFollowed`: the path may be a link. */
async function namesIn(session: FileSession, path: string, isFollowed: boolean): Promise<readonly string[]> {
  const entry = await session.stat(at(path), isFollowed).catch(absent);
  if (entry?.type !== "directory") return [];
  const names: string[] = [];
  const page_size = LIMITS.file_page_size_max;
  for (let page = 1; ; page++) {
    const { entries, total_count } = await session.list({ path: at(path), page, page_size });
    names.push(...entries.map(({ name_bytes }) => Buffer.from(name_bytes).toString("latin1")));
    if (total_count > LIMITS.build_files_max) throw tooMany();
    if (page * page_size >= total_count || entries.length === 0) return names.sort();
  }
}

const tooMany = (): AppError =>
  new AppError("INVALID_ARGUMENT", `too many files to copy (limit ${LIMITS.build_files_max})`);

/** Yields what a copy of `path` takes, each directory before its entries. The consumer reads each content to its end. */
export async function* entriesOf(
  session: FileSession,
  path: string,
  ignored: Ignored,
  walked: Walked,
): AsyncGenerator<SourceEntry, void, undefined> {
  const top = await session.stat(at(path), true);
  const isDirectory = top.type === "directory";
  if (!isDirectory && ignored(path)) return;
  for await (const { entry, content } of session.walk(at(path))) {
    if (++walked.count > LIMITS.build_files_max) throw tooMany();
    const name = Buffer.from(entry.name_bytes).toString("latin1");
    const relative = isDirectory ? name : "";
    const whole = [path, relative].filter((part) => part !== "").join("/");
    if (isDirectory && ignored(whole)) {
      if (content !== null) for await (const _piece of content);
    } else {
      yield { entry, path: relative, content };
    }
  }
}

/** F1. The digest of what a source takes: paths, kinds, modes, owners, contents and targets, but no times. */
export async function digestOfSource(
  session: FileSession,
  path: string,
  ignored: Ignored,
  walked: Walked,
): Promise<string> {
  const whole = createHash("sha256");
  const top = await session.stat(at(path), true);
  whole.update(JSON.stringify([path.split("/").at(-1), top.type]));
  for await (const { entry, path: relative, content } of entriesOf(session, path, ignored, walked)) {
    const { type, mode, uid, gid, target_bytes, link_number, isLater, size } = entry;
    const target = type === "symlink" ? Buffer.from(target_bytes).toString("latin1") : null;
    const file = createHash("sha256");
    if (content !== null) for await (const piece of content) file.update(piece);
    whole.update(
      JSON.stringify([relative, type, mode, uid, gid, target, link_number, isLater, size, file.digest("hex")]),
    );
  }
  return whole.digest("hex");
}
