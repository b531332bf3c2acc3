/**
 * API containers on this machine: their root file systems in the storage pool, their start and end, and the adoption of
 * those that outlived the daemon that started them. running.ts has those that run. The containers concern has the record,
 * state and policy of a container; here it is an id.
 *
 * Invariants:
 * N1 A start that fails leaves no process, group, slot, mount or bundle; the root file system and the log stay.
 * N3 A container lives on when this process ends, whichever way. Its log and its exit are written without it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { each, KeyedMutex, together, Underway } from "../../base/concurrency.ts";
import { AppError, errorText, invariant } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import { CAPABILITIES, noteOf, targetsOf } from "../bundles/container.ts";
import { namesOf, TTL_SECONDS } from "../dns/answers.ts";
import { parseRun } from "../host/adoption.ts";
import type { EngineHost } from "../host/host.ts";
import { killAll } from "../host/reaper.ts";
import { executes, findProcesses } from "../kernel/command-lines.ts";
import { removeGroup } from "../kernel/control-groups.ts";
import { thaw } from "../kernel/freezer.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import { ControlConnection } from "../minit/container-client.ts";
import type { NetworkSlot } from "../network/network.ts";
import { readPublications } from "../network/publications.ts";
import { containerPolicyOf } from "../network/rules.ts";
import type { AttachRequest, Exec, ExecListener, Gathering, RunRequest } from "../ports/commands.ts";
import type {
  ContainerLog,
  ContainerMetrics,
  ContainerSpec,
  Containers,
  DifferenceRequest,
  Ended,
  LiveContainer,
  NamedContainer,
  ProcessList,
  Publication,
  RemovalStep,
  RemovedResource,
  SocketListener,
} from "../ports/containers.ts";
import type { OpenFiles } from "../ports/files.ts";
import type { SnapshotPair, SnapshotPause, SubvolumeName } from "../ports/storage.ts";
import { writeDifference } from "./difference.ts";
import { ContainerFilters } from "./filters.ts";
import { renewIdentity } from "./identity.ts";
import { IdleRoots } from "./idle-roots.ts";
import { LiveNetworks } from "./live-networks.ts";
import { writeEtc } from "./own-etc.ts";
import { RunFiles } from "./run-files.ts";
import { RunningContainers } from "./running.ts";
import { ContainerRuns } from "./runs.ts";
import { ContainerSockets } from "./sockets.ts";
import { ContainerStarter } from "./starter.ts";
import { PROBE, probeUserNamespaces } from "./user-namespace-probe.ts";
import { makeWorkingDirectory } from "./working-directory.ts";
import { checkTargets } from "./writable-root.ts";

export class LocalContainers implements Containers {
  readonly networks: LiveNetworks;
  readonly #host: EngineHost;
  /** Being started. */
  readonly #moving = new Set<string>();
  /** Starts and probes that are under way. */
  readonly #working = new Underway();
  readonly #filters: ContainerFilters;
  readonly #idle: IdleRoots;
  readonly #files: RunFiles;
  readonly #starter: ContainerStarter;
  readonly #runs: ContainerRuns;
  readonly #running: RunningContainers;
  readonly #sockets: ContainerSockets;
  /** Snapshots of one container take turns. */
  readonly #snapshots = new KeyedMutex();
  /** True once the boot has found the containers of an earlier process. */
  #isTakenOver = false;

  constructor(host: EngineHost) {
    this.#host = host;
    this.#filters = new ContainerFilters(host);
    this.#files = new RunFiles(host);
    this.#starter = new ContainerStarter(host, this.#files);
    this.#runs = new ContainerRuns(host, this.#files);
    this.#sockets = new ContainerSockets(host);
    this.#running = new RunningContainers(host, this.#runs, (id) => this.#sockets.end(id));
    this.networks = new LiveNetworks(host, this.#running, (run) => this.#runs.remains(run, false).bundle);
    this.#idle = new IdleRoots(
      (id, image) => this.#starter.mountIdle(id, image, () => this.#moving.has(id)),
      (id) => this.#starter.unmount(id),
    );
  }

  async publications(): Promise<readonly Publication[]> {
    return readPublications(await this.#host.launcher());
  }

  openFiles(spec: Pick<ContainerSpec, "id" | "tenant_id" | "image_id">): Promise<OpenFiles> {
    return this.#host.retried(() => this.#openFiles(spec));
  }

  async #openFiles({
    id,
    tenant_id,
    image_id,
  }: Pick<ContainerSpec, "id" | "tenant_id" | "image_id">): Promise<OpenFiles> {
    await this.#runs.whenCleared(id);
    const live = this.#running.find(id);
    if (live !== null) {
      const opened = await this.#host.files.open(tenant_id, `/proc/${live.pid}/root`, live.first_id);
      // The number may have become another's while it was opened.
      if (this.#running.find(id) === live && live.control.isOpen) return opened;
      opened.close();
    }
    if (live !== null || this.#moving.has(id)) {
      throw new AppError("WRONG_STATE", `container ${id} is starting or stopping`, { hint: "retry in a second" });
    }
    const { root, launcher, leave } = await this.#idle.enter(id, image_id);
    try {
      const { session, close } = await this.#host.files.open(tenant_id, root, 0, launcher);
      return {
        session,
        close: () => {
          close();
          leave();
        },
      };
    } catch (error) {
      leave();
      throw error;
    }
  }

  userNamespacesTried(): Promise<void> {
    return this.#host.users.settled();
  }

  /** Ends all that an earlier process left, before `takeOver`, which finds it dead. Rejects with INTERNAL if something does not end. */
  async endLeft(): Promise<void> {
    const { mode, options } = this.#host;
    const reaper = { clock: options.clock, mode };
    await each([...this.#found()], LIMITS.leftovers_at_once, (run) => killAll(reaper, this.#runs.remains(run, true)));
  }

  /**
   * Part of the engine's boot, before the network's: connects to what lives. Resolves to the slots of all that was
   * found, those of the dead too: nobody may get them before nothing is left.
   */
  async takeOver(): Promise<readonly NetworkSlot[]> {
    const { containers: places, network, tenants } = this.#host;
    this.#starter.sweep();
    const runs = this.#found();
    this.#runs.keep(runs);
    const begin = `${places.bundles}/`;
    const starters = await findProcesses((args) => args.some((arg) => arg.startsWith(begin)));
    const starting = new Set(starters.flatMap(({ args }) => args));
    const slots: NetworkSlot[] = [];
    await each(runs, LIMITS.leftovers_at_once, async (run) => {
      const bundle = `${places.bundles}/${run}`;
      const { id } = parseRun(run);
      const { slot_index, policy, first_id, image_id, gpus } = noteOf(bundle);
      this.#host.gpus.keep(run, id, gpus);
      // An earlier process may have been killed while it took a snapshot: a frozen container does not answer.
      thaw(this.#host.mode, this.#runs.remains(run, false).cgroup);
      const slot = network.slotOfIndex(slot_index);
      if (slot !== null) {
        slots.push(slot);
        network.keepPolicy(slot, policy);
        const tenant_id = tenants.tenantOf(run);
        if (tenant_id !== null) network.attribute(slot, tenant_id);
      }
      const isDead = slot === null || starting.has(bundle) || id === PROBE;
      const control = isDead ? null : await this.#connect(bundle).catch(() => null);
      if (slot !== null && control !== null) {
        this.#sockets.adopt(id, run);
        this.#running.hold({ id, run, slot, control, first_id, leaveImage: this.#host.images.hold(image_id) });
      } else await this.#runs.doom(id, run, slot);
    });
    if (runs.size > 0) {
      const { log } = this.#host.options;
      log.info("found containers of a previous daemon", {
        living: this.#running.ids.length,
        ended: this.#runs.doomed_count,
      });
    }
    this.#isTakenOver = true;
    return slots;
  }

  /**
   * The last part of the engine's boot: clears away what did not live and finds out about user namespaces, in the
   * background unless the daemon is not to run without them. Rejects with INTERNAL where there are none then.
   */
  async begin(): Promise<void> {
    void this.#runs.clearAll();
    void this.#host.images.sweep();
    const deciding = this.#decide().catch((error) => {
      this.#host.options.log.warn("cannot probe user namespaces", { error: errorText(error) });
      // INTERNAL: user namespaces are required and do not work. After other errors each start probes again.
      if (error instanceof AppError && error.code === "INTERNAL") throw error;
    });
    if (this.#host.options.config.user_namespaces === "on") await deciding;
  }

  #decide(): Promise<boolean> {
    return this.#host.users.decide(() => this.#working.add(this.#probe()));
  }

  /** Probes user namespaces and the OCI runtime with the image, the filter and the kinds of mounts of API containers. */
  async #probe(): Promise<void> {
    await this.#runs.whenCleared(PROBE);
    const image = this.#host.images.pinned;
    const filter = await this.#filters.get(CAPABILITIES);
    const parts = { host: this.#host, starter: this.#starter, files: this.#files };
    await probeUserNamespaces(parts, this.#runs.next(PROBE, PROBE), image, filter).catch((error) => {
      // It may have been a kept filter that is not whole: the next try is with one that is compiled for it.
      this.#filters.drop(CAPABILITIES);
      throw error;
    });
  }

  boundProcesses(processesMax: (tenant_id: string) => number | null): void {
    this.#host.tenants.bound(processesMax);
  }

  processCount(tenant_id: string): number {
    return this.#host.tenants.processCount(tenant_id);
  }

  serveSockets(listener: SocketListener): void {
    this.#sockets.serve(listener);
  }

  onEnded(listener: (id: string, ended: Ended) => void): void {
    this.#running.onEnded(listener);
  }

  live(id: string): LiveContainer | null {
    return this.#running.find(id);
  }

  rename(id: string, new_name: string): boolean {
    return this.#host.network.members.rename(id, new_name);
  }

  names(tenant_id: string): readonly NamedContainer[] {
    return this.#host.network.members.ofTenant(tenant_id).map(({ id, name, address, network }) => ({
      ...{ id, name, address, network },
      full_names: namesOf({ name, network }),
      ttl_seconds: TTL_SECONDS,
    }));
  }

  async kept(): Promise<readonly string[]> {
    const ids = [...(await this.#files.list()), ...(await this.#host.storage.list("containers"))];
    // The probe looks after itself; where there is none, what one of an earlier process left is as good as unknown.
    return [...new Set(ids)].filter((id) => id !== PROBE || !this.#host.users.areWanted);
  }

  difference(request: DifferenceRequest): Promise<void> {
    return writeDifference(this.#host, request);
  }

  snapshot(
    id: string,
    to: SubvolumeName,
    others: readonly SnapshotPair[],
    owner: string | null,
  ): Promise<SnapshotPause> {
    // The end of one would thaw the container under the other.
    return this.#snapshots.run(id, async () => {
      const pairs = [{ from: { kind: "containers" as const, id }, to }, ...others];
      try {
        const isReadonly = to.kind !== "containers";
        return await this.#host.storage.snapshots(pairs, isReadonly, this.#running.freezer(id), owner);
      } finally {
        this.#running.thaw(id);
      }
    });
  }

  left(id: string): Promise<void> {
    return this.#idle.left(id);
  }

  renew(tenant_id: string, id: string): Promise<void> {
    return renewIdentity(this.#host, tenant_id, id);
  }

  get ids(): readonly string[] {
    return this.#running.ids;
  }

  async create(id: string, disk_mb: number | null, owner: string | null = null): Promise<void> {
    await this.#host.storage.create("containers", id, disk_mb, owner);
  }

  async remove(id: string, owner: string | null = null): Promise<void> {
    await this.#runs.whenCleared(id);
    const removed = (resource: RemovedResource, path: string, work: () => Promise<void> | void) =>
      this.#runs.told({ container_id: id, tenant_id: owner ?? "", resource, path }, work);
    await together(
      removed("rootfs", `area/containers/${id}`, () => this.#host.storage.remove("containers", id)),
      removed("logs", `containers/${id}`, () => this.#files.forget(id)),
    );
  }

  onRemoval(listener: (step: RemovalStep) => void): void {
    this.#runs.onRemoval((step) => {
      // A container that the engine made for itself has no owner.
      if (step.tenant_id !== "" && step.container_id !== PROBE) listener(step);
    });
  }

  async start(spec: ContainerSpec): Promise<Ended | null> {
    const { id } = spec;
    await this.#runs.whenCleared(id);
    if (this.#running.find(id) !== null) throw new AppError("START_FAILED", `container ${id} is already running`);
    if (this.#moving.has(id) || this.#idle.isUsed(id)) {
      throw new AppError("START_FAILED", `container ${id} is in use`, { retry_after: 1 });
    }
    this.#moving.add(id);
    const attempt = (tried: ContainerSpec) => this.#host.retried((launcher) => this.#start(tried, launcher));
    const starting = attempt(spec)
      .catch((error) => {
        // Its files come first: a disk without room for the mount point must not keep it from running.
        if (spec.has_socket !== true || !isDiskFull(error)) throw error;
        this.#host.options.log.warn("container without a socket: no space for its mount point", { id });
        return attempt({ ...spec, has_socket: false });
      })
      .finally(() => this.#moving.delete(id));
    return this.#working.add(starting);
  }

  async #start(spec: ContainerSpec, launcher: LauncherClient): Promise<Ended | null> {
    const { id } = spec;
    const run = this.#runs.next(id, spec.tenant_id);
    let slot: NetworkSlot | null = null;
    let leaveImage = (): void => {};
    try {
      const taken = await this.#host.gpus.take(run, { tenant_id: spec.tenant_id, id }, spec);
      await this.#idle.left(id);
      const capabilities = spec.strict ? [] : CAPABILITIES;
      const [filter, hasUser] = await Promise.all([this.#filters.get(capabilities), this.#decide()]);
      const { image, lower, leave } = await this.#starter.enter(spec.image_id, hasUser);
      leaveImage = leave;
      slot = await this.#host.acquire(spec.reserved_address ?? null);
      invariant((slot.user !== null) === hasUser, "a slot is as was decided");
      failpoint("containers.start.slot");
      // Idempotent: what was made just before a power cut may be lost.
      await together(this.#makeFiles(spec, slot), this.#files.prepare(id));
      this.#host.network.attribute(slot, spec.tenant_id);
      const below = slot.user === null ? { lower } : { lower, user: slot.user };
      const policing = this.#host.network.setPolicy(slot, containerPolicyOf(spec));
      const [rootfs] = await together(this.#starter.mount(launcher, id, below), policing);
      const first_id = slot.user?.first_id ?? 0;
      await checkTargets(launcher, rootfs, targetsOf(spec));
      await makeWorkingDirectory(this.#host, launcher, { spec, rootfs, first_id });
      const gpus = await this.#starter.beginGpus(launcher, { spec, run, rootfs, taken }, first_id);
      const socket = await this.#sockets.begin(launcher, { spec, run, rootfs });
      const started = { image, rootfs, slot, filter, gpus, socket };
      await this.#host.task("startContainer", this.#starter.task(spec, run, started));
      // The next launcher does not see the root: what it started would run in an empty one.
      if (!launcher.isOpen) throw new AppError("INTERNAL", "launcher exited during the start");
      const control = await this.#connect(this.#runs.remains(run, false).bundle).catch(async (error) => {
        const ended = await this.#runs.endOf(id, run);
        if (ended === null) throw error;
        return ended;
      });
      if (!(control instanceof ControlConnection)) {
        this.#sockets.end(id);
        await this.#runs.remove(id, run, slot, false);
        leaveImage();
        return control;
      }
      await this.#verify(run, control);
      failpoint("containers.start.ready");
      this.#running.hold({ id, run, slot, control, first_id, leaveImage });
      return null;
    } catch (cause) {
      this.#sockets.end(id);
      await this.#runs.remove(id, run, slot, true);
      leaveImage();
      if (cause instanceof AppError && cause.code !== "INTERNAL") throw cause;
      throw new AppError("START_FAILED", errorText(cause), { cause });
    } finally {
      if (spec.gpu_count > 0) await this.#starter.endGpus(launcher, run);
      await this.#starter.unmount(id);
    }
  }

  async #makeFiles(spec: ContainerSpec, slot: NetworkSlot): Promise<void> {
    await this.#host.storage.create("containers", spec.id, spec.disk_limit_mb, spec.tenant_id);
    await writeEtc(this.#host, spec, slot);
  }

  /** Rejects with START_FAILED if a mount hid minit, and something else is the first process of a run. */
  async #verify(run: string, control: ControlConnection): Promise<void> {
    const pid = readFileSync(`${this.#runs.remains(run, false).bundle}/pid`, "utf8").trim();
    if (await executes(pid, this.#host.options.minit)) return;
    control.close();
    throw new AppError("START_FAILED", "the first process of the container is not minit");
  }

  stop(id: string, signal: number, grace_ms: number): Promise<void> {
    return this.#running.stop(id, signal, grace_ms);
  }

  async kill(id: string): Promise<void> {
    await this.#runs.whenCleared(id);
    await this.#running.kill(id);
  }

  exit(id: string): Promise<Ended | null> {
    return this.#runs.exit(id);
  }

  exec(id: string, request: RunRequest, listener: ExecListener): Exec {
    return this.#running.exec(id, request, listener);
  }

  attach(id: string, request: AttachRequest, listener: ExecListener): Exec {
    return this.#running.attach(id, request, listener);
  }

  run(id: string, request: RunRequest & { readonly output_bytes_max: number }): Gathering {
    return this.#running.run(id, request);
  }

  signalPid(id: string, pid: number, signal: number): Promise<void> {
    return this.#running.signalPid(id, pid, signal);
  }

  log(id: string): ContainerLog {
    return this.#files.log(id);
  }

  metrics(id: string): ContainerMetrics {
    return this.#running.metrics(id);
  }

  processesIn(id: string): number {
    return this.#running.processesIn(id);
  }

  processes(id: string): Promise<ProcessList> {
    return this.#running.processes(id);
  }

  isLinked(id: string): boolean {
    const slot = this.#running.find(id)?.slot;
    return slot !== undefined && this.#host.network.isConnected(slot);
  }

  isLookedInto(id: string): boolean {
    return this.#idle.isUsed(id);
  }

  /**
   * Closes the connections, not the containers. Resolves to the slots of the containers that keep running; to null if the
   * boot failed before it found containers of an earlier process.
   */
  async letGo(): Promise<readonly NetworkSlot[] | null> {
    await this.#working.settled();
    if (!this.#isTakenOver && this.#found().size > 0) return null;
    const slots = await this.#running.letGo();
    if (slots.length === 0) removeGroup(this.#host.mode, this.#host.containers.cgroup);
    return slots;
  }

  /** Returns the names of the runs that left a bundle, a runtime state or a control group. */
  #found(): Set<string> {
    const { containers: places, tenants } = this.#host;
    return new Set([...namesIn(places.bundles), ...namesIn(places.runtime), ...tenants.found()]);
  }

  #connect(bundle: string): Promise<ControlConnection> {
    return ControlConnection.connect(`${bundle}/s`, LIMITS.start_timeout_ms, this.#host.options.clock);
  }
}

/** True for what the OCI runtime says of a mount point that it could not make. */
const isDiskFull = (error: unknown): boolean => /mkdir.*(quota exceeded|no space left)/i.test(errorText(error));

const namesIn = (path: string): string[] => (existsSync(path) ? readdirSync(path) : []);
