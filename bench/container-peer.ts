/**
 * What API containers are compared with: the same container, started without hearth. Its bundle is a copy of one that
 * hearth wrote (the same image, mounts, limits and ready-made filter, the same minit as its first process), with a root
 * of its own that is mounted ahead, but without a user namespace. What is timed is what a careful script does then: a
 * network namespace with a link to a bridge, an address, a route, `run --detach`, and the first answer of the process
 * inside.
 *
 * It runs below the compiled launcher, as the runners of baselines.ts: neither Node's spawn nor a shell's start-up of
 * its own is in the time but one `sh` for the whole script, and the runtime's state lies in memory as hearth's does.
 */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../src/base/clock.ts";
import { AppError } from "../src/base/errors.ts";
import { LIMITS } from "../src/base/limits.ts";
import { volatileDirectory } from "../src/base/volatile-directory.ts";
import { ImageStore } from "../src/engine/images/image-store.ts";
import { detectCgroupMode, removeGroup } from "../src/engine/kernel/control-groups.ts";
import { LauncherClient, LauncherProcess } from "../src/engine/launcher/launcher.ts";
import { ControlConnection } from "../src/engine/minit/container-client.ts";
import { buildahCommand, imageStore } from "../src/installation/paths.js";
import { profileImage } from "../src/installation/profiles.js";
import { type Daemon, installedHelper, installedImages, temporaryDirectory } from "./daemon.ts";

const TIMEOUT_MS = 30_000;
const CONFIG = "config.json";
/** Files of /etc that a bundle brings, by name. */
const ETC: Readonly<Record<string, string>> = {
  hosts: "127.0.0.1\tlocalhost\n",
  hostname: "peer\n",
  "resolv.conf": "nameserver 127.0.0.1\n",
};
const BRIDGE_PREFIX = "10.199.";

export type ContainerCommand = "crun" | "runc";

/** $1: name of the namespace and the container, $2: link, $3: its address, $4: bridge, $5: gateway; then the command. */
export const WITH_NETWORK = `set -e
name=$1 link=$2 address=$3 bridge=$4 gateway=$5
shift 5
ip netns add $name
ip -batch - <<END
link add $link type veth peer name eth0 netns $name
link set $link master $bridge up
link set $link type bridge_slave isolated on
END
ip -n $name -batch - <<END
link set lo up
address add $address/16 dev eth0
link set eth0 up
route add default via $gateway
END
exec "$@"`;

/** The name of a container's present run, which its bundle and the OCI runtime have. */
function runOf(daemon: Daemon, id: string): string {
  const run = readdirSync(`${daemon.runDirectory}/c`).find((name) => name.startsWith(`${id}.`));
  if (run === undefined) throw new AppError("NOT_FOUND", `container ${id} has no bundle`);
  return run;
}

/** A container that is ready to be started. */
export interface Bundle {
  readonly id: string;
  readonly path: string;
  readonly index: number;
}

export interface PeerOptions {
  readonly command: ContainerCommand;
  /** Whether the script makes a network; without it the runtime makes a namespace with nothing in it but loopback. */
  readonly has_network: boolean;
}

/** The bundle's parts that name a place on this machine. */
interface Config {
  readonly root: { path: string };
  mounts: { source: string; readonly destination: string }[];
  readonly linux: { cgroupsPath: string; namespaces: { readonly type: string; path?: string }[] };
}

export class PeerContainers {
  readonly #directory: string;
  readonly #state: string;
  readonly #process: LauncherProcess;
  readonly #client: LauncherClient;
  readonly #images: ImageStore;
  readonly #name = `hearth-bench-${process.pid}`;
  readonly #bridge = `hbp-${process.pid}`;
  readonly #prepared = new Map<Bundle, PeerOptions>();
  #model = "";
  #lower = "";
  #made_count = 0;

