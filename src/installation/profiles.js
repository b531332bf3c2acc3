/**
 * Recipes of profiles: `<folder>/<name>/profile.json`, with files of the image in `<name>/files`. The id of a recipe is the
 * digest of all that decides what a build makes, but for the versions of the Debian packages: the recipe and its files,
 * those of the profile below it, the Debian suite, the architecture, and the npm packages that package.json pins.
 */
import { createHash } from "node:crypto";
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { InstallationError } from "./installation-error.js";
import { BYTECODE_COMPILE, digest, PROJECT_DIR, pythonSourceDir } from "./paths.js";

/** The recipes of this checkout. */
export const PROFILES_DIR = join(PROJECT_DIR, "runtimes/profiles");

/** Pattern of a profile's name. */
const NAME = /^[a-z][a-z0-9-]{0,30}$/;
/** Maximum number of profiles below one another. */
const DEPTH_MAX = 8;

/**
 * @typedef {object} Profile What `profile.json` defines. `revision` is raised when the way of building changes without a
 *   change of the recipe.
 * @property {string} name
 * @property {string} title
 * @property {string} description
 * @property {number} revision
 * @property {string | null} from the profile whose image it is layered on; null: it begins with an empty root
 * @property {string[]} packages Debian packages
 * @property {string[]} directories empty directories of root, mode 0755
 * @property {Record<string, string>} npm_files path → file or tree below node_modules of this checkout; `{arch}` stands
 *   for Node's name of the architecture
 * @property {Record<string, string[]>} scripts path → lines of an executable script
 * @property {Record<string, string>} links path → target
 * @property {string[]} path_exclude patterns of dpkg: files of packages that the image lacks
 * @property {string[]} path_include exceptions from those
 * @property {Record<string, string>} environment
 * @property {string[]} [command] default: the command of the profile below it
 * @property {Record<string, number>} [users] further users with their ids; each has a group of the same name and a home
 * @property {string} [user] of the image's commands; default: root
 * @property {boolean} [hardened] removes setuid and setgid bits, and the right of others to write, at the end
 * @property {string[]} tools programs on the image's PATH. They are the contract: a build without one fails, and a container whose image
 *   lacks one is not ready.
 * @property {string[]} verify commands that must succeed in the finished root
 */

/**
 * @typedef {object} Pins package.json: the versions that it pins.
 * @property {Record<string, string>} dependencies
 * @property {Record<string, string>} optionalDependencies
 */

/**
 * @typedef {object} ProfileImage The image of a profile as its recipe is now.
 * @property {Profile} profile
 * @property {string} directory the folder of the recipe
 * @property {string} suite Debian's name of the release of this machine
 * @property {string} recipe_id twelve hex digits
 * @property {string} repository of its names in the image store
 * @property {string} reference the name of the newest release of this recipe
 */

/** @typedef {{ pins?: Pins, further_dir?: string | null }} ProfileOptions `further_dir`: the operator's own recipes */

/** package.json and not node_modules: a recipe has its id before anything is installed. @returns {Pins} */
function readPins() {
  return JSON.parse(readFileSync(join(PROJECT_DIR, "package.json"), "utf8"));
}

/**
 * The machine's Debian release by its code name, "bookworm"; "" where /etc/os-release names none.
 *
 * @returns {string}
 */
function debianSuite() {
  try {
    return /^VERSION_CODENAME="?([a-z]+)"?$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "";
  } catch {
    return "";
  }
}

/**
 * The npm packages that a profile copies, with their pinned versions.
 *
 * @param {Profile} profile
 * @param {Pins} pins
 * @returns {string[]} "npm 1.2.3"
 */
export function pinnedPackages(profile, { dependencies, optionalDependencies } = readPins()) {
  const names = Object.values(npmFiles(profile)).map((path) => path.split("/")[0] ?? "");
  return names.sort().map((name) => `${name} ${{ ...dependencies, ...optionalDependencies }[name]}`);
}

/**
 * The files that a profile copies from node_modules.
 *
 * @param {Profile} profile
 * @returns {Record<string, string>} path in the image → path below node_modules
 */
export function npmFiles({ npm_files }) {
  return Object.fromEntries(
    Object.entries(npm_files).map(([path, source]) => [path, source.replace("{arch}", process.arch)]),
  );
}

/**
 * Names of all profiles, the operator's own after those of this checkout.
 *
 * @param {ProfileOptions} [options]
 * @returns {string[]}
 */
export function profileNames({ further_dir = null } = {}) {
  return [PROFILES_DIR, ...(further_dir === null ? [] : [further_dir])].flatMap((directory) =>
    readdirSync(directory)
      .filter((name) => NAME.test(name) && existsSync(join(directory, name, "profile.json")))
      .sort(),
  );
}

