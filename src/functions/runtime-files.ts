/**
 * Files of runtimes as instances see them: copies in the data directory. The checkout may have been made with any umask,
 * and may change while the daemon runs; the copies are readable by the uid of every instance, and stay as they are.
 */
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";

const DIRECTORY_MODE = 0o755;
const FILE_MODE = 0o644;
const PROGRAM_MODE = 0o755;
const PERMISSIONS = 0o777;
/** Hexadecimal digits of the digest in the name of a copy. */
const DIGEST_LENGTH = 12;

export interface RuntimeFiles {
  /** Directory of the copy. */
  readonly path: string;
  /** Digest of the names and contents of all files, and of the sizes and times of programs. */
  readonly digest: string;
}

/**
 * Copies the files of a runtime to a directory in `into`, which its digest names, and removes copies with another digest. An
 * existing copy is compared with the files and repaired. `directories` hold the files, and `programs` paths by the names
 * of their copies, which can be run: no name is there twice. Throws the error of the file system.
 */
export function installRuntimeFiles(
  runtime: string,
  directories: readonly string[],
  into: string,
  programs: Readonly<Record<string, string>> = {},
): RuntimeFiles {
  const files = directories.flatMap(filesIn);
  const hash = createHash("sha256");
  for (const [name, from] of Object.entries(programs)) hash.update(`${name}\0${stampOf(from)}\0`);
  for (const [name, content] of files) hash.update(`${name}\0`).update(content).update("\0");
  const digest = hash.digest("hex");
  const copy = `${runtime}-${digest.slice(0, DIGEST_LENGTH)}`;
  const path = join(into, copy);
  makeReadable(into);
  for (const name of readdirSync(into)) {
    if (name.startsWith(`${runtime}-`) && name !== copy) rmSync(join(into, name), { recursive: true, force: true });
  }
  makeReadable(path);
  for (const [name, content] of files) install(path, name, content);
  for (const [name, from] of Object.entries(programs)) installProgram(path, name, from);
  return { path, digest };
}

/** Returns path → content of all files, sorted by path. */
function filesIn(directory: string): [string, Buffer][] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort()
    .map((path) => [relative(directory, path), readFileSync(path)]);
}

function install(directory: string, name: string, content: Buffer): void {
  const path = join(directory, name);
  for (let at = dirname(name); at !== "."; at = dirname(at)) makeReadable(join(directory, at));
  if (isInstalled(path, content)) return;
  const temporary = `${path}.tmp`;
  writeFileSync(temporary, content);
  chmodSync(temporary, FILE_MODE);
  renameSync(temporary, path);
}

function isInstalled(path: string, content: Buffer): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found !== undefined && (found.mode & PERMISSIONS) === FILE_MODE && readFileSync(path).equals(content);
}

/** Size and time of a file: programs are large, and their content is not read at each start. Null if it is missing. */
function stampOf(path: string): string | null {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? null : `${found.size} ${Math.floor(found.mtimeMs / 1000)}`;
}

/** Copies a program with its time, unless the copy has its size and time. */
function installProgram(directory: string, name: string, from: string): void {
  const path = join(directory, name);
  if (stampOf(path) !== stampOf(from)) {
    const temporary = `${path}.tmp`;
    copyFileSync(from, temporary);
    const { atime, mtime } = statSync(from);
    utimesSync(temporary, atime, mtime);
    renameSync(temporary, path);
  }
  chmodSync(path, PROGRAM_MODE);
}

/** Makes a directory that every user can enter, whatever the umask. */
function makeReadable(path: string): void {
  mkdirSync(path, { recursive: true });
  chmodSync(path, DIRECTORY_MODE);
}
