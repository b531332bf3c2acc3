/**
 * Temporary files of set-up: one directory below the data directory, private to whoever holds the lock. Cleared before
 * and after the work, so that a killed set-up costs the next one nothing.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { makeDirectory } from "../installation/directories.js";

/** @param {string} data_dir @returns {string} */
function temporaryPath(data_dir) {
  return join(data_dir, "tmp/setup");
}

/** @param {string} data_dir @returns {string} the directory, made if need be */
export function temporaryDir(data_dir) {
  const path = temporaryPath(data_dir);
  makeDirectory(path);
  return path;
}

/** @param {string} data_dir @param {import("./command.js").Commands} commands */
export async function clearTemporary(data_dir, commands) {
  const path = temporaryPath(data_dir);
  if (!existsSync(path)) return;
  // Never across a mount: a half-built root may have had the machine's /dev and /proc mounted in it.
  await commands.run(["rm", "--recursive", "--force", "--one-file-system", path], { cleanup: true });
}
