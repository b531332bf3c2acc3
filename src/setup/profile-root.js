/**
 * Fills the root of a profile's image: mmdebstrap makes the lowest one, the machine's apt installs into one that exists.
 * Runs in a mount and pid namespace of its own (profile-build.js), so its mounts and processes end with it.
 */
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { InstallationError } from "../installation/installation-error.js";
import { PROJECT_DIR } from "../installation/paths.js";
import { npmFiles } from "../installation/profiles.js";
import { aptEnvironment, writeDownloadSettings, writeSources } from "./apt-sources.js";

/** Working container of a build, and the only one that builds touch. */
export const BUILD_CONTAINER = "hearth-setup";

/** Without it the package usrmerge makes the links /bin → /usr/bin and so on, and brings 48 MB of perl. */
const MERGED_USR_HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr";

/** Folders that stay writable for others in a hardened image. */
const SHARED = ["/tmp", "/var/tmp"];

/** @typedef {import("../installation/profiles.js").Profile} Profile */
/** @typedef {import("../installation/profiles.js").ProfileImage} ProfileImage */
/** @typedef {import("./command.js").Commands} Commands */
/** @typedef {(phase: string, percent: number, message?: string) => void} Report `percent` of the whole build */

/** @param {string} text @returns {string} */
function shellQuoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Makes the lowest root.
 *
 * @param {string} root
 * @param {string} work_dir
 * @param {ProfileImage} image
 * @param {Commands} commands
 */
export async function bootstrap(root, work_dir, { profile, suite }, commands) {
  const sources = writeSources(work_dir, suite);
  const settings = await writeDownloadSettings(work_dir, commands);
  await commands.run(
    [
      ...["mmdebstrap", "--mode=root", "--variant=essential", "--format=directory", "--skip=cleanup/apt"],
      `--aptopt=${settings}`,
      "--dpkgopt=force-unsafe-io",
      ...profile.path_exclude.map((pattern) => `--dpkgopt=path-exclude=${pattern}`),
      ...profile.path_include.map((pattern) => `--dpkgopt=path-include=${pattern}`),
      `--include=${profile.packages.join(",")}`,
      ...(existsSync(MERGED_USR_HOOKS) ? [`--hook-dir=${MERGED_USR_HOOKS}`] : []),
      ...[suite, root, ...sources],
    ],
    { env: { TMPDIR: work_dir } },
  );
}

/**
 * Installs the packages of a profile into the root of the profile below. No service starts: policy-rc.d refuses each.
 *
 * @param {string} root
 * @param {string} work_dir
 * @param {{ image: ProfileImage, lists: string }} options `lists`: apt's lists, kept between builds
 * @param {Commands} commands
 * @param {Report} report
 */
export async function installPackages(root, work_dir, { image, lists }, commands, report) {
  const { profile, suite } = image;
  const status = join(root, "var/lib/dpkg/status");
  const dpkg_options = [
    ...profile.path_exclude.map((pattern) => `path-exclude=${pattern}`),
    ...profile.path_include.map((pattern) => `path-include=${pattern}`),
  ];
  const env = await aptEnvironment(work_dir, { suite, status, lists, root, dpkg_options }, commands);
  report("update", 5, "reading the lists of packages");
  await commands.run(["apt-get", "update", "-q"], { env });
  const install = ["apt-get", "install", "--yes", "-q", "-o", "APT::Status-Fd=1"];
  report("download", 10, `${profile.packages.length} packages and what they need`);
  await commands.run([...install, "--download-only", ...profile.packages], { env });
  const policy = join(root, "usr/sbin/policy-rc.d");
  report("install", 40);
  writeFileSync(policy, "#!/bin/sh\nexit 101\n");
  chmodSync(policy, 0o755);
  await commands.run([...install, "--no-download", ...profile.packages], { env });
  rmSync(policy);
}

/**
 * Mounts what maintainer scripts and the checks need: /proc, a /dev without the machine's devices, empty /run and /tmp.
 *
 * @param {string} root
 * @param {Commands} commands
 */
export async function mountKernelFiles(root, commands) {
  const script = [
    'set -e; cd "$1"; mkdir -p proc dev run tmp',
    "mount -t proc proc proc",
    "mount -t tmpfs -o mode=755 tmpfs dev; mount -t tmpfs -o mode=755 tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp",
    "for one in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 dev/${one%:*} c 1 ${one#*:}; done",
    "ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr",
    "mkdir -m 1777 dev/shm; mkdir -p run/lock",
  ].join("\n");
  await commands.run(["sh", "-c", script, "sh", root]);
}

/** @param {string} root @param {Commands} commands */
export async function unmountKernelFiles(root, commands) {
  await commands.run(["umount", ...["proc", "dev", "run", "tmp"].map((name) => join(root, name))]);
}

/**
 * Returns the lines that copy files of npm packages and of the recipe into the root, and write the profile's own scripts. The
 * files belong to root, also if another user owns the checkout.
 *
 * @param {ProfileImage} image
 * @returns {string[]}
 */
