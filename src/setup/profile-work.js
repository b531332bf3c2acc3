/**
 * `node src/setup/index.js profile build|rebuild <name>`: work on profiles apart from a start. With `--progress=json` each line
 * of standard output is an object with the progress, the last one with the result; the daemon reads it.
 */
import { existsSync } from "node:fs";
import { InstallationError } from "../installation/installation-error.js";
import { buildProfile } from "./image.js";

/** @typedef {import("./command.js").Commands} Commands */
/** @typedef {import("./progress.js").Progress} Progress */

/**
 * @param {{ data_dir: string, image_dir: string }} directories
 * @param {readonly string[]} args
 * @param {Commands} commands
 * @param {Progress} progress
 */
export async function workOnProfile(directories, args, commands, progress) {
  const [verb = "", name = ""] = args;
  const further_dir = args.find((arg) => arg.startsWith("--profiles-dir="))?.slice("--profiles-dir=".length) ?? null;
  if ((verb !== "build" && verb !== "rebuild") || name === "") {
    throw new InstallationError("usage: node src/setup/index.js profile build|rebuild <name> [flags]");
  }
  if (further_dir !== null && !existsSync(further_dir)) throw new InstallationError(`no such folder: ${further_dir}`);
  let isFirst = true;
  const onProfile = (/** @type {string} */ profile) => {
    if (!isFirst) progress.done();
    isFirst = false;
    progress.begin("profile", profile);
  };
  const release = await buildProfile(directories, name, commands, {
    isRebuild: verb === "rebuild",
    further_dir,
    onProfile,
  });
  if (!isFirst) progress.done();
  progress.note(`profile ${name} has release ${release.version}`);
}
