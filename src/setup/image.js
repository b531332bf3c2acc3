/**
 * Images of profiles: the lowest is a Debian root from the machine's own apt sources, and each other one is a layer on the
 * release of the profile below it. Every daemon on the image store shares them (../installation/releases.js).
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeDirectory } from "../installation/directories.js";
import { InstallationError } from "../installation/installation-error.js";
import { buildahCommand, imageStore } from "../installation/paths.js";
import { profileChain, profileImage } from "../installation/profiles.js";
import {
  CHANNELS,
  channelRelease,
  channelVersions,
  readChannel,
  readRelease,
  readReleases,
  removeRelease,
  writeChannel,
} from "../installation/releases.js";
import { BUILD_CONTAINER } from "./profile-root.js";
import { temporaryDir } from "./temporary.js";

/** Newest releases of a profile that are kept although nothing uses them. */
const RELEASES_KEPT = 3;
/** Long enough for a slow mirror and a slow disk; a hang ends. */
const BUILD_TIMEOUT_MS = 1_800_000;
const BUILD_PROGRAM = fileURLToPath(new URL("profile-build.js", import.meta.url));

/** @typedef {import("../installation/profiles.js").ProfileImage} ProfileImage */
/** @typedef {import("../installation/releases.js").Release} Release */
/** @typedef {import("./command.js").Commands} Commands */

/**
 * The command that runs a build in namespaces of its own. All of it ends with this process: setpriv lets the kernel kill
 * unshare, and that its child, the first process of the pid namespace.
 *
 * @param {string} input
 * @returns {string[]}
 */
