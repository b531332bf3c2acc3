/**
 * Resources that all containers of this daemon share on this machine: the launcher, the OCI runtime, the network, the
 * images, the storage pool, the system-call filters and the worker threads. Function instances (instances/) and API
 * containers (containers/) are started and removed through it, each kind in places of its own.
 *
 * H1 Everything made on the machine carries the daemon's tag, so that the next start finds what a crash left.
 * H2 The address, the uid and the GPUs of a container are given to no other before nothing of it is left.
 */
import { randomUUID } from "node:crypto";
import { chmodSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { Piscina } from "piscina";
import type { Clock } from "../../base/clock.ts";
import type { Config } from "../../base/config.ts";
import { AppError, errorText, invariant } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { TransferTurns } from "../../base/transfer-turns.ts";
import { trustFiles } from "../../base/trust.ts";
import { type VisibleGroups, visibleGroups } from "../bundles/group-mounts.ts";
import { DOMAIN } from "../dns/answers.ts";
import { NameServerOfContainers } from "../dns/name-server.ts";
import { instanceResolvConf, memberResolvConf, readMachineResolvConf } from "../dns/resolv-conf.ts";
import { FileSessions } from "../files/file-sessions.ts";
import { LocalGpus } from "../gpu/gpus.ts";
import { ImageExports } from "../images/image-exports.ts";
import { ImagePulls } from "../images/image-pulls.ts";
import { ImageStore } from "../images/image-store.ts";
import { MountedImages } from "../images/mounted-images.ts";
import { StoreFiles } from "../images/store-files.ts";
import { detectCgroupMode, type GroupKind, socketMemoryBound } from "../kernel/control-groups.ts";
import { raiseBudgets, socketBudget } from "../kernel/kernel-budgets.ts";
import { checkOpenFiles } from "../kernel/open-files.ts";
import { TenantGroups } from "../kernel/tenant-groups.ts";
import { UserNamespaces } from "../kernel/user-namespaces.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import { LauncherKeeper } from "../launcher/launcher-keeper.ts";
import { Network, type NetworkSlot } from "../network/network.ts";
import { Uplink } from "../network/uplink.ts";
import { type Filter, Filters } from "../oci/filters.ts";
import { OciRuntime } from "../oci/runtime.ts";
import type { RemovalStep, RemovedResource } from "../ports/containers.ts";
import type { FoundImage } from "../ports/images.ts";
import type { Budget, CgroupMode } from "../ports/machine.ts";
import type { Storage } from "../ports/storage.ts";
import { shareDisk } from "../storage/disk-scheduler.ts";
import { StoragePool } from "../storage/storage-pool.ts";
import { type Places, remainsOf, runName } from "./adoption.ts";
import { outlive, type Remains } from "./reaper.ts";
import type { LauncherNote, ThreadData } from "./thread.ts";

/** Slots beyond those that may be in use: containers being removed still hold theirs. */
const SLOT_MARGIN = 64;
const THREAD_COUNT = 2;

export interface HostOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly turns: TransferTurns;
  /** The compiled helper. */
  readonly minit: string;
  /** buildah with its global flags. */
  readonly buildah: readonly string[];
  /** containers-storage with its global flags. */
  readonly storage_command: readonly string[];
  /** Path of the image store's list of images. */
  readonly images_file: string;
  /** The image of function instances. */
  readonly image: string;
}

/** Receives each step in the removal of a container. */
export type TellRemoval = (resource: RemovedResource, status: RemovalStep["status"], error?: unknown) => void;