function contentLines({ profile, directory }) {
  const at = (/** @type {string} */ path) => `"$1"${shellQuoted(path)}`;
  const parent = (/** @type {string} */ path) => `mkdir -p ${at(dirname(path))}`;
  const files = join(directory, "files");
  // Through tar, since cp would follow a link in the root's place of a folder.
  const copied = `tar --create --directory=${shellQuoted(files)} --owner=0 --group=0 --mode=u=rwX,go=rX . | tar --extract --preserve-permissions --no-overwrite-dir --keep-directory-symlink --directory="$1"`;
  return [
    ...Object.entries(npmFiles(profile)).flatMap(([path, source]) => [
      parent(path),
      `cp -R ${shellQuoted(join(PROJECT_DIR, "node_modules", source))} ${at(path)}`,
      `chown -R 0:0 ${at(path)}; chmod -R u=rwX,go=rX ${at(path)}`,
    ]),
    ...(existsSync(files) ? [copied] : []),
    ...Object.entries(profile.scripts).flatMap(([path, lines]) => [
      parent(path),
      `printf "%s\\n" ${lines.map(shellQuoted).join(" ")} > ${at(path)}; chmod 755 ${at(path)}`,
    ]),
    ...Object.entries(profile.links).flatMap(([path, target]) => [
      parent(path),
      `ln -sfn ${shellQuoted(target)} ${at(path)}`,
    ]),
    ...profile.directories.map((path) => `mkdir -p -m 755 ${at(path)}`),
    ...Object.entries(profile.users ?? {}).map(
      ([name, id]) => `chroot "$1" useradd --create-home --shell /bin/bash --uid ${id} ${shellQuoted(name)}`,
    ),
    'rm -f "$1"/etc/*- "$1/etc/.pwd.lock"',
  ];
}

/**
 * The script for the root `$1` after its packages. It removes all traces of apt: the machine's sources and proxy settings (and
 * passwords in them) are not part of an image.
 *
 * @param {ProfileImage} image
 * @returns {string}
 */
export function finishScript(image) {
  const { profile } = image;
  const isLowest = profile.from === null;
  // Another root has had other file systems mounted over /run, /tmp and /dev.
  const emptied = ["var/cache/debconf", "var/log", ...(isLowest ? ["run", "tmp", "dev"] : [])];
  return [
    'set -e; chmod 755 "$1"',
    ...emptied.map((path) => `if [ -d "$1/${path}" ]; then find "$1/${path}" -mindepth 1 -delete; fi`),
    'rm -rf "$1/etc/apt" "$1/var/lib/apt" "$1/var/cache/apt"',
    'rm -f "$1/etc/hostname" "$1/etc/.pwd.lock" "$1"/etc/*- "$1"/var/lib/dpkg/*-old "$1/var/cache/ldconfig/aux-cache"',
    'mkdir -p "$1/var/log" "$1/var/cache/debconf"',
    ...(isLowest
      ? [
          'mkdir -p -m 1777 "$1/run/lock"',
          'rm -f "$1/etc/resolv.conf"; : > "$1/etc/resolv.conf"; chmod 644 "$1/etc/resolv.conf"',
          'printf "127.0.0.1\\tlocalhost\\n::1\\tlocalhost ip6-localhost ip6-loopback\\n" > "$1/etc/hosts"',
        ]
      : []),
    ...contentLines(image),
    ...fontLines(),
    ...(profile.hardened === true ? hardeningLines() : []),
    "",
  ].join("\n");
}

/**
 * fontconfig's caches have the times of the folders of fonts to the nanosecond, and a layer keeps whole seconds: without these
 * lines the first program of each container would read all fonts again, for a second.
 *
 * @returns {string[]}
 */
function fontLines() {
  const whole = 'case "$(stat -Lc %y "$one")" in *.000000000*) ;; *) touch -d "@$(stat -Lc %Y "$one")" "$one" ;; esac';
  // In the root, whose links may be absolute.
  const script = [
    "for fonts in /usr/share/fonts /usr/local/share/fonts; do",
    `if [ -d "$fonts" ]; then find -L "$fonts" -type d -exec sh -c ${shellQuoted(`for one; do ${whole}; done`)} sh {} +; fi`,
    "done; fc-cache --system-only",
  ].join("\n");
  return [`if [ -x "$1/usr/bin/fc-cache" ]; then chroot "$1" sh -c ${shellQuoted(script)}; fi`];
}

/** @returns {string[]} */
function hardeningLines() {
  const shared = SHARED.map((path) => `! -path "$1"${path}`).join(" ");
  return [
    'find "$1" -xdev -type f -perm /6000 -exec chmod ug-s {} +',
    'find "$1" -xdev -type d -perm /6000 -exec chmod ug-s {} +',
    `find "$1" -xdev ${shared} ! -type l -perm -0002 -exec chmod o-w {} +`,
  ];
}

/**
 * Runs what the profile promises. Throws InstallationError for a promise that does not hold.
 *
 * @param {string} root
 * @param {Profile} profile
 * @param {Commands} commands
 * @returns {Promise<Record<string, string>>} the path of each tool
 */
export async function verifyRoot(root, profile, commands) {
  const env = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/tmp", LANG: "C.UTF-8" };
  for (const command of profile.verify) {
    await commands.run(["chroot", root, "/bin/sh", "-c", `${command} > /dev/null`], { env });
  }
  const script = 'for tool in "$@"; do printf "%s %s\\n" "$tool" "$(command -v -- "$tool")"; done';
  const found = await commands.run(["chroot", root, "/bin/sh", "-c", script, "sh", ...profile.tools], { env });
  /** @type {Record<string, string>} */
  const tools = {};
  for (const line of found.trim().split("\n")) {
    const [tool = "", path = ""] = line.split(" ");
    if (tool !== "" && !path.startsWith("/")) throw new InstallationError(`tool '${tool}' is not in the image`);
    if (tool !== "") tools[tool] = path;
  }
  return tools;
}

/** @param {string} root @returns {string} dpkg's status file */
export function readStatus(root) {
  return readFileSync(join(root, "var/lib/dpkg/status"), "utf8");
}
