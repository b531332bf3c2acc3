/**
 * The curated image: a Debian root from the machine's own apt sources, committed as an OCI image. A stamp beside the
 * store says that a release was committed; it counts only while the store lists that very image.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { makeDirectory } from "../installation/directories.js";
import { InstallationError } from "../installation/installation-error.js";
import { buildahCommand, imageStore, npmFiles, PROJECT_DIR, profileImage } from "../installation/paths.js";
import { temporaryDir } from "./temporary.js";

/** Working container of the build, and the only one that set-up touches. */
const BUILD_CONTAINER = "hearth-setup";
/** Running daemons hold the release that they started with; buildah refuses to remove one that is in use. */
const RELEASES_KEPT = 3;

/** Without it the package usrmerge makes the links /bin → /usr/bin and so on, and brings 48 MB of perl. */
const MERGED_USR_HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr";

/** @typedef {import("../installation/paths.js").Profile} Profile */

/** @param {string} image_dir @param {string} release @returns {string} */
function stampPath(image_dir, release) {
  return join(image_dir, `prod-${release}.json`);
}

/** @param {string} image_dir @param {string} release @returns {boolean} */
export function isCommitted(image_dir, release) {
  try {
    const { id } = JSON.parse(readFileSync(stampPath(image_dir, release), "utf8"));
    return readFileSync(imageStore(image_dir).images_file, "utf8").includes(`"id":"${id}"`);
  } catch {
    // Absent, or cut short by a full disk: both mean that it has to be built.
    return false;
  }
}

/**
 * The parts of apt's sources that belong to the suite, word for word (keys, options and mirrors are the machine's
 * own business): what third parties offer has no place in the image.
 *
 * @param {readonly { name: string, text: string }[]} files
 * @param {string} suite
 * @returns {{ list: string, sources: string }} one-line style and deb822 style
 */
export function suiteSources(files, suite) {
  const isSuite = (/** @type {string} */ word) => {
    const base = word.replace(/([-/])(updates|security|proposed-updates)$/, "");
    return [suite, "stable", "oldstable", "testing", "unstable"].includes(base);
  };
  /** @type {string[]} */
  const list = [];
  /** @type {string[]} */
  const sources = [];
  for (const { name, text } of files) {
    if (name.endsWith(".list")) {
      for (const line of text.split("\n")) {
        const [, word = "", components = ""] = /^deb\s+(?:\[[^\]]*\]\s+)?\S+\s+(\S+)\s*(.*)$/.exec(line.trim()) ?? [];
        if (isSuite(word) && /\bmain\b/.test(components)) list.push(line.trim());
      }
    } else if (name.endsWith(".sources")) {
      for (const stanza of text.replace(/^#.*\n/gm, "").split(/\n\s*\n/)) {
        const field = (/** @type {string} */ key) =>
          new RegExp(`^${key}:((?:.*\\n?(?:[ \\t]+))*.*)$`, "im").exec(stanza)?.[1]?.split(/\s+/) ?? [];
        const isOff = /^(no|false|without|off|disable)$/i.test(field("Enabled").join(""));
        if (isOff || !field("Types").includes("deb") || !field("Components").includes("main")) continue;
        if (field("Suites").some(isSuite)) sources.push(stanza.trim());
      }
    }
  }
  return { list: list.map((line) => `${line}\n`).join(""), sources: sources.join("\n\n") };
}

/** @returns {{ name: string, text: string }[]} */
function aptSourceFiles() {
  const directory = "/etc/apt/sources.list.d";
  const names = existsSync(directory) ? readdirSync(directory).sort() : [];
  const paths = ["/etc/apt/sources.list", ...names.map((name) => join(directory, name))].filter(existsSync);
  return paths.map((name) => ({ name, text: readFileSync(name, "utf8") }));
}

