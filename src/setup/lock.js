/**
 * The lock of set-up: `flock` on one file per machine. The kernel releases it when the last holder is gone, however it
 * ended; commands inherit it, so that what a killed set-up left running is waited for rather than met.
 */
import { closeSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { InstallationError } from "../installation/installation-error.js";
import { RUN_DIR } from "../installation/paths.js";

/** Several times the slowest first start. */
const WAIT_SECONDS = 900;

/**
 * @param {import("./command.js").Commands} commands
 * @param {() => void} onWait called once when another set-up holds it
 * @param {{ path?: string, wait_seconds?: number }} [options]
 * @returns {Promise<() => void>} releases it
 */
export async function holdLock(commands, onWait, options = {}) {
  const path = options.path ?? join(RUN_DIR, "setup.lock");
  const wait_seconds = options.wait_seconds ?? WAIT_SECONDS;
  mkdirSync(join(path, ".."), { recursive: true, mode: 0o755 });
  const lock = openSync(path, "a", 0o600);
  const flock = (/** @type {string[]} */ ...args) =>
    commands.run(["flock", ...args, "3"], { lock, timeout_ms: (wait_seconds + 60) * 1000 }).then(
      () => true,
      (error) => {
        // flock answers 1 when the lock is taken and says nothing.
        if (/exit code 1$/.test(error.message)) return false;
        throw error;
      },
    );
  try {
    if (!(await flock("--nonblock"))) {
      onWait();
      if (!(await flock("--timeout", String(wait_seconds)))) {
        throw new InstallationError(
          `another set-up has held ${path} for ${wait_seconds} seconds: find its process with 'fuser ${path}'`,
        );
      }
    }
  } catch (error) {
    closeSync(lock);
    throw error;
  }
  commands.lock = lock;
  return () => {
    commands.lock = undefined;
    closeSync(lock);
  };
}
