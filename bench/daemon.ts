/**
 * A daemon of its own for each measurement: a fresh process on a fresh data directory, with the installed helper and
 * image, and a few calls of its API. What a caller of the API pays is measured by the benches themselves, on
 * `Connection`s that they open; what is here prepares and looks.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, cpSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { LIMITS } from "../src/base/limits.ts";
import { volatileDirectory } from "../src/base/volatile-directory.ts";
import type { InvocationRecord } from "../src/functions/schema.ts";
import { helperPath, NODE_PATH, PROJECT_DIR, readDirectories } from "../src/installation/paths.js";
import { START_FLAGS } from "../test/support/start-flags.ts";
import { machineMs, until } from "./clock.ts";
import { Connection, type Reply, requestBytes } from "./http.ts";

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 40_000;
const POLL_MS = 2;
/** For a profile: `HEARTH_BENCH_NODE_FLAGS="--cpu-prof --cpu-prof-dir=/tmp/profiles" npm run bench -- --only warm`. */
const NODE_FLAGS = process.env.HEARTH_BENCH_NODE_FLAGS?.split(" ") ?? [];
const KEY = "hk_bench_0123456789abcdef0123456789abcdef";
const HEADERS = { "x-api-key": KEY };

export interface DaemonOptions {
  /** Started cells kept in reserve; null: the default. */
  readonly cells: number | null;
  /** Absent: a free one. Given where a daemon takes the place of one that ended. */
  readonly port?: number;
}

export interface PoolStats {
  readonly total_count: number;
  readonly warming_count: number;
  readonly ready_count: number;
  readonly busy_count: number;
  readonly recycling_count: number;
  readonly terminating_count: number;
  readonly cells: number;
  readonly cells_starting: number;
  /** Classes with demand for cells. A key begins with the name of the runtime. */
  readonly classes: readonly { readonly class: string; readonly cells: number; readonly cells_target: number }[];
}

