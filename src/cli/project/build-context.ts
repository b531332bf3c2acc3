/**
 * The files of a folder that a build may copy, as they are: modes, times and links too. `.dockerignore` leaves files out, but
 * never itself and the build file. No link is followed.
 */
import { lstatSync, readFileSync, readlinkSync, type Stats } from "node:fs";
import { isAbsolute, join, relative, resolve, sep } from "node:path";
import dockerignore from "@balena/dockerignore";
import { LIMITS } from "../../base/limits.ts";
import { visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { checkedText, namesIn, placeIn, textOf } from "./file-names.ts";
import type { PackedEntry } from "./tar-writer.ts";

/** Build files that are taken unasked, the first one that is there. */
const BUILD_FILES = ["Dockerfile", "Containerfile"] as const;
const IGNORE_FILE = ".dockerignore";

export interface ContextFiles {
  readonly root: string;
  /** Path of the build file in the root. */
  readonly buildfile_path: string;
  readonly entries: readonly PackedEntry[];
  readonly size_bytes: number;
  /** Paths of entries that are neither file, folder nor link. */
  readonly skipped: readonly string[];
}

interface Rules {
  isIgnored(path: string): boolean;
  /** Whether files below an ignored folder may be kept. */
  readonly hasExceptions: boolean;
}

const NO_RULES: Rules = { isIgnored: () => false, hasExceptions: false };

/**
 * Lists what is sent to a build. `buildfile`: a path from `directory`, else from the folder; null: the usual ones in it.
 * Throws usage failures.
 */
export function scanContext(root: string, buildfile: string | null, directory: string): ContextFiles {
  if (statOf(root)?.isDirectory() !== true) throw usage(`no such folder: ${visible(root)}`);
  const buildfile_path = buildfileIn(root, buildfile, directory);
  const [rules, ignore_path] = rulesOf(root, buildfile_path);
  const kept = new Set([buildfile_path, ...(ignore_path === null ? [] : [ignore_path])]);
  const found = { entries: [] as PackedEntry[], skipped: [] as string[] };
  walk(found, { root, rules, kept }, "");
  const size_bytes = found.entries.reduce((sum, entry) => sum + entry.size_bytes, 0);
  if (size_bytes > LIMITS.context_bytes_max) {
    const largest = found.entries.toSorted((one, other) => other.size_bytes - one.size_bytes)[0];
    throw usage(
      `the folder is too large: ${bytes(size_bytes)} (limit ${bytes(LIMITS.context_bytes_max)})`,
      `name what the build does not need in ${IGNORE_FILE}; the largest file is ${visible(largest?.path ?? "")}`,
    );
  }
  return { root, buildfile_path, size_bytes, ...found };
}

function statOf(path: string | Buffer): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function buildfileIn(root: string, buildfile: string | null, directory: string): string {
  if (buildfile === null) {
    const name = BUILD_FILES.find((one) => statOf(join(root, one))?.isFile() === true);
    if (name !== undefined) return name;
    throw usage(`no ${BUILD_FILES.join(" or ")} in ${visible(root)}`, "give the build file with -f");
  }
  const found = [resolve(directory, buildfile), resolve(root, buildfile)].find((one) => statOf(one) !== undefined);
  if (found === undefined) throw usage(`no such build file: ${visible(buildfile)}`);
  const path = relative(root, found).split(sep).join("/");
  if (path === "" || path === ".." || path.startsWith("../") || isAbsolute(path)) {
    throw usage(`the build file is outside of the folder: ${visible(buildfile)}`, "move it into the folder");
  }
  return path;
}

/** The rules of a build file's own ignore file, else of the folder's, and the path of that file. */
function rulesOf(root: string, buildfile_path: string): readonly [Rules, string | null] {
  for (const path of [`${buildfile_path}${IGNORE_FILE}`, IGNORE_FILE]) {
    const stat = statOf(join(root, path));
    if (stat?.isFile() !== true) continue;
    if (stat.size > LIMITS.cli_project_bytes_max) {
      throw usage(`${path} is too large (limit ${LIMITS.cli_project_bytes_max} bytes)`);
    }
    const lines = readFileSync(join(root, path), "utf8").split(/\r?\n/);
    const patterns = lines.filter((line) => line.trim() !== "" && !line.startsWith("#"));
    const matcher = dockerignore.default({ ignorecase: false }).add(patterns);
    const hasExceptions = patterns.some((line) => line.trim().startsWith("!"));
    return [{ isIgnored: (one) => matcher.ignores(one), hasExceptions }, path];
  }
  return [NO_RULES, null];
}

interface Place {
  readonly root: string;
  readonly rules: Rules;
  readonly kept: ReadonlySet<string>;
}

const ADVICE = `rename it, or name it in ${IGNORE_FILE}`;
const UNREADABLE = `name it in ${IGNORE_FILE} if the build does not need it`;

/** `base` has one character for each byte. */
function walk(found: { entries: PackedEntry[]; skipped: string[] }, place: Place, base: string): void {
  const { root, rules, kept } = place;
  for (const name of namesIn(root, base, UNREADABLE)) {
    const below = base === "" ? name : `${base}/${name}`;
    const stat = statOf(placeIn(root, below));
    // Removed since the folder was read.
    if (stat === undefined) continue;
    const path = textOf(below);
    const isIgnored = !kept.has(path) && rules.isIgnored(path);
    if (!isIgnored) add(found, root, checkedText(below, "name", ADVICE), stat);
    const mayHold = !isIgnored || rules.hasExceptions || [...kept].some((one) => one.startsWith(`${path}/`));
    if (stat.isDirectory() && mayHold) walk(found, place, below);
  }
}

function add(found: { entries: PackedEntry[]; skipped: string[] }, root: string, path: string, stat: Stats): void {
  const type = stat.isFile() ? "file" : stat.isDirectory() ? "folder" : stat.isSymbolicLink() ? "link" : null;
  if (type === null) {
    found.skipped.push(path);
    return;
  }
  found.entries.push({
    path,
    type,
    isExecutable: type === "file" && (stat.mode & 0o100) !== 0,
    size_bytes: type === "file" ? stat.size : 0,
    target: type === "link" ? checkedText(readlinkSync(join(root, path), "latin1"), "target of a link", ADVICE) : "",
    mode: stat.mode & 0o7777,
    mtime_seconds: Math.max(0, Math.floor(stat.mtimeMs / 1_000)),
  });
  if (found.entries.length > LIMITS.context_entries_max) {
    throw usage(
      `the folder has too many files: more than ${LIMITS.context_entries_max}`,
      `name what the build does not need in ${IGNORE_FILE}`,
    );
  }
}
