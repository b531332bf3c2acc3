/**
 * A real daemon for a test: its own process, data directory, bridge, subnet and port, sharing only the image store.
 * `leftovers` counts what carries its tag on the host, so that a test can compare before and after.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Config } from "../../src/base/config.ts";
import { volatileDirectory } from "../../src/base/volatile-directory.ts";
import { buildahCommand, helperPath, NODE_PATH, PROJECT_DIR, readDirectories } from "../../src/installation/paths.js";
import { checkAnswer } from "./answers.ts";
import { bridgeOf, ownSubnet, tagOf } from "./networks.ts";
import { START_FLAGS } from "./start-flags.ts";

export const KEY = "test-key-0123456789abcdef";

/** A machine whose cores others take makes everything slow: what comes at all comes within these. */
const WAIT_MS_MAX = 40_000;
const START_MS_MAX = 150_000;

/** Of what a daemon prints, the end: a line a request is some 300 characters. */
const OUTPUT_LENGTH_MAX = 1_000_000;

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

export interface Leftovers {
  readonly processes: readonly string[];
  /** On the host, and what the launcher holds in its own mount namespace. */
  readonly mounts: readonly string[];
  /** Those of the processes that are not this process's, and those that the launcher keeps ready. */
  readonly namespaces: readonly string[];
  readonly cgroups: readonly string[];
  readonly links: readonly string[];
  readonly tables: readonly string[];
  readonly run_files: readonly string[];
  readonly image_containers: readonly string[];
  /** What crun leaves in /tmp when it is killed. */
  readonly crun_files: readonly string[];
  /** Loop devices of its storage pool. */
  readonly loops: readonly string[];
  /** Subvolumes of containers, volumes, build contexts and unfinished uploads of code, as the launcher sees them in the storage pool. */
  readonly subvolumes: readonly string[];
  /** Archives of code that are being read. */
  readonly code_uploads: readonly string[];
  /** Logs and exits of containers. */
  readonly container_files: readonly string[];
}

export const NOTHING_LEFT: Leftovers = {
  processes: [],
  mounts: [],
  namespaces: [],
  cgroups: [],
  links: [],
  tables: [],
  run_files: [],
  image_containers: [],
  crun_files: [],
  loops: [],
  subvolumes: [],
  code_uploads: [],
  container_files: [],
};

