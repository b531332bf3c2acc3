/** What has to hold before anything is installed: each check has one message that says what to do. */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { SetupError } from "./setup-error.js";

/** Packages, the build of the image and the image itself take about 1.2 GiB at their peak. */
const FREE_BYTES_MIN = 2 * 1024 ** 3;

/** @param {Pick<NodeJS.Process, "platform" | "arch" | "getuid">} machine */
export function checkMachine(machine) {
  if (machine.platform !== "linux") throw new SetupError(`hearth runs on Linux, this is ${machine.platform}`);
  if (machine.arch !== "x64" && machine.arch !== "arm64") {
    throw new SetupError(`hearth runs on x64 and arm64, this Node is built for ${machine.arch}`);
  }
  const uid = machine.getuid?.();
  if (uid !== 0) throw new SetupError(`hearth needs root for namespaces and cgroups, this is uid ${uid}: use sudo`);
}

/** The free bytes where `path` lies or will lie. @param {string} path @returns {number | null} null: cannot tell */
function freeBytes(path) {
  // Node has statfs from 18.15 on; an older one goes on without the check.
  if (fs.statfsSync === undefined) return null;
  try {
    const stats = fs.statfsSync(path);
    return stats.bavail * stats.bsize;
  } catch (error) {
    if (error.code === "ENOENT" && dirname(path) !== path) return freeBytes(dirname(path));
    throw new SetupError(`${path}: ${error.message}`);
  }
}

/** @param {readonly string[]} directories @param {number} [bytes_min] */
export function checkSpace(directories, bytes_min = FREE_BYTES_MIN) {
  for (const directory of directories) {
    const free = freeBytes(directory);
    if (free === null || free >= bytes_min) continue;
    const mib = (/** @type {number} */ bytes) => Math.floor(bytes / 1024 ** 2);
    throw new SetupError(`${directory} has ${mib(free)} MiB free, ${mib(bytes_min)} MiB are needed to install`);
  }
}