export class EngineHost {
  readonly options: HostOptions;
  readonly mode: CgroupMode;
  readonly groups: GroupKind;
  readonly visible_groups: VisibleGroups;
  /** Control groups of API containers and their tenants. */
  readonly tenants: TenantGroups;
  readonly network: Network;
  readonly images: MountedImages;
  /** Sessions on the files of containers and volumes, each through a helper that is jailed in its tree. */
  readonly files: FileSessions;
  readonly users: UserNamespaces;
  readonly gpus: LocalGpus;
  readonly instances: Places;
  readonly containers: Places;
  readonly resolv_conf: string;
  /** Of containers that have names. */
  readonly member_resolv_conf: string;
  /** Directory of what builds trust; null: no setting names anything. */
  trust: string | null = null;
  readonly names: NameServerOfContainers;
  /** Directory below which roots of containers are mounted, in the launcher's namespace. */
  readonly roots: string;
  readonly #keeper: LauncherKeeper;
  readonly #socket: string;
  readonly #store: ImageStore;
  #runtime: OciRuntime | null = null;
  #storage: StoragePool | null = null;
  #filters: Filters | null = null;
  #threads: Piscina | null = null;
  readonly #exports: ImageExports;
  #compiled_count = 0;
  #isEnding = false;
  readonly #ending = Promise.withResolvers<void>();
  #budgets: readonly Budget[] = [];
  #refused_count = 0;

