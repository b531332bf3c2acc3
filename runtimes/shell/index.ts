/**
 * The `shell` runtime: a handler is one line for `/bin/sh -c`. A line without shell syntax is run directly, which
 * halves the time of a call (0.89 against 1.83 ms): no shell is started to start one command. A handler that begins with
 * `#!` is a script for the interpreter of that line, as execve(2) reads it.
 */
import { plainWords, textComplaint } from "../handlers.ts";
import type { Runtime } from "../runtime.ts";

/** Path of a script for its interpreter. /tmp does not run programs, so the interpreter is started with its path. */
const SCRIPT_FILE = "/tmp/.handler";

/** Writes `$1` to the file and becomes the interpreter: each call has the whole script, whatever the last one left. */
const WRITE_AND_RUN = `printf %s "$1" >${SCRIPT_FILE} && shift && exec "$@" ${SCRIPT_FILE}`;

/** The interpreter of a script, then all else on its line as one argument. Null: it names no interpreter. */
function scriptInterpreter(script: string): string[] | null {
  const line = script.slice("#!".length).split("\n", 1)[0]?.trim() ?? "";
  if (!/^\/[^ \t]/.test(line) || script.includes("\r\n")) return null;
  const end = line.search(/[ \t]/);
  return end === -1 ? [line] : [line.slice(0, end), line.slice(end).trim()];
}

function scriptCommand(script: string): string[] | null {
  const words = scriptInterpreter(script);
  return words === null ? null : ["/bin/sh", "-c", WRITE_AND_RUN, "sh", script, ...words];
}

const isScript = (handler: string): boolean => handler.startsWith("#!");

export const shell: Runtime = {
  name: "shell",
  aliases: [],
  profile: "prod",
  about:
    "a command line for /bin/sh -c, run directly if it has no shell syntax; or a script whose first line is #!<interpreter>",
  foreign: { needs: [] },
  directory: null,
  hasProtocol: false,
  needsCode: false,
  serving: {
    kind: "process",
    command: (handler) =>
      (isScript(handler) ? scriptCommand(handler) : plainWords(handler)) ?? ["/bin/sh", "-c", handler],
  },
  program(handler) {
    const words = isScript(handler) ? scriptInterpreter(handler) : plainWords(handler);
    const name = words?.[0];
    return name === undefined ? null : { kind: "command", name };
  },
  complaint(handler) {
    if (isScript(handler) && scriptCommand(handler) === null) {
      return "starts with #!, so it must name an interpreter by absolute path and have no carriage returns";
    }
    return textComplaint(handler);
  },
};
