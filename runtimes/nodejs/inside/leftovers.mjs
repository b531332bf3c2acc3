/**
 * Processes that calls left behind, detached and orphaned ones too. In a cell every process but minit, this one, and those
 * that the module started before the first call belongs to a call. Elsewhere (a test) only descendants do.
 *
 * L1 In a cell PID 1 is minit and the parent of this process. PID 1 of a build container is its test runner: a parent with
 *    the id 1 alone is no proof.
 */
import { readdirSync, readFileSync } from "node:fs";

const MINIT = 1;
const ROUNDS_MAX = 10;

function read(path) {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

/** Returns all processes that are not dead: pid → parent's pid. */
function processes() {
  const found = new Map();
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    // After the command's name in parentheses: state, parent.
    const [state, parent] = read(`/proc/${name}/stat`).split(") ").at(-1).split(" ");
    if (parent !== undefined && state !== "Z" && state !== "X") found.set(pid, Number(parent));
  }
  return found;
}

/** True if one of `roots` is the process or above it. */
function descends(pid, parents, roots) {
  for (let at = pid; at !== undefined && at > MINIT; at = parents.get(at)) {
    if (roots.has(at)) return true;
  }
  return false;
}

/** L1: true if PID 1 is minit in its role `init`, and the parent of this process. */
function isInCell() {
  return process.ppid === MINIT && /^[^\0]*\/(?:init|minit)\0init\0$/u.test(read("/proc/1/cmdline"));
}

export class Leftovers {
  #isInCell = isInCell();
  #isPossible = false;
  #modules = 0;
  #kept = new Set();
  #newest = "";

  constructor() {
    // Children that the module has started so far stay.
    if (this.#mayExist()) this.#kept = new Set(this.#found());
  }

  /**
   * Kills them. Costs nothing for a function that never loaded what can start a process. Returns false if more appear
   * than it can kill.
   */
  sweep() {
    if (!this.#mayExist() || !this.#hasNew()) return true;
    const killed = new Set();
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const leftovers = this.#found().filter((pid) => !killed.has(pid));
      if (leftovers.length === 0) {
        this.#newest = newestPid();
        return true;
      }
      for (const pid of leftovers) {
        killed.add(pid);
        kill(pid);
      }
    }
    return false;
  }

  /** A worker has started: it has a list of modules of its own. */
  expect() {
    this.#isPossible = true;
  }

  #found() {
    const parents = processes();
    const pids = [...parents.keys()].filter((pid) => pid !== MINIT && pid !== process.pid);
    const own = new Set([process.pid]);
    const candidates = this.#isInCell ? pids : pids.filter((pid) => descends(pid, parents, own));
    return candidates.filter((pid) => !descends(pid, parents, this.#kept));
  }

  /** True once the process has loaded a module that starts processes. */
  #mayExist() {
    const { moduleLoadList } = process;
    if (this.#isPossible || moduleLoadList.length === this.#modules) return this.#isPossible;
    this.#modules = moduleLoadList.length;
    this.#isPossible = moduleLoadList.includes("NativeModule child_process");
    return this.#isPossible;
  }

  /** True if any process began since the last sweep. */
  #hasNew() {
    const newest = newestPid();
    return newest === "" || newest !== this.#newest;
  }
}

/** The last field of /proc/loadavg is the pid that was given out last. */
const newestPid = () => read("/proc/loadavg").split(" ").at(-1);

function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}