/** Writes the sources for mmdebstrap. @param {string} directory @param {string} suite @returns {string[]} the files */
function writeSources(directory, suite) {
  const { list, sources } = suiteSources(aptSourceFiles(), suite);
  /** @type {string[]} */
  const files = [];
  for (const [name, text] of /** @type {const} */ ([
    ["machine.list", list],
    ["machine.sources", sources],
  ])) {
    if (text === "") continue;
    files.push(join(directory, name));
    writeFileSync(join(directory, name), `${text.trimEnd()}\n`, { mode: 0o600 });
  }
  if (files.length === 0) {
    throw new InstallationError(`no source in /etc/apt for suite '${suite}' with component main`);
  }
  return files;
}

/** @param {string} text @returns {string} */
function shellQuoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Returns the lines that copy files of npm packages into the root, and write the profile's own scripts. The files belong
 * to root, also if another user owns the checkout.
 *
 * @param {Profile} profile
 * @returns {string[]}
 */
function contentLines(profile) {
  const at = (/** @type {string} */ path) => `"$1"${shellQuoted(path)}`;
  const parent = (/** @type {string} */ path) => `mkdir -p ${at(dirname(path))}`;
  return [
    ...Object.entries(npmFiles(profile)).flatMap(([path, source]) => [
      parent(path),
      `cp -R ${shellQuoted(join(PROJECT_DIR, "node_modules", source))} ${at(path)}`,
      `chown -R 0:0 ${at(path)}; chmod -R u=rwX,go=rX ${at(path)}`,
    ]),
    ...Object.entries(profile.scripts).flatMap(([path, lines]) => [
      parent(path),
      `printf "%s\\n" ${lines.map(shellQuoted).join(" ")} > ${at(path)}; chmod 755 ${at(path)}`,
    ]),
    ...Object.entries(profile.links).flatMap(([path, target]) => [
      parent(path),
      `ln -sfn ${shellQuoted(target)} ${at(path)}`,
    ]),
  ];
}

/**
 * What is done to the finished root, `$1`. apt's traces go as a whole: the machine's sources and proxy settings (and
 * passwords in them) are not part of an image. Checked last, by running what the profile promises.
 *
 * @param {Profile} profile
 * @returns {string}
 */
export function finishScript(profile) {
  return [
    "set -e",
    'rm -rf "$1/etc/apt" "$1/var/lib/apt" "$1/var/cache/apt" "$1/var/cache/debconf" "$1/var/log"',
    'rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1/etc/.pwd.lock" "$1"/etc/*- "$1"/var/lib/dpkg/*-old',
    'mkdir -p "$1/var/log" "$1/var/cache/debconf"',
    ': > "$1/etc/resolv.conf"; chmod 644 "$1/etc/resolv.conf"',
    'printf "127.0.0.1\\tlocalhost\\n::1\\tlocalhost ip6-localhost ip6-loopback\\n" > "$1/etc/hosts"',
    ...contentLines(profile),
    ...profile.verify.map((command) => `chroot "$1" /bin/sh -c ${shellQuoted(`${command} > /dev/null`)}`),
    "",
  ].join("\n");
}

/**
 * Builds the root as a tar file. In a mount namespace of its own, because mmdebstrap mounts /proc, /sys and /dev nodes
 * in the root: a killed one then leaves no mount behind.
 *
 * @param {string} directory
 * @param {ReturnType<typeof profileImage>} image
 * @param {import("./command.js").Commands} commands
 * @returns {Promise<string>}
 */
async function buildRoot(directory, { profile, suite }, commands) {
  if (suite === "") throw new InstallationError("no Debian release (VERSION_CODENAME) in /etc/os-release");
  const sources = writeSources(directory, suite);
  // mmdebstrap's apt reads none of the machine's settings by itself; a proxy is one of them.
  const settings = join(directory, "apt.conf");
  const acquire = (await commands.run(["apt-config", "dump"])).split("\n").filter((line) => /^Acquire::/.test(line));
  writeFileSync(settings, `${acquire.join("\n")}\n`, { mode: 0o600 });
  const script = join(directory, "finish.sh");
  writeFileSync(script, finishScript(profile), { mode: 0o700 });

  const tar = join(directory, "root.tar");
  await commands.run(
    [
      "unshare",
      "--mount",
      "mmdebstrap",
      "--mode=root",
      "--variant=essential",
      "--skip=output/dev,cleanup/apt,cleanup/mmdebstrap",
      `--aptopt=${settings}`,
      ...profile.path_exclude.map((pattern) => `--dpkgopt=path-exclude=${pattern}`),
      ...profile.path_include.map((pattern) => `--dpkgopt=path-include=${pattern}`),
      `--include=${profile.packages.join(",")}`,
      ...(existsSync(MERGED_USR_HOOKS) ? [`--hook-dir=${MERGED_USR_HOOKS}`] : []),
      `--customize-hook=sh ${shellQuoted(script)} "$1"`,
      suite,
      tar,
      ...sources,
    ],
    { env: { TMPDIR: directory } },
  );
  return tar;
}

