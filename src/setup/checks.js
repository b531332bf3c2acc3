/** What has to hold before anything is installed: each check has one message that says what to do. */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { InstallationError } from "../installation/installation-error.js";

/** Packages, the build of the image and the image itself take about 2 GiB at their peak. */
const FREE_BYTES_MIN = 3 * 1024 ** 3;

/** @param {Pick<NodeJS.Process, "platform" | "arch" | "getuid">} machine */
export function checkMachine(machine) {
  if (machine.platform !== "linux")
    throw new InstallationError(`unsupported system: ${machine.platform} (hearth runs on Linux)`);
  if (machine.arch !== "x64" && machine.arch !== "arm64") {
    throw new InstallationError(`unsupported processor: ${machine.arch} (hearth runs on x64 and arm64)`);
  }
  const uid = machine.getuid?.();
  if (uid !== 0)
    throw new InstallationError(`hearth needs root for namespaces and cgroups, this is uid ${uid}: use sudo`);
}

/** The directory itself, or the nearest one above it that exists. @param {string} path @returns {string} */
function existing(path) {
  return fs.existsSync(path) || dirname(path) === path ? path : existing(dirname(path));
}

/**
 * Whether `directories` can be made and filled.
 *
 * @param {readonly string[]} directories
 * @param {number} [bytes_min]
 */
export function checkDirectories(directories, bytes_min = FREE_BYTES_MIN) {
  const mib = (/** @type {number} */ bytes) => Math.floor(bytes / 1024 ** 2);
  for (const directory of directories) {
    const place = existing(directory);
    if (!fs.statSync(place).isDirectory()) throw new InstallationError(`${place} is not a directory`);
    try {
      fs.accessSync(place, fs.constants.W_OK);
    } catch (error) {
      throw new InstallationError(`${place} is not writable: ${error instanceof Error ? error.message : error}`);
    }
    const stats = fs.statfsSync(place);
    const free = stats.bavail * stats.bsize;
    if (free < bytes_min) {
      throw new InstallationError(
        `not enough disk space in ${directory}: ${mib(free)} MiB free (at least ${mib(bytes_min)} MiB)`,
      );
    }
  }
}
