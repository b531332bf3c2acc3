/**
 * The paths that differ between two snapshots, by `btrfs send --no-data`: the kernel compares the trees of both. Its stream
 * goes through a file on the disk of the data directory, of bounded size.
 */
import { createReadStream, mkdirSync, rmSync } from "node:fs";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { TouchedPaths } from "../ports/storage.ts";
import { SendStream } from "./send-stream.ts";

export interface DifferencesRequest {
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
  /** Path of the earlier subvolume; null: none. */
  readonly from: string | null;
  readonly to: string;
  /** Path of the file for this request. */
  readonly file: string;
}

/** 128 and SIGXFSZ: a file would exceed its limit. */
const TOO_LARGE = 153;
/** ENAMETOOLONG, as btrfs tells it. */
const TOO_LONG = /-36\b|File name too long/;
const SCRIPT = 'file=$1; shift; exec btrfs send --quiet --no-data "$@" > "$file"';

export async function readDifferences({ withLauncher, from, to, file }: DifferencesRequest): Promise<TouchedPaths> {
  const { differences_bytes_max, differences_ms: timeout_ms } = LIMITS;
  const argv = [
    ...["prlimit", `--fsize=${differences_bytes_max}`, "--core=0", "--", "sh", "-c", SCRIPT, "differences", file],
    ...(from === null ? [to] : ["-p", from, to]),
  ];
  try {
    const ended = await withLauncher((launcher) => launcher.spawn({ argv, timeout_ms }));
    if (ended.timed_out) throw new AppError("TIMEOUT", `the snapshots were not compared within ${timeout_ms} ms`);
    const isCut = ended.exit_code === TOO_LARGE || /File too large/.test(ended.stderr);
    if (TOO_LONG.test(ended.stderr)) {
      throw new AppError("INVALID_ARGUMENT", "cannot compare: a path has more than 4,096 bytes");
    }
    if (ended.exit_code !== 0 && !isCut) {
      throw new AppError("INTERNAL", `btrfs send of ${to} failed: ${ended.stderr.trim().slice(-500)}`);
    }
    return await readStream(file, isCut);
  } finally {
    rmSync(file, { force: true });
  }
}

async function readStream(path: string, isCut: boolean): Promise<TouchedPaths> {
  const stream = new SendStream();
  for await (const piece of createReadStream(path)) stream.push(piece as Buffer);
  const paths = [];
  for (const touched of stream.touched()) {
    if (paths.length === LIMITS.differences_max) return { paths, isTruncated: true };
    paths.push(touched);
  }
  return { paths, isTruncated: isCut };
}

/** Makes the directory of these files, empty. */
export function clearDifferences(directory: string): void {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true, mode: 0o700 });
}
