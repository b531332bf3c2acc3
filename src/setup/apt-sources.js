/** The machine's own apt sources and settings, as a build of an image uses them. None of it becomes a part of the image. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { InstallationError } from "../installation/installation-error.js";

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

/** Writes the sources for apt. @param {string} directory @param {string} suite @returns {string[]} the files */
export function writeSources(directory, suite) {
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

/**
 * Writes the machine's settings for downloads, as a proxy, which apt reads none of by itself with a configuration of its own.
 *
 * @param {string} directory
 * @param {import("./command.js").Commands} commands
 * @returns {Promise<string>} the file
 */
export async function writeDownloadSettings(directory, commands) {
  const path = join(directory, "apt.conf");
  const acquire = (await commands.run(["apt-config", "dump"])).split("\n").filter((line) => /^Acquire::/.test(line));
  writeFileSync(path, `${acquire.join("\n")}\n`, { mode: 0o600 });
  return path;
}

/**
 * Writes the configuration of the machine's apt for work on another root, or on a status file alone.
 *
 * @param {string} directory for the configuration and apt's own state
 * @param {{ suite: string, status: string, lists: string, root?: string, dpkg_options?: readonly string[] }} options `root`: where
 *   dpkg works, with its archives below
 * @param {import("./command.js").Commands} commands
 * @returns {Promise<{ APT_CONFIG: string, DEBIAN_FRONTEND: string, DEBCONF_NONINTERACTIVE_SEEN: string }>} the environment of apt
 */
export async function aptEnvironment(directory, { suite, status, lists, root, dpkg_options = [] }, commands) {
  const sources = join(directory, "sources");
  mkdirSync(sources, { recursive: true });
  writeSources(sources, suite);
  const downloads = readFileSync(await writeDownloadSettings(directory, commands), "utf8");
  const archives = root === undefined ? join(directory, "archives") : join(root, "var/cache/apt/archives");
  for (const path of [
    join(lists, "partial"),
    join(archives, "partial"),
    join(directory, "log"),
    join(directory, "state"),
  ]) {
    mkdirSync(path, { recursive: true });
  }
  const quoted = (/** @type {string} */ text) => JSON.stringify(text);
  const lines = [
    `APT::Architecture ${quoted(process.arch === "arm64" ? "arm64" : "amd64")};`,
    'APT::Install-Recommends "false";',
    // The directories are readable by root alone.
    'APT::Sandbox::User "root";',
    'APT::Update::Error-Mode "any";',
    `Dir::State ${quoted(join(directory, "state"))};`,
    `Dir::State::status ${quoted(status)};`,
    `Dir::State::lists ${quoted(lists)};`,
    `Dir::Cache ${quoted(directory)};`,
    `Dir::Cache::archives ${quoted(archives)};`,
    'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";',
    `Dir::Log ${quoted(join(directory, "log"))};`,
    'Dir::Etc::sourcelist "/dev/null"; Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null/";',
    `Dir::Etc::sourceparts ${quoted(sources)};`,
    'Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null/";',
    ...(root === undefined ? [] : [`DPkg::Chroot-Directory ${quoted(root)};`]),
    ...["force-unsafe-io", "force-confnew", ...dpkg_options].map((one) => `DPkg::Options:: ${quoted(`--${one}`)};`),
    downloads,
    'Acquire::Languages "none"; Acquire::GzipIndexes "true";',
    "",
  ];
  const path = join(directory, "apt-root.conf");
  writeFileSync(path, lines.join("\n"), { mode: 0o600 });
  return { APT_CONFIG: path, DEBIAN_FRONTEND: "noninteractive", DEBCONF_NONINTERACTIVE_SEEN: "true" };
}
