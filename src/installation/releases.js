/**
 * Releases of profiles and channels: files beside the image store, because every daemon on the store and set-up share them.
 *
 *   <image_dir>/profiles/<name>/<version>.json           a release
 *   <image_dir>/profiles/<name>/<version>.packages.json  its packages
 *   <image_dir>/profiles/<name>/<version>.status         dpkg's status file, for questions to apt
 *   <image_dir>/profiles/<name>/<channel>.json           a channel: `stable`, or `latest-<recipe_id>`
 *
 * R1 The version of a release names its content: the id of the recipe, and the digest of all package versions.
 * R2 A record is written after its image was committed, and counts only while the store lists that very image.
 * R3 Each file is replaced as a whole. A build moves only `latest` of its own recipe: checkouts with different recipes share a
 *    store, and neither changes what `prod` means to the other.
 */
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeDirectory } from "./directories.js";
import { digest, imageStore } from "./paths.js";

/** Names of a release's version. */
export const VERSION = /^[0-9a-f]{12}-[0-9a-f]{8}$/;
/** Earlier versions that a channel remembers, for a rollback. */
const HISTORY_MAX = 16;

export const CHANNELS = /** @type {const} */ (["latest", "stable"]);

/** @typedef {import("./profiles.js").ProfileImage} ProfileImage */

/**
 * @typedef {object} Package
 * @property {string} name
 * @property {string} version
 * @property {string} architecture
 * @property {string} source the source package
 * @property {string[]} licences names from the copyright file; empty: it has no machine-readable ones
 * @property {number} size_kb installed
 * @property {"deb" | "npm"} kind
 */

/**
 * @typedef {object} Release
 * @property {string} profile
 * @property {string} version
 * @property {string} recipe_id
 * @property {string} suite
 * @property {string} architecture Node's name
 * @property {string} image_id
 * @property {string} digest of the manifest, sha256:…
 * @property {string} reference in the image store
 * @property {string | null} base_version of the profile below
 * @property {number} created_at epoch seconds
 * @property {number} size_bytes all layers
 * @property {number} own_bytes the layers above the profile below
 * @property {number} package_count
 * @property {Record<string, string>} tools name → path in the image
 * @property {Record<string, number>} phases_ms time of the build by phase
 */

/** @typedef {{ version: string, history: string[], changed_at: number }} Channel `history`: earlier versions, the newest first */

/** @param {string} image_dir @param {string} profile @returns {string} */
export function releasesDir(image_dir, profile) {
  return join(image_dir, "profiles", profile);
}

/** @param {string} recipe_id @param {readonly Package[]} packages @returns {string} */
export function versionOf(recipe_id, packages) {
  const lines = packages.map(({ name, version, architecture }) => `${name} ${version} ${architecture}`).sort();
  return `${recipe_id}-${digest(lines.join("\n"), 8)}`;
}

/** @param {string} path @returns {unknown} null: no such file, or one that a full disk cut short */
function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return null;
  }
}

/** @param {string} path @param {string} text */
function replaceFile(path, text) {
  writeFileSync(`${path}.tmp`, text, { mode: 0o600 });
  renameSync(`${path}.tmp`, path);
}

/** @param {string} image_dir @param {string} profile @param {string} version @returns {Release | null} */
export function readRelease(image_dir, profile, version) {
  if (!VERSION.test(version)) return null;
  return /** @type {Release | null} */ (readJson(join(releasesDir(image_dir, profile), `${version}.json`)));
}

/** @param {string} image_dir @param {string} profile @param {string} version @returns {Package[]} */
export function readPackages(image_dir, profile, version) {
  const path = join(releasesDir(image_dir, profile), `${version}.packages.json`);
  return /** @type {Package[] | null} */ (readJson(path)) ?? [];
}

/** Ids of the images in the store. @param {string} image_dir @returns {ReadonlySet<string>} */
export function storedImages(image_dir) {
  const images = /** @type {{ id: string }[] | null} */ (readJson(imageStore(image_dir).images_file));
  return new Set((images ?? []).map(({ id }) => id));
}