/** @param {string} image_dir @param {string} keep @param {(...args: string[]) => Promise<string>} buildah */
async function pruneReleases(image_dir, keep, buildah) {
  const format = "{{.CreatedAtRaw.Unix}} {{.ID}} {{.Tag}}";
  // buildah pads the columns.
  const listed = await buildah("images", "--filter", "label=hearth.profile=prod", "--format", format);
  const rows = listed.split("\n").map((line) => line.trim().split(/\s+/));
  const byAge = rows
    .filter(([, , tag = ""]) => /^[0-9a-f]{12}$/.test(tag) && tag !== keep)
    .sort(([a], [b]) => Number(b) - Number(a));
  for (const [, id = "", tag = ""] of byAge.slice(RELEASES_KEPT - 1)) {
    // Fails while a daemon has it mounted, or keeps it for its versions and containers; it then stays until the next release.
    const isRemoved = await buildah("rmi", id).then(
      () => true,
      () => false,
    );
    if (isRemoved) rmSync(stampPath(image_dir, tag), { force: true });
  }
}

/**
 * @param {import("./command.js").Context} context
 * @param {import("./command.js").Commands} commands
 */
async function buildImage({ data_dir, image_dir }, commands) {
  const image = profileImage();
  const { profile, release, reference, latest } = image;
  const directory = temporaryDir(data_dir);
  const tar = await buildRoot(directory, image, commands);

  makeDirectory(image_dir);
  const command = buildahCommand(image_dir);
  const env = { TMPDIR: directory };
  const buildah = (/** @type {string[]} */ ...args) => commands.run([...command, ...args], { env });
  const removeContainer = () =>
    commands.run([...command, "rm", BUILD_CONTAINER], { env, cleanup: true }).catch(() => "");

  await removeContainer();
  try {
    await buildah("from", "--name", BUILD_CONTAINER, "scratch");
    await buildah("add", "--quiet", BUILD_CONTAINER, tar, "/");
    // The commit needs the most disk space.
    rmSync(tar);
    // mmdebstrap empties /run, and its tar has no /dev.
    for (const path of profile.directories) {
      mkdirSync(join(directory, "extra", path), { recursive: true, mode: 0o755 });
    }
    await buildah("add", "--quiet", BUILD_CONTAINER, join(directory, "extra"), "/");
    const settings = Object.entries(profile.environment).map(([name, value]) => `--env=${name}=${value}`);
    await buildah(
      "config",
      `--label=hearth.profile=${profile.name}`,
      `--label=hearth.release=${release}`,
      `--cmd=${JSON.stringify(profile.command)}`,
      ...settings,
      BUILD_CONTAINER,
    );
    const id = (await buildah("commit", "--quiet", "--rm", BUILD_CONTAINER, reference)).trim();
    await buildah("tag", id, latest);
    const stamp = stampPath(image_dir, release);
    writeFileSync(`${stamp}.tmp`, `${JSON.stringify({ id, reference, suite: image.suite })}\n`);
    renameSync(`${stamp}.tmp`, stamp);
  } finally {
    await removeContainer();
  }
  await pruneReleases(image_dir, release, buildah);
}

/** @type {import("./command.js").Step} */
export const imageStep = {
  name: "prod image",
  large: true,

  missing({ image_dir }) {
    const { release, suite } = profileImage();
    return isCommitted(image_dir, release) ? null : `Debian ${suite}, release ${release}`;
  },

  async install(context, commands) {
    await buildImage(context, commands);
  },
};
