/**
 * Notifies of changes in a set of folders, once they have settled: editors write a file in several steps, often as a new file
 * with the old name. Each folder has a watch of its own, so that ignored ones cost none.
 */
import { type FSWatcher, lstatSync, watch } from "node:fs";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";

export class FolderWatch {
  readonly #clock: Clock;
  readonly #onChange: (begun_ms: number) => void;
  /** Watches by path and inode: another folder of the same name has another watch. */
  readonly #watchers = new Map<string, FSWatcher>();
  #pending: { readonly begun_ms: number; cancel: () => void } | null = null;

  /** `onChange` receives the time of the first change of a save. */
  constructor(clock: Clock, onChange: (begun_ms: number) => void) {
    this.#clock = clock;
    this.#onChange = onChange;
  }

  /**
   * Watches these folders and no others. Returns true if one of them is new. Throws Failure for more than
   * `cli_watched_folders_max`, and where the kernel has no more watches.
   */
  set(folders: readonly string[]): boolean {
    if (folders.length > LIMITS.cli_watched_folders_max) {
      const limit = `(limit ${LIMITS.cli_watched_folders_max})`;
      throw usage(`too many folders to watch: ${folders.length} ${limit}`, "name folders in .hearthignore");
    }
    const wanted = new Map<string, string>(
      folders.flatMap((folder) => {
        const stat = lstatSync(folder, { throwIfNoEntry: false });
        return stat === undefined ? [] : [[`${stat.ino} ${folder}`, folder] as const];
      }),
    );
    for (const [key, watcher] of this.#watchers) {
      if (wanted.has(key)) continue;
      watcher.close();
      this.#watchers.delete(key);
    }
    let isNew = false;
    for (const [key, folder] of wanted) {
      if (this.#watchers.has(key)) continue;
      const watcher = this.#watch(folder);
      if (watcher === null) continue;
      this.#watchers.set(key, watcher);
      isNew = true;
    }
    return isNew;
  }

  /** Null for a folder that was removed meanwhile. */
  #watch(folder: string): FSWatcher | null {
    try {
      const watcher = watch(folder, () => this.#changed());
      // The folder was removed: its parent reports the change too.
      watcher.on("error", () => this.#changed());
      return watcher;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR") return null;
      const hint = "name folders in .hearthignore, or raise fs.inotify.max_user_watches";
      throw new Failure(EXIT.usage, `cannot watch ${folder}: ${message}`, hint, error);
    }
  }

  #changed(): void {
    const now_ms = this.#clock.monotonicMs();
    const begun_ms = this.#pending?.begun_ms ?? now_ms;
    this.#pending?.cancel();
    const left_ms = begun_ms + LIMITS.cli_dev_settle_ms_max - now_ms;
    const cancel = this.#clock.after(Math.max(0, Math.min(LIMITS.cli_dev_settle_ms, left_ms)), () => {
      this.#pending = null;
      this.#onChange(begun_ms);
    });
    this.#pending = { begun_ms, cancel };
  }
}
