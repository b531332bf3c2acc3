/**
 * What hearth is compared with.
 *
 * `ContainerRunner`: `crun run` (or runc) in the foreground of a bundle with a static busybox, the configuration that
 * `crun spec` writes, `/bin/cat` with empty standard input as its command: no network but loopback, no limits, no seccomp
 * filter, nothing kept. It runs below the compiled launcher, whose private mount namespace crun needs on a hybrid
 * cgroup host, and the time is the launcher's own, from its fork to the exit: neither Node's spawn nor a hop is in it.
 * With a network, a script first makes a fresh network namespace with a link to a bridge, an address and a route; the
 * script does not remove it, as hearth's instances stay.
 *
 * `SpawnServer`: the unisolated server of `spawn-server.ts`, for streams of `stream-server.ts`, for functions that echo of
 * `hono-server.ts`, for published services of `proxy-server.ts`, in a fresh process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../src/base/clock.ts";
import { volatileDirectory } from "../src/base/volatile-directory.ts";
import { LauncherClient, LauncherProcess } from "../src/engine/launcher/launcher.ts";
import { NODE_PATH } from "../src/installation/paths.js";
import { checkClasses, ratePerSecond } from "./calls.ts";
import { type ContainerCommand, WITH_NETWORK } from "./container-peer.ts";
import { installedHelper, temporaryDirectory } from "./daemon.ts";
import type { LoadOptions, LoadResult } from "./load.ts";

const RUN_TIMEOUT_MS = 30_000;

const BRIDGE_PREFIX = "10.198.";
const GATEWAY = `${BRIDGE_PREFIX}0.1`;

interface Config {
  readonly linux: { readonly namespaces: { readonly type: string; path?: string }[] };
}

export class ContainerRunner {
  readonly #directory: string;
  /** The runtimes' state lies in memory, as hearth's does. */
  readonly #state: string;
  readonly #process: LauncherProcess;
  readonly #client: LauncherClient;
  readonly #bridge = `hbn-${process.pid}`;
  #run_count = 0;
  #bridging: Promise<void> | null = null;
  /** Namespaces that runs with a network left. */
  #networks: string[] = [];

  private constructor(directory: string, process: LauncherProcess, client: LauncherClient) {
    this.#directory = directory;
    this.#state = mkdtempSync(join(volatileDirectory(), "hearth-bench-"));
    this.#process = process;
    this.#client = client;
  }

  static async open(): Promise<ContainerRunner> {
    const directory = temporaryDirectory();
    const socket = join(directory, "launcher.sock");
    try {
      const launcher = await LauncherProcess.start(installedHelper(), socket, true, systemClock);
      const runner = new ContainerRunner(directory, launcher, new LauncherClient(socket, systemClock));
      await runner.#makeBundle();
      return runner;
    } catch (error) {
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
  }

  /** Runs the bundle to its end. Resolves to the milliseconds it took, rejects when it failed. */
  async run(command: ContainerCommand): Promise<number> {
    this.#run_count += 1;
    const id = `hearth-bench-${process.pid}-${this.#run_count}`;
    const argv = [command, "--root", join(this.#state, command), "run", "--bundle", join(this.#directory, "b"), id];
    const result = await this.#client.spawn({ argv, timeout_ms: RUN_TIMEOUT_MS });
    if (result.exit_code !== 0) throw new Error(`${command} run: ${result.stderr.slice(-500)}`);
    return result.duration_ms;
  }

  /** The same in a fresh network. `removeNetworks` removes those of all runs. */
  async runNetworked(): Promise<number> {
    this.#bridging ??= this.#makeBridge();
    await this.#bridging;
    const index = this.#networks.length;
    const id = `${this.#bridge}-${index}`;
    this.#networks.push(id);
    const bundle = join(this.#directory, "b");
    const config = JSON.parse(readFileSync(join(bundle, "config.json"), "utf8")) as Config;
    const network = config.linux.namespaces.find(({ type }) => type === "network");
    if (network !== undefined) network.path = `/run/netns/${id}`;
    const file = join(this.#directory, `${id}.json`);
    writeFileSync(file, JSON.stringify(config));
    const address = `${BRIDGE_PREFIX}${(index >> 7) + 1}.${(index & 127) + 1}`;
    const run = ["crun", "--root", join(this.#state, "crun"), "run", "--bundle", bundle, "--config", file, id];
    const argv = ["sh", "-c", WITH_NETWORK, "sh", id, `hn${process.pid}-${index}`, address, this.#bridge, GATEWAY];
    const result = await this.#client.spawn({ argv: [...argv, ...run], timeout_ms: RUN_TIMEOUT_MS });
    if (result.exit_code !== 0) throw new Error(`crun run in a network: ${result.stderr.slice(-500)}`);
    return result.duration_ms;
  }

  async removeNetworks(): Promise<void> {
    const remove = (...argv: string[]) => this.#client.spawn({ argv: ["ip", ...argv], timeout_ms: RUN_TIMEOUT_MS });
    // The kernel takes the link along with its namespace.
    for (const id of this.#networks) await remove("netns", "delete", id);
    if (this.#bridging !== null) await remove("link", "delete", this.#bridge);
    this.#bridging = null;
    this.#networks = [];
  }

  async #makeBridge(): Promise<void> {
    const add = (...argv: string[]) => this.#client.run(["ip", ...argv], RUN_TIMEOUT_MS);
    await add("link", "add", this.#bridge, "type", "bridge");
    await add("address", "add", `${GATEWAY}/16`, "dev", this.#bridge);
    await add("link", "set", this.#bridge, "up");
  }

  async version(command: ContainerCommand): Promise<string> {
    return (await this.#client.run([command, "--version"], RUN_TIMEOUT_MS)).split("\n", 1)[0] ?? command;
  }

  async close(): Promise<void> {
    await this.removeNetworks();
    this.#client.close();
    await this.#process.stop(systemClock);
    for (const path of [this.#directory, this.#state]) rmSync(path, { recursive: true, force: true });
  }

  async #makeBundle(): Promise<void> {
    const bundle = join(this.#directory, "b");
    // The mount points exist, as in any image: runs side by side would race to make them.
    for (const name of ["bin", "dev", "proc", "sys"]) mkdirSync(join(bundle, "rootfs", name), { recursive: true });
    copyFileSync("/usr/bin/busybox", join(bundle, "rootfs/bin/busybox"));
    symlinkSync("busybox", join(bundle, "rootfs/bin/cat"));
    const made = await this.#client.spawn({
      argv: ["crun", "spec"],
      working_directory: bundle,
      timeout_ms: RUN_TIMEOUT_MS,
    });
    if (made.exit_code !== 0) throw new Error(`crun spec: ${made.stderr}`);
    const config = JSON.parse(readFileSync(join(bundle, "config.json"), "utf8"));
    config.process.terminal = false;
    config.process.args = ["/bin/cat"];
    writeFileSync(join(bundle, "config.json"), JSON.stringify(config));
  }
}

/** Of this folder: what serves as a peer prints its port and ends with its standard input. */
export type PeerServer = "spawn-server.ts" | "stream-server.ts" | "hono-server.ts" | "proxy-server.ts";

export class SpawnServer {
  readonly port: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.port = port;
  }

  static async start(file: PeerServer = "spawn-server.ts", ...args: string[]): Promise<SpawnServer> {
    const child = spawn(NODE_PATH, [new URL(file, import.meta.url).pathname, ...args], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, NODE_ENV: "production" },
    });
    const port = await new Promise<number>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`${file} exited with ${code}`)));
      child.stdout.once("data", (line: Buffer) => resolve(Number(line.toString())));
    });
    return new SpawnServer(child, port);
  }

  async stop(): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.stdin?.end();
    await gone;
  }
}

export interface RunningLoad {
  /** When its first call is due, on the machine's clock; told a moment before. */
  readonly begins_ms: number;
  readonly result: Promise<LoadResult>;
}

/** Runs the load generator in a fresh process. Resolves when it is about to begin, for who has something to do meanwhile. */
export async function startLoad(options: LoadOptions): Promise<RunningLoad> {
  const child = spawn(NODE_PATH, [new URL("load.ts", import.meta.url).pathname], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const begun = Promise.withResolvers<number>();
  const result = Promise.withResolvers<LoadResult>();
  const output: Buffer[] = [];
  child.once("error", begun.reject);
  // The first line comes as one write, and everything else much later.
  child.stdout.once("data", (line: Buffer) => {
    begun.resolve(Number(line.toString()));
    child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
  });
  child.once("close", (code) => {
    const failure = new Error(`the load generator exited with ${code}`);
    begun.reject(failure);
    if (code === 0) result.resolve(JSON.parse(Buffer.concat(output).toString()) as LoadResult);
    else result.reject(failure);
  });
  // Who awaits it hears of a failure; until then it is no unhandled one.
  result.promise.catch(() => {});
  child.stdin.end(JSON.stringify(options));
  return { begins_ms: await begun.promise, result: result.promise };
}

export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  return (await startLoad(options)).result;
}

/**
 * Runs a closed loop of `clients_count` clients for `peak_ms` after half of that, which also brings up all instances.
 * Resolves to half of the rate that it reaches, and the instances that it met.
 */
export async function halfPeak(
  options: Omit<LoadOptions, "open" | "length_ms">,
  clients_count: number,
  peak_ms: number,
): Promise<{ readonly rate_per_second: number; readonly known: Set<string> }> {
  const peak = await runLoad({ ...options, clients_count, warmup_ms: peak_ms / 2, length_ms: peak_ms, open: null });
  const known = new Set<string>();
  checkClasses(peak.calls, known);
  return { rate_per_second: ratePerSecond(peak) / 2, known };
}

/** Runs a client of this folder in a fresh process: its job as JSON on standard input, its result on standard output. */
export async function runClient<Result>(file: string, job: object): Promise<Result> {
  const child = spawn(NODE_PATH, [new URL(file, import.meta.url).pathname], { stdio: ["pipe", "pipe", "inherit"] });
  const output: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
    child.stdin.end(JSON.stringify(job));
  });
  if (code !== 0) throw new Error(`${file} exited with ${code}`);
  return JSON.parse(Buffer.concat(output).toString()) as Result;
}
