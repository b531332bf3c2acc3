/**
 * Node's compile cache in the user's cache directory. Without it Node strips the types of every file again at each start:
 * a third of the daemon's start and two thirds of a command's.
 */
import module from "node:module";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { isOwnDirectory } from "./ownership.js";

/**
 * Caches every module that is loaded from now on, also by threads if `hasThreads`: they read the directory from the environment, which
 * commands of the process must then not inherit. Without a directory that only the user can write to, starts are slower.
 */
export function keepCompiled(hasThreads = false) {
  const xdg = process.env.XDG_CACHE_HOME ?? "";
  // What others may write to, as the directory that a relative path begins in, is not run.
  const directory = join(isAbsolute(xdg) ? xdg : join(homedir(), ".cache"), "hearth");
  if (!isOwnDirectory(directory)) return;
  module.enableCompileCache?.(directory);
  if (hasThreads) process.env.NODE_COMPILE_CACHE = directory;
}

/** Writes the cache now, and not only at an orderly end. */
export function flushCompiled() {
  module.flushCompileCache?.();
}