/** @param {string} name @param {ProfileOptions} options @returns {string} the folder of its recipe */
function recipeDirectory(name, { further_dir = null }) {
  const directories = [PROFILES_DIR, ...(further_dir === null ? [] : [further_dir])].map((one) => join(one, name));
  const found = NAME.test(name) ? directories.find((one) => existsSync(join(one, "profile.json"))) : undefined;
  if (found === undefined) throw new InstallationError(`unknown profile: '${name}'`);
  return found;
}

/** Digests the files of a folder: paths, contents, and whether they are executable, as git keeps them. @param {string} root @returns {string} */
function filesDigest(root) {
  const hash = createHash("sha256");
  const walk = (/** @type {string} */ path) => {
    for (const name of readdirSync(join(root, path)).sort()) {
      const inside = join(path, name);
      const stats = lstatSync(join(root, inside));
      hash.update(`\0${inside}\0${(stats.mode & 0o100) !== 0}\0`);
      if (stats.isDirectory()) walk(inside);
      else if (stats.isSymbolicLink()) hash.update(`link ${readlinkSync(join(root, inside))}`);
      else hash.update(readFileSync(join(root, inside)));
    }
  };
  if (existsSync(root)) walk("");
  return hash.digest("hex");
}

/**
 * The profiles that an image is layered on, the lowest first, and the profile itself as the last one. Throws InstallationError
 * for an unknown name, a recipe that is not as it must be, and layers in a circle.
 *
 * @param {string} name
 * @param {ProfileOptions} [options]
 * @returns {ProfileImage[]}
 */
export function profileChain(name, options = {}) {
  const pins = options.pins ?? readPins();
  const suite = debianSuite();
  /** @type {{ profile: Profile, directory: string }[]} */
  const recipes = [];
  for (let next = /** @type {string | null} */ (name); next !== null; ) {
    const directory = recipeDirectory(next, options);
    const profile = parseRecipe(next, readFileSync(join(directory, "profile.json"), "utf8"));
    recipes.unshift({ profile, directory });
    if (recipes.length > DEPTH_MAX) throw new InstallationError(`profile '${name}' has more than ${DEPTH_MAX} layers`);
    next = profile.from;
  }
  let below = "";
  return recipes.map(({ profile, directory }) => {
    // Words for people change no image.
    const { title: _title, description: _description, ...rest } = profile;
    const inputs = [JSON.stringify(rest), filesDigest(join(directory, "files")), below, suite, process.arch];
    const recipe_id = digest([...inputs, ...pinnedPackages(profile, pins)].join("\0"), 12);
    below = recipe_id;
    const repository = `localhost/hearth/${profile.name}`;
    return { profile, directory, suite, recipe_id, repository, reference: `${repository}:${recipe_id}` };
  });
}

/** @param {string} name @param {string} text @returns {Profile} */
function parseRecipe(name, text) {
  /** @type {Profile} */
  let profile;
  try {
    profile = JSON.parse(text);
  } catch (error) {
    throw new InstallationError(
      `recipe of profile '${name}' is not JSON: ${error instanceof Error ? error.message : error}`,
    );
  }
  const lists = /** @type {const} */ (["packages", "directories", "path_exclude", "path_include", "tools", "verify"]);
  const maps = /** @type {const} */ (["npm_files", "scripts", "links", "environment"]);
  const broken =
    profile.name !== name
      ? "name"
      : (lists.find((key) => !Array.isArray(profile[key]) || profile[key].some((one) => typeof one !== "string")) ??
        maps.find((key) => typeof profile[key] !== "object" || profile[key] === null) ??
        (profile.from !== null && typeof profile.from !== "string" ? "from" : undefined) ??
        (Number.isInteger(profile.revision) ? undefined : "revision"));
  if (broken !== undefined) throw new InstallationError(`recipe of profile '${name}': field ${broken} is malformed`);
  return profile;
}

/**
 * The image of one profile.
 *
 * @param {string} [name]
 * @param {ProfileOptions} [options]
 * @returns {ProfileImage}
 */
export function profileImage(name = "prod", options = {}) {
  const image = profileChain(name, options).at(-1);
  if (image === undefined) throw new InstallationError(`unknown profile: '${name}'`);
  return image;
}

/**
 * The bytecode of the program of the runtime python3, for the interpreter of the image `prod`: a directory `__pycache__`.
 *
 * @param {string} image_dir
 * @param {string} [source_dir]
 * @param {string} [recipe_id] of the image
 * @returns {string}
 */
export function bytecodePath(image_dir, source_dir = pythonSourceDir(), recipe_id = profileImage().recipe_id) {
  const names = readdirSync(source_dir).filter((name) => name.endsWith(".py"));
  const hash = createHash("sha256").update([recipe_id, ...BYTECODE_COMPILE].join("\0"));
  for (const name of names.sort()) hash.update(`\0${name}\0`).update(readFileSync(join(source_dir, name)));
  return join(image_dir, "bytecode", `python3-${hash.digest("hex").slice(0, 12)}`);
}
