/** Newer packages than those of a release, as the machine's apt sources offer them. Nothing is installed, and no image is mounted. */
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { InstallationError } from "../installation/installation-error.js";
import { releasesDir, VERSION } from "../installation/releases.js";
import { aptEnvironment } from "./apt-sources.js";
import { temporaryDir } from "./temporary.js";

/**
 * @typedef {object} Update
 * @property {string} name
 * @property {string} version of the release
 * @property {string} new_version
 * @property {string} origin as apt writes it: `Debian-Security:12/stable-security`
 * @property {boolean} is_security
 */

/**
 * Reads the lines of `apt-get --simulate upgrade`: `Inst bash [5.2.15-2] (5.2.15-3 Debian:12.9/stable [amd64])`. Packages that
 * would be new have no version in brackets.
 *
 * @param {string} output
 * @returns {Update[]}
 */
function parseUpdates(output) {
  return [...output.matchAll(/^Inst (\S+) \[([^\]]+)\] \((\S+) ([^[]*)\[[^\]]*\]\)/gm)]
    .map(([, name = "", version = "", new_version = "", origins = ""]) => {
      const origin = origins.trim();
      return { name, version, new_version, origin, is_security: /security/i.test(origin) };
    })
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * @param {{ data_dir: string, image_dir: string }} directories
 * @param {import("../installation/profiles.js").ProfileImage} image
 * @param {string} version
 * @param {import("./command.js").Commands} commands
 * @returns {Promise<Update[]>}
 */
export async function findUpdates({ data_dir, image_dir }, { profile, suite }, version, commands) {
  const status = join(releasesDir(image_dir, profile.name), `${version}.status`);
  if (!VERSION.test(version) || !existsSync(status)) throw new InstallationError(`unknown release: '${version}'`);
  const directory = join(temporaryDir(data_dir), "updates");
  mkdirSync(directory, { recursive: true });
  const lists = join(image_dir, "apt-lists");
  const env = await aptEnvironment(directory, { suite, status, lists }, commands);
  await commands.run(["apt-get", "update", "-q"], { env });
  return parseUpdates(await commands.run(["apt-get", "--simulate", "-q", "dist-upgrade"], { env }));
}
