/** The #! line of a script, as execve(2) reads it: what is wrong with it, and what it needs. */

/** The kernel reads so many bytes of a file to find its interpreter (BINPRM_BUF_SIZE). */
export const SCRIPT_HEAD_BYTES = 256;

const ENV = "/usr/bin/env";

/** Interpreter: an absolute path. `command`: what `env` looks for in the search path, if the interpreter is `env`. */
export interface Interpreter {
  readonly path: string;
  readonly command: string | null;
}

/** Returns what the head of a file names, what is wrong with its first line, or null if it is no script. */
export function interpreterOf(head: string): Interpreter | { readonly complaint: string } | null {
  if (!head.startsWith("#!")) return null;
  const line = head.slice(2, SCRIPT_HEAD_BYTES).split("\n", 1)[0] ?? "";
  const shown = `#!${line.replace(/\r$/u, "")}`;
  if (line.includes("\r")) return { complaint: `ends with a carriage return: ${shown}` };
  const words = line.trim();
  const path = /^[^ \t]*/u.exec(words)?.[0] ?? "";
  if (!path.startsWith("/")) return { complaint: `names no interpreter by absolute path: ${shown}` };
  // The kernel passes all behind the interpreter as one argument.
  const argument = words.slice(path.length).trim();
  const isCommand = path === ENV && argument !== "" && !argument.startsWith("-") && !argument.includes("=");
  return { path, command: isCommand ? argument : null };
}
