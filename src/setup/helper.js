/** The compiled helper (minit and launcher in one static binary), named after its sources and flags. */
import { existsSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { makeDirectory } from "../installation/directories.js";
import { InstallationError } from "../installation/installation-error.js";
import { HELPER_COMPILE, helperPath, helperSourceDir, helperSources } from "../installation/paths.js";
import { temporaryDir } from "./temporary.js";

/** Older ones may still be the entry of running containers, and of a checkout that shares the data directory. */
const VERSIONS_KEPT = 3;

/** Removes all but the newest versions. @param {string} bin_dir */
function prune(bin_dir) {
  const byAge = readdirSync(bin_dir)
    .filter((name) => /^minit-[0-9a-f]{12}$/.test(name))
    .map((name) => ({ path: join(bin_dir, name), made_ms: statSync(join(bin_dir, name)).mtimeMs }))
    .sort((a, b) => b.made_ms - a.made_ms);
  for (const { path } of byAge.slice(VERSIONS_KEPT)) rmSync(path, { force: true });
}

/**
 * @param {string} data_dir
 * @param {import("./command.js").Commands} commands
 * @param {string} [source_dir]
 */
export async function compileHelper(data_dir, commands, source_dir = helperSourceDir()) {
  const sources = helperSources(source_dir).filter((name) => name.endsWith(".c"));
  if (sources.length === 0) throw new InstallationError(`no C sources in ${source_dir}`);
  const target = helperPath(data_dir, source_dir);
  const temporary = join(temporaryDir(data_dir), basename(target));
  await commands.run([...HELPER_COMPILE, "-o", temporary, ...sources.map((name) => join(source_dir, name))]);
  makeDirectory(dirname(target), 0o755);
  renameSync(temporary, target);
  prune(dirname(target));
}

/** @type {import("./command.js").Step} */
export const helperStep = {
  name: "helper",
  large: false,

  missing({ data_dir }) {
    const path = helperPath(data_dir);
    return existsSync(path) ? null : basename(path);
  },

  async install({ data_dir }, commands) {
    await compileHelper(data_dir, commands);
  },
};