/** Waits until `condition` answers something truthy. Throws after `deadline_ms`. */
export async function eventually<T>(
  what: string,
  condition: () => T | Promise<T>,
  deadline_ms = WAIT_MS_MAX,
): Promise<NonNullable<T>> {
  const end_ms = performance.now() + deadline_ms;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > end_ms) throw new Error(`not within ${deadline_ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Returns a TCP port of 127.0.0.1 that no process listens on. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

export class Daemon {
  readonly data_dir: string;
  readonly tag: string;
  /** Names and numbers that only this daemon uses. */
  readonly bridge: string;
  readonly subnet = ownSubnet();
  url = "";
  output = "";
  /** Of the process that starts the daemon, octal; null: that of the test. */
  umask: string | null = null;
  #child: ChildProcess | null = null;
  #port = 0;
  #services_port = 0;

  /** `parent`: where the data directory is made. */
  constructor(parent = "/var/tmp") {
    this.data_dir = realpathSync(mkdtempSync(`${parent}/hearth-test-`));
    this.tag = tagOf(this.data_dir);
    this.bridge = bridgeOf(this.data_dir);
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Whether the process that was started last still runs. */
  get isAlive(): boolean {
    return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Open file descriptors of the daemon's process: what each of them leads to. */
  descriptors(): string[] {
    return descriptorsOf(String(this.pid));
  }

  /** Starts the daemon and waits for `/health`. */
  async start(settings: Readonly<Record<string, string>> = {}): Promise<this> {
    const child = await this.launch(settings);
    const answers = async () => {
      if (!this.isAlive) throw new Error(`the daemon ended with ${child.exitCode ?? child.signalCode}: ${this.output}`);
      return fetch(`${this.url}/health`).then(
        (response) => response.ok,
        () => false,
      );
    };
    await eventually("the daemon answers", answers, START_MS_MAX).catch((error) => {
      throw new Error(`${error.message}: ${this.output}`);
    });
    // It tries user namespaces out behind its back; what that takes is gone when it can say how that went.
    await fetch(`${this.url}/api/system/info`, { headers: { "x-api-key": KEY } }).catch(() => {});
    return this;
  }

  #command(): string[] {
    const argv = [NODE_PATH, ...START_FLAGS, "src/main.js"];
    return this.umask === null ? argv : ["sh", "-c", `umask ${this.umask} && exec "$@"`, "sh", ...argv];
  }

  /** Starts the daemon's process and does not wait for it. */
  async launch(settings: Readonly<Record<string, string>> = {}): Promise<ChildProcess> {
    const { image_dir, data_dir } = readDirectories(process.env, []);
    const helper = helperPath(this.data_dir);
    if (!existsSync(helper)) {
      mkdirSync(join(this.data_dir, "bin"), { recursive: true });
      cpSync(helperPath(data_dir), helper);
    }
    if (this.#port === 0) this.#port = await freePort();
    // The default is the next port, which a client's connection may have.
    if (this.#services_port === 0) this.#services_port = await freePort();
    this.url = `http://127.0.0.1:${this.#port}`;
    const [file = "", ...argv] = this.#command();
    const child = spawn(file, argv, {
      cwd: PROJECT_DIR,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        ...process.env,
        HEARTH_LISTEN: `127.0.0.1:${this.#port}`,
        HEARTH_DATA_DIR: this.data_dir,
        HEARTH_IMAGE_DIR: image_dir,
        HEARTH_BRIDGE: this.bridge,
        HEARTH_SUBNET: this.subnet,
        HEARTH_BOOTSTRAP_KEY: KEY,
        HEARTH_SERVICES_LISTEN: `127.0.0.1:${this.#services_port}`,
        ...settings,
      },
    });
    this.#child = child;
    const keep = (chunk: Buffer) => {
      this.output = (this.output + chunk.toString()).slice(-OUTPUT_LENGTH_MAX);
    };
    child.stdout?.on("data", keep);
    child.stderr?.on("data", keep);
    return child;
  }

  /** Path of the file that arms failpoints, if HEARTH_FAILPOINT is `@` and this path. */
  get failpoint_file(): string {
    return `${this.data_dir}/failpoint`;
  }

  /** Arms a failpoint (`name[:passage][=action]`) in the daemon that runs. */
  async arm(failpoint: string): Promise<void> {
    if (!this.isAlive) throw new Error(`no daemon to arm ${failpoint} in`);
    writeFileSync(this.failpoint_file, failpoint);
    process.kill(this.pid, "SIGUSR2");
    await eventually(`the daemon arms ${failpoint}`, () => !existsSync(this.failpoint_file));
  }

  /** Goes away as the reader of what the daemon prints, like `| head` does. */
  closeOutput(): void {
    this.#child?.stdout?.destroy();
    this.#child?.stderr?.destroy();
  }

  /** With the operator's key unless `headers` say otherwise. Throws when the answer is not what its route promises. */
  async call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    const response = await fetch(this.url + path, {
      method,
      headers: { "x-api-key": KEY, "content-type": "application/json", ...headers },
      body: body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body),
    });
    // A stream of events has no end to wait for.
    const isStream = response.headers.get("content-type") === "text/event-stream";
    if (isStream) await response.body?.cancel();
    const text = isStream ? "" : await response.text();
    const isJson = response.headers.get("content-type") === "application/json";
    const answer = {
      status: response.status,
      headers: response.headers,
      body: text === "" ? null : isJson ? JSON.parse(text) : text,
    };
    checkAnswer(method, path, answer);
    return answer;
  }

  /** Creates and deploys a function. Returns its record. */
  // biome-ignore lint/suspicious/noExplicitAny: the record as it came.
  async deploy(fields: Record<string, unknown>): Promise<any> {
    const created = await this.call("POST", "/api/functions", fields);
    if (created.status !== 201) throw new Error(`create answered ${created.status}: ${JSON.stringify(created.body)}`);
    const deployed = await this.call("POST", `/api/functions/${created.body.id}/deploy`);
    if (deployed.status !== 200)
      throw new Error(`deploy answered ${deployed.status}: ${JSON.stringify(deployed.body)}`);
    return deployed.body;
  }

  /** Invokes by name; returns the record. */
  // biome-ignore lint/suspicious/noExplicitAny: the record as it came.
  async invoke(name: string, body: Record<string, unknown> = {}): Promise<any> {
    const answer = await this.call("POST", `/api/functions/invoke/${encodeURIComponent(name)}`, body);
    if (answer.status !== 200) throw new Error(`invoke answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** Sends a signal and waits until the process has ended. Resolves to its exit code, null after a signal. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    const child = this.#child;
    if (child === null) return null;
    const exited = new Promise<number | null>((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) resolve(child.exitCode);
      else child.once("exit", (code) => resolve(code));
    });
    child.kill(signal);
    const code = await exited;
    this.#child = null;
    return code;
  }

  /** Stops the daemon and removes its data directory. */
  async dispose(): Promise<void> {
    await this.stop();
    // A test failed between a kill and the next start: what the kill left is for that to remove.
    if (existsSync(this.run_dir)) {
      // Containers outlive their daemon; one that knows of nothing ends all.
      for (const name of entriesOf(this.data_dir).filter((entry) => /^(hearth\.db|area\.btrfs)/.test(entry))) {
        rmSync(`${this.data_dir}/${name}`, { force: true });
      }
      await this.start().catch(() => {});
      const hasContainers = () => this.processes().some((line) => line.includes(" /dev/init container"));
      await eventually("no container is left", () => !hasContainers()).catch(() => {});
      await this.stop();
    }
    rmSync(this.data_dir, { recursive: true, force: true });
    this.#releaseImages();
  }

  /** Takes this daemon's names away from images in the shared store: no start of it does that any more. */
  #releaseImages(): void {
    const { image_dir } = readDirectories(process.env, []);
    const list = `${image_dir}/storage/overlay-images/images.json`;
    const text = existsSync(list) ? readFileSync(list, "utf8") : "[]";
    const images = JSON.parse(text) as { readonly names?: readonly string[] }[];
    const isOwn = (name: string) => name.startsWith(`localhost/hearth/kept:hearth-${this.tag}-`);
    const names = images.flatMap(({ names = [] }) => names.filter(isOwn));
    const [buildah = "", ...flags] = buildahCommand(image_dir);
    for (const name of names) execFileSync(buildah, [...flags, "rmi", name], { stdio: "ignore" });
  }

  get run_dir(): string {
    return `${volatileDirectory()}/hearth/${this.tag}`;
  }

  /** `<pid> <command line>` of everything that runs in this daemon's groups or names one of its directories. */
  processes(): string[] {
    return processesOf(this.tag, [this.run_dir, this.data_dir]);
  }

  /** What is on the machine in this daemon's name. Not while it is busy: files come and go while one looks. */
  leftovers(): Leftovers {
    const { tag: host_tag, bridge, data_dir, run_dir } = this;
    return leftoversOf({ host_tag, bridge, data_dir, run_dir });
  }
}

/** Lists what is on the machine in the name of a daemon, or of an engine without one. */
export function leftoversOf(owner: Pick<Config, "host_tag" | "bridge" | "data_dir" | "run_dir">): Leftovers {
  const { host_tag: tag, bridge, data_dir, run_dir } = owner;
  const { image_dir } = readDirectories(process.env, []);
  // It complains where links come and go while it looks.
  const links = JSON.parse(execFileSync("ip", ["-j", "link"], { stdio: ["ignore", "pipe", "ignore"] }).toString()) as {
    ifname: string;
  }[];
  const containers = `${image_dir}/storage/overlay-containers/containers.json`;
  const named = existsSync(containers)
    ? (JSON.parse(readFileSync(containers, "utf8")) as { names?: string[] }[]).flatMap(({ names }) => names ?? [])
    : [];
  const processes = processesOf(tag, [run_dir, data_dir]);
  const pids = processes.map((line) => line.split(" ", 1)[0] ?? "");
  const launchers = pids.filter((_, i) => processes[i]?.includes(" launcher "));
  return {
    processes,
    mounts: [
      ...mountsOf("self").filter((line) => line.includes(run_dir) || line.includes(data_dir)),
      // A launcher begins with what was mounted on the machine at that moment, which may be other tests'.
      ...launchers
        .flatMap(mountsOf)
        .filter((line) => [run_dir, data_dir, image_dir].some((path) => line.includes(path))),
    ],
    namespaces: [...new Set([...pids.flatMap(namespacesOf), ...launchers.flatMap(heldNamespacesOf)])],
    cgroups: cgroupsOf(`hearth-${tag}`),
    links: links
      .map(({ ifname }) => ifname)
      .filter((name) => name === bridge || name.startsWith(`h${tag.slice(0, 6)}`)),
    tables: execFileSync("nft", ["list", "tables"])
      .toString()
      .split("\n")
      .filter((line) => line.includes(tag)),
    run_files: existsSync(run_dir) ? readdirSync(run_dir, { recursive: true }).map(String) : [],
    crun_files: readdirSync("/tmp").filter((name) => name.startsWith("crun.")),
    image_containers: named.filter((name) => name.includes(tag)),
    loops: loopsOf(data_dir),
    subvolumes: launchers.flatMap((pid) =>
      ["containers", "volumes", "contexts", "code", "snapshots"].flatMap((kind) =>
        entriesOf(`/proc/${pid}/root${data_dir}/area/${kind}`).filter((name) => !isKept(kind, name)),
      ),
    ),
    code_uploads: entriesOf(`${data_dir}/code-uploads`),
    container_files: [
      ...launchers.flatMap((pid) => entriesOf(`/proc/${pid}/root${data_dir}/area/logs`)),
      ...entriesOf(`${data_dir}/containers`),
    ],
  };
}

/** True for a tree of code without a function, except that of an upload under way, and for the cache of builds. */
const isKept = (kind: string, name: string): boolean =>
  (kind === "code" && !name.startsWith("new-")) || (kind === "snapshots" && /^b(st|cm)_/.test(name));

function processesOf(tag: string, directories: readonly string[]): string[] {
  const found: string[] = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      const group = readFileSync(`/proc/${pid}/cgroup`, "utf8");
      const isNamed = directories.some((directory) => command.includes(directory));
      if (group.includes(`/hearth-${tag}`) || isNamed) found.push(`${pid} ${command}`);
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}

function entriesOf(path: string): string[] {
  return existsSync(path) ? readdirSync(path) : [];
}

function loopsOf(data_dir: string): string[] {
  return readdirSync("/sys/block")
    .map((name) => `/sys/block/${name}/loop/backing_file`)
    .filter((file) => existsSync(file) && readFileSync(file, "utf8").startsWith(`${data_dir}/`));
}

/** The groups of that name in all hierarchies, and the groups in them, two levels deep. */
function cgroupsOf(name: string): string[] {
  const root = "/sys/fs/cgroup";
  const parents = [root, ...readdirSync(root).map((entry) => `${root}/${entry}`)];
  const found = parents.map((parent) => `${parent}/${name}`).filter((path) => existsSync(path));
  const below = (path: string) =>
    readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${path}/${entry.name}`);
  const inside = found.flatMap(below);
  return [...found, ...inside, ...inside.flatMap(below)];
}

/** Where a link of /proc leads, or nothing when its process has ended meanwhile. */
export function linkOf(path: string): string[] {
  try {
    return [readlinkSync(path)];
  } catch {
    return [];
  }
}

function descriptorsOf(pid: string): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => linkOf(`/proc/${pid}/fd/${fd}`));
  } catch {
    return [];
  }
}

function mountsOf(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/mounts`, "utf8").split("\n");
  } catch {
    return [];
  }
}

function namespacesOf(pid: string): string[] {
  return NAMESPACE_KINDS.flatMap((kind) => linkOf(`/proc/${pid}/ns/${kind}`)).filter(
    (link) => !OWN_NAMESPACES.includes(link),
  );
}

function heldNamespacesOf(pid: string): string[] {
  // Not the user namespaces that come with them: that of a slot whose instance was adopted is held by its network alone.
  return descriptorsOf(pid).filter((link) => link.startsWith("net:[") && !OWN_NAMESPACES.includes(link));
}

const NAMESPACE_KINDS = ["net", "user", "pid", "mnt", "ipc", "uts", "cgroup"];
const OWN_NAMESPACES = NAMESPACE_KINDS.flatMap((kind) => linkOf(`/proc/self/ns/${kind}`));
