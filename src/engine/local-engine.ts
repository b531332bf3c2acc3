/**
 * The engine on this machine: puts launcher, OCI runtime, network, images, groups and worker threads together behind
 * the `Engine` port. What blocks runs in the worker threads; what talks runs here.
 *
 * Invariants:
 * E1 A start that fails leaves no process, group, slot or file.
 * E2 `remove` gives back everything that `start` took, exactly once.
 * E3 Everything made on the host carries the daemon's tag, so that the next boot finds what a crash left.
 */
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { Piscina } from "piscina";
import type { Clock } from "../base/clock.ts";
import type { Config } from "../base/config.ts";
import { AppError, errorText, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { type InstanceSpec, instanceConfig } from "./bundle.ts";
import { applyLimits, detectCgroupMode, groupProcesses, listGroups, readOomKills, removeGroup } from "./cgroup.ts";
import type { CgroupMode, Engine, EngineInfo, Instance, InstanceLimits } from "./engine.ts";
import { Images, type MountedImage } from "./images.ts";
import { LauncherClient, LauncherProcess } from "./launcher.ts";
import { MinitClient } from "./minit-client.ts";
import { Network, type NetworkSlot, readInstanceResolvConf } from "./network.ts";
import { OciRuntime } from "./oci-runtime.ts";
import { loadSeccomp, seccompKey } from "./seccomp.ts";
import type { RemoveTask, StartTask, ThreadData } from "./thread.ts";

/** Slots beyond the instance bound: containers being removed still hold theirs. */
const SLOT_MARGIN = 64;
/** How long a container may take to end after minit was asked to. */
const EXIT_WAIT_MS = 1_000;
const THREAD_COUNT = 2;

export interface EngineOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  /** The compiled helper. */
  readonly minit: string;
  /** buildah with its global flags. */
  readonly buildah: readonly string[];
  /** The image of function instances. */
  readonly image: string;
}

interface Launcher {
  readonly process: LauncherProcess;
  readonly client: LauncherClient;
  readonly pid: number;
}

interface Held {
  readonly slot: NetworkSlot;
  readonly removed: PromiseWithResolvers<void>;
  isRemoving: boolean;
}

export class LocalEngine implements Engine {
  readonly #options: EngineOptions;
  readonly #mode: CgroupMode;
  readonly #network: Network;
  readonly #images: Images;
  readonly #held = new Map<string, Held>();
  readonly #paths: { bundles: string; runtime: string; socket: string; resolv_conf: string; cgroup: string };
  #launcher: Launcher | null = null;
  #runtime: OciRuntime | null = null;
  #threads: Piscina | null = null;
  #image: MountedImage | null = null;
  #seccomp: InstanceSpec["seccomp"] | null = null;
  #isStopping = false;

