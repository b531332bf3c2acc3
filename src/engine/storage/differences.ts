/**
 * The paths that differ between two snapshots, by `btrfs send --no-data`: the kernel compares the trees of both. What it
 * says goes through files on the disk of the data directory, of bounded size.
 */
import { createReadStream, mkdirSync, rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { TouchedPaths } from "../ports/storage.ts";
import { SendDump } from "./send-dump.ts";

export interface DifferencesRequest {
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
  /** Path of the earlier subvolume; null: none. */
  readonly from: string | null;
  readonly to: string;
  /** Path before which the files of this request are made. */
  readonly file: string;
}

/** 128 and SIGXFSZ: a file would exceed its limit. */
const TOO_LARGE = 153;
/** Both parts in turn, so that the end of each is known. A stream that was cut is printed up to there. */
const SCRIPT = `file=$1; shift
btrfs send --quiet --no-data "$@" > "$file.send"; sent=$?
btrfs receive --dump -f "$file.send" > "$file.dump" 2> "$file.error"; dumped=$?
[ $sent -ne 0 ] && exit $sent
[ $dumped -ne 0 ] && cat "$file.error" >&2
exit $dumped`;

export async function readDifferences({ withLauncher, from, to, file }: DifferencesRequest): Promise<TouchedPaths> {
  const { differences_bytes_max, differences_ms: timeout_ms } = LIMITS;
  const argv = [
    ...["prlimit", `--fsize=${differences_bytes_max}`, "--core=0", "--", "sh", "-c", SCRIPT, "differences", file],
    ...(from === null ? [to] : ["-p", from, to]),
  ];
  try {
    const ended = await withLauncher((launcher) => launcher.spawn({ argv, timeout_ms }));
    if (ended.timed_out) throw new AppError("TIMEOUT", `the snapshots were not compared within ${timeout_ms} ms`);
    const isCut = ended.exit_code === TOO_LARGE;
    if (ended.exit_code !== 0 && !isCut) {
      throw new AppError("INTERNAL", `btrfs send of ${to} failed: ${ended.stderr.trim().slice(-500)}`);
    }
    return await readDump(`${file}.dump`, isCut);
  } finally {
    for (const end of ["send", "dump", "error"]) rmSync(`${file}.${end}`, { force: true });
  }
}

async function readDump(path: string, isCut: boolean): Promise<TouchedPaths> {
  const dump = new SendDump();
  for await (const line of createInterface({ input: createReadStream(path, "latin1") })) dump.line(line);
  const paths = [];
  for (const touched of dump.touched()) {
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
