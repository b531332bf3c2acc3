/**
 * Ends what calls left behind, when no call is in flight and the answers are written: timers, handles (sockets, servers,
 * children, file watchers, workers), processes, files in the scratch directories. Things that the module made before the
 * first call stay.
 *
 * The hook for asynchronous resources leaves promises out, so a call that makes no resource costs nothing here but a look
 * at the scratch directories.
 */
import { createHook } from "node:async_hooks";
import { readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { Leftovers } from "./leftovers.mjs";

const cancelTimeout = clearTimeout;
const cancelImmediate = clearImmediate;

/** Resources of which the list forgets the dead ones first when it reaches this length. */
const PRUNE_AT = 1024;

/**
 * Stops a timer in such a way that its owner can start it again with refresh(): libraries keep one timer for all of their
 * requests.
 */
function stopTimeout(timer) {
  const { _onTimeout, _idleTimeout } = timer;
  cancelTimeout(timer);
  timer._onTimeout = _onTimeout;
  timer._idleTimeout = _idleTimeout;
}

function ownerOf(handle) {
  const symbol = Object.getOwnPropertySymbols(handle).find(({ description }) => description === "owner_symbol");
  return symbol === undefined ? undefined : handle[symbol];
}

/** Ends a handle through the object that people know, so that it tells its users. */
function endHandle(handle) {
  const owner = ownerOf(handle);
  const target = owner !== null && typeof owner === "object" ? owner : handle;
  const end = target.destroy ?? target.close ?? target.stop ?? handle.close;
  end.call(end === handle.close ? handle : target);
}

function endChild(handle) {
  ownerOf(handle)?.kill("SIGKILL");
}

const ENDS = new Map([
  ["Timeout", stopTimeout],
  ["Immediate", cancelImmediate],
  ["PROCESSWRAP", endChild],
  ["WORKER", (worker) => worker.stopThread()],
  ["MESSAGEPORT", (port) => port.close()],
  ["FILEHANDLE", endHandle],
  ...["TCPWRAP", "TCPSERVERWRAP", "PIPEWRAP", "PIPESERVERWRAP", "TLSWRAP", "UDPWRAP"].map((type) => [type, endHandle]),
  ...["FSEVENTWRAP", "STATWATCHER", "TTYWRAP"].map((type) => [type, endHandle]),
]);

export class Cleanup {
  #contexts;
  #calls;
  #scratch;
  #leftovers = null;
  #isStarted = false;
  #isScheduled = false;
  /** Weak references: what lives is held by Node itself. */
  #resources = [];
  #prune_at = PRUNE_AT;
  /** Paths in the scratch directories that the module made before the first call. */
  #kept = new Set();
  /** Directory → what tells its states apart: on a tmpfs the size counts the entries. */
  #seen = new Map();

  constructor(contexts, calls, scratch) {
    this.#contexts = contexts;
    this.#calls = calls;
    this.#scratch = scratch;
  }

  /** Begins with the first call, after the module was loaded. */
  start() {
    this.#kept = new Set(this.#scratch.flatMap(pathsIn));
    this.#leftovers = new Leftovers();
    createHook({ init: (_id, type, _trigger, resource) => this.#note(type, resource), trackPromises: false }).enable();
    this.#isStarted = true;
  }

  /** The wire calls it each time it has written its answers. */
  afterFlush() {
    if (this.#isStarted && this.#calls.isIdle) this.#sweep();
  }

  #note(type, resource) {
    const end = ENDS.get(type);
    if (end === undefined) return;
    const call = this.#contexts.getStore();
    if (call === undefined || call.isBind) return;
    if (type === "WORKER") this.#leftovers.expect();
    if (this.#resources.length >= this.#prune_at) this.#prune();
    this.#resources.push({ end, reference: new WeakRef(resource) });
    if (call.isDone && !this.#isScheduled) this.#sweepSoon();
  }

  /** A call that was answered goes on, for example after a request of the file system. */
  #sweepSoon() {
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.afterFlush();
    });
  }

  #prune() {
    this.#resources = this.#resources.filter(({ reference }) => reference.deref() !== undefined);
    this.#prune_at = Math.max(PRUNE_AT, this.#resources.length * 2);
  }

  #sweep() {
    if (this.#resources.length > 0) this.#endResources();
    // minit kills every process of the instance when this one ends.
    if (!this.#leftovers.sweep()) process.exit(1);
    for (const directory of this.#scratch) this.#empty(directory);
  }

  #endResources() {
    const resources = this.#resources;
    this.#resources = [];
    this.#prune_at = PRUNE_AT;
    for (const { end, reference } of resources) {
      const resource = reference.deref();
      if (resource === undefined) continue;
      try {
        end(resource);
      } catch {
        // It ended by itself.
      }
    }
  }

  #empty(directory) {
    const state = stateOf(directory);
    const seen = this.#seen.get(directory);
    if (seen !== undefined && seen.size === state.size && seen.mtimeMs === state.mtimeMs) return;
    for (const path of pathsIn(directory)) {
      if (!this.#kept.has(path)) rmSync(path, { recursive: true, force: true });
    }
    this.#seen.set(directory, stateOf(directory));
  }
}

const stateOf = (directory) => statSync(directory, { throwIfNoEntry: false }) ?? { size: 0, mtimeMs: 0 };

function pathsIn(directory) {
  try {
    return readdirSync(directory).map((name) => join(directory, name));
  } catch {
    return [];
  }
}
