/**
 * Files that a COPY takes: the paths that its sources match, and the entries below them. The tree is a `FileSession`, in which
 * no link leads out: a context, the root of a stage or of an image.
 *
 * F1. The digest of a source and its copy walk the same entries in the same way: a key says what a copy would do.
 */
import { createHash } from "node:crypto";
import dockerignore from "@balena/dockerignore";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { FileEntry, FileSession } from "../../engine/ports.ts";

/** True for a path, as bytes, that .dockerignore leaves out. */
export type Ignored = (path: string) => boolean;

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
const shown = (bytes: string): string => Buffer.from(bytes, "latin1").toString("utf8").slice(0, 256);
export const nothing: Ignored = () => false;

/** Reads the patterns at the top of a context. Throws INVALID_ARGUMENT. */
export async function ignoredOf(session: FileSession, buildfile: string): Promise<Ignored> {
  for (const name of [`${buildfile}.dockerignore`, ".dockerignore"]) {
    const text = await readText(session, name, LIMITS.build_ignore_bytes_max);
    if (text === null) continue;
    const patterns = text.split(/\r?\n/).filter((line) => line.trim() !== "" && !line.startsWith("#"));
    if (patterns.length > LIMITS.build_ignore_patterns_max) {
      throw new AppError("INVALID_ARGUMENT", `${name}: too many patterns (limit ${LIMITS.build_ignore_patterns_max})`);
    }
    const matcher = dockerignore.default({ ignorecase: false }).add(patterns);
    return (path) => matcher.ignores(shownWhole(path));
  }
  return nothing;
}

const shownWhole = (bytes: string): string => Buffer.from(bytes, "latin1").toString("utf8");

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

export function absent(error: unknown): null {
  if (error instanceof AppError && error.code === "NOT_FOUND") return null;
  throw error;
}

/** The paths that a source matches, in order, as bytes. Throws INVALID_ARGUMENT if there is none. */
export async function matches(session: FileSession, source: string, ignored: Ignored): Promise<readonly string[]> {
  let found = [""];
  for (const part of toBytes(source)
    .split("/")
    .filter((one) => one !== "")) {
    const next: string[] = [];
    for (const parent of found) {
      const prefix = parent === "" ? "" : `${parent}/`;
      if (/[*?[\\]/.test(part)) {
        const pattern = patternOf(part);
        for (const name of await namesIn(session, parent)) if (pattern.test(name)) next.push(`${prefix}${name}`);
      } else if ((await session.stat(asPath(`${prefix}${part}`)).catch(absent)) !== null) {
        next.push(`${prefix}${part}`);
      }
    }
    found = next;
  }
  // An ignored directory may hold what an exception keeps: the walk tells.
  const kept: string[] = [];
  for (const path of found) {
    const isKept = path === "" || !ignored(path) || (await session.stat(at(path), true)).type === "directory";
    if (isKept) kept.push(path);
  }
  if (kept.length === 0) throw new AppError("INVALID_ARGUMENT", `no such file: '${shown(toBytes(source))}'`);
  return kept;
}

async function namesIn(session: FileSession, path: string): Promise<readonly string[]> {
  const entry = await session.stat(at(path), true).catch(absent);
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

/** One component, as path.Match of Go: `*`, `?`, `[…]`, and `\` before a character of no meaning. */
function patternOf(part: string): RegExp {
  const quote = (char: string) =>
    char.replace(/[^\w]/g, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, "0")}`);
  let pattern = "";
  for (let at = 0; at < part.length; at++) {
    const char = part[at] ?? "";
    if (char === "*") {
      // Several in a row match the same as one, at less cost.
      if (part[at - 1] !== "*") pattern += ".*";
    } else if (char === "?") pattern += ".";
    else if (char === "\\") pattern += quote(part[++at] ?? "\\");
    else if (char === "[") {
      const end = part.indexOf("]", at + 2);
      if (end < 0) throw new AppError("INVALID_ARGUMENT", `malformed pattern: '${shown(part)}'`);
      const inside = part.slice(at + 1, end);
      const isNot = inside.startsWith("^");
      const ranges = (isNot ? inside.slice(1) : inside).replace(/[^\w-]/g, quote);
      pattern += `[${isNot ? "^" : ""}${ranges}]`;
      at = end;
    } else pattern += quote(char);
  }
  try {
    return new RegExp(`^${pattern}$`, "s");
  } catch {
    throw new AppError("INVALID_ARGUMENT", `malformed pattern: '${shown(part)}'`);
  }
}

const tooMany = (): AppError =>
  new AppError("INVALID_ARGUMENT", `too many files to copy (limit ${LIMITS.build_files_max})`);

/** Yields what a copy of `path` takes, each directory before its entries. The consumer reads each content to its end. */
export async function* entriesOf(
  session: FileSession,
  path: string,
  ignored: Ignored,
): AsyncGenerator<SourceEntry, void, undefined> {
  const top = await session.stat(at(path), true);
  const isDirectory = top.type === "directory";
  if (!isDirectory && ignored(path)) return;
  let count = 0;
  for await (const { entry, content } of session.walk(at(path))) {
    if (++count > LIMITS.build_files_max) throw tooMany();
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
export async function digestOfSource(session: FileSession, path: string, ignored: Ignored): Promise<string> {
  const whole = createHash("sha256");
  const top = await session.stat(at(path), true);
  whole.update(JSON.stringify([path.split("/").at(-1), top.type]));
  for await (const { entry, path: relative, content } of entriesOf(session, path, ignored)) {
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