  constructor(options: HostOptions) {
    const { config, clock, log, minit } = options;
    this.options = options;
    this.mode = detectCgroupMode();
    this.groups = { mode: this.mode, sockets: socketMemoryBound(this.mode) };
    this.visible_groups = visibleGroups(this.mode);
    const places = (name: string, suffix: string): Places => ({
      bundles: `${config.run_dir}/${name}`,
      runtime: `${config.run_dir}/oci${suffix}`,
      cgroup: `/hearth-${config.host_tag}${suffix}`,
    });
    this.instances = places("i", "");
    this.containers = places("c", "-c");
    this.tenants = new TenantGroups(this.groups, this.containers.cgroup);
    this.resolv_conf = `${config.run_dir}/resolv.conf`;
    this.member_resolv_conf = `${config.run_dir}/member-resolv.conf`;
    this.roots = `${config.run_dir}/r`;
    this.#socket = `${config.run_dir}/launcher.sock`;
    this.#keeper = new LauncherKeeper({
      clock,
      log,
      minit,
      socket_path: this.#socket,
      private_tmp: ![config.data_dir, config.image_dir, minit].some((path) => path.startsWith("/tmp/")),
      onReplaced: async ({ client }) => {
        await this.images.mountAgain(client);
        await this.#storage?.mount(client);
      },
    });
    const slots_max = config.instances_max + config.containers_max + SLOT_MARGIN;
    const isCurrent = (launcher_pid: number) => this.#keeper.isCurrent(launcher_pid);
    this.users = new UserNamespaces(config.user_namespaces, log);
    this.gpus = new LocalGpus({ directories: config.cdi_dirs, clock, log });
    this.network = new Network({
      launcher: () => this.#keeper.current,
      isCurrent,
      clock,
      log,
      users: this.users,
      uplink: new Uplink({ ...config, setting: config.uplink }),
      names: { ...config, slots_max },
    });
    this.names = new NameServerOfContainers({
      clock,
      log,
      members: this.network.members,
      subnet: this.network.subnet,
      address: this.network.gateway,
    });
    this.#store = new ImageStore(options.buildah, config.host_tag, options.images_file);
    const withLauncher = this.retried.bind(this);
    const files = new StoreFiles(options.images_file);
    const pulls = new ImagePulls({
      images: this.#store,
      files,
      buildah: options.buildah,
      storage: options.storage_command,
      directory: `${config.data_dir}/pulls`,
      lock_file: `${config.image_dir}/pulls.lock`,
      clock,
      log,
      withLauncher,
    });
    this.#exports = new ImageExports({
      ...{ files, minit, launcher_socket: this.#socket },
      directory: `${config.data_dir}/exports`,
      clock,
      log,
      withLauncher,
    });
    this.images = new MountedImages({
      images: this.#store,
      files,
      pulls,
      exports: this.#exports,
      log,
      references_max: LIMITS.image_references_max,
      scratch: `${config.data_dir}/scratch`,
      withLauncher,
    });
    this.files = new FileSessions({
      ...{ withLauncher, minit, clock },
      directory: config.run_dir,
      turns: options.turns,
      groups: this.tenants,
    });
  }

  /** Brings up what must stand before anything is looked at: private directories, the launcher, the OCI runtime. */
  async begin(): Promise<FoundImage> {
    const { config, clock, log, image } = this.options;
    checkOpenFiles();
    // Only root can list these directories. Another user who knows a name can read resolv.conf alone.
    for (const path of [dirname(config.run_dir), config.run_dir, this.roots]) makePrivate(path, 0o711);
    for (const { bundles, runtime } of [this.instances, this.containers]) {
      mkdirSync(bundles, { recursive: true, mode: 0o700 });
      mkdirSync(runtime, { recursive: true, mode: 0o700 });
    }
    this.network.claim();
    this.#budgets = [...raiseBudgets(config.containers_max), socketBudget(this.groups.sockets)];
    for (const { name, is_bounded, note } of this.#budgets)
      if (!is_bounded) log.warn("cannot bound a kernel budget", { name, note });
    this.tenants.boot(this.instances.cgroup);
    await outlive(clock, this.#socket, this.#store.names_prefix);
    await this.#keeper.start();
    const { client } = this.#keeper.current;
    this.note(await this.network.shareUplink());
    const [runtime, found] = await Promise.all([
      OciRuntime.find(() => this.launcher(), config.oci_runtime, this.instances.runtime),
      this.#store.find(client, image).catch((error) => {
        const why = error.cause === undefined ? "" : `: ${errorText(error.cause)}`;
        const isMissing = error instanceof AppError && error.code === "NOT_FOUND";
        const hint = isMissing ? { hint: "npm start builds it in HEARTH_IMAGE_DIR" } : {};
        throw new AppError("INTERNAL", `${errorText(error)}${why}`, { cause: error, ...hint });
      }),
    ]);
    this.#runtime = runtime;
    this.#filters = new Filters(`${config.data_dir}/cache`, runtime);
    return found;
  }

  /** Makes or mounts the storage pool. */
  async openStorage(): Promise<void> {
    const { config, clock, log } = this.options;
    const { data_dir, storage_pool_mb: size_mb } = config;
    const withLauncher = this.retried.bind(this);
    this.#storage = await StoragePool.open({ withLauncher, data_dir, size_mb, clock, log });
    this.note(shareDisk(config.disk_scheduler, this.#storage.file));
  }

  get storage(): Storage {
    invariant(this.#storage !== null, "the engine has booted");
    return this.#storage;
  }

  /** Unmounts the storage pool. Never rejects. */
  async closeStorage(): Promise<void> {
    await this.#storage?.close().catch((error) => {
      this.options.log.warn("cannot unmount the storage pool", { error: errorText(error) });
    });
  }

  /** The rest, once it is known what an earlier process left: from here on containers can be started. */
  startThreads(): void {
    const { runtime } = this;
    const workerData: ThreadData = {
      launcher_socket: this.#socket,
      runtime_command: runtime.command,
      runtime_version: runtime.version,
      cgroup_mode: this.mode,
    };
    this.#threads = new Piscina({
      filename: new URL("./thread.ts", import.meta.url).href,
      minThreads: 1,
      maxThreads: THREAD_COUNT,
      // A thread stays once it has been needed: starting one takes a core for a tenth of a second, under load.
      idleTimeout: Number.POSITIVE_INFINITY,
      concurrentTasksPerWorker: LIMITS.starts_max * 2,
      maxQueue: LIMITS.engine_tasks_max,
      workerData,
    });
    // Without a listener an error outside of any task would end the daemon. Another thread takes the place.
    this.#threads.on("error", (error) => this.options.log.error("a worker thread exited", { error: errorText(error) }));
  }

  /**
   * Files of a setting that is gone go too: containers that run see the directory as it is now. Roots of user namespaces read it, and
   * no user of this machine does, who does not know its name: a proxy's credentials may be in it.
   */
  writeTrust(): void {
    const { trust, run_dir } = this.options.config;
    const parent = `${run_dir}/trust`;
    mkdirSync(parent, { recursive: true, mode: 0o711 });
    const [kept = randomUUID()] = readdirSync(parent);
    const directory = `${parent}/${kept}`;
    mkdirSync(directory, { recursive: true, mode: 0o755 });
    const files = trust === null ? {} : trustFiles(trust);
    for (const name of readdirSync(directory)) if (!Object.hasOwn(files, name)) rmSync(`${directory}/${name}`);
    for (const [name, content] of Object.entries(files)) {
      writeFileSync(`${directory}/${name}.new`, content, { mode: 0o444 });
      renameSync(`${directory}/${name}.new`, `${directory}/${name}`);
    }
    this.trust = trust === null ? null : directory;
  }

  writeResolvConf(): void {
    const machine = readMachineResolvConf();
    writeFileSync(this.resolv_conf, instanceResolvConf(machine), { mode: 0o644 });
    const { gateway } = this.network;
    writeFileSync(this.member_resolv_conf, memberResolvConf(machine, gateway, DOMAIN), { mode: 0o644 });
  }

  get runtime(): OciRuntime {
    invariant(this.#runtime !== null, "the engine has booted");
    return this.#runtime;
  }

  /** Adds to the budgets what is known only later. */
  note(budget: Budget): void {
    this.#budgets = [...this.#budgets, budget];
  }

  /** Kernel resources, and whether each is bounded for every container. */
  get budgets(): readonly Budget[] {
    return this.#budgets;
  }

  /** Packets that the bound on tracked connections dropped, at the last look. */
  get refused_count(): number {
    return this.#refused_count;
  }

  async countRefusedFlows(): Promise<void> {
    this.#refused_count = await this.network.flowsRefused();
  }

  get filters(): Filters {
    invariant(this.#filters !== null, "the engine has booted");
    return this.#filters;
  }

  /** True if containers may have been started. */
  get isBegun(): boolean {
    return this.#runtime !== null;
  }

  /** The launcher, also while it is being replaced. Rejects with START_FAILED when there is none in time. */
  async launcher(): Promise<LauncherClient> {
    return (await this.#keeper.whenReady()).client;
  }

  /** The root directory as the launcher sees it, for as long as it is the one in use. */
  get launcherRoot(): string {
    return `/proc/${this.#keeper.pid}/root`;
  }

  /**
   * Does work that needs the launcher. If the launcher died meanwhile, the work is done again with the next one: only
   * for work that leaves nothing behind when it fails, or that may be repeated.
   */
  async retried<Result>(work: (launcher: LauncherClient) => Promise<Result>): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      const launcher = await this.#keeper.whenReady();
      try {
        return await work(launcher.client);
      } catch (error) {
        if (attempt >= LIMITS.launcher_attempts_max || (await this.#keeper.isAlive(launcher))) throw error;
        this.options.log.warn("the launcher exited during a request, retrying", { attempt, error: errorText(error) });
      }
    }
  }

  /** Runs a task of thread.ts. */
  task<Result>(name: string, argument: object): Promise<Result> {
    invariant(this.#threads !== null, "the engine has booted");
    const noted: LauncherNote = { launcher_pid: this.#keeper.pid };
    return this.#threads.run({ ...argument, ...noted }, { name }) as Promise<Result>;
  }

  /** Takes a network slot, that of a reserved `address` if given. Rejects with CAPACITY_FULL. */
  async acquire(address: string | null = null): Promise<NetworkSlot> {
    await this.#keeper.whenReady();
    return this.network.acquire(address);
  }

  /**
   * Removes what there is of a container, then gives its slot back (H2): never while something may still run in its
   * namespace. A failed removal is retried until it succeeds. Resolves to true when nothing is left, to false when the
   * daemon ends before that: the next daemon removes the rest. `tell` receives each step.
   */
  async discard(remains: Remains, slot: NetworkSlot | null, tell: TellRemoval = () => {}): Promise<boolean> {
    const { log } = this.options;
    if (slot !== null) tell("network", "pending");
    for (
      let pause_ms: number = LIMITS.removal_retry_ms_min;
      !(await this.#removed(remains, tell));
      pause_ms = Math.min(pause_ms * 2, LIMITS.removal_retry_ms)
    ) {
      await this.#pause(pause_ms);
      if (this.#isEnding) return false;
    }
    this.tenants.leave(remains.id);
    this.gpus.release(remains.id);
    if (slot !== null) {
      tell("network", "in_progress");
      await this.network.release(slot).then(
        () => tell("network", "completed"),
        (error) => {
          tell("network", "failed", error);
          log.warn("cannot remove a network slot, retrying later", { id: remains.id, error: errorText(error) });
        },
      );
    }
    failpoint("engine.remove.released");
    return true;
  }

  /** Has removals that failed retried no more: the daemon ends. */
  endRetries(): void {
    this.#isEnding = true;
    this.#ending.resolve();
  }

  /** Resolves with `work`, or to null after `wait_ms`. */
  async within<Result>(wait_ms: number, work: Promise<Result>): Promise<Result | null> {
    const late = Promise.withResolvers<null>();
    const cancel = this.options.clock.after(wait_ms, () => late.resolve(null));
    return Promise.race([work, late.promise]).finally(cancel);
  }

  async #removed(remains: Remains, tell: TellRemoval): Promise<boolean> {
    const parts = ["cgroup", "container"] as const;
    for (const part of parts) tell(part, "in_progress");
    try {
      await this.task("remove", remains);
      for (const part of parts) tell(part, "completed");
      return true;
    } catch (error) {
      for (const part of parts) tell(part, "failed", error);
      this.options.log.error("cannot remove a container, retrying later", { id: remains.id, error: errorText(error) });
      return false;
    }
  }

  async #pause(pause_ms: number): Promise<void> {
    if (!this.#isEnding) await this.within(pause_ms, this.#ending.promise);
  }

  /**
   * Lets the runtime compile the filter for these capabilities: it leaves the program in the state of a container that
   * was created with them. `configure` gives such a container's configuration; its directory is there.
   */
  async compile(
    id: string,
    capabilities: readonly string[],
    configure: (slot: NetworkSlot, remains: Remains) => object,
  ): Promise<Filter> {
    return this.retried(async () => {
      const slot = await this.acquire();
      // A removal that comes late finds no later container of the same name.
      const run = runName(id, ++this.#compiled_count);
      const remains = remainsOf(this.instances, run, true);
      try {
        mkdirSync(remains.bundle, { recursive: true, mode: 0o700 });
        writeFileSync(`${remains.bundle}/config.json`, JSON.stringify(configure(slot, remains)));
        await this.runtime.create(run, remains.bundle);
        return this.filters.keep(capabilities, this.runtime.compiled(run));
      } finally {
        await this.within(LIMITS.removal_wait_ms, this.discard(remains, slot));
      }
    });
  }

  async endThreads(): Promise<void> {
    await Promise.all([this.#threads?.destroy(), this.#exports.close()]);
  }

  /** Takes the launcher down, and what is left of this daemon in memory unless containers live on in it. */
  async end(isEmpty: boolean): Promise<void> {
    const failed = (error: unknown) => this.options.log.warn("cannot unmount the images", { error: errorText(error) });
    if (this.#keeper.isRunning && isEmpty) {
      await this.#store.shutdown(this.#keeper.current.client).catch(failed);
    }
    await this.#keeper.stop();
    if (isEmpty) rmSync(this.options.config.run_dir, { recursive: true, force: true });
    else rmSync(this.#socket, { force: true });
  }
}

/** Makes a directory that only root can change. In /dev/shm anybody may have made one of that name before: refuse it. */
function makePrivate(path: string, permissions: number): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(path);
  const isDirectory = (mode & 0o170000) === 0o040000;
  if (!isDirectory || uid !== 0 || (mode & 0o022) !== 0) {
    throw new AppError("INTERNAL", `${path} is not a directory that only root can write: remove it`);
  }
  chmodSync(path, permissions);
}