export interface FunctionSpec {
  readonly name: string;
  readonly handler: string;
  readonly min_instances?: number;
  readonly max_instances?: number;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Where set-up has put the helper and the image: the same settings as the daemon's. */
function installed(): { helper: string; image_dir: string } {
  const { data_dir, image_dir } = readDirectories(process.env, process.argv.slice(2));
  return { helper: helperPath(data_dir), image_dir };
}

export function installedHelper(): string {
  return installed().helper;
}

export function installedImages(): string {
  return installed().image_dir;
}

/** A new directory for a data directory or a bundle. Not below /tmp: the launcher has one of its own. */
export function temporaryDirectory(): string {
  return mkdtempSync("/var/tmp/hearth-bench-");
}

/** A data directory in which set-up has nothing left to do. */
export function makeDataDir(): string {
  const source = installed().helper;
  if (!existsSync(source)) throw new Error(`${source} is missing: run set-up first (node src/setup/index.js test)`);
  const data_dir = temporaryDirectory();
  const helper = helperPath(data_dir);
  mkdirSync(dirname(helper), { recursive: true });
  cpSync(source, helper);
  return data_dir;
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

/** Bridge and subnet differ from the defaults and from another bench's, so that no daemon of this machine is disturbed. */
function flagsOf(data_dir: string, port: number, cells_target: number): string[] {
  const flags = {
    listen: `127.0.0.1:${port}`,
    "data-dir": data_dir,
    "image-dir": installed().image_dir,
    bridge: bridgeOf(port),
    subnet: `10.${200 + (port % 50)}.${(port >> 4) & 0xf0}.0/20`,
    cells: String(cells_target),
  };
  return Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
}

function bridgeOf(port: number): string {
  return `hb-${port.toString(16)}`;
}

interface Running {
  readonly child: ChildProcess;
  readonly data_dir: string;
  readonly port: number;
  readonly begun_ms: number;
  readonly healthy_ms: number;
  readonly cells_target: number;
  readonly control: Connection;
}

export class Daemon {
  readonly port: number;
  readonly data_dir: string;
  /** When its process was started and when /health first answered 200, on the machine's clock. */
  readonly begun_ms: number;
  readonly healthy_ms: number;
  readonly cells_target: number;
  readonly #child: ChildProcess;
  /** The server ends one that was not used for a minute. */
  #control: Connection;

  private constructor(running: Running) {
    this.port = running.port;
    this.data_dir = running.data_dir;
    this.begun_ms = running.begun_ms;
    this.healthy_ms = running.healthy_ms;
    this.cells_target = running.cells_target;
    this.#child = running.child;
    this.#control = running.control;
  }

  get ready_ms(): number {
    return this.healthy_ms - this.begun_ms;
  }

  get logPath(): string {
    return logPath(this.data_dir);
  }

  /** Names what this daemon has on the host, as its own configuration derives it. */
  get tag(): string {
    return createHash("sha256").update(this.data_dir).digest("hex").slice(0, 8);
  }

  get bridge(): string {
    return bridgeOf(this.port);
  }

  /** What it keeps in memory: bundles, sockets, the OCI runtime's state. */
  get runDirectory(): string {
    return `${volatileDirectory()}/hearth/${this.tag}`;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  static async start(data_dir: string, options: DaemonOptions): Promise<Daemon> {
    const port = options.port ?? (await freePort());
    const cells_target = options.cells ?? LIMITS.cells_target;
    const log = openSync(logPath(data_dir), "a");
    const begun_ms = machineMs();
    const child = spawn(
      NODE_PATH,
      [...START_FLAGS, ...NODE_FLAGS, "src/main.js", ...flagsOf(data_dir, port, cells_target)],
      {
        cwd: PROJECT_DIR,
        env: { ...process.env, HEARTH_BOOTSTRAP_KEY: KEY, NODE_ENV: "production" },
        stdio: ["ignore", log, log],
      },
    );
    closeSync(log);
    const ask = (): Promise<Connection | null> => {
      if (child.exitCode !== null) throw new Error(`the daemon exited with ${child.exitCode}`);
      return healthyConnection(port);
    };
    try {
      const what = (): string => "the daemon gets ready";
      const control = await until(ask, { poll_ms: POLL_MS, deadline_ms: START_TIMEOUT_MS, what });
      return new Daemon({ child, data_dir, port, begun_ms, healthy_ms: machineMs(), cells_target, control });
    } catch (cause) {
      child.kill("SIGKILL");
      throw new Error(`no daemon: ${cause}\n${logTail(data_dir)}`, { cause });
    }
  }

  /** `kill -9`. Resolves when the process is gone, to the moment it was killed. */
  async kill(): Promise<number> {
    this.#control.close();
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    const killed_ms = machineMs();
    this.#child.kill("SIGKILL");
    await gone;
    return killed_ms;
  }

  /** Stops the daemon as an operator would and waits until it is gone. Throws when it had to be killed or failed. */
  async stop(): Promise<void> {
    this.#control.close();
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const gone = new Promise((resolve) => this.#child.once("exit", resolve));
      this.#child.kill("SIGTERM");
      const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_TIMEOUT_MS);
      await gone;
      clearTimeout(timer);
    }
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== 0) throw new Error(`the daemon ended with ${exitCode ?? signalCode}\n${logTail(this.data_dir)}`);
  }

  /** Creates and deploys a function, so that its next call is its first. Resolves to its id. */
  async deploy(spec: FunctionSpec): Promise<string> {
    const { id } = (await this.call("POST", "/api/functions", spec)) as { id: string };
    await this.call("POST", `/api/functions/${id}/deploy`, {});
    return id;
  }

  async stats(): Promise<PoolStats> {
    return (await this.call("GET", "/api/functions/pool/stats", null)) as PoolStats;
  }

  /** Deletes all API containers: they would outlive the daemon, and their files with them. */
  async deleteContainers(): Promise<void> {
    const connection = await Connection.open(this.port);
    try {
      const list = await this.callOn(connection, "GET", "/api/containers?limit=1000", null);
      for (const { container_id } of (list as { containers: { container_id: string }[] }).containers) {
        await this.callOn(connection, "DELETE", `/api/containers/${container_id}`, null);
      }
    } finally {
      connection.close();
    }
  }

  /** Waits until the reserve holds `cells` cells and nothing is being started, cleaned up or removed. */
  async quiet(cells: number): Promise<PoolStats> {
    let stats: PoolStats | null = null;
    const ask = async (): Promise<PoolStats | null> => {
      stats = await this.stats();
      return stats.cells >= cells && movingCount(stats) === 0 ? stats : null;
    };
    const what = (): string => `the pool comes to rest: ${JSON.stringify(stats)}`;
    return until(ask, { poll_ms: POLL_MS, deadline_ms: START_TIMEOUT_MS, what });
  }

  /** The bytes of a call of the function `name`. A payload that is no text is sent as JSON. */
  invocation(name: string, payload: string | object): Buffer {
    return requestBytes("POST", `/api/functions/invoke/${encodeURIComponent(name)}`, HEADERS, { payload });
  }

  /** For a client that is no `Connection`: the tenant's key. */
  get headers(): Readonly<Record<string, string>> {
    return HEADERS;
  }

  /** A request beside the load; one at a time. Throws unless the answer is a 2xx. */
  async call(method: string, path: string, body: object | null): Promise<unknown> {
    if (!this.#control.isOpen) this.#control = await Connection.open(this.port);
    return this.callOn(this.#control, method, path, body);
  }

  /** The same request to many paths, `lanes_count` at a time. */
  async callEach(method: string, paths: readonly string[], lanes_count: number): Promise<void> {
    let next = 0;
    const lanes = Array.from({ length: Math.min(lanes_count, paths.length) }, async () => {
      const connection = await Connection.open(this.port);
      for (let path = paths[next++]; path !== undefined; path = paths[next++]) {
        await this.callOn(connection, method, path, {});
      }
      connection.close();
    });
    await Promise.all(lanes);
  }

  async callOn(connection: Connection, method: string, path: string, body: object | null): Promise<unknown> {
    const reply = await connection.request(requestBytes(method, path, HEADERS, body));
    if (reply.status >= 300) throw new Error(`${method} ${path} answered ${reply.status}: ${reply.body}`);
    return JSON.parse(reply.body.toString());
  }
}

/** Counts the instances and cells that are being started, serve a call, or are cleaned up or removed. */
export function movingCount(stats: PoolStats): number {
  const { warming_count, busy_count, recycling_count, terminating_count, cells_starting } = stats;
  return warming_count + busy_count + recycling_count + terminating_count + cells_starting;
}

/** The record in an answer, or why there is none. `expected`: the standard output, or as an object the result. */
export function recordOf(reply: Reply, expected: string | object): InvocationRecord | string {
  if (reply.status !== 200) return `status ${reply.status}: ${reply.body.toString().slice(0, 300)}`;
  const record = JSON.parse(reply.body.toString()) as InvocationRecord;
  if (record.status !== "success") return `${record.status}: ${record.error_message ?? record.stderr.slice(0, 300)}`;
  if (typeof expected === "string") return record.stdout === expected ? record : "wrong standard output";
  return JSON.stringify(record.result) === JSON.stringify(expected) ? record : "wrong result";
}

async function healthyConnection(port: number): Promise<Connection | null> {
  let connection: Connection | null = null;
  try {
    connection = await Connection.open(port);
    if ((await connection.request(requestBytes("GET", "/health", {}, null))).status === 200) return connection;
  } catch {
    // Not listening yet.
  }
  connection?.close();
  return null;
}

function logPath(data_dir: string): string {
  return join(data_dir, "bench.log");
}

function logTail(data_dir: string): string {
  return readFileSync(logPath(data_dir), "utf8").slice(-4_000);
}

/** Runs `body` with a fresh daemon on a fresh data directory and removes both. */
export async function withDaemon<T>(options: DaemonOptions, body: (daemon: Daemon) => Promise<T>): Promise<T> {
  const data_dir = makeDataDir();
  try {
    const daemon = await Daemon.start(data_dir, options);
    let result: T;
    try {
      result = await body(daemon);
    } catch (error) {
      await daemon.deleteContainers().catch(() => {});
      await daemon.stop().catch(() => {});
      throw new Error(`${error instanceof Error ? error.message : error}\n${logTail(data_dir)}`, {
        cause: error,
      });
    }
    await daemon.deleteContainers();
    await daemon.stop();
    return result;
  } finally {
    rmSync(data_dir, { recursive: true, force: true });
  }
}
