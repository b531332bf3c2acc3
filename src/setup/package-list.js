/** The packages of a root, with their licences: from dpkg's status file, copyright files, and the npm packages that were copied. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PROJECT_DIR } from "../installation/paths.js";
import { npmFiles } from "../installation/profiles.js";

/** @typedef {import("../installation/releases.js").Package} Package */

/** Maximum length of a licence's name: copyright files are free text. */
const LICENCE_LENGTH_MAX = 80;
/** Maximum number of licences of one package. Chromium names 60. */
const LICENCES_MAX = 100;
const COPYRIGHT_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Returns the stanzas of dpkg's status file that are installed packages.
 *
 * @param {string} status
 * @returns {Omit<Package, "licences">[]}
 */
export function installedPackages(status) {
  return status
    .split("\n\n")
    .filter((stanza) => /^Status: \S+ \S+ installed$/m.test(stanza))
    .map((stanza) => {
      const field = (/** @type {string} */ key) => new RegExp(`^${key}: (.*)$`, "m").exec(stanza)?.[1] ?? "";
      const name = field("Package");
      return {
        name,
        version: field("Version"),
        architecture: field("Architecture"),
        source: field("Source").split(" ")[0] || name,
        size_kb: Number(field("Installed-Size")) || 0,
        kind: /** @type {const} */ ("deb"),
      };
    })
    .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

/**
 * Returns the licences that a copyright file names: those of its machine-readable form, else those of common-licenses that it
 * points to.
 *
 * @param {string} text
 * @returns {string[]}
 */
export function licencesOf(text) {
  const found = new Set();
  for (const [, name = ""] of text.matchAll(/^License:[ \t]*(\S.*)$/gm))
    found.add(name.trim().slice(0, LICENCE_LENGTH_MAX));
  if (found.size === 0) {
    for (const [, name = ""] of text.matchAll(/\/usr\/share\/common-licenses\/([A-Za-z0-9.+-]*[A-Za-z0-9])/g))
      found.add(name);
  }
  return [...found].sort().slice(0, LICENCES_MAX);
}

/** @param {string} root @param {string} name @returns {string[] | null} null: no copyright file */
function copyrightOf(root, name) {
  const path = join(root, "usr/share/doc", name, "copyright");
  try {
    return existsSync(path) ? licencesOf(readFileSync(path, "utf8").slice(0, COPYRIGHT_BYTES_MAX)) : null;
  } catch {
    return null;
  }
}

/**
 * @param {string} root
 * @param {string} status
 * @param {readonly import("../installation/profiles.js").ProfileImage[]} chain
 * @returns {Package[]}
 */
export function listPackages(root, status, chain) {
  const installed = installedPackages(status);
  const own = new Map(installed.map(({ name }) => [name, copyrightOf(root, name)]));
  // Packages of one source share a file: the others have a link to its folder.
  const bySource = new Map(installed.flatMap(({ name, source }) => (own.get(name) ? [[source, own.get(name)]] : [])));
  const debs = installed.map((one) => ({ ...one, licences: own.get(one.name) ?? bySource.get(one.source) ?? [] }));
  return [...debs, ...npmPackages(chain)];
}

/** @param {readonly import("../installation/profiles.js").ProfileImage[]} chain @returns {Package[]} */
function npmPackages(chain) {
  const paths = chain.flatMap(({ profile }) => Object.values(npmFiles(profile)));
  const names = [...new Set(paths.map((path) => path.split("/")[0] ?? ""))].sort();
  return names.map((name) => {
    const { version, license } = JSON.parse(
      readFileSync(join(PROJECT_DIR, "node_modules", name, "package.json"), "utf8"),
    );
    const licences = typeof license === "string" ? [license] : [];
    return { name, version, architecture: process.arch, source: name, licences, size_kb: 0, kind: "npm" };
  });
}