  private constructor(directory: string, process: LauncherProcess, client: LauncherClient) {
    this.#directory = directory;
    this.#state = mkdtempSync(join(volatileDirectory(), "hearth-bench-"));
    this.#process = process;
    this.#client = client;
    this.#images = new ImageStore(
      buildahCommand(installedImages()),
      this.#name,
      imageStore(installedImages()).images_file,
    );
  }

  /** `id`: of a container of the daemon, whose bundle is the model. */
  static async open(daemon: Daemon, id: string): Promise<PeerContainers> {
    const directory = temporaryDirectory();
    const socket = join(directory, "launcher.sock");
    const launcher = await LauncherProcess.start(installedHelper(), socket, true, systemClock);
    const peer = new PeerContainers(directory, launcher, new LauncherClient(socket, systemClock));
    try {
      peer.#model = `${daemon.runDirectory}/c/${runOf(daemon, id)}`;
      // The container may go before the last copy is made.
      cpSync(join(peer.#model, CONFIG), join(directory, CONFIG));
      const image = await peer.#images.find(peer.#client, profileImage("prod").reference);
      peer.#lower = (await peer.#images.mount(peer.#client, image, false)).path;
      await peer.#ip("link", "add", peer.#bridge, "type", "bridge");
      await peer.#ip("address", "add", `${BRIDGE_PREFIX}0.1/16`, "dev", peer.#bridge);
      await peer.#ip("link", "set", peer.#bridge, "up");
      return peer;
    } catch (error) {
      await peer.close();
      throw error;
    }
  }

  /** Everything that a script finds there when it begins: configuration, small files, the mounted root. */
  async prepare(options: PeerOptions): Promise<Bundle> {
    const { has_network } = options;
    const index = this.#made_count++;
    const id = `${this.#name}-${index}`;
    const path = join(this.#directory, id);
    mkdirSync(join(path, "changes"), { recursive: true });
    for (const [name, content] of Object.entries(ETC)) writeFileSync(join(path, name), content);
    const root = join(path, "root");
    const text = readFileSync(join(this.#directory, CONFIG), "utf8").replaceAll(this.#model, path);
    const config = JSON.parse(text) as Config;
    config.root.path = root;
    const group = config.linux.cgroupsPath;
    config.linux.cgroupsPath = `/${this.#name}/${id}`;
    for (const mount of config.mounts) {
      const file = Object.keys(ETC).find((name) => mount.destination === `/etc/${name}`);
      if (file !== undefined) mount.source = join(path, file);
      // Its own groups, which it sees.
      mount.source = mount.source.replace(group, config.linux.cgroupsPath);
    }
    config.linux.namespaces = config.linux.namespaces.filter(({ type }) => type !== "user");
    // The daemon's socket of messages is no part of what a script starts.
    config.mounts = config.mounts.filter(({ source }) => source !== join(path, "icc"));
    const network = config.linux.namespaces.find(({ type }) => type === "network");
    if (has_network && network !== undefined) network.path = `/run/netns/${id}`;
    else delete network?.path;
    writeFileSync(join(path, CONFIG), JSON.stringify(config));
    const directory = join(path, "changes");
    await this.#client.mountOverlay({ lower: this.#lower, directory, target: root, isReadonly: false });
    const bundle = { id, path, index };
    this.#prepared.set(bundle, options);
    return bundle;
  }

  /** Resolves to the milliseconds until the process inside has answered. */
  async start(bundle: Bundle): Promise<number> {
    const { id, path, index } = bundle;
    const { command, has_network } = this.#optionsOf(bundle);
    const logs = Array.from({ length: LIMITS.log_segments }, (_, i) => join(path, `log.${i}`));
    const file_paths = [...logs, join(path, "exit")];
    const run = [...this.#runtime(command), "run", "--detach", "--preserve-fds", String(1 + file_paths.length)];
    const argv = [...run, "--bundle", path, id];
    const address = `${BRIDGE_PREFIX}${(index >> 7) + 1}.${(index & 127) + 1}`;
    const network = [id, this.#link(index), address, this.#bridge, `${BRIDGE_PREFIX}0.1`];
    const listen_path = join(path, "s");
    const begun_ms = performance.now();
    const result = await this.#client.spawn({
      argv: has_network ? ["sh", "-c", WITH_NETWORK, "sh", ...network, ...argv] : argv,
      timeout_ms: TIMEOUT_MS,
      listen_paths: [listen_path],
      file_paths,
    });
    if (result.exit_code !== 0) throw new Error(`${command} run: ${result.stderr.slice(-500)}`);
    const control = await ControlConnection.connect(listen_path, TIMEOUT_MS, systemClock);
    const duration_ms = performance.now() - begun_ms;
    control.close();
    return duration_ms;
  }

  async remove(bundle: Bundle): Promise<void> {
    const { id, path, index } = bundle;
    const { command, has_network } = this.#optionsOf(bundle);
    await this.#client.spawn({ argv: [...this.#runtime(command), "delete", "--force", id], timeout_ms: TIMEOUT_MS });
    if (has_network) {
      await this.#client.spawn({ argv: ["ip", "link", "delete", this.#link(index)], timeout_ms: TIMEOUT_MS });
      await this.#client.spawn({ argv: ["ip", "netns", "delete", id], timeout_ms: TIMEOUT_MS });
    }
    await this.#client.unmount(join(path, "root"));
    rmSync(path, { recursive: true, force: true });
    this.#prepared.delete(bundle);
  }

  /** `crun exec` of a command in a container of the daemon: the launcher's own time, from its fork to the exit. */
  async exec(daemon: Daemon, id: string, command: readonly string[]): Promise<number> {
    const argv = ["crun", "--root", `${daemon.runDirectory}/oci-c`, "exec", runOf(daemon, id), ...command];
    const result = await this.#client.spawn({ argv, timeout_ms: TIMEOUT_MS });
    if (result.exit_code !== 0) throw new Error(`crun exec: ${result.stderr.slice(-500)}`);
    return result.duration_ms;
  }

  async close(): Promise<void> {
    // Of a round that broke off.
    for (const bundle of this.#prepared.keys()) await this.remove(bundle);
    await this.#client.spawn({ argv: ["ip", "link", "delete", this.#bridge], timeout_ms: TIMEOUT_MS });
    await this.#images.shutdown(this.#client);
    removeGroup(detectCgroupMode(), `/${this.#name}`);
    this.#client.close();
    await this.#process.stop(systemClock);
    for (const path of [this.#directory, this.#state]) rmSync(path, { recursive: true, force: true });
  }

  #optionsOf(bundle: Bundle): PeerOptions {
    const options = this.#prepared.get(bundle);
    if (options === undefined) throw new Error(`${bundle.id} is not prepared`);
    return options;
  }

  #runtime(command: ContainerCommand): readonly string[] {
    return [command, "--root", join(this.#state, command)];
  }

  #link(index: number): string {
    return `hb${process.pid}-${index}`;
  }

  async #ip(...args: string[]): Promise<void> {
    await this.#client.run(["ip", ...args], TIMEOUT_MS);
  }
}
