/**
 * Temporary files of set-up: one directory below the data directory, private to whoever holds the lock. Cleared before
 * and after the work, so that a killed set-up costs the next one nothing.
 */
import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { makeDirectory } from "../installation/directories.js";

/** Older ones may still be in use by running containers, and by checkouts that share the data directory. */
const VERSIONS_KEPT = 12;

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

/** Removes all but the newest results with a name of this form. @param {string} directory @param {RegExp} form */
export function pruneVersions(directory, form) {
  const byAge = readdirSync(directory)
    .filter((name) => form.test(name))
    .map((name) => ({ path: join(directory, name), made_ms: statSync(join(directory, name)).mtimeMs }))
    .sort((a, b) => b.made_ms - a.made_ms);
  for (const { path } of byAge.slice(VERSIONS_KEPT)) rmSync(path, { recursive: true, force: true });
}
