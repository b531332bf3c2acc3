/**
 * The place of a syntax error. Node tells it for CommonJS and TypeScript at the head of the stack. For an ECMAScript module
 * it keeps it to itself until the error ends a process, so a second process loads the file: no module of a graph with such an
 * error runs.
 */
import { spawnSync } from "node:child_process";
import { relative } from "node:path";
import { stripVTControlCharacters } from "node:util";

/** Memory limit of a function below which there is no room for a second process. */
const MEMORY_LIMIT_MB_MIN = 192;
const TIMEOUT_MS = 5000;
/** `file:///function/index.mjs:3`, the line, after others in TypeScript, and a mark below it; line and mark are empty behind the end of the file. */
const PLACE = /^(?:file:\/\/)?(?<file>\/[^\n]*):(?<line>\d+)\n(?:(?:[^\n]*\n){1,3}?[ \t]*\^+[ \t]*$|\n[ \t]*$)/mu;

function findPlace(error, path, memory_limit_mb) {
  const own = PLACE.exec(String(error.stack));
  if (own !== null) return own;
  // The error of a JSON.parse, for example, has a place in the code already.
  if (/\/function\/|file:\/\//u.test(String(error.stack)) || memory_limit_mb < MEMORY_LIMIT_MB_MIN) return null;
  const code = "import(require('node:url').pathToFileURL(process.argv[1]).href)";
  const { stderr } = spawnSync(process.execPath, ["-e", code, path], { timeout: TIMEOUT_MS, encoding: "utf8" });
  return PLACE.exec(stripVTControlCharacters(stderr ?? ""));
}

/** Adds file and line to the message of a SyntaxError that an import threw, and the line to its stack. */
export function addPlace(error, path, code_directory, memory_limit_mb) {
  const place = findPlace(error, path, memory_limit_mb);
  if (place === null) return;
  const { file, line } = place.groups;
  const { message } = error;
  error.message = `${message} (${relative(code_directory, file)}, line ${line})`;
  if (!String(error.stack).includes(place[0])) error.stack = `${place[0].trimEnd()}\n\n${error.stack}`;
}
