/**
 * `node src/setup/index.js profile <verb> <name>`: work on profiles apart from a start. With `--progress=json` each line of standard
 * output is an object with the progress, the last one with the result; the daemon reads it.
 *
 *   build    makes the releases that are missing, from the lowest profile to this one
 *   rebuild  makes new releases of all of them; with `--only` of this one
 *   promote  lets a channel (`--channel`) name a release (`--version`); rollback: one that it named before
 *   updates  asks the machine's apt sources for newer packages than those of a release (`--version`)
 *   clean    removes what a killed build left, as each other verb does at its beginning
 */
import { existsSync } from "node:fs";
import { InstallationError } from "../installation/installation-error.js";
import { profileImage } from "../installation/profiles.js";
import { checkDirectories } from "./checks.js";
import { buildProfile, moveChannel, removeBuildContainer } from "./image.js";
import { findUpdates } from "./package-updates.js";
import { JsonProgress } from "./progress.js";

/** @typedef {import("./command.js").Commands} Commands */
/** @typedef {import("./progress.js").Progress} Progress */

/** As much as a pull leaves free. The largest built-in profile takes more, so this only spares downloads that cannot fit. */
const FREE_BYTES_MIN = 1024 ** 3;
const USAGE = "usage: node src/setup/index.js profile build|rebuild|promote|rollback|updates|clean <name> [flags]";

/**
 * @param {{ data_dir: string, image_dir: string }} directories
 * @param {readonly string[]} args
 * @param {Commands} commands
 * @param {Progress | JsonProgress} progress
 */
export async function workOnProfile(directories, args, commands, progress) {
  const [verb = "", name = ""] = args;
  const value = (/** @type {string} */ flag) => args.find((arg) => arg.startsWith(`${flag}=`))?.slice(flag.length + 1);
  const further_dir = value("--profiles-dir") ?? null;
  if (further_dir !== null && !existsSync(further_dir)) throw new InstallationError(`no such folder: ${further_dir}`);
  await removeBuildContainer(directories.image_dir, commands);
  if (verb === "clean") return;
  if (name === "") throw new InstallationError(USAGE);
  const image = profileImage(name, { further_dir });
  /** @type {object} */
  let result = {};
  if (verb === "build" || verb === "rebuild") {
    checkDirectories([directories.image_dir, directories.data_dir], FREE_BYTES_MIN);
    let isFirst = true;
    const onProfile = (/** @type {string} */ profile, /** @type {number} */ index, /** @type {number} */ count) => {
      if (!isFirst) progress.done();
      isFirst = false;
      if (progress instanceof JsonProgress) progress.part(index, count);
      progress.begin("profile", profile);
    };
    const rebuilt = verb === "build" ? "none" : args.includes("--only") ? "last" : "all";
    const release = await buildProfile(directories, name, commands, { rebuilt, further_dir, onProfile });
    if (!isFirst) progress.done();
    progress.note(`profile ${name} has release ${release.version}`);
    result = { version: release.version };
  } else if (verb === "promote" || verb === "rollback") {
    const to = { channel: value("--channel") ?? "", version: value("--version") ?? "", isBack: verb === "rollback" };
    await moveChannel(directories.image_dir, image, to, commands);
  } else if (verb === "updates") {
    result = { updates: await findUpdates(directories, image, value("--version") ?? "", commands) };
  } else {
    throw new InstallationError(USAGE);
  }
  if (progress instanceof JsonProgress) progress.result(result);
}
