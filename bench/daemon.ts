/**
 * A daemon of its own for each measurement: a fresh process on a fresh data directory, with the installed helper and
 * image, and a few calls of its API. What a caller of the API pays is measured by the benches themselves, on
 * `Connection`s that they open; what is here prepares and looks.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, cpSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { LIMITS } from "../src/base/limits.ts";
import type { InvocationRecord } from "../src/functions/schema.ts";
import { helperPath, NODE_PATH, PROJECT_DIR, readDirectories } from "../src/setup/paths.js";
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
}

export interface FunctionSpec {
  readonly name: string;
  readonly handler: string;
  readonly max_instances?: number;
}

export function pause(delay_ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delay_ms));
}

/** Where set-up has put the helper and the image: the same settings as the daemon's. */
function installed(): { helper: string; image_dir: string } {
  const { data_dir, image_dir } = readDirectories(process.env, process.argv.slice(2));
  return { helper: helperPath(data_dir), image_dir };
}

export function installedHelper(): string {
  return installed().helper;
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

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

export class Daemon {
  readonly port: number;
  /** From the start of the process to the first 200 of /health. */
  readonly ready_ms: number;
  readonly cells_target: number;
  readonly #child: ChildProcess;
  readonly logPath: string;
  readonly #control: Connection;

  private constructor(
    child: ChildProcess,
    port: number,
    ready_ms: number,
    cells_target: number,
    log_path: string,
    control: Connection,
  ) {
    this.cells_target = cells_target;
    this.#child = child;
    this.port = port;
    this.ready_ms = ready_ms;
    this.logPath = log_path;
    this.#control = control;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  static async start(data_dir: string, options: DaemonOptions): Promise<Daemon> {
    const port = await freePort();
    const cells_target = options.cells ?? LIMITS.cells_target;
    const log_path = join(data_dir, "bench.log");
    const log = openSync(log_path, "a");
    // Bridge and subnet differ from the defaults, so that a daemon that already serves on this machine is not disturbed.
    const flags = {
      listen: `127.0.0.1:${port}`,
      "data-dir": data_dir,
      "image-dir": installed().image_dir,
      bridge: `hb-${port.toString(16)}`,
      subnet: "10.99.0.0/20",
      cells: String(cells_target),
    };
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
    const begun_ms = performance.now();
    const child = spawn(NODE_PATH, [...NODE_FLAGS, "src/main.ts", ...args], {
      cwd: PROJECT_DIR,
      env: { ...process.env, HEARTH_BOOTSTRAP_KEY: KEY, NODE_ENV: "production" },
      stdio: ["ignore", log, log],
    });
    closeSync(log);
    try {
      for (;;) {
        const control = await healthyConnection(port);
        if (control !== null)
          return new Daemon(child, port, performance.now() - begun_ms, cells_target, log_path, control);
        if (child.exitCode !== null) throw new Error(`the daemon exited with ${child.exitCode}`);
        if (performance.now() - begun_ms > START_TIMEOUT_MS) throw new Error("the daemon did not get ready");
        await pause(POLL_MS);
      }
    } catch (cause) {
      child.kill("SIGKILL");
      throw new Error(`no daemon: ${cause}\n${logTail(log_path)}`, { cause });
    }
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
    if (exitCode !== 0) throw new Error(`the daemon ended with ${exitCode ?? signalCode}\n${logTail(this.logPath)}`);
  }

  /** Creates and deploys a function, so that its next call is its first. */
  async deploy(spec: FunctionSpec): Promise<void> {
    const { id } = (await this.#call("POST", "/api/functions", spec)) as { id: string };
    await this.#call("POST", `/api/functions/${id}/deploy`, {});
  }

  async stats(): Promise<PoolStats> {
    return (await this.#call("GET", "/api/functions/pool/stats", null)) as PoolStats;
  }

  /** Waits until the reserve holds `cells` cells and nothing is being started, cleaned up or removed. */
  async quiet(cells: number): Promise<void> {
    const deadline_ms = performance.now() + START_TIMEOUT_MS;
    for (;;) {
      const stats = await this.stats();
      const moving =
        stats.warming_count + stats.busy_count + stats.recycling_count + stats.terminating_count + stats.cells_starting;
      if (stats.cells >= cells && moving === 0) return;
      if (performance.now() > deadline_ms) throw new Error(`the pool did not come to rest: ${JSON.stringify(stats)}`);
      await pause(POLL_MS);
    }
  }

  /** The bytes of a call of the function `name`. */
  invocation(name: string, payload: string): Buffer {
    return requestBytes("POST", `/api/functions/invoke/${encodeURIComponent(name)}`, HEADERS, { payload });
  }

  async #call(method: string, path: string, body: object | null): Promise<unknown> {
    const reply = await this.#control.request(requestBytes(method, path, HEADERS, body));
    if (reply.status >= 300) throw new Error(`${method} ${path} answered ${reply.status}: ${reply.body}`);
    return JSON.parse(reply.body.toString());
  }
}

/** The record in an answer, or why there is none. */
export function recordOf(reply: Reply, stdout: string): InvocationRecord | string {
  if (reply.status !== 200) return `status ${reply.status}: ${reply.body.toString().slice(0, 300)}`;
  const record = JSON.parse(reply.body.toString()) as InvocationRecord;
  if (record.status !== "success") return `${record.status}: ${record.error_message ?? record.stderr.slice(0, 300)}`;
  return record.stdout === stdout ? record : "wrong standard output";
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

function logTail(path: string): string {
  return readFileSync(path, "utf8").slice(-4_000);
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
      await daemon.stop().catch(() => {});
      throw new Error(`${error instanceof Error ? error.message : error}\n${logTail(daemon.logPath)}`, {
        cause: error,
      });
    }
    await daemon.stop();
    return result;
  } finally {
    rmSync(data_dir, { recursive: true, force: true });
  }
}
