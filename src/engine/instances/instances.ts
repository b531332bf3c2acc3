/**
 * The function instances of this machine, behind the `Instances` port, on the resources of host.ts. Blocking work runs in
 * the worker threads, communication here.
 *
 * Invariants:
 * E1 A start that fails leaves no process, group, slot or file.
 * E2 `remove` gives back everything that `start` took, exactly once.
 */
import { symlinkSync } from "node:fs";
import type { CancelTimer } from "../../base/clock.ts";
import { each } from "../../base/concurrency.ts";
import { RESIDENT_ENVIRONMENT } from "../../base/container-environment.ts";
import { AppError, errorText, invariant } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import { type InstanceSpec, instanceConfig } from "../bundles/instance.ts";
import type { TakenGpus } from "../gpu/gpus.ts";
import {
  FURNISHED,
  fingerprintOf,
  isFingerprint,
  Leftovers,
  MARK,
  remainsOf,
  type Sorted,
  type Survivor,
  writeFingerprint,
} from "../host/adoption.ts";
import type { EngineHost } from "../host/host.ts";
import type { Remains } from "../host/reaper.ts";
import type { Census, StartTask } from "../host/thread.ts";
import type { MountedImage } from "../images/image-store.ts";
import type { EnteredImage } from "../images/mounted-images.ts";
import {
  applyLimits,
  readCpuUsedMs,
  readMemoryUsedMb,
  readOomKills,
  writeQuota,
  writeShare,
} from "../kernel/control-groups.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import { PROTOCOL_VERSION } from "../minit/answers.ts";
import { MinitClient } from "../minit/instance-client.ts";
import type { NetworkSlot } from "../network/network.ts";
import type { Filter } from "../oci/filters.ts";
import type {
  Adopted,
  Attachment,
  Instance,
  InstanceClass,
  InstanceLimits,
  Instances,
  StartTimings,
} from "../ports/instances.ts";
import type { Resident } from "../ports/residents.ts";
import { ANY_INSTANCE } from "./any-instance.ts";
import { attachTo, isNothing } from "./attachment.ts";
import { ForeignRoots } from "./foreign-roots.ts";
import { type GpuRoot, GpuRoots } from "./gpu-roots.ts";
import { openResident } from "./resident-start.ts";

/** Time that a container may take to end after minit was asked to. */
const EXIT_WAIT_MS = 1_000;
/** Containers that the engine starts for itself. */
const PROBE = "probe";
const COMPILER = "seccomp";
/** Timings of an instance that was not started here. */
const NO_TIMINGS: StartTimings = { network_ms: 0, rootfs_ms: 0, start_ms: 0, open_ms: 0 };
/** Function instances have none. */
const NO_CAPABILITIES: readonly string[] = [];

interface Held {
  readonly minit: MinitClient;
  readonly resident: Resident | null;
  readonly slot: NetworkSlot;
  /** Releases the image. */
  readonly leaveImage: () => void;
  readonly removed: PromiseWithResolvers<void>;
  isRemoving: boolean;
  /** True once it belongs to a function, with or without an attachment. */
  isAttached: boolean;
  /** Never rejects. */
  attaching: Promise<unknown>;
}

/** Parts of an instance that was started, or adopted at the boot. */
type Holding = Pick<Survivor, "id" | "nonce"> & Pick<Held, "minit" | "resident" | "slot" | "leaveImage" | "isAttached">;

interface Starting {
  readonly id: string;
  readonly of: InstanceClass;
  readonly image: MountedImage;
  readonly slot: NetworkSlot;
  readonly leaveImage: () => void;
  readonly taken: TakenGpus | null;
}

export class LocalInstances implements Instances {
  readonly #host: EngineHost;
  readonly #leftovers: Leftovers;
  readonly #held = new Map<string, Held>();
  /** Containers that are being started or removed. */
  readonly #moving = new Set<string>();
  /** Containers that were nobody's at the last look. */
  #strays: readonly string[] = [];
  #cancelLook: CancelTimer = () => {};
  /** Removals of what an earlier process left. */
  #clearing: Promise<unknown> = Promise.resolve();
  readonly #fingerprint_file: string;
  readonly #foreignRoots: ForeignRoots;
  readonly #gpuRoots: GpuRoots;
  #filter: Filter | null = null;

