/** Takes on a function: environment, working directory, and the handler from the version's code. */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { withCallback } from "./callback.mjs";
import { loadCompiled } from "./compiled.mjs";
import { RuntimeError } from "./errors.mjs";
import { startAs } from "./start-variables.mjs";
import { compileTypeScript } from "./typescript.mjs";

const DEFAULT_EXPORTS = ["default", "handler"];
const NAMES_LENGTH_MAX = 1024;
const TYPESCRIPT = /\.[mc]?ts$/u;

function setEnvironment(environment) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
}

/**
 * Returns what a module exports under a name, also as a property of CommonJS's `module.exports`. Compilers write `export
 * default` there as the property `default`.
 */
function exported(module, name) {
  const isCompiled = name === "default" && module.default?.__esModule === true && "default" in module.default;
  if (Object.hasOwn(module, name) && !isCompiled) return module[name];
  return module.default?.[name];
}

function handlerOf(module, file, name) {
  for (const candidate of name === undefined ? DEFAULT_EXPORTS : [name]) {
    const found = exported(module, candidate);
    if (typeof found === "function") return found;
    if (name === undefined || found === undefined) continue;
    throw new RuntimeError("HandlerNotAFunction", `export ${name} of ${file} is not a function: ${typeof found}`);
  }
  const names = Object.keys(module).filter((one) => one !== "module.exports");
  const wanted = name === undefined ? "neither default nor handler" : `no ${name}`;
  const listed = names.join(", ").slice(0, NAMES_LENGTH_MAX) || "none";
  throw new RuntimeError(
    "HandlerExportMissing",
    `${file} exports ${wanted} (exports: ${listed})${suggestion(name ?? "handler", names)}`,
  );
}

/** Asks for the name that was meant. */
function suggestion(wanted, names) {
  const near = names.find((name) => isNear(wanted.toLowerCase(), name.toLowerCase()));
  return near === undefined ? "" : `: did you mean ${near}?`;
}

/** True if the names differ in at most two adjacent characters, in number or kind. */
function isNear(one, other) {
  let start = 0;
  let end = 0;
  const least = Math.min(one.length, other.length);
  while (start < least && one[start] === other[start]) start++;
  while (end < least - start && one.at(-1 - end) === other.at(-1 - end)) end++;
  return Math.max(one.length, other.length) - start - end <= 2 && start + end > 0;
}

function assertFile(path, file) {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) {
    throw new RuntimeError("HandlerFileMissing", `handler file does not exist in the code: ${file}`);
  }
}

async function imported(path, { memory_limit_mb }, code_directory) {
  try {
    return await import(pathToFileURL(path).href);
  } catch (error) {
    if (error instanceof SyntaxError) {
      const { addPlace } = await import("./syntax.mjs");
      addPlace(error, path, code_directory, memory_limit_mb);
    }
    throw error;
  }
}

/**
 * Resolves to the handler of a `BindHead`, and a code cache or null. `cache` is that of the bind, `scratch` a directory for
 * temporary files, `compiler` the path of esbuild. Rejects with whatever the module throws, or a RuntimeError.
 */
export async function load(head, cache, { code_directory, compiler, scratch }) {
  const [file, name] = head.handler.split("#", 2);
  setEnvironment(head.environment);
  process.title = `hearth ${head.function_name}`;
  process.chdir(head.working_directory);
  const path = resolve(code_directory, file);
  assertFile(path, file);
  if (TYPESCRIPT.test(file)) compileTypeScript(compiler);
  const started = startAs(head.environment);
  if (started !== null) await started;
  process.argv = [process.execPath, path];
  const options = { isWanted: head.code_cache === true, parent: scratch, memory_limit_mb: head.memory_limit_mb };
  const { loaded, made } = await loadCompiled(() => imported(path, head, code_directory), cache, options);
  const handler = handlerOf(loaded, file, name);
  return { handler: handler.length > 2 ? withCallback(handler) : handler, code_cache: made };
}
