/**
 * Files of runtimes as instances see them: copies in the data directory. The checkout may have been made with any umask,
 * and may change while the daemon runs; the copies are readable by the uid of every instance, and stay as they are.
 */
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const DIRECTORY_MODE = 0o755;
const FILE_MODE = 0o644;
const PERMISSIONS = 0o777;
/** Hexadecimal digits of the digest in the name of a copy. */
const DIGEST_LENGTH = 12;

export interface RuntimeFiles {
  /** Directory of the copy. */
  readonly path: string;
  /** Digest of the names and contents of all files. */
  readonly digest: string;
}

/**
 * Copies the files of a runtime to a directory in `into`, which its digest names, and removes copies with another digest. An
 * existing copy is compared with the files and repaired. `directories` hold the files: no path is in two of them. Throws the
 * error of the file system.
 */
export function installRuntimeFiles(runtime: string, directories: readonly string[], into: string): RuntimeFiles {
  const files = directories.flatMap(filesIn);
  const hash = createHash("sha256");
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

/** Makes a directory that every user can enter, whatever the umask. */
function makeReadable(path: string): void {
  mkdirSync(path, { recursive: true });
  chmodSync(path, DIRECTORY_MODE);
}