  constructor(host: EngineHost) {
    const { clock, log, config } = host.options;
    this.#host = host;
    this.#fingerprint_file = `${config.run_dir}/fingerprint`;
    this.#foreignRoots = new ForeignRoots((work) => host.retried(work));
    this.#gpuRoots = new GpuRoots(host);
    this.#leftovers = new Leftovers({
      clock,
      log,
      mode: host.mode,
      places: host.instances,
      network: host.network,
      reserved: [PROBE, COMPILER],
    });
  }

  /**
   * First part of the engine's boot. Resolves to true if instances of an earlier process are as this one makes them. If
   * not, it removes them all.
   */
  async begin(): Promise<boolean> {
    const { runtime, filters } = this.#host;
    this.#filter = filters.kept(NO_CAPABILITIES) ?? filters.rules(NO_CAPABILITIES);
    const areAdoptable = isFingerprint(this.#fingerprint_file, this.#fingerprint());
    if (!areAdoptable) await this.#leftovers.remove(this.#leftovers.ids(), runtime);
    return areAdoptable;
  }

  /** Looks at the instances that an earlier process left. */
  async sort(): Promise<Sorted> {
    const sorted = await this.#leftovers.sort();
    for (const { id, gpus } of [...sorted.survivors, ...sorted.doomed]) this.#host.gpus.keep(id, id, gpus);
    return sorted;
  }

  /**
   * Takes the survivors, whose images stay mounted from here on, and removes unknown containers at once. A doomed one
   * keeps its id until `clear` has removed it.
   */
  async adopt({ survivors, doomed, unknown }: Sorted): Promise<readonly Adopted[]> {
    const adopted = survivors.map((survivor) => {
      const leaveImage = this.#host.images.hold(survivor.image);
      const isAttached = survivor.mark !== null;
      return {
        instance: this.#hold({ ...survivor, leaveImage, isAttached }, NO_TIMINGS),
        class: survivor.class,
        image: survivor.image,
        mark: survivor.mark,
        is_furnished: survivor.is_furnished,
      };
    });
    await this.#leftovers.remove(unknown, this.#host.runtime);
    for (const { id } of doomed) this.#moving.add(id);
    return adopted;
  }

  /** Compiles the filter, unless an instance survived: then this machine runs containers made like this. */
  async prepare({ survivors }: Sorted): Promise<void> {
    if (survivors.length === 0) await this.#prepareFilter();
  }

  /** Last part of the boot: removes the doomed in the background and begins the census. */
  clear({ doomed }: Sorted): void {
    writeFingerprint(this.#fingerprint_file, this.#fingerprint());
    this.#clearing = each(doomed, LIMITS.leftovers_removed_at_once, async ({ id, slot }) => {
      await this.#discard(id, slot, true);
      this.#moving.delete(id);
    });
    this.#lookLater();
  }

  /** Ends the census and waits for the removals of the boot. */
  async settle(): Promise<void> {
    this.#cancelLook();
    await this.#clearing;
  }

  /** Removes all instances that are left, at shutdown. */
  async removeAll(): Promise<void> {
    if (this.#host.isBegun) await this.#leftovers.remove(this.#leftovers.ids(), this.#host.runtime);
  }

  async start(id: string, of: InstanceClass): Promise<Instance> {
    const { clock } = this.#host.options;
    if (this.#held.has(id) || this.#moving.has(id)) {
      throw new AppError("START_FAILED", `there is an instance '${id}' already`);
    }
    this.#moving.add(id);
    try {
      return await this.#host.retried(async (launcher) => {
        const begun_ms = clock.monotonicMs();
        const taken = await this.#take(id, of);
        const { image, leave } = await this.#enter(of).catch((cause) => {
          this.#host.gpus.release(id);
          throw new AppError("START_FAILED", errorText(cause), { cause });
        });
        let isDiscarded = false;
        try {
          await this.#foreignRoots.prepare(image, of).catch((cause) => {
            throw new AppError("START_FAILED", errorText(cause), { cause });
          });
          const image_ms = clock.monotonicMs() - begun_ms;
          const slot = await this.#host.acquire();
          isDiscarded = true;
          failpoint("engine.start.slot");
          const network_ms = clock.monotonicMs() - begun_ms - image_ms;
          const starting = { id, of, image, slot, leaveImage: leave, taken };
          return await this.#startIn(launcher, starting, { image_ms, network_ms });
        } catch (error) {
          leave();
          if (!isDiscarded) this.#host.gpus.release(id);
          throw error;
        }
      });
    } finally {
      this.#moving.delete(id);
    }
  }

  async attach({ id }: Instance, attachment: Attachment): Promise<void> {
    const held = this.#held.get(id);
    if (held === undefined || held.isRemoving) throw new AppError("START_FAILED", `instance ${id} is being removed`);
    if (held.isAttached) throw new AppError("START_FAILED", `instance ${id} belongs to a function already`);
    held.isAttached = true;
    if (isNothing(attachment)) return;
    const to = { id, slot: held.slot, bundle: this.#bundle(id), cgroup: this.#cgroup(id) };
    const attaching = attachTo(this.#host, to, attachment);
    held.attaching = attaching.catch(() => {});
    await attaching;
  }

  mark(instance: Instance, text: string): void {
    symlinkSync(text, `${this.#bundle(instance.id)}/${MARK}`);
  }

  furnished(instance: Instance): void {
    symlinkSync("yes", `${this.#bundle(instance.id)}/${FURNISHED}`);
  }

  limit(instance: Instance, limits: InstanceLimits): void {
    applyLimits(this.#host.groups, this.#cgroup(instance.id), limits);
  }

  weigh(instance: Instance, share: number): void {
    try {
      writeShare(this.#host.mode, this.#cgroup(instance.id), share);
    } catch {
      // It ends just now.
    }
  }

  setQuota(instance: Instance, cpu_limit_percent: number | null): void {
    writeQuota(this.#host.mode, this.#cgroup(instance.id), cpu_limit_percent);
  }

  cpuUsedMs(instance: Instance): number {
    return readCpuUsedMs(this.#host.mode, this.#cgroup(instance.id));
  }

  attribute({ id }: Instance, tenant_id: string): void {
    const held = this.#held.get(id);
    if (held?.isRemoving === false) this.#host.network.attribute(held.slot, tenant_id);
  }

  oomKills(instance: Instance): number {
    return readOomKills(this.#host.mode, this.#cgroup(instance.id));
  }

  memoryUsedMb(): number {
    return readMemoryUsedMb(this.#host.mode, this.#host.instances.cgroup);
  }

  async remove(instance: Instance): Promise<void> {
    const held = this.#held.get(instance.id);
    if (held === undefined) return;
    if (held.isRemoving) return held.removed.promise;
    held.isRemoving = true;
    await this.#end(held.minit);
    failpoint("engine.remove.asked");
    // A late attachment could reach a later instance of the same name.
    await held.attaching;
    await this.#discard(instance.id, held.slot, false);
    this.#held.delete(instance.id);
    held.leaveImage();
    held.removed.resolve();
  }

  async hold(of: InstanceClass): Promise<() => void> {
    return (await this.#enter(of)).leave;
  }

  async modeOf(of: InstanceClass, path: string): Promise<number | null> {
    const { image, leave } = await this.#enter(of);
    try {
      return await this.#host.retried((launcher) => launcher.statInRoot(image.path, path));
    } finally {
      leave();
    }
  }

  /** Rejects with a LackingError if there are no GPUs for an instance of the class. */
  #take(id: string, { gpus }: InstanceClass): Promise<TakenGpus | null> {
    if (gpus === undefined) return Promise.resolve(null);
    return this.#host.gpus.take(id, { tenant_id: gpus.tenant_id, id }, { gpu_count: gpus.count, gpu_ids: [] });
  }

  /** Mounts the image of a class, where it is not, until `leave`. The pinned one needs nothing and cannot fail. */
  async #enter({ image }: InstanceClass): Promise<EnteredImage> {
    const { images } = this.#host;
    if (image === images.pinned.id) return { image: images.pinned, leave: () => {} };
    return images.enter(image);
  }

  async #startIn(
    launcher: LauncherClient,
    starting: Starting,
    { image_ms, network_ms }: { readonly image_ms: number; readonly network_ms: number },
  ): Promise<Instance> {
    const { clock } = this.#host.options;
    const { id, of, slot, leaveImage, image, taken } = starting;
    const bundle = this.#bundle(id);
    try {
      const runtime_root = this.#host.instances.runtime;
      const own = taken && (await this.#gpuRoots.begin(launcher, { bundle, image: image.path, uid: slot.uid, taken }));
      const task: StartTask = { spec: this.#spec(starting, own), bundle, listen_path: `${bundle}/s`, runtime_root };
      const starting_ms = clock.monotonicMs();
      const { rootfs_ms } = await this.#host.task<{ rootfs_ms: number }>("start", task);
      const { client, nonce } = await MinitClient.connect(task.listen_path, LIMITS.start_timeout_ms, clock);
      failpoint("engine.start.ready");
      const start_ms = clock.monotonicMs() - starting_ms - rootfs_ms;
      const resident = of.resident === null ? null : await openResident(client, of.resident, clock);
      const open_ms = clock.monotonicMs() - starting_ms - rootfs_ms - start_ms;
      const timings = { network_ms, rootfs_ms: image_ms + rootfs_ms, start_ms, open_ms };
      return this.#hold({ id, slot, minit: client, resident, nonce, leaveImage, isAttached: false }, timings);
    } catch (cause) {
      await this.#discard(id, slot, true);
      throw new AppError("START_FAILED", errorText(cause), { cause });
    } finally {
      if (taken !== null) await this.#gpuRoots.end(launcher, bundle);
    }
  }

  #hold({ id, nonce, ...kept }: Holding, timings: StartTimings): Instance {
    const { minit, resident, slot } = kept;
    this.#held.set(id, { ...kept, removed: Promise.withResolvers(), isRemoving: false, attaching: Promise.resolve() });
    const { environment } = this.#host.gpus.heldBy(id);
    const own = Object.keys(environment).length === 0 ? {} : { gpu_environment: environment };
    return { id, nonce, address: slot.address, uid: slot.uid, minit, resident, timings, ...own };
  }

  #discard(id: string, slot: NetworkSlot, isStarting: boolean): Promise<boolean> {
    return this.#host.discard(remainsOf(this.#host.instances, id, isStarting), slot);
  }

  /** Everything by which an instance of this process differs from one of the same class of another process. */
  #fingerprint(): string {
    const { config, minit } = this.#host.options;
    invariant(this.#filter !== null, "there is a filter");
    const serving = [RESIDENT_ENVIRONMENT, LIMITS.resident_calls_max];
    const { resolv_conf, trust, visible_groups } = this.#host;
    const made = instanceConfig({ ...ANY_INSTANCE, minit, resolv_conf, trust, visible_groups, seccomp: this.#filter });
    const { command, version } = this.#host.runtime;
    return fingerprintOf([PROTOCOL_VERSION, command, version, config.subnet, config.bridge, made, serving]);
  }

  #bundle(id: string): string {
    return `${this.#host.instances.bundles}/${id}`;
  }

  #cgroup(id: string): string {
    return `${this.#host.instances.cgroup}/${id}`;
  }

  #spec({ id, of, image, slot }: Omit<Starting, "leaveImage" | "taken">, own: GpuRoot | null = null): InstanceSpec {
    invariant(this.#filter !== null, "the engine has booted");
    return {
      id,
      rootfs: own?.rootfs ?? image.path,
      minit: this.#host.options.minit,
      resolv_conf: this.#host.resolv_conf,
      trust: this.#host.trust,
      uid: slot.uid,
      netns: slot.netns,
      cgroup: this.#cgroup(id),
      visible_groups: this.#host.visible_groups,
      seccomp: this.#filter,
      class: of,
      pinned: this.#host.images.pinned.path,
      gpus: own?.gpus ?? null,
    };
  }

  /** The class of the containers that the engine starts for itself. */
  get #own(): InstanceClass {
    const image = this.#host.images.pinned.id;
    return { key: "", image, scratch_mb: LIMITS.tmpfs_mb, runtime_directory: null, resident: null };
  }

  /** Ends the container's first process and with it, by the kernel's hand, everything in its process namespace. */
  async #end(minit: MinitClient): Promise<void> {
    if (!minit.isOpen) return;
    const closed = Promise.withResolvers<void>();
    minit.onClosed(closed.resolve);
    minit.shutdown();
    const cancel = this.#host.options.clock.after(EXIT_WAIT_MS, closed.resolve);
    await closed.promise;
    cancel();
    minit.close();
  }

  #lookLater(): void {
    const { clock, log } = this.#host.options;
    this.#cancelLook = clock.after(LIMITS.census_interval_ms, () => {
      this.#look()
        .catch((error) => log.warn("cannot count the instances", { error: errorText(error) }))
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
    const { instances, options } = this.#host;
    const { present, empty } = await this.#host.task<Census>("census", { parent: instances.cgroup });
    const strays = present.filter((id) => !this.#held.has(id) && !this.#moving.has(id));
    for (const id of strays.filter((id) => this.#strays.includes(id))) {
      options.log.warn("removing an unknown container", { id });
      await this.#host.task("remove", remainsOf(instances, id, true));
    }
    this.#strays = strays;
    for (const id of settled.filter((id) => empty.includes(id))) {
      const held = this.#held.get(id);
      if (held?.isRemoving === false) held.minit.close();
    }
    await this.#host.countRefusedFlows();
  }

  /**
   * The filter for all starts, and a first start with it, so that a machine that cannot run containers is told at once.
   * A kept one that does not work is made again.
   */
  async #prepareFilter(): Promise<void> {
    const { filters, images, options } = this.#host;
    if (!filters.areKept) return this.#probe();
    if (filters.kept(NO_CAPABILITIES) !== null) {
      try {
        return await this.#probe();
      } catch (error) {
        options.log.warn("the cached seccomp filter does not work, compiling it again", { error: errorText(error) });
        this.#filter = filters.rules(NO_CAPABILITIES);
      }
    }
    const configure = (slot: NetworkSlot, { cgroup }: Remains) =>
      instanceConfig({ ...this.#spec({ id: COMPILER, of: this.#own, image: images.pinned, slot }), cgroup });
    this.#filter = await this.#host.compile(COMPILER, NO_CAPABILITIES, configure);
    await this.#probe();
  }

  async #probe(): Promise<void> {
    const instance = await this.start(PROBE, this.#own);
    await instance.minit.ping(EXIT_WAIT_MS, this.#host.options.clock);
    await this.remove(instance);
  }
}
