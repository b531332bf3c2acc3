/**
 * The engine on this machine: puts launcher, OCI runtime, network, images, groups and worker threads together behind
 * the `Engine` port. What blocks runs in the worker threads; what talks runs here.
 *
 * Invariants:
 * E1 A start that fails leaves no process, group, slot or file.
 * E2 `remove` gives back everything that `start` took, exactly once.
 * E3 Everything made on the host carries the daemon's tag, so that the next boot finds what a crash left.
 * E4 The address and the uid of a container are given to no other before nothing of it is left.
 */
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { Piscina } from "piscina";
import type { CancelTimer, Clock } from "../base/clock.ts";
import type { Config } from "../base/config.ts";
import { AppError, errorText, invariant } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import {
  type Doomed,
  fingerprintOf,
  isFingerprint,
  Leftovers,
  MARK,
  type Sorted,
  type Survivor,
  writeFingerprint,
} from "./adoption.ts";
import { type InstanceSpec, instanceConfig } from "./bundle.ts";
import { applyLimits, detectCgroupMode, readMemoryUsedMb, readOomKills, removeGroup } from "./cgroup.ts";
import { each, together } from "./concurrency.ts";
import type { Adopted, CgroupMode, Engine, EngineInfo, Instance, InstanceLimits, StartTimings } from "./engine.ts";
import { type FoundImage, Images, type MountedImage } from "./images.ts";
import { LauncherKeeper } from "./launcher-keeper.ts";
import { PROTOCOL_VERSION } from "./minit-answers.ts";
import { MinitClient } from "./minit-client.ts";
import { Network, type NetworkSlot, readInstanceResolvConf } from "./network.ts";
import { OciRuntime } from "./oci-runtime.ts";
import { outlive } from "./reaper.ts";
import { loadSeccomp, seccompKey } from "./seccomp.ts";
import type { Census, RemoveTask, StartTask, ThreadData } from "./thread.ts";

/** Slots beyond the instance bound: containers being removed still hold theirs. */
const SLOT_MARGIN = 64;
/** How long a container may take to end after minit was asked to. */
const EXIT_WAIT_MS = 1_000;
const THREAD_COUNT = 2;
/** Containers that the engine starts for itself. */
const PROBE = "probe";
const COMPILER = "seccomp";
/** Of an instance that was not started here. */
const NO_TIMINGS: StartTimings = { network_ms: 0, rootfs_ms: 0, start_ms: 0 };

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

interface Held {
  readonly minit: MinitClient;
  readonly slot: NetworkSlot;
  readonly removed: PromiseWithResolvers<void>;
  isRemoving: boolean;
}

