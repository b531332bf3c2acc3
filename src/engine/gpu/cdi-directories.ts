/**
 * The CDI files of this machine, read again when they change. A look costs one directory listing and one stat(2) for each file,
 * at most once in `cdi_look_interval_ms`. No content of a directory stops the daemon: it reports entries that are
 * not regular files or are too large, and leaves them out.
 */
import { constants } from "node:fs";
import { open, readdir, stat } from "node:fs/promises";
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type CdiFile, parseCdiFile } from "./cdi-file.ts";

/** The content of a file of a directory, or the reason why it was not read. */
export interface FoundFile {
  readonly path: string;
  readonly file: CdiFile | null;
  readonly warning: string | null;
}

/** In the order of the setting: later directories override earlier ones. */
export type FoundDirectories = readonly {
  readonly files: readonly FoundFile[];
  readonly warnings: readonly string[];
}[];

interface Kept extends FoundFile {
  /** Device, inode, size and times of the file. */
  readonly state: string;
}

export class CdiDirectories {
  readonly #paths: readonly string[];
  readonly #clock: Clock;
  readonly #kept = new Map<string, Kept>();
  #found: FoundDirectories = [];
  #looked_ms = Number.NEGATIVE_INFINITY;
  #looking: Promise<FoundDirectories> | null = null;

  constructor(paths: readonly string[], clock: Clock) {
    this.#paths = paths;
    this.#clock = clock;
  }

  /** Never rejects. The result is the same object until a file changes. */
  look(): Promise<FoundDirectories> {
    if (this.#looking !== null) return this.#looking;
    if (this.#clock.monotonicMs() - this.#looked_ms < LIMITS.cdi_look_interval_ms) return Promise.resolve(this.#found);
    this.#looking = this.#look().finally(() => {
      this.#looked_ms = this.#clock.monotonicMs();
      this.#looking = null;
    });
    return this.#looking;
  }

  async #look(): Promise<FoundDirectories> {
    const before = new Map(this.#kept);
    this.#kept.clear();
    const found = [];
    for (const path of this.#paths) found.push(await this.#directory(path, before));
    const isSame =
      JSON.stringify(found.map(({ warnings }) => warnings)) ===
        JSON.stringify(this.#found.map(({ warnings }) => warnings)) &&
      before.size === this.#kept.size &&
      [...this.#kept].every(([path, { state }]) => before.get(path)?.state === state);
    if (!isSame) this.#found = found;
    return this.#found;
  }

  async #directory(path: string, before: ReadonlyMap<string, Kept>) {
    const names = await readdir(path).catch((error) => {
      // Without such files there need be no directory.
      if (error.code === "ENOENT") return [];
      return errorText(error);
    });
    if (typeof names === "string") return { files: [], warnings: [`${path}: ${names}`] };
    // Other names are no CDI files (CDI specification, cache.go).
    const files = names.filter((name) => /\.(json|yaml)$/.test(name)).sort();
    const read = files.slice(0, LIMITS.cdi_files_max);
    const left = files.length - read.length;
    const warnings = left === 0 ? [] : [`${path}: ${left} files left out (limit ${LIMITS.cdi_files_max})`];
    const found: FoundFile[] = [];
    for (const name of read) found.push(await this.#file(`${path}/${name}`, before));
    return { files: found, warnings };
  }

  async #file(path: string, before: ReadonlyMap<string, Kept>): Promise<FoundFile> {
    let state = "";
    let kept: Kept;
    try {
      state = stateOf(await regular(path));
      const known = before.get(path);
      kept =
        known?.state === state
          ? known
          : { path, file: parseCdiFile(path, await readBounded(path)), warning: null, state };
    } catch (error) {
      const warning = `${path}: ${errorText(error)}`;
      kept = { path, file: null, warning, state: state === "" ? warning : state };
    }
    this.#kept.set(path, kept);
    return kept;
  }
}

const stateOf = ({ dev, ino, size, mtimeMs, ctimeMs }: Awaited<ReturnType<typeof regular>>): string =>
  [dev, ino, size, mtimeMs, ctimeMs].join();

/** Links are followed: packages put them here. A pipe or a device is not opened. */
async function regular(path: string) {
  const found = await stat(path);
  if (!found.isFile()) throw new AppError("INVALID_ARGUMENT", "not a regular file");
  if (found.size > LIMITS.cdi_file_bytes_max) {
    throw new AppError("INVALID_ARGUMENT", `too large: ${found.size} bytes (limit ${LIMITS.cdi_file_bytes_max})`);
  }
  return found;
}

/** The file may have been replaced since its check. */
async function readBounded(path: string): Promise<string> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    if (!(await handle.stat()).isFile()) throw new AppError("INVALID_ARGUMENT", "not a regular file");
    const buffer = Buffer.alloc(LIMITS.cdi_file_bytes_max + 1);
    let end = 0;
    for (;;) {
      const { bytesRead } = await handle.read(buffer, end, buffer.length - end);
      end += bytesRead;
      if (end > LIMITS.cdi_file_bytes_max) {
        throw new AppError("INVALID_ARGUMENT", `too large (limit ${LIMITS.cdi_file_bytes_max} bytes)`);
      }
      if (bytesRead === 0) return buffer.toString("utf8", 0, end);
    }
  } finally {
    await handle.close();
  }
}