function buildCommand(input) {
  return [
    ...["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
    ...[process.execPath, BUILD_PROGRAM, input],
  ];
}

/**
 * Removes what a killed build left in the store. Does nothing, and starts no process, if there is nothing.
 *
 * @param {string} image_dir
 * @param {Commands} commands
 */
export async function removeBuildContainer(image_dir, commands) {
  const { root } = imageStore(image_dir);
  const list = join(root, "overlay-containers/containers.json");
  if (!existsSync(list) || !readFileSync(list, "utf8").includes(`"${BUILD_CONTAINER}"`)) return;
  await commands.run([...buildahCommand(image_dir), "rm", BUILD_CONTAINER], { cleanup: true });
}

/**
 * Makes a release of each profile that lacks one, from the lowest to `name`. Returns the release of `name`.
 *
 * @param {{ data_dir: string, image_dir: string }} context
 * @param {string} name
 * @param {Commands} commands
 * @param {{ rebuilt?: "none" | "last" | "all", further_dir?: string | null, onProfile?: (name: string, index: number, count: number) => void }} [options]
 *   `rebuilt`: those that get a new release although they have one, with the packages of now
 * @returns {Promise<Release>}
 */
export async function buildProfile(context, name, commands, { rebuilt = "none", further_dir = null, onProfile } = {}) {
  const chain = profileChain(name, { further_dir });
  const wanted = chain.filter((image, index) => {
    const isRebuilt = rebuilt === "all" || (rebuilt === "last" && index === chain.length - 1);
    return isRebuilt || channelRelease(context.image_dir, image) === null;
  });
  /** @type {Release | null} */
  let below = null;
  for (const [index, image] of chain.entries()) {
    if (!wanted.includes(image)) {
      below = channelRelease(context.image_dir, image);
      continue;
    }
    onProfile?.(image.profile.name, wanted.indexOf(image), wanted.length);
    below = await buildRelease(context, chain.slice(0, index + 1), below, commands);
  }
  if (below === null) throw new InstallationError(`unknown profile: '${name}'`);
  return below;
}

/**
 * @param {{ data_dir: string, image_dir: string }} context
 * @param {ProfileImage[]} chain
 * @param {Release | null} base
 * @param {Commands} commands
 * @returns {Promise<Release>}
 */
async function buildRelease({ data_dir, image_dir }, chain, base, commands) {
  const image = chain.at(-1);
  if (image === undefined) throw new InstallationError("no profile to build");
  const { profile } = image;
  const work_dir = join(temporaryDir(data_dir), `profile-${profile.name}`);
  makeDirectory(work_dir);
  makeDirectory(image_dir);
  const input = { image_dir, work_dir, chain, base, result: join(work_dir, "version") };
  const path = join(work_dir, "input.json");
  writeFileSync(path, JSON.stringify(input), { mode: 0o600 });
  const buildah = (/** @type {string[]} */ ...args) =>
    commands.run([...buildahCommand(image_dir), ...args], { env: { TMPDIR: work_dir } });
  await removeBuildContainer(image_dir, commands);
  try {
    await commands.run(buildCommand(path), { timeout_ms: BUILD_TIMEOUT_MS });
  } finally {
    await removeBuildContainer(image_dir, commands);
  }
  const version = readFileSync(input.result, "utf8");
  const release = readRelease(image_dir, profile.name, version);
  if (release === null) throw new InstallationError(`release ${version} of profile '${profile.name}' is not recorded`);
  await nameLatest(image_dir, image, release, commands);
  const earlier = readChannel(image_dir, image, "latest");
  if (earlier?.version !== version) {
    const history = earlier === null ? [] : [earlier.version, ...earlier.history];
    writeChannel(image_dir, image, "latest", { version, history, changed_at: Math.floor(Date.now() / 1000) });
  }
  await pruneReleases(image_dir, image, buildah);
  await commands.run(["rm", "--recursive", "--force", "--one-file-system", work_dir]);
  return release;
}

/**
 * Lets a channel name another release. Throws InstallationError for a release or a channel that is not known.
 *
 * @param {string} image_dir
 * @param {ProfileImage} image
 * @param {{ channel: string, version: string, isBack: boolean }} to `isBack`: forgets the releases after it
 * @param {Commands} commands
 */
export async function moveChannel(image_dir, image, { channel: name, version, isBack }, commands) {
  const channel = CHANNELS.find((one) => one === name);
  const release = readReleases(image_dir, image.profile.name).find((one) => one.version === version);
  if (channel === undefined || release === undefined) throw new InstallationError(`unknown release: '${version}'`);
  const before = readChannel(image_dir, image, channel);
  if (before?.version === version) return;
  const earlier = before === null ? [] : [before.version, ...before.history];
  const history = isBack ? earlier.slice(earlier.indexOf(version) + 1) : earlier;
  writeChannel(image_dir, image, channel, { version, history, changed_at: Math.floor(Date.now() / 1000) });
  if (channel === "latest") await nameLatest(image_dir, image, release, commands);
}

/** @param {string} image_dir @param {ProfileImage} image @param {Release} release @param {Commands} commands */
async function nameLatest(image_dir, { reference, repository }, { image_id }, commands) {
  for (const name of [reference, `${repository}:latest`]) {
    await commands.run([...buildahCommand(image_dir), "tag", image_id, name]);
  }
}

/**
 * Removes old releases that nothing uses, and that no channel names.
 *
 * @param {string} image_dir
 * @param {ProfileImage} image
 * @param {(...args: string[]) => Promise<string>} buildah
 */
async function pruneReleases(image_dir, image, buildah) {
  const { name } = image.profile;
  const kept = channelVersions(image_dir, image);
  const old = readReleases(image_dir, name).slice(RELEASES_KEPT);
  for (const { version, image_id } of old.filter((one) => !kept.has(one.version))) {
    /** @type {{ id: string, names?: string[] }[]} */
    const images = JSON.parse(readFileSync(imageStore(image_dir).images_file, "utf8"));
    const names = images.find(({ id }) => id === image_id)?.names ?? [];
    // Another name is the one by which a daemon keeps it for its versions and containers.
    if (names.some((one) => !one.startsWith(`${image.repository}:`))) continue;
    // Fails while a daemon has it mounted; it then stays until the next release.
    const isRemoved = await buildah("rmi", ...(names.length === 0 ? [image_id] : names)).then(
      () => true,
      () => false,
    );
    if (isRemoved) removeRelease(image_dir, name, version);
  }
}

/** @type {import("./command.js").Step} */
export const imageStep = {
  name: "prod image",
  large: true,

  missing({ image_dir }) {
    const image = profileImage();
    return channelRelease(image_dir, image) !== null ? null : `Debian ${image.suite}, recipe ${image.recipe_id}`;
  },

  async install(context, commands) {
    await buildProfile(context, "prod", commands);
  },
};
