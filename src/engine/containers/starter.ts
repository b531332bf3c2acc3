/**
 * Prepares the start of an API container: mounts its root where only the launcher sees it, derives its configuration from
 * its specification and its placement, and lists the descriptors of its first process. containers.ts starts, tracks and
 * ends containers.
 */
import { chmodSync, chownSync, constants, mkdirSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { AppError } from "../../base/errors.ts";
import type { Mount, Placement } from "../bundles/container.ts";
import { makeNodes, type PlacedGpus, placeNodes, removeNodes } from "../gpu/edits.ts";
import type { TakenGpus } from "../gpu/gpus.ts";
import { resolveTarget } from "../gpu/targets.ts";
import { remainsOf } from "../host/adoption.ts";
import type { EngineHost } from "../host/host.ts";
import type { StartContainerTask } from "../host/thread.ts";
import type { LayeredImage } from "../images/image-store.ts";
import type { EnteredImage } from "../images/mounted-images.ts";
import type { LauncherClient, OverlayRequest } from "../launcher/launcher.ts";
import type { NetworkSlot } from "../network/network.ts";
import type { Filter } from "../oci/filters.ts";
import type { ContainerSpec } from "../ports/containers.ts";
import type { IdleRoot } from "./idle-roots.ts";
import { etcOf } from "./own-etc.ts";
import type { RunFiles } from "./run-files.ts";
import { mountWritable } from "./writable-root.ts";

/** Resources that a start holds for its container. */
export interface StartParts {
  readonly image: LayeredImage;
  readonly rootfs: string;
  readonly slot: NetworkSlot;
  readonly filter: Filter;
  readonly gpus: PlacedGpus | null;
  readonly socket: Mount | null;
}

interface GpuPlace {
  readonly spec: ContainerSpec;
  readonly run: string;
  readonly rootfs: string;
  /** Null: none. */
  readonly taken: TakenGpus | null;
}

/** Files below a container's own changes: a root, or layers. */
type Lower = OverlayRequest["lower"];

export class ContainerStarter {
  readonly #host: EngineHost;
  readonly #files: RunFiles;
  /** Root inside is nobody to this machine and has to pass all directories above its root: these are open to that. */
  readonly #roots: string;

  constructor(host: EngineHost, files: RunFiles) {
    this.#host = host;
    this.#files = files;
    this.#roots = host.roots;
  }

  /** Takes away what an earlier process mounted on: the mounts themselves went with its launcher. */
  sweep(): void {
    for (const name of readdirSync(this.#roots)) rmdirSync(`${this.#roots}/${name}`);
  }

  /** Takes the image of a container: its layers for a container in a user namespace, its mount for any other. */
  async enter(reference: string, hasUser: boolean): Promise<EnteredImage<LayeredImage> & { readonly lower: Lower }> {
    const { images } = this.#host;
    if (!hasUser) {
      const entered = await images.enter(reference);
      return { ...entered, lower: entered.image.path };
    }
    const entered = await images.enterLayers(reference);
    const { layers } = entered.image;
    if (layers.length > 0) return { ...entered, lower: layers };
    entered.leave();
    throw new AppError("START_FAILED", `unknown layers of ${reference}, which user namespaces require`);
  }

  /**
   * Mounts a container's root, long enough for the runtime to take it over, or for who looks into it. With a user
   * namespace it is one for a container in that.
   */
  async mount(launcher: LauncherClient, id: string, below: Pick<OverlayRequest, "lower" | "user">): Promise<string> {
    const target = `${this.#roots}/${id}`;
    await mountWritable({ launcher, storage: this.#host.storage, id, below, target });
    // A link there, from the image or an earlier run, must not lead the runtime's mounts elsewhere (CVE-2021-30465).
    for (const path of ["/dev", "/proc", "/sys", "/etc"]) {
      const mode = await launcher.lstatInRoot(target, path);
      if (mode !== null && (mode & constants.S_IFMT) !== constants.S_IFDIR) {
        throw new AppError("START_FAILED", `not a directory in the container: ${path}`);
      }
    }
    return target;
  }

  /** Mounts the root of a container that does not run. Rejects with WRONG_STATE when it is being started by then. */
  async mountIdle(id: string, reference: string, isStarting: () => boolean): Promise<IdleRoot> {
    const { lower, leave } = await this.#host.images.enterRoot(reference);
    try {
      if (isStarting()) throw new AppError("WRONG_STATE", `container ${id} is starting`);
      const launcher = await this.#host.launcher();
      return { root: await this.mount(launcher, id, { lower }), launcher, letGo: leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  async unmount(id: string): Promise<void> {
    const target = `${this.#roots}/${id}`;
    await this.#host
      .launcher()
      .then((launcher) => launcher.unmount(target))
      .catch(() => {});
    rmSync(target, { recursive: true, force: true });
  }

  /** Makes what the GPUs of a container need on this machine, until `endGpus`. `first_id`: of its user namespace; 0 without one. */
  async beginGpus(
    launcher: LauncherClient,
    { spec, run, rootfs, taken }: GpuPlace,
    first_id: number,
  ): Promise<PlacedGpus | null> {
    if (taken === null) return null;
    const { note, edits } = taken;
    const directory = this.#nodes(run);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    if (first_id !== 0 && edits.hooks.length > 0) this.#openBundle(run, first_id);
    const nodes = await placeNodes(edits.nodes, directory, first_id);
    await makeNodes(launcher, directory, nodes);
    const closed = spec.volumes.map(({ target }) => target);
    const root = `${this.#host.launcherRoot}${rootfs}`;
    const mounts = await Promise.all(
      edits.mounts.map(async (mount) => ({ ...mount, target: await resolveTarget(root, mount.target, closed) })),
    );
    return { note, nodes, mounts, hooks: edits.hooks, gids: edits.gids };
  }

  async endGpus(launcher: LauncherClient, run: string): Promise<void> {
    await removeNodes(launcher, this.#nodes(run));
  }

  /** Lets root inside enter the bundle, in which the runtime starts hooks inside of the user namespace: no other user, and not list it. */
  #openBundle(run: string, first_id: number): void {
    const { bundle } = remainsOf(this.#host.containers, run, true);
    chmodSync(this.#host.containers.bundles, 0o711);
    chownSync(bundle, 0, first_id);
    chmodSync(bundle, 0o710);
  }

  #nodes(run: string): string {
    return `${remainsOf(this.#host.containers, run, true).bundle}/gpus`;
  }

  /** Returns the task for a worker thread. `run`: the run's name on the machine. */
  task(spec: ContainerSpec, run: string, parts: StartParts): StartContainerTask {
    const { bundle, runtime_root } = remainsOf(this.#host.containers, run, true);
    const handover = {
      listen_path: `${bundle}/s`,
      file_paths: this.#files.handed(spec.id),
      pid_file: `${bundle}/pid`,
    };
    return { spec, placement: this.#placement(spec, run, parts), bundle, runtime_root, handover };
  }

  #placement(
    { id, volumes }: ContainerSpec,
    run: string,
    { image, rootfs, slot, filter, gpus, socket }: StartParts,
  ): Placement {
    const { options, trust, tenants, groups, visible_groups, storage } = this.#host;
    return {
      run,
      image_id: image.id,
      rootfs,
      minit: options.minit,
      etc: etcOf(storage, id),
      trust,
      slot_index: slot.index,
      netns: slot.netns,
      user: slot.user,
      cgroup: tenants.path(run),
      visible_groups,
      filter,
      has_socket_limit: groups.sockets === "own",
      mounts: volumes.map(({ id, target, kind = "volumes", entry, is_read_only = false }) => {
        const top = storage.subvolume(kind, id);
        return { source: entry === undefined ? top : `${top}/${entry}`, target, is_read_only };
      }),
      socket,
      gpus,
    };
  }
}
