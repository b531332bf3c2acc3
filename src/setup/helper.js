/** The compiled helper (minit and launcher in one static binary), named after its sources and flags. */
import { existsSync, renameSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { makeDirectory } from "../installation/directories.js";
import { InstallationError } from "../installation/installation-error.js";
import { HELPER_COMPILE, helperPath, helperSourceDir, helperSources } from "../installation/paths.js";
import { pruneVersions, temporaryDir } from "./temporary.js";

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
  pruneVersions(dirname(target), /^minit-[0-9a-f]{12}$/);
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