export class LocalEngine implements Engine {
  readonly #options: EngineOptions;
  readonly #mode: CgroupMode;
  readonly #network: Network;
  readonly #images: Images;
  readonly #leftovers: Leftovers;
  readonly #held = new Map<string, Held>();
  /** Containers that are being started or removed. */
  readonly #moving = new Set<string>();
  /** Containers that were nobody's at the last look. */
  #strays: readonly string[] = [];
  #cancelLook: CancelTimer = () => {};
  /** Removals of what an earlier process left. */
  #clearing: Promise<unknown> = Promise.resolve();
  readonly #paths: Record<"bundles" | "runtime" | "socket" | "resolv_conf" | "cgroup" | "fingerprint", string>;
  readonly #keeper: LauncherKeeper;
  #runtime: OciRuntime | null = null;
  #threads: Piscina | null = null;
  #image: MountedImage | null = null;
  #seccomp: InstanceSpec["seccomp"] | null = null;

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
      fingerprint: `${config.run_dir}/fingerprint`,
    };
    const slots_max = config.instances_max + SLOT_MARGIN;
    const { clock, log, minit } = options;
    this.#keeper = new LauncherKeeper({
      clock,
      log,
      minit,
      socket_path: this.#paths.socket,
      private_tmp: ![config.data_dir, config.image_dir, minit].some((path) => path.startsWith("/tmp/")),
      onReplaced: async ({ client }) => {
        if (this.#image !== null) this.#image = await this.#images.mount(client, this.#image, true);
      },
    });
    const isCurrent = (launcher_pid: number) => this.#keeper.isCurrent(launcher_pid);
    this.#network = new Network(() => this.#keeper.current, isCurrent, clock, { ...config, slots_max });
    this.#images = new Images(options.buildah, config.host_tag);
    this.#leftovers = new Leftovers({
      clock,
      log,
      mode: this.#mode,
      places: this.#paths,
      network: this.#network,
      reserved: [PROBE, COMPILER],
    });
  }

  async boot(): Promise<readonly Adopted[]> {
    const { config, clock, image } = this.#options;
    makePrivate(dirname(config.run_dir));
    makePrivate(config.run_dir);
    mkdirSync(this.#paths.bundles, { recursive: true, mode: 0o700 });
    mkdirSync(this.#paths.runtime, { recursive: true, mode: 0o700 });
    this.#network.claim();
    await outlive(clock, this.#paths.socket, this.#images.containerName(image));
    await this.#keeper.start();
    const { client } = this.#keeper.current;
    const [runtime, found] = await together(
      OciRuntime.find(client, config.oci_runtime, this.#paths.runtime),
      this.#images.find(client, image),
    );
    this.#runtime = runtime;
    this.#seccomp = this.#keptSeccomp(runtime) ?? { rules: loadSeccomp(process.arch, []) };
    const areAlike = isFingerprint(this.#paths.fingerprint, this.#fingerprint(runtime, found));
    if (!areAlike) await this.#leftovers.remove(this.#leftovers.ids(), runtime);
    writeFileSync(this.#paths.resolv_conf, readInstanceResolvConf(), { mode: 0o644 });
    const mounting = this.#images.mount(client, found, areAlike).then((mounted) => {
      this.#image = mounted;
    });
    const [{ survivors, doomed }] = await together(this.#takeOver(runtime), mounting);
    failpoint("engine.boot.adopted");
    this.#threads = this.#makeThreads(runtime);
    // Those that live show that this machine runs containers, made like this.
    if (survivors.length === 0) await this.#prepareSeccomp(runtime);
    writeFingerprint(this.#paths.fingerprint, this.#fingerprint(runtime, found));
    this.#clearing = each(doomed, LIMITS.leftovers_removed_at_once, (one) => this.#clear(one));
    this.#lookLater();
    return survivors.map((survivor) => ({ instance: this.#hold(survivor, NO_TIMINGS), mark: survivor.mark }));
  }

  async start(id: string): Promise<Instance> {
    const { clock } = this.#options;
    if (this.#held.has(id) || this.#moving.has(id)) {
      throw new AppError("START_FAILED", `there is an instance '${id}' already`);
    }
    this.#moving.add(id);
    try {
      const begun_ms = clock.monotonicMs();
      await this.#keeper.whenReady();
      const slot = await this.#network.acquire();
      failpoint("engine.start.slot");
      return await this.#startIn(slot, id, clock.monotonicMs() - begun_ms);
    } finally {
      this.#moving.delete(id);
    }
  }

  mark(instance: Instance, text: string): void {
    symlinkSync(text, `${this.#bundle(instance.id)}/${MARK}`);
  }

  limit(instance: Instance, limits: InstanceLimits): void {
    applyLimits(this.#mode, this.#cgroup(instance.id), limits);
  }

  oomKills(instance: Instance): number {
    return readOomKills(this.#mode, this.#cgroup(instance.id));
  }

  memoryUsedMb(): number {
    return readMemoryUsedMb(this.#mode, this.#paths.cgroup);
  }

  openPort(port: number): Promise<void> {
    return this.#network.openPort(port);
  }

  async remove(instance: Instance): Promise<void> {
    const held = this.#held.get(instance.id);
    if (held === undefined) return;
    if (held.isRemoving) return held.removed.promise;
    held.isRemoving = true;
    await this.#end(instance);
    failpoint("engine.remove.asked");
    await this.#discard(instance.id, held.slot, false);
    this.#held.delete(instance.id);
    held.removed.resolve();
  }

  async hasDirectory(path: string): Promise<boolean> {
    invariant(this.#image !== null, "the engine has booted");
    await this.#keeper.whenReady();
    const mode = await this.#keeper.current.client.statInRoot(this.#image.path, path);
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
      gateway: this.#network.gateway,
      bridge: config.bridge,
    };
  }

  async shutdown(): Promise<void> {
    const { log, config } = this.#options;
    this.#cancelLook();
    const failed = (what: string) => (error: unknown) =>
      log.warn(`${what} not taken down`, { error: errorText(error) });
    await this.#keeper.whenReady().catch(() => {});
    await this.#clearing;
    failpoint("engine.stop.begun");
    await this.#threads?.destroy();
    await this.#leftovers.remove(this.#leftovers.ids(), this.#runtime);
    await this.#network.shutdown().catch(failed("network"));
    failpoint("engine.stop.unlinked");
    if (this.#keeper.isRunning) await this.#images.shutdown(this.#keeper.current.client).catch(failed("images"));
    removeGroup(this.#mode, this.#paths.cgroup);
    await this.#keeper.stop();
    rmSync(config.run_dir, { recursive: true, force: true });
  }

  async #startIn(slot: NetworkSlot, id: string, network_ms: number): Promise<Instance> {
    const { clock } = this.#options;
    const bundle = this.#bundle(id);
    try {
      const task: StartTask = { spec: this.#spec(id, slot), bundle, listen_path: `${bundle}/s` };
      const starting_ms = clock.monotonicMs();
      const { rootfs_ms } = (await this.#pool().run(task, { name: "start" })) as { rootfs_ms: number };
      const { client, nonce } = await MinitClient.connect(task.listen_path, LIMITS.start_timeout_ms, clock);
      failpoint("engine.start.ready");
      const start_ms = clock.monotonicMs() - starting_ms - rootfs_ms;
      return this.#hold({ id, slot, minit: client, nonce }, { network_ms, rootfs_ms, start_ms });
    } catch (cause) {
      await this.#discard(id, slot, true);
      throw new AppError("START_FAILED", errorText(cause), { cause });
    }
  }

  #hold({ id, slot, minit, nonce }: Omit<Survivor, "mark">, timings: StartTimings): Instance {
    this.#held.set(id, { minit, slot, removed: Promise.withResolvers(), isRemoving: false });
    return { id, nonce, address: slot.address, uid: slot.uid, minit, timings };
  }

  /** Looks at what an earlier process left and brings up the network around it. What is not understood goes at once. */
  async #takeOver(runtime: OciRuntime): Promise<Sorted> {
    const sorted = await this.#leftovers.sort();
    const { survivors, doomed, unknown } = sorted;
    await this.#leftovers.remove(unknown, runtime);
    for (const { id } of doomed) this.#moving.add(id);
    await this.#network.boot(
      [...survivors, ...doomed].map(({ slot }) => slot),
      survivors.length === 0,
    );
    if (survivors.length + doomed.length > 0) {
      this.#options.log.info("found containers of an earlier process", {
        adopted: survivors.length,
        removing: doomed.length,
      });
    }
    return sorted;
  }

  async #clear({ id, slot }: Doomed): Promise<void> {
    await this.#discard(id, slot, true);
    this.#moving.delete(id);
  }

  /** Everything by which a container of this process differs from one of another. */
  #fingerprint(runtime: OciRuntime, image: FoundImage): string {
    const { config, minit } = this.#options;
    invariant(this.#seccomp !== null, "there is a filter");
    const any = { id: "", rootfs: "", uid: 0, netns: "", cgroup: "" };
    const made = instanceConfig({ ...any, minit, resolv_conf: this.#paths.resolv_conf, seccomp: this.#seccomp });
    const { command, version } = runtime;
    return fingerprintOf([PROTOCOL_VERSION, image, command, version, config.subnet, config.bridge, made]);
  }

  #bundle(id: string): string {
    return `${this.#paths.bundles}/${id}`;
  }

  #cgroup(id: string): string {
    return `${this.#paths.cgroup}/${id}`;
  }

  #makeThreads(runtime: OciRuntime): Piscina {
    const workerData: ThreadData = {
      launcher_socket: this.#paths.socket,
      runtime_command: runtime.command,
      runtime_version: runtime.version,
      runtime_root: this.#paths.runtime,
      cgroup_mode: this.#mode,
    };
    const threads = new Piscina({
      filename: new URL("./thread.ts", import.meta.url).href,
      minThreads: 1,
      maxThreads: THREAD_COUNT,
      // A thread stays once it has been needed: starting one takes a core for a tenth of a second, under load.
      idleTimeout: Number.POSITIVE_INFINITY,
      concurrentTasksPerWorker: LIMITS.starts_max * 2,
      maxQueue: LIMITS.engine_tasks_max,
      workerData,
    });
    // What a thread throws outside of any task would end the daemon if nobody listened. Another takes its place.
    threads.on("error", (error) => this.#options.log.error("a worker thread ended", { error: errorText(error) }));
    return threads;
  }

  #pool(): Piscina {
    invariant(this.#threads !== null, "the engine has booted");
    return this.#threads;
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

  /**
   * Removes the container, then gives the slot back (E1, E2): never while something may still run in its namespace. What
   * cannot be removed now is tried again, and once more at the end or the next boot.
   */
  async #discard(id: string, slot: NetworkSlot, isStarting: boolean): Promise<void> {
    const { clock, log } = this.#options;
    try {
      await this.#pool().run(this.#remains(id, isStarting), { name: "remove" });
    } catch (error) {
      log.error("container not removed, trying again later", { id, error: errorText(error) });
      clock.after(LIMITS.removal_retry_ms, () => void this.#discard(id, slot, isStarting));
      return;
    }
    await this.#network.release(slot).catch((error) => log.warn("network slot lost", { id, error: errorText(error) }));
    failpoint("engine.remove.released");
  }

  #lookLater(): void {
    this.#cancelLook = this.#options.clock.after(LIMITS.census_interval_ms, () => {
      this.#look()
        .catch((error) => this.#options.log.warn("containers not counted", { error: errorText(error) }))
        .finally(() => this.#lookLater());
    });
  }

  /**
   * Holds what runs against what is known: whatever went wrong, a container that is nobody's at two looks is removed,
   * and an instance in whose container nothing runs any more is told lost.
   */
  async #look(): Promise<void> {
    // Those that start meanwhile may have been counted before anything ran in them.
    const settled = [...this.#held.keys()];
    const { present, empty } = (await this.#pool().run(this.#paths.cgroup, { name: "census" })) as Census;
    const strays = present.filter((id) => !this.#held.has(id) && !this.#moving.has(id));
    for (const id of strays.filter((id) => this.#strays.includes(id))) {
      this.#options.log.warn("removing a container that nobody knows of", { id });
      await this.#pool().run(this.#remains(id, true), { name: "remove" });
    }
    this.#strays = strays;
    for (const id of settled.filter((id) => empty.includes(id))) {
      const held = this.#held.get(id);
      if (held?.isRemoving === false) held.minit.close();
    }
  }

  #remains(id: string, isStarting: boolean): RemoveTask {
    return { id, bundle: this.#bundle(id), cgroup: this.#cgroup(id), isStarting };
  }

  /** The compiled filter, where one for these rules was kept. */
  #keptSeccomp(runtime: OciRuntime): InstanceSpec["seccomp"] | null {
    const file = this.#seccompFile(runtime);
    if (file === null || !existsSync(file)) return null;
    return { bpf_base64: readFileSync(file).toString("base64") };
  }

  /** Null when the runtime takes rules only. */
  #seccompFile(runtime: OciRuntime): string | null {
    if (!runtime.takesBpf) return null;
    const key = seccompKey(loadSeccomp(process.arch, []), runtime.version);
    return `${this.#options.config.data_dir}/cache/seccomp-${key}.bpf`;
  }

  /**
   * The filter for all starts, and a first start with it, so that a machine that cannot run containers is told at once.
   * The runtime compiles the rules once; the result is kept. A kept one that does not work is made again.
   */
  async #prepareSeccomp(runtime: OciRuntime): Promise<void> {
    const file = this.#seccompFile(runtime);
    if (file === null) return this.#probe();
    if (this.#keptSeccomp(runtime) !== null) {
      try {
        return await this.#probe();
      } catch (error) {
        this.#options.log.warn("the kept system-call filter does not work, compiling it again", {
          error: errorText(error),
        });
        this.#seccomp = { rules: loadSeccomp(process.arch, []) };
      }
    }
    const bpf = await this.#compileSeccomp(runtime);
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(`${file}.new`, bpf, { flush: true });
    renameSync(`${file}.new`, file);
    this.#seccomp = { bpf_base64: bpf.toString("base64") };
    await this.#probe();
  }

  /** Lets the runtime compile the rules: it leaves the program in the state of a container that was created with them. */
  async #compileSeccomp(runtime: OciRuntime): Promise<Buffer> {
    const slot = await this.#network.acquire();
    const id = COMPILER;
    try {
      mkdirSync(this.#bundle(id), { recursive: true, mode: 0o700 });
      writeFileSync(`${this.#bundle(id)}/config.json`, JSON.stringify(instanceConfig(this.#spec(id, slot))));
      await runtime.create(id, this.#bundle(id));
      return readFileSync(`${this.#paths.runtime}/${id}/seccomp.bpf`);
    } finally {
      await this.#discard(id, slot, true);
    }
  }

  async #probe(): Promise<void> {
    const instance = await this.start(PROBE);
    await instance.minit.ping(EXIT_WAIT_MS, this.#options.clock);
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
