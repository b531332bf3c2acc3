/**
 * Runs the commands of set-up. Owns their lives: each has a deadline, a session of its own and its last output; when
 * set-up is interrupted, or whoever started it is gone, the running command's whole process group ends first.
 */
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { InstallationError } from "../installation/installation-error.js";

/**
 * @typedef {object} Context Input of a step.
 * @property {"start" | "test" | "heavy"} mode
 * @property {string} project_dir
 * @property {string} data_dir
 * @property {string} image_dir
 */
/**
 * @typedef {object} Step
 * @property {string} name
 * @property {boolean} large needs space and minutes rather than seconds
 * @property {(context: Context) => string | null} missing what is missing, in words, or null; must be cheap
 * @property {(context: Context, commands: Commands) => Promise<void>} install may rely on the steps before it
 */

/** Long enough for a slow mirror; a hang ends. */
const TIMEOUT_MS = 900_000;
/** From SIGTERM to SIGKILL. */
const TERM_GRACE_MS = 5_000;
const PARENT_POLL_MS = 500;
const TAIL_LINES = 20;
const OUTPUT_CHARACTERS_MAX = 1024 * 1024;
const SIGNALS = /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"]);

/** Debian's daemons and mmdebstrap's tools lie in sbin too, which root's PATH may lack. */
export const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** @param {string} text @returns {string} */
function lastLines(text) {
  // Progress of a build within is for displays.
  const lines = text.split(/[\r\n]+/).filter((line) => line.trim() !== "" && !line.startsWith("@ {"));
  return lines
    .slice(-TAIL_LINES)
    .map((line) => `  | ${line}\n`)
    .join("");
}

/**
 * @typedef {object} RunOptions
 * @property {string} [cwd]
 * @property {Record<string, string | undefined>} [env] added to the environment
 * @property {number} [lock] descriptor that the command inherits as 3, so that the lock lasts as long as it does
 * @property {number} [timeout_ms]
 * @property {boolean} [cleanup] runs even after an interruption
 */

export class Commands {
  /** @type {NodeJS.Signals | null} */
  interrupted = null;
  /** Held by long commands too: see `RunOptions.lock`. @type {number | undefined} */
  lock = undefined;
  #onLine;
  #onEveryLine;
  /** @type {Set<import("node:child_process").ChildProcess>} */
  #running = new Set();
  /** @type {() => void} */
  #unwatch = () => {};

  /**
   * @param {(line: string) => void} onLine the newest line of output, for a display
   * @param {(line: string) => void} [onEveryLine] each line of both outputs
   */
  constructor(onLine, onEveryLine) {
    this.#onLine = onLine;
    this.#onEveryLine = onEveryLine;
  }

  get exitCode() {
    return this.interrupted === null ? 1 : 128 + constants.signals[this.interrupted];
  }

  /** Ends the running command on a signal, and when the parent goes away without sending one. @param {NodeJS.Process} self */
  watchSignals(self) {
    const parent = self.ppid;
    const interrupt = (/** @type {NodeJS.Signals} */ signal) => this.#interrupt(signal);
    for (const signal of SIGNALS) self.on(signal, interrupt);
    const poll = setInterval(() => {
      if (self.ppid !== parent) this.#interrupt("SIGTERM");
    }, PARENT_POLL_MS);
    poll.unref();
    this.#unwatch = () => {
      clearInterval(poll);
      for (const signal of SIGNALS) self.off(signal, interrupt);
    };
  }

  unwatchSignals() {
    this.#unwatch();
  }

  /**
   * Resolves with the standard output of a command that succeeds; rejects with an InstallationError that carries the last
   * lines of both outputs.
   *
   * @param {readonly string[]} argv
   * @param {RunOptions} [options]
   * @returns {Promise<string>}
   */
  run(argv, options = {}) {
    const [file = "", ...args] = argv;
    if (this.interrupted !== null && options.cleanup !== true) {
      return Promise.reject(new InstallationError(`interrupted by ${this.interrupted}`));
    }
    return new Promise((resolve, reject) => {
      const lock = options.lock ?? this.lock;
      const child = spawn(file, args, {
        cwd: options.cwd,
        env: { ...process.env, PATH: SYSTEM_PATH, LC_ALL: "C.UTF-8", ...options.env },
        detached: true,
        stdio: ["ignore", "pipe", "pipe", ...(lock === undefined ? [] : [lock])],
      });
      let stdout = "";
      let both = "";
      let isLate = false;
      const lines = { stdout: "", stderr: "" };
      const split = (/** @type {"stdout" | "stderr"} */ from, /** @type {string} */ text) => {
        const [rest = "", ...earlier] = `${lines[from]}${text}`.split(/[\r\n]+/).reverse();
        lines[from] = rest.slice(-OUTPUT_CHARACTERS_MAX);
        for (const line of earlier.reverse()) if (line !== "") this.#onEveryLine?.(line);
      };
      const take = (/** @type {"stdout" | "stderr"} */ from, /** @type {string} */ text) => {
        if (this.#onEveryLine !== undefined) split(from, text);
        both = (both + text).slice(-OUTPUT_CHARACTERS_MAX);
        const line = text
          .trimEnd()
          .split(/[\r\n]+/)
          .at(-1);
        if (line) this.#onLine(line);
      };
      child.stdout?.setEncoding("utf8").on("data", (text) => {
        stdout = (stdout + text).slice(-OUTPUT_CHARACTERS_MAX);
        take("stdout", text);
      });
      child.stderr?.setEncoding("utf8").on("data", (text) => take("stderr", text));
      const deadline = setTimeout(() => {
        isLate = true;
        this.#end(child);
      }, options.timeout_ms ?? TIMEOUT_MS);
      const finish = (/** @type {string | null} */ failure) => {
        clearTimeout(deadline);
        this.#running.delete(child);
        if (failure === null) resolve(stdout);
        else reject(new InstallationError(failure, lastLines(both)));
      };
      this.#running.add(child);
      const name = argv.slice(0, 2).join(" ");
      child.on("error", (error) => finish(`cannot run ${file}: ${error.message}`));
      child.on("close", (code, signal) => {
        if (isLate) finish(`${name} did not end within ${(options.timeout_ms ?? TIMEOUT_MS) / 1000} seconds`);
        else if (code === 0) finish(null);
        else finish(`${name} failed with ${signal ?? `exit code ${code}`}`);
      });
    });
  }

  /** @param {NodeJS.Signals} signal */
  #interrupt(signal) {
    this.interrupted ??= signal;
    for (const child of this.#running) this.#end(child);
  }

  /** @param {import("node:child_process").ChildProcess} child */
  #end(child) {
    const kill = (/** @type {NodeJS.Signals} */ signal) => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, signal);
      } catch (error) {
        // The group is gone: just what is wanted.
        if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
      }
    };
    kill("SIGTERM");
    const last = setTimeout(() => kill("SIGKILL"), TERM_GRACE_MS);
    child.once("close", () => clearTimeout(last));
  }
}
