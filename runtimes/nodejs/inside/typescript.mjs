/**
 * TypeScript that is more than types: enums, namespaces, parameter properties, `import x = require()`. Node removes types alone, so
 * such files are compiled by the compiler that Node itself has, with source maps. Files with decorators are esbuild's. Other files are
 * Node's, with its code cache.
 */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compileDecorators, hasDecorators } from "./decorators.mjs";
import { resolveImport } from "./resolution.mjs";

/** Modules of Node that only versions in TypeScript load. */
const builtin = (name) => process.getBuiltinModule(name);

const FILE = /^file:.*\.([mc]?)ts(?:[?#]|$)/u;
/** Words before something that leaves code behind, in any place: a file that has them without need is compiled all the same. */
const MORE_THAN_TYPES =
  /\benum\s+[\p{ID_Start}$_]|\b(?:namespace|module)\s+[\p{ID_Start}$_][^\n]*\{|\bconstructor\s*\([^)]*\b(?:public|private|protected|readonly|override)\s|\bimport\s+(?:type\s+)?[\p{ID_Start}$_][\p{ID_Continue}$]*\s*=|^\s*export\s*=/mu;
const MODULE_SYNTAX = /^\s*(?:import|export)\b(?!\s*\()/mu;
const COMMONJS = "commonjs";
const MODULE = "module";

/** The nearest package.json, empty if there is none. */
function packageOf(folder) {
  const path = join(folder, "package.json");
  if (existsSync(path)) return JSON.parse(readFileSync(path, "utf8"));
  return folder === dirname(folder) ? {} : packageOf(dirname(folder));
}

/** The format of a file `.ts`: what its package.json says, else what its code looks like. */
function formatOf(url, letter, code) {
  if (letter !== "") return letter === "m" ? MODULE : COMMONJS;
  const { type } = packageOf(dirname(fileURLToPath(url)));
  return type === MODULE || type === COMMONJS ? type : MODULE_SYNTAX.test(code) ? MODULE : COMMONJS;
}

function compile(url, letter, source) {
  const { emitWarning } = process;
  // It warns of being new.
  process.emitWarning = () => {};
  try {
    const options = { mode: "transform", sourceMap: true, sourceUrl: url };
    const code = builtin("node:module").stripTypeScriptTypes(source, options);
    process.setSourceMapsEnabled(true);
    return { format: formatOf(url, letter, code), source: code, shortCircuit: true };
  } finally {
    process.emitWarning = emitWarning;
  }
}

/** Finds and compiles what modules of a version in TypeScript need, from now on. `compiler`: path of esbuild. */
export function compileTypeScript(compiler) {
  const load = (url, context, next) => {
    const letter = FILE.exec(url)?.[1];
    if (letter === undefined) return next(url, context);
    const path = fileURLToPath(url);
    const source = readFileSync(path, "utf8");
    if (hasDecorators(source)) {
      const format = formatOf(url, letter, source);
      process.setSourceMapsEnabled(true);
      return { format, source: compileDecorators({ compiler, path, url, source, format }), shortCircuit: true };
    }
    if (!MORE_THAN_TYPES.test(source)) return next(url, context);
    try {
      return compile(url, letter, source);
    } catch (error) {
      // Node's own error names the place.
      if (error.code === "ERR_INVALID_TYPESCRIPT_SYNTAX") return next(url, context);
      throw error;
    }
  };
  builtin("node:module").registerHooks({ load, resolve: resolveImport });
}
