/** Takes on a function: environment, working directory, and the handler from the version's code. */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { RuntimeError } from "./errors.mjs";

const DEFAULT_EXPORTS = ["default", "handler"];

function setEnvironment(environment) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
}

/** Returns the function that a module exports under a name, also as a property of CommonJS's `module.exports`. */
function exported(module, name) {
  if (Object.hasOwn(module, name)) return module[name];
  return module.default?.[name];
}

function handlerOf(module, file, name) {
  for (const candidate of name === undefined ? DEFAULT_EXPORTS : [name]) {
    const found = exported(module, candidate);
    if (typeof found === "function") return found;
    if (name === undefined || found === undefined) continue;
    throw new RuntimeError("HandlerNotAFunction", `export ${name} of ${file} is not a function: ${typeof found}`);
  }
  const names = Object.keys(module).join(", ") || "none";
  const wanted = name === undefined ? "default nor handler" : `no ${name}`;
  throw new RuntimeError(
    "HandlerExportMissing",
    `${file} exports ${name === undefined ? "neither " : ""}${wanted} (exports: ${names.slice(0, 1024)})`,
  );
}

function assertFile(path, file) {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) {
    throw new RuntimeError("HandlerFileMissing", `handler file does not exist in the code: ${file}`);
  }
}

/** Returns the handler of a `BindHead`. Throws whatever the module throws, or a RuntimeError. */
export async function load(head, code_directory) {
  const [file, name] = head.handler.split("#", 2);
  setEnvironment(head.environment);
  process.title = `hearth ${head.function_name}`;
  process.chdir(head.working_directory);
  const path = resolve(code_directory, file);
  assertFile(path, file);
  process.argv = [process.execPath, path];
  return handlerOf(await import(pathToFileURL(path).href), file, name);
}
