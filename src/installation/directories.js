/** Makes directories of set-up and the daemon. */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { InstallationError } from "./installation-error.js";

/**
 * Makes a directory and those above it. Level by level: where a file system takes no directories, as /proc, Node's own
 * recursive call never returns. Throws InstallationError.
 *
 * @param {string} path
 * @param {number} [mode]
 */
export function makeDirectory(path, mode = 0o700) {
  if (fs.existsSync(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeDirectory(parent, mode);
  try {
    fs.mkdirSync(path, { mode });
  } catch (error) {
    const code = /** @type {NodeJS.ErrnoException} */ (error).code;
    // Another process made it.
    if (code === "EEXIST" && fs.existsSync(path)) return;
    throw new InstallationError(`cannot create ${path} (${code}): ${parent} must be a writable directory`);
  }
}
