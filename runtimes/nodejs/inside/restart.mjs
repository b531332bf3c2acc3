/**
 * Starts the program anew, for a function whose variables or flags only a start reads. The request of the bind, and
 * what came after it, wait in a file for the next program: minit and the daemon see one process, which
 * loads for longer.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { RuntimeError } from "./errors.mjs";

const DESCRIPTOR = 3;

/** Names the file in the environment of the next program, until that takes on its function. */
const VARIABLE = "HEARTH_RESUMED_FROM";

/**
 * Starts the next program with descriptor 3, which no program that Node executes directly would have, and leaves `helper` in this
 * one's place, which waits for it. `start`: flags and variables. `frames`: what minit has sent. Throws errors of the system.
 */
export function restart({ flags, variables }, frames, { helper, scratch }) {
  const file = join(mkdtempSync(join(scratch, ".hearth-")), "frames");
  writeFileSync(file, frames);
  const { execPath, execArgv, argv } = process;
  const next = process
    .getBuiltinModule("node:child_process")
    .spawn(execPath, [...execArgv, ...flags, ...argv.slice(1)], {
      env: { ...variables, [VARIABLE]: file },
      stdio: ["inherit", "inherit", "inherit", DESCRIPTOR],
    });
  if (next.pid === undefined)
    throw new RuntimeError("ProcessNotStarted", "the process of the function cannot be started anew");
  // It warns of being new.
  process.emitWarning = () => {};
  process.execve(helper, [helper, "await"], {});
}

/** Returns the frames that an earlier program has left; null: this is the first one. */
export function framesLeft() {
  const file = process.env[VARIABLE];
  if (file === undefined) return null;
  const frames = readFileSync(file);
  rmSync(dirname(file), { recursive: true });
  return frames;
}
