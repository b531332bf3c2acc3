/**
 * The files of a folder that are its code, in a fixed order. No link is followed: one that leads out of the folder is refused,
 * every other stays a link.
 */
import { type BigIntStats, lstatSync, readFileSync, readlinkSync } from "node:fs";
import { join, posix } from "node:path";
import { LIMITS } from "../../base/limits.ts";
import { visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { checkedText, namesIn, placeIn, textOf } from "./file-names.ts";
import { GIT_IGNORE, HEARTH_IGNORE, IgnoreRules, type LeftOut } from "./ignore-rules.ts";

export interface CodeEntry {
  /** Relative to the root, with slashes. */
  readonly path: string;
  readonly type: "file" | "folder" | "link";
  readonly isExecutable: boolean;
  readonly size_bytes: number;
  /** Target of a link; empty for others. */
  readonly target: string;
}

export interface Code {
  readonly root: string;
  readonly entries: readonly CodeEntry[];
  readonly size_bytes: number;
  /** Paths of entries that are neither file, folder nor link. */
  readonly skipped: readonly string[];
  /** Virtual environments of Python, which are no code. */
  readonly environments: readonly string[];
  /** Equal while nothing has changed: paths, types, sizes, and the times of the last changes. */
  readonly fingerprint: string;
}

interface Found {
  readonly root: string;
  readonly entries: CodeEntry[];
  readonly skipped: string[];
  readonly environments: string[];
  readonly marks: string[];
  size_bytes: number;
}

/** Lists a folder's code. Throws a usage failure for what cannot be code, above all a link out of the folder. */
export function scan(root: string): Code {
  const found: Found = { root, entries: [], skipped: [], environments: [], marks: [], size_bytes: 0 };
  walk(found, "", IgnoreRules.none);
  const { marks, ...rest } = found;
  return { ...rest, fingerprint: marks.join("\n") };
}

/** Throws a usage failure for code that the daemon would refuse for its size. */
export function checkSize({ root, entries, size_bytes }: Code): void {
  const advice = "name what the function does not need in .hearthignore";
  if (entries.length === 0) throw usage(`the folder has no files: ${root}`);
  if (size_bytes > LIMITS.code_archive_bytes_max) {
    const largest = entries.toSorted((one, other) => other.size_bytes - one.size_bytes)[0];
    throw usage(
      `the folder is too large: ${bytes(size_bytes)} (limit ${bytes(LIMITS.code_archive_bytes_max)})`,
      `${advice}; the largest file is ${visible(largest?.path ?? "")}`,
    );
  }
}

const ADVICE = "rename it, or name it in .hearthignore";

/** `base` and the paths below it have one character for each byte. */
function walk(found: Found, base: string, above: IgnoreRules): void {
  const names = namesIn(found.root, base);
  const rules = rulesIn(found.root, base, above, names);
  for (const name of names) {
    const path = base === "" ? name : `${base}/${name}`;
    const stat = lstatSync(placeIn(found.root, path), { throwIfNoEntry: false, bigint: true });
    // Removed since the folder was read.
    if (stat === undefined) continue;
    const rule = leftOut(found.root, path, stat, rules);
    if (rule === ENVIRONMENT) found.environments.push(textOf(path));
    if (rule !== null) continue;
    add(found, checkedText(path, "name", ADVICE), stat);
    if (stat.isDirectory()) walk(found, path, rules.inFolder(path));
  }
}

/** Why hearth leaves out a virtual environment of Python: its programs are links to a Python of this machine. */
export const ENVIRONMENT: LeftOut = { file: null, line: 0, text: "virtual environment" };
const ENVIRONMENT_FILE = "pyvenv.cfg";
/** The folder of such programs. */
const ENVIRONMENT_PROGRAMS = "bin";

/** Why an entry is left out; null: it is not. Of an environment that .hearthignore keeps, the programs alone are left out. */
function leftOut(
  root: string,
  path: string,
  stat: Pick<BigIntStats, "isDirectory">,
  rules: IgnoreRules,
): LeftOut | null {
  const isFolder = stat.isDirectory();
  const rule = rules.leavesOut(path, isFolder);
  if (rule !== null || !isFolder || rules.keeps(path)) return rule;
  const isEnvironment = (folder: string) =>
    lstatSync(placeIn(root, `${folder}/${ENVIRONMENT_FILE}`), { throwIfNoEntry: false });
  if (isEnvironment(path)?.isFile() === true) return ENVIRONMENT;
  const { dir, base } = posix.parse(path);
  return base === ENVIRONMENT_PROGRAMS && dir !== "" && isEnvironment(dir)?.isFile() === true ? ENVIRONMENT : null;
}

function rulesIn(root: string, base: string, above: IgnoreRules, names: readonly string[]): IgnoreRules {
  const folder = placeIn(root, base).toString();
  const ownText = (name: string) => (names.includes(name) ? rulesText(join(folder, name)) : null);
  return above.with(base, ownText(HEARTH_IGNORE), ownText(GIT_IGNORE));
}

/** A rule as text, and the path that it leaves out: the one asked for, or a folder above it. */
export interface RuleAgainst extends LeftOut {
  readonly path: string;
}

/** The rule that leaves out a path, relative to the root; null: none does, or there is no such file. */
export function ruleAgainst(root: string, path: string): RuleAgainst | null {
  const parts = Buffer.from(path).toString("latin1").split("/");
  let rules = IgnoreRules.none;
  let base = "";
  for (const part of parts) {
    const at = base === "" ? part : `${base}/${part}`;
    const stat = lstatSync(placeIn(root, at), { throwIfNoEntry: false });
    if (stat === undefined) return null;
    rules = rulesIn(root, base, rules, namesIn(root, base));
    const rule = leftOut(root, at, stat, rules);
    if (rule !== null) {
      const { file, line, text } = rule;
      return { file: file === null ? null : textOf(file), line, text: textOf(text), path: textOf(at) };
    }
    if (!stat.isDirectory()) return null;
    rules = rules.inFolder(at);
    base = at;
  }
  return null;
}

/** Rules are a few lines; a folder or a link of that name has none. */
function rulesText(file: string): string | null {
  const stat = lstatSync(file, { throwIfNoEntry: false });
  if (stat?.isFile() !== true) return null;
  if (stat.size > LIMITS.cli_project_bytes_max) {
    throw usage(`${file} is too large (limit ${LIMITS.cli_project_bytes_max} bytes)`);
  }
  return readFileSync(file, "latin1");
}

function add(found: Found, path: string, stat: BigIntStats): void {
  const type = stat.isFile() ? "file" : stat.isDirectory() ? "folder" : stat.isSymbolicLink() ? "link" : null;
  if (type === null) {
    found.skipped.push(path);
    return;
  }
  const isFile = type === "file";
  const isExecutable = isFile && (stat.mode & 0o100n) !== 0n;
  const size_bytes = isFile ? Number(stat.size) : 0;
  const target = type === "link" ? checkedTarget(found.root, path) : "";
  found.entries.push({ path, type, isExecutable, size_bytes, target });
  found.size_bytes += size_bytes;
  const time = isFile ? stat.mtimeNs : 0n;
  found.marks.push(`${path}\0${type}\0${isExecutable}\0${size_bytes}\0${target}\0${time}`);
  if (found.entries.length > LIMITS.code_entries_max) {
    throw usage(
      `the folder has too many files: more than ${LIMITS.code_entries_max}`,
      "name what the function does not need in .hearthignore",
    );
  }
}

function checkedTarget(root: string, path: string): string {
  const target = checkedText(readlinkSync(join(root, path), "latin1"), "target of a link", ADVICE);
  const leads = posix.normalize(posix.join(posix.dirname(path), target));
  if (!target.startsWith("/") && leads !== ".." && !leads.startsWith("../")) return target;
  throw usage(
    `link leads out of the folder: ${path} -> ${target}`,
    "replace it by a copy, or name it in .hearthignore",
  );
}