  constructor(options: EngineOptions) {
    const { config } = options;
    this.#options = options;
    this.#mode = detectCgroupMode();
    this.#paths = {
      bundles: `${config.run_dir}/i`,
      runtime: `${config.run_dir}/oci`,
      socket: `${config.run_dir}/launcher.sock`,
      resolv_conf: `${config.run_dir}/resolv.conf`,
      cgroup: `/hearth-${config.host_tag}`,
    };
    const slots_max = config.instances_max + SLOT_MARGIN;
    this.#network = new Network(() => this.#launched(), options.clock, { ...config, slots_max });
    this.#images = new Images(() => this.#launched().client, options.buildah, config.host_tag);
  }

  async boot(): Promise<void> {
    const { config, clock } = this.#options;
    makePrivate(dirname(config.run_dir));
    makePrivate(config.run_dir);
    mkdirSync(this.#paths.bundles, { recursive: true, mode: 0o700 });
    mkdirSync(this.#paths.runtime, { recursive: true, mode: 0o700 });
    await this.#startLauncher();
    const { client } = this.#launched();
    this.#runtime = await OciRuntime.find(client, config.oci_runtime, this.#paths.runtime);
    await this.#sweep(this.#runtime);
    writeFileSync(this.#paths.resolv_conf, readInstanceResolvConf(), { mode: 0o644 });
    const [image] = await Promise.all([this.#images.mount(this.#options.image), this.#network.boot()]);
    this.#image = image;
    this.#seccomp = await this.#prepareSeccomp(this.#runtime);
    const data: ThreadData = {
      launcher_socket: this.#paths.socket,
      runtime_command: this.#runtime.command,
      runtime_version: this.#runtime.version,
      runtime_root: this.#paths.runtime,
      cgroup_mode: this.#mode,
    };
    this.#threads = new Piscina({
      filename: new URL("./thread.ts", import.meta.url).href,
      minThreads: 1,
      maxThreads: THREAD_COUNT,
      concurrentTasksPerWorker: LIMITS.starts_max * 2,
      maxQueue: LIMITS.engine_tasks_max,
      workerData: data,
    });
    await this.#probe(clock);
  }

  async start(id: string): Promise<Instance> {
    const { clock } = this.#options;
    if (this.#held.has(id)) throw new AppError("START_FAILED", `there is an instance '${id}' already`);
    const begun_ms = clock.monotonicMs();
    const slot = await this.#network.acquire();
    const network_ms = clock.monotonicMs() - begun_ms;
    const bundle = this.#bundle(id);
    try {
      const task: StartTask = { spec: this.#spec(id, slot), bundle, listen_path: `${bundle}/s` };
      const starting_ms = clock.monotonicMs();
      const { rootfs_ms } = (await this.#pool().run(task, { name: "start" })) as { rootfs_ms: number };
      const { client, nonce } = await MinitClient.connect(task.listen_path, LIMITS.start_timeout_ms, clock);
      this.#held.set(id, { slot, removed: Promise.withResolvers(), isRemoving: false });
      const start_ms = clock.monotonicMs() - starting_ms - rootfs_ms;
      const pid = this.#pidOf(id);
      return {
        id,
        nonce,
        pid,
        address: slot.address,
        uid: slot.uid,
        minit: client,
        timings: { network_ms, rootfs_ms, start_ms },
      };
    } catch (cause) {
      await this.#discard(id, slot);
      throw new AppError("START_FAILED", errorText(cause), { cause });
    }
  }

  limit(instance: Instance, limits: InstanceLimits): void {
    applyLimits(this.#mode, this.#cgroup(instance.id), limits);
  }

  oomKills(instance: Instance): number {
    return readOomKills(this.#mode, this.#cgroup(instance.id));
  }

  async remove(instance: Instance): Promise<void> {
    const held = this.#held.get(instance.id);
    if (held === undefined) return;
    if (held.isRemoving) return held.removed.promise;
    held.isRemoving = true;
    await this.#end(instance);
    await this.#discard(instance.id, held.slot);
    this.#held.delete(instance.id);
    held.removed.resolve();
  }

  async hasDirectory(path: string): Promise<boolean> {
    invariant(this.#image !== null, "the engine has booted");
    const mode = await this.#launched().client.statInRoot(this.#image.path, path);
    return mode !== null && (mode & 0o170000) === 0o040000;
  }

  info(): EngineInfo {
    const { config } = this.#options;
    return {
      oci_runtime: this.#runtime?.command ?? "",
      oci_runtime_version: this.#runtime?.version ?? "",
      cgroup_mode: this.#mode,
      image: this.#image?.reference ?? "",
      image_release: this.#image?.release ?? "",
      subnet: config.subnet,
      bridge: config.bridge,
    };
  }

  async shutdown(): Promise<void> {
    this.#isStopping = true;
    await this.#threads?.destroy();
    const launcher = this.#launcher;
    if (launcher === null) return;
    await this.#network.shutdown();
    await this.#images.shutdown();
    removeGroup(this.#mode, this.#paths.cgroup);
    launcher.client.close();
    await launcher.process.stop(this.#options.clock);
    rmSync(this.#options.config.run_dir, { recursive: true, force: true });
  }

  #bundle(id: string): string {
    return `${this.#paths.bundles}/${id}`;
  }

  #cgroup(id: string): string {
    return `${this.#paths.cgroup}/${id}`;
  }

  #launched(): Launcher {
    if (this.#launcher === null)
      throw new AppError("START_FAILED", "the launcher is being replaced", { retry_after: 1 });
    return this.#launcher;
  }

  #pool(): Piscina {
    invariant(this.#threads !== null, "the engine has booted");
    return this.#threads;
  }

  #pidOf(id: string): number {
    try {
      const state = JSON.parse(readFileSync(`${this.#paths.runtime}/${id}/status`, "utf8")) as { pid?: number };
      return state.pid ?? 0;
    } catch {
      // runc keeps its state in another file; the pid is only shown, never acted on.
      return 0;
    }
  }

  #spec(id: string, slot: NetworkSlot): InstanceSpec {
    invariant(this.#image !== null && this.#seccomp !== null, "the engine has booted");
    return {
      id,
      rootfs: this.#image.path,
      minit: this.#options.minit,
      resolv_conf: this.#paths.resolv_conf,
      uid: slot.uid,
      netns: slot.netns,
      cgroup: this.#cgroup(id),
      seccomp: this.#seccomp,
    };
  }

  /** Ends the container's first process and with it, by the kernel's hand, everything in its process namespace. */
  async #end(instance: Instance): Promise<void> {
    if (!instance.minit.isOpen) return;
    const closed = Promise.withResolvers<void>();
    instance.minit.onClosed(closed.resolve);
    instance.minit.shutdown();
    const cancel = this.#options.clock.after(EXIT_WAIT_MS, closed.resolve);
    await closed.promise;
    cancel();
    instance.minit.close();
  }

  /** Removes the container and gives the slot back (E1, E2). What the runtime cannot remove is logged and swept at the next boot. */
  async #discard(id: string, slot: NetworkSlot): Promise<void> {
    const task: RemoveTask = { id, bundle: this.#bundle(id), cgroup: this.#cgroup(id) };
    try {
      await this.#pool().run(task, { name: "remove" });
      await this.#network.release(slot);
    } catch (error) {
      this.#options.log.error("container not removed", { id, error: errorText(error) });
    }
  }

  async #startLauncher(): Promise<void> {
    const { clock, log, minit } = this.#options;
    const process = await LauncherProcess.start(minit, this.#paths.socket, clock);
    this.#launcher = { process, pid: process.pid, client: new LauncherClient(this.#paths.socket, clock) };
    void process.exited.then(() => {
      if (this.#isStopping) return;
      log.error("the launcher ended, starting another");
      this.#launcher = null;
      this.#replaceLauncher().catch((error) => log.error("no new launcher", { error: errorText(error) }));
    });
  }

  /** A launcher that died took the image mount and the idle namespaces along; running containers hold their own. */
  async #replaceLauncher(): Promise<void> {
    await this.#startLauncher();
    this.#image = await this.#images.mount(this.#options.image);
  }

  /** Removes what an earlier process left (E3): containers, their groups and processes, bundles. */
  async #sweep(runtime: OciRuntime): Promise<void> {
    const { log } = this.#options;
    const ids = new Set([
      ...(await runtime.list()).map((container) => container.id),
      ...(existsSync(this.#paths.bundles) ? readdirSync(this.#paths.bundles) : []),
      ...listGroups(this.#mode, this.#paths.cgroup),
    ]);
    for (const id of ids) {
      await runtime
        .delete(id)
        .catch((error) => log.warn("left container not deleted", { id, error: errorText(error) }));
      for (const pid of groupProcesses(this.#mode, this.#cgroup(id))) killProcess(pid);
      removeGroup(this.#mode, this.#cgroup(id));
      rmSync(this.#bundle(id), { recursive: true, force: true });
    }
    if (ids.size > 0) log.info("removed what an earlier process left", { containers: ids.size });
  }

  /** The compiled filter from the cache, or by letting the runtime compile it once. */
  async #prepareSeccomp(runtime: OciRuntime): Promise<InstanceSpec["seccomp"]> {
    const rules = loadSeccomp(process.arch, []);
    if (!runtime.takesBpf) return { rules };
    const cache = `${this.#options.config.data_dir}/cache`;
    const file = `${cache}/seccomp-${seccompKey(rules, runtime.version)}.bpf`;
    if (!existsSync(file)) {
      const slot = await this.#network.acquire();
      const id = "seccomp";
      try {
        this.#seccomp = { rules };
        const config = instanceConfig(this.#spec(id, slot));
        mkdirSync(this.#bundle(id), { recursive: true, mode: 0o700 });
        writeFileSync(`${this.#bundle(id)}/config.json`, JSON.stringify(config));
        await runtime.create(id, this.#bundle(id));
        const bpf = readFileSync(`${this.#paths.runtime}/${id}/seccomp.bpf`);
        mkdirSync(cache, { recursive: true, mode: 0o700 });
        writeFileSync(file, bpf);
      } finally {
        await runtime.delete(id);
        removeGroup(this.#mode, this.#cgroup(id));
        rmSync(this.#bundle(id), { recursive: true, force: true });
        await this.#network.release(slot);
      }
    }
    return { bpf_base64: readFileSync(file).toString("base64") };
  }

  /** Starts and removes one container, so that a machine that cannot run any is told at once and not at the first call. */
  async #probe(clock: Clock): Promise<void> {
    const instance = await this.start("probe");
    await instance.minit.ping(EXIT_WAIT_MS, clock);
    await this.remove(instance);
  }
}

/** Makes a directory that only root can enter. In /dev/shm anybody may have made one of that name before: refuse it. */
function makePrivate(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(path);
  const isDirectory = (mode & 0o170000) === 0o040000;
  if (!isDirectory || uid !== 0 || (mode & 0o022) !== 0) {
    throw new AppError("INTERNAL", `${path} is not a directory of root's alone: remove it`);
  }
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}
