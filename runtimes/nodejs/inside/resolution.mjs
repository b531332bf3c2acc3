/**
 * Files that modules in TypeScript import by names that Node does not find, but tsc and its likes do: `./a.js` for a.ts, `./a`, a folder
 * with an index, and the `paths` and `baseUrl` of the nearest tsconfig.json.
 *
 * R1 What Node finds is what it finds. Only after it found nothing, other names are asked for, of Node too.
 * R2 If there is no such file either, the error is Node's for the name in the source.
 */
import { dirname, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { configOf, optionOf } from "./tsconfig.mjs";

const IMPORTER = /^file:(?!.*\/node_modules\/).*\.[mc]?ts(?:[?#]|$)/u;
const NOT_FOUND = new Set([
  ...["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND", "ERR_UNSUPPORTED_DIR_IMPORT"],
  // Of names that only tsconfig.json knows: `#a/b`, `@/a`, or of a package that does not export it.
  ...["ERR_PACKAGE_IMPORT_NOT_DEFINED", "ERR_INVALID_MODULE_SPECIFIER", "ERR_PACKAGE_PATH_NOT_EXPORTED"],
]);
const BY_PATH = /^(?:\.{0,2}\/|\.{1,2}$|file:)/u;
const WITH_SCHEME = /^[a-z][\w+.-]*:/iu;
/** The path of a URL, and what is behind it. */
const URL_PARTS = /^(?<path>[^?#]*)(?<rest>.*)$/su;
const COMPILED = /\.(?<letter>[mc]?)js$/u;
const DECLARATION = /\.d\.[mc]?ts$/u;
const FOLDER = /(?:^|\/)\.{0,2}$/u;

/** The files that a name may mean, in the order of tsc. Declarations have no code. */
function filesOf(path) {
  const indexes = ["index.ts", "index.js"].map((file) => `${path.replace(/\/+$/u, "")}/${file}`);
  if (FOLDER.test(path)) return indexes;
  const sources = COMPILED.test(path) ? [path.replace(COMPILED, ".$<letter>ts")] : [];
  return [...sources, `${path}.ts`, `${path}.js`, ...indexes].filter((file) => !DECLARATION.test(file));
}

/** What a pattern of `paths` leaves of a name for its `*`; null if it does not match. */
function restOf(name, pattern) {
  const [head, tail] = pattern.split("*", 2);
  if (tail === undefined) return name === pattern ? "" : null;
  const isMatch = name.length >= head.length + tail.length && name.startsWith(head) && name.endsWith(tail);
  return isMatch ? name.slice(head.length, name.length - tail.length) : null;
}

/** The pattern that says most of a name: the name itself, or the longest in front of `*`. */
function patternOf(name, patterns) {
  if (patterns.includes(name)) return name;
  const matching = patterns.filter((pattern) => restOf(name, pattern) !== null);
  return matching.sort((one, other) => other.indexOf("*") - one.indexOf("*"))[0];
}

/** The paths that a tsconfig.json has for the name of a module. */
function mappedPaths(config, name) {
  const inside = (folder, path) => resolve(folder, path.replace(/^\$\{configDir\}/u, dirname(config)));
  const base = optionOf(config, "baseUrl");
  const base_path = typeof base?.value === "string" ? inside(dirname(base.from), base.value) : null;
  const named = base_path === null ? [] : [inside(base_path, name)];
  const paths = optionOf(config, "paths");
  const patterns = Object.keys(Object(paths?.value));
  const pattern = patternOf(name, patterns);
  if (pattern === undefined) return named;
  const targets = [paths.value[pattern]].flat().filter((target) => typeof target === "string");
  const from = base_path ?? dirname(paths.from);
  return [
    ...targets.map((target) =>
      inside(
        from,
        target.replace("*", () => restOf(name, pattern)),
      ),
    ),
    ...named,
  ];
}

/** Other names for what a module imports, for Node to look for. */
function otherNames(specifier, importer, isRequire) {
  if (BY_PATH.test(specifier)) {
    const { path, rest } = isRequire ? { path: specifier, rest: "" } : URL_PARTS.exec(specifier).groups;
    return filesOf(path).map((file) => file + rest);
  }
  const config = WITH_SCHEME.test(specifier) ? null : configOf(dirname(fileURLToPath(importer)));
  if (config === null) return [];
  const files = mappedPaths(config, specifier).flatMap((path) => [path, ...filesOf(path)]);
  const found = files.filter((file) => !DECLARATION.test(file));
  return isRequire ? found : found.map((file) => pathToFileURL(file).href);
}

function attempt(next, name, context) {
  try {
    return next(name, context);
  } catch (error) {
    if (NOT_FOUND.has(error.code)) return null;
    throw error;
  }
}

/** Resolves a name as Node does, else as tsc does if a module in TypeScript imports it: a hook of node:module. */
export function resolveImport(specifier, context, next) {
  try {
    return next(specifier, context);
  } catch (error) {
    if (!NOT_FOUND.has(error.code) || !IMPORTER.test(context.parentURL)) throw error;
    for (const name of otherNames(specifier, context.parentURL, context.conditions.includes("require"))) {
      const found = attempt(next, name, context);
      if (found !== null) return found;
    }
    throw error;
  }
}
