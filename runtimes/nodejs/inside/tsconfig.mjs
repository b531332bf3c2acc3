/** What the runtime reads of tsconfig.json: options of the nearest one, or of those that it extends by their paths. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

/** Comments, and commas behind the last part, which tsc takes and JSON does not; strings, which may look like either. */
const NOT_JSON = /"(?:[^"\\]|\\.)*"|\/\*[\s\S]*?\*\/|\/\/[^\n]*|,(?=(?:\s|\/\*[\s\S]*?\*\/|\/\/[^\n]*)*[}\]])/gu;
const BYTE_ORDER_MARK = /^\uFEFF/u;
const BY_PATH = /^\.{0,2}\//u;
const EXTENDS_MAX = 16;

/** The nearest tsconfig.json of a folder; null if there is none. */
export function configOf(folder) {
  const path = join(folder, "tsconfig.json");
  if (existsSync(path)) return path;
  return folder === dirname(folder) ? null : configOf(dirname(folder));
}

/** The content of a configuration, empty if it is none. */
function read(path) {
  try {
    const text = readFileSync(path, "utf8").replace(BYTE_ORDER_MARK, "");
    return Object(JSON.parse(text.replaceAll(NOT_JSON, (part) => (part.startsWith('"') ? part : ""))));
  } catch {
    return {};
  }
}

/** A configuration and those that it extends, as pairs of path and compiler options: those that win come first. */
function* configurations(path, left = EXTENDS_MAX) {
  if (left === 0 || !existsSync(path)) return;
  const { compilerOptions, extends: parents = [] } = read(path);
  yield [path, Object(compilerOptions)];
  for (const parent of [parents].flat().reverse()) {
    if (typeof parent !== "string" || !BY_PATH.test(parent)) continue;
    const named = resolve(dirname(path), parent);
    yield* configurations(existsSync(named) ? named : `${named}.json`, left - 1);
  }
}

/** An option, with the path of the configuration that sets it; null if none does. */
export function optionOf(path, name) {
  for (const [from, options] of configurations(path)) {
    if (options[name] !== undefined) return { from, value: options[name] };
  }
  return null;
}
