/**
 * The npm packages, as the lock file names them. npm's own record of what it installed is compared with the lock file,
 * so an `npm install` by hand counts too and an interrupted one does not (npm writes the record last).
 */
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, delimiter, dirname, join, relative } from "node:path";
import { InstallationError } from "../installation/installation-error.js";
import { NODE_PATH } from "../installation/paths.js";

const NODE_MAJOR = 24;
/**
 * `npm ci` refuses a lock file that lacks optional packages of other platforms, and a registry that does not carry
 * them cannot give a complete one; `install --no-save` keeps to the lock file just as well and does not change it.
 * No package needs its install script: the native ones ship their binaries.
 */
const INSTALL = [
  "install",
  "--no-save",
  "--ignore-scripts",
  "--no-audit",
  "--no-fund",
  "--no-progress",
  "--prefer-offline",
  // npm's own pauses between attempts, 10 to 60 seconds each, make an offline machine wait for many minutes.
  "--fetch-retry-mintimeout=500",
  "--fetch-retry-factor=4",
];

/**
 * @typedef {object} LockEntry
 * @property {string} version
 * @property {string} [integrity]
 * @property {boolean} [dev]
 * @property {boolean} [devOptional]
 * @property {boolean} [link]
 * @property {string | string[]} [os]
 * @property {string | string[]} [cpu]
 * @property {string | string[]} [libc]
 */

/** @param {string} path @returns {Record<string, LockEntry>} */
function readPackages(path) {
  return JSON.parse(readFileSync(path, "utf8")).packages;
}

/** @param {string} project_dir @returns {string} */
function recordPath(project_dir) {
  return join(project_dir, "node_modules/.package-lock.json");
}

/** @param {string} project_dir @returns {Record<string, LockEntry>} */
function installedPackages(project_dir) {
  const path = recordPath(project_dir);
  return existsSync(path) ? readPackages(path) : {};
}

/** @param {string | string[] | undefined} field @param {string} value @returns {boolean} */
function admits(field, value) {
  if (field === undefined) return true;
  const list = typeof field === "string" ? [field] : field;
  return list.includes(value) || (list.every((item) => item.startsWith("!")) && !list.includes(`!${value}`));
}

/**
 * The first package that is wanted and not installed. Debian's libc is glibc.
 *
 * @param {Record<string, LockEntry>} wanted the lock file's packages
 * @param {Record<string, LockEntry>} installed npm's record
 * @param {{ dev: boolean, arch: string, exists: (path: string) => boolean }} options
 * @returns {string | null} its name
 */
export function firstMissing(wanted, installed, { dev, arch, exists }) {
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === "" || entry.link === true) continue;
    if (!dev && (entry.dev === true || entry.devOptional === true)) continue;
    if (!admits(entry.os, "linux") || !admits(entry.cpu, arch) || !admits(entry.libc, "glibc")) continue;
    const found = installed[path];
    const isSame = found !== undefined && found.version === entry.version && found.integrity === entry.integrity;
    if (!isSame || !exists(path)) return `${path.replace(/^.*node_modules\//, "")} ${entry.version}`;
  }
  return null;
}

/**
 * Returns the command of npm: the npm that runs this script, else the PATH's. Never the one in the project's node_modules,
 * which is for the image `prod`: it would replace itself.
 *
 * @param {string} project_dir
 * @param {NodeJS.ProcessEnv} environment
 * @returns {string[]}
 */
export function npmCommand(project_dir, { npm_execpath, npm_node_execpath }) {
  const isNpm = npm_execpath !== undefined && basename(npm_execpath) === "npm-cli.js" && existsSync(npm_execpath);
  if (!isNpm || npm_execpath.startsWith(join(project_dir, "node_modules/"))) return ["npm"];
  return [npm_node_execpath ?? process.execPath, npm_execpath];
}

/**
 * Removes npm's record for the time of the installation: it is what tells an interrupted one, after which packages may
 * be there in part and everything has to go, from a complete one. An npm that fails by itself has rolled back.
 *
 * @param {string} project_dir
 * @param {import("./command.js").Commands} commands
 * @returns {Promise<() => void>} puts it back
 */
async function takeRecord(project_dir, commands) {
  const path = recordPath(project_dir);
  if (!existsSync(path)) {
    await commands.run(["rm", "--recursive", "--force", join(project_dir, "node_modules")]);
    return () => {};
  }
  const text = readFileSync(path);
  rmSync(path);
  return () => writeFileSync(path, text);
}

/** npm 10 does not link the command of an optional package whose platform matches. @param {string} project_dir */
function linkNode(project_dir) {
  const binary = join(project_dir, `node_modules/node-linux-${process.arch}/bin/node`);
  if (existsSync(NODE_PATH) || !existsSync(binary)) return;
  mkdirSync(dirname(NODE_PATH), { recursive: true });
  rmSync(NODE_PATH, { force: true });
  symlinkSync(relative(dirname(NODE_PATH), binary), NODE_PATH);
}

/** @param {import("./command.js").Context} context @returns {string | null} */
function missingPackage({ mode, project_dir }) {
  const wanted = readPackages(join(project_dir, "package-lock.json"));
  return firstMissing(wanted, installedPackages(project_dir), {
    dev: mode !== "start",
    arch: process.arch,
    exists: (path) => existsSync(join(project_dir, path, "package.json")),
  });
}

/** @param {import("./command.js").Context} context @param {import("./command.js").Commands} commands */
async function installPackages({ mode, project_dir }, commands) {
  // A start after a test keeps what the test has installed.
  const dev = mode !== "start" || Object.values(installedPackages(project_dir)).some((entry) => entry.dev === true);
  // Not the project's own Node, which is being replaced.
  const own = join(project_dir, "node_modules/.bin");
  const path = (process.env.PATH ?? "").split(delimiter).filter((entry) => entry !== own);
  const restoreRecord = await takeRecord(project_dir, commands);
  try {
    await commands.run([...npmCommand(project_dir, process.env), ...INSTALL, dev ? "--include=dev" : "--omit=dev"], {
      cwd: project_dir,
      env: { PATH: path.join(delimiter) },
    });
  } catch (error) {
    if (commands.interrupted === null) restoreRecord();
    throw error;
  }
}

/** @type {import("./command.js").Step} */
export const npmStep = {
  name: "npm packages",
  large: true,

  missing(context) {
    return missingPackage(context) ?? (existsSync(NODE_PATH) ? null : "node_modules/.bin/node");
  },

  async install(context, commands) {
    if (missingPackage(context) !== null) await installPackages(context, commands);
    linkNode(context.project_dir);
    const version = (await commands.run([NODE_PATH, "--version"])).trim();
    if (!version.startsWith(`v${NODE_MAJOR}.`)) {
      throw new InstallationError(`node_modules/.bin/node is ${version}, expected version ${NODE_MAJOR}`);
    }
  },
};