/**
 * The releases of a profile that are in the store, the newest first.
 *
 * @param {string} image_dir
 * @param {string} profile
 * @returns {Release[]}
 */
export function readReleases(image_dir, profile) {
  const directory = releasesDir(image_dir, profile);
  if (!existsSync(directory)) return [];
  const stored = storedImages(image_dir);
  return readdirSync(directory)
    .filter((name) => name.endsWith(".json"))
    .map((name) => readRelease(image_dir, profile, name.slice(0, -".json".length)))
    .filter((release) => release !== null)
    .filter(({ image_id }) => stored.has(image_id))
    .sort((a, b) => b.created_at - a.created_at || (a.version < b.version ? -1 : 1));
}

/**
 * @param {string} image_dir
 * @param {Release} release
 * @param {readonly Package[]} packages
 * @param {string} status
 */
export function writeRelease(image_dir, release, packages, status) {
  const directory = releasesDir(image_dir, release.profile);
  makeDirectory(directory);
  replaceFile(join(directory, `${release.version}.status`), status);
  replaceFile(join(directory, `${release.version}.packages.json`), `${JSON.stringify(packages)}\n`);
  replaceFile(join(directory, `${release.version}.json`), `${JSON.stringify(release)}\n`);
}

/** @param {string} image_dir @param {string} profile @param {string} version */
export function removeRelease(image_dir, profile, version) {
  const path = join(releasesDir(image_dir, profile), version);
  for (const end of [".json", ".packages.json", ".status"]) rmSync(`${path}${end}`, { force: true });
  const channel = join(releasesDir(image_dir, profile), `latest-${version.split("-")[0]}.json`);
  if (/** @type {Channel | null} */ (readJson(channel))?.version === version) rmSync(channel);
}

/** @param {Pick<ProfileImage, "recipe_id">} image @param {"latest" | "stable"} channel @returns {string} */
function channelName({ recipe_id }, channel) {
  return channel === "latest" ? `latest-${recipe_id}` : channel;
}

/**
 * @param {string} image_dir
 * @param {ProfileImage} image
 * @param {"latest" | "stable"} channel
 * @returns {Channel | null} null: no release was given to it yet
 */
export function readChannel(image_dir, image, channel) {
  const path = join(releasesDir(image_dir, image.profile.name), `${channelName(image, channel)}.json`);
  return /** @type {Channel | null} */ (readJson(path));
}

/**
 * Lets a channel name another release. `history` is what a rollback has to return to.
 *
 * @param {string} image_dir
 * @param {ProfileImage} image
 * @param {"latest" | "stable"} channel
 * @param {{ version: string, history: readonly string[], changed_at: number }} to
 */
export function writeChannel(image_dir, image, channel, { version, history, changed_at }) {
  const directory = releasesDir(image_dir, image.profile.name);
  makeDirectory(directory);
  const content = { version, history: history.slice(0, HISTORY_MAX), changed_at };
  replaceFile(join(directory, `${channelName(image, channel)}.json`), `${JSON.stringify(content)}\n`);
}

/**
 * Versions that a channel names. `latest` of another recipe does not count: it would keep a release of each recipe for good.
 *
 * @param {string} image_dir
 * @param {ProfileImage} image
 * @returns {Set<string>}
 */
export function channelVersions(image_dir, image) {
  const channels = CHANNELS.map((channel) => readChannel(image_dir, image, channel));
  return new Set(channels.flatMap((channel) => (channel === null ? [] : [channel.version])));
}

/**
 * The release that a channel names, if the store has its image.
 *
 * @param {string} image_dir
 * @param {ProfileImage} image
 * @param {"latest" | "stable"} [channel]
 * @returns {Release | null}
 */
export function channelRelease(image_dir, image, channel = "latest") {
  const version = readChannel(image_dir, image, channel)?.version;
  const release = version === undefined ? null : readRelease(image_dir, image.profile.name, version);
  return release !== null && storedImages(image_dir).has(release.image_id) ? release : null;
}
