/**
 * The images that containers are made from, each mounted once for all of its containers.
 *
 * G1 A reference names the image that has it in the store now: it is looked up again after every change of the store.
 * G2 An image stays mounted while a container needs its mount. Unneeded, it stays while a remembered reference names it.
 * G3 The store keeps an image while it is pulled or exported, and until its pull or its reservation is released. The
 *    holder has noted before a release that the image is needed, so an image that was held when `keep` began to read what is needed stays.
 * G4 A container in a user namespace needs the layers and no mount. It takes them from the store's files if a name of this daemon
 *    keeps the image there; that name stays while the container needs the image.
 * G5 buildah mounts no image with instructions for builds: it would carry them out. Roots that lie on layers need no mount of it: of
 *    at most some 30 without a user namespace, which is what one page of options holds.
 */
import { mkdirSync } from "node:fs";
import { LRUCache } from "lru-cache";
import { KeyedMutex, Semaphore } from "../../base/concurrency.ts";
import { AppError, errorText, invariant } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { SCRATCH_IMAGE } from "../../base/scratch-image.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type {
  ExportedImage,
  FoundImage,
  ImageConfig,
  ImageDescription,
  ImageExport,
  ImagePull,
  Images,
  PulledImage,
} from "../ports/images.ts";
import { removeDevices } from "./device-nodes.ts";
import { hasTriggers, parseImageConfig, releaseOf } from "./image-config.ts";
import type { ImageExports } from "./image-exports.ts";
import type { ImagePulls } from "./image-pulls.ts";
import type { ImageStore, LayeredImage, MountedImage } from "./image-store.ts";
import { fileInLayers } from "./layer-files.ts";
import type { StoreFiles } from "./store-files.ts";

/** The turn of work on kept names. */
const KEEPING = "keep";

interface Mount {
  /** Null: not mounted by this process. */
  mounted: Promise<MountedImage> | null;
  /** True if this process mounted the image, or an earlier one may have. */
  mayBeMounted: boolean;
  users_count: number;
}

/** Pattern of an image's id. */
const ID = /^[0-9a-f]{64}$/;

export interface EnteredImage<Image extends LayeredImage = MountedImage> {
  readonly image: Image;
  /** Harmless when repeated. */
  leave(): void;
}

export interface MountedImagesOptions {
  readonly images: ImageStore;
  readonly files: StoreFiles;
  readonly pulls: ImagePulls;
  readonly exports: ImageExports;
  readonly log: Log;
  /** Maximum number of remembered references; a new one evicts the least recently used. */
  readonly references_max: number;
  /** An empty directory, the image of containers without one. */
  readonly scratch: string;
  /** Does work with the launcher in use, and with the next one where that died meanwhile. */
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
}

export class MountedImages implements Images {
  readonly #options: MountedImagesOptions;
  /** By the image's id. */
  readonly #mounts = new Map<string, Mount>();
  /** Images by reference, with the state of the store at their lookup. */
  readonly #found: LRUCache<string, { readonly state: string; readonly image: FoundImage }>;
  /** Configurations by the image's id: an image never changes, so each is read once. */
  readonly #configs = new LRUCache<string, ImageConfig>({ max: LIMITS.image_configs_kept });
  readonly #configTurns = new KeyedMutex();
  /** Layers by the image's id, with the state of the store at their lookup; none of an image that this daemon does not keep. */
  readonly #layers = new LRUCache<string, { readonly state: string; readonly paths: readonly string[] }>({
    max: LIMITS.image_configs_kept,
  });
  /** Bounds the lookups that run at once: starts need the launcher's processes too. */
  readonly #lookups = new Semaphore(LIMITS.image_lookups_at_once, LIMITS.image_lookups_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many concurrent lookups of images", { retry_after: 1 });
  });
  /** Mounting and unmounting of one image, one after the other. */
  readonly #turns = new KeyedMutex();
  #pinned: MountedImage | null = null;
  /** G3: the number of unreleased pulls and reservations and of running exports of each image that has some. */
  readonly #pulled = new Map<string, number>();
  /** Ids of images that `keep` would have removed, and containers needed. */
  readonly #blocked = new Set<string>();
  /** Ids of images that `keep` would have removed, and G3 kept; and of those that a reservation named. */
  readonly #reserved = new Set<string>();
  #onIdle: () => void = () => {};

  constructor(options: MountedImagesOptions) {
    this.#options = options;
    this.#found = new LRUCache({
      max: options.references_max,
      // Replaced, deleted or evicted: the reference may have been the last that named the image.
      disposeAfter: ({ image }) => this.#unmountUnneeded(image.id),
    });
  }

  async find(reference: string): Promise<FoundImage> {
    const { images, withLauncher } = this.#options;
    const state = images.state();
    const known = this.#found.get(reference);
    if (known !== undefined && known.state === state) return known.image;
    try {
      // An id needs no process: a container asks for its image by the id.
      const image = ID.test(reference)
        ? await this.#findById(reference)
        : await this.#lookups.run(() => withLauncher((launcher) => images.find(launcher, reference)));
      this.#found.set(reference, { state, image });
      return image;
    } catch (error) {
      this.#found.delete(reference);
      throw error;
    }
  }

  async #findById(id: string): Promise<FoundImage> {
    const { files } = this.#options;
    await files.image(id);
    const config = await files.config(id).catch(() => "");
    return { reference: id, id, release: releaseOf(config) };
  }

  config(id: string): Promise<ImageConfig> {
    const { files } = this.#options;
    return this.#configTurns.run(id, async () => {
      const known = this.#configs.get(id);
      if (known !== undefined) return known;
      const config = parseImageConfig(await files.config(id));
      this.#configs.set(id, config);
      return config;
    });
  }

  async isRelease(reference: string, release: string | null): Promise<boolean> {
    const image = await this.find(reference).catch((error: unknown) => {
      if (error instanceof AppError && error.code === "NOT_FOUND") return null;
      throw error;
    });
    return image !== null && (release === null || image.release === release);
  }

  state(): string {
    return this.#options.images.state();
  }

  async pull(of: ImagePull): Promise<PulledImage> {
    const { images, pulls, withLauncher } = this.#options;
    const held: { pulled: PulledImage | null } = { pulled: null };
    // In turn with `keep`, which may be about to take the name away.
    const keep = (id: string) =>
      this.#turns.run(KEEPING, async () => {
        held.pulled = this.#holdPulled(id);
        await withLauncher((launcher) => images.name(launcher, id));
      });
    try {
      await pulls.pull(of, keep);
    } catch (error) {
      held.pulled?.release();
      throw error;
    }
    invariant(held.pulled !== null, "a pull that succeeds has an image");
    return held.pulled;
  }

  async reserve(id: string): Promise<PulledImage> {
    const { images, files, withLauncher } = this.#options;
    const held = this.#holdPulled(id);
    try {
      await this.#turns.run(KEEPING, async () => {
        const isKept = images.keptNames(await files.image(id)).length > 0;
        // Set-up keeps the pinned image without a tag.
        if (isKept || id === this.#pinned?.id) return;
        this.#reserved.add(id);
        await withLauncher((launcher) => images.name(launcher, id));
      });
      return held;
    } catch (error) {
      held.release();
      throw error;
    }
  }

  async export(of: ImageExport): Promise<ExportedImage> {
    const { release } = this.#holdPulled(of.id);
    try {
      return await this.#options.exports.export(of);
    } finally {
      release();
    }
  }

  describe(id: string): Promise<ImageDescription> {
    return this.#options.files.describe(id);
  }

  async fileIn(id: string, path: string): Promise<string | null> {
    const { files } = this.#options;
    return fileInLayers(await files.layerPaths(await files.image(id)), path);
  }

  async removeDevices(id: string): Promise<number> {
    const { files } = this.#options;
    return removeDevices(await files.layerPaths(await files.image(id)));
  }

  keep(read: () => Promise<ReadonlySet<string>>): Promise<void> {
    return this.#turns.run(KEEPING, async () => {
      const held = new Set(this.#pulled.keys());
      await this.#keep(await read(), held);
    });
  }

  onIdle(listener: () => void): void {
    this.#onIdle = listener;
  }

  /** `held`: images that were held when the ids were read (G3). */
  async #keep(ids: ReadonlySet<string>, held: ReadonlySet<string>): Promise<void> {
    const { images, files, pulls, exports, log, withLauncher } = this.#options;
    this.#blocked.clear();
    this.#reserved.clear();
    await pulls.clearUp();
    await exports.begin();
    for (const row of await files.images()) {
      const kept = images.keptNames(row);
      // Set-up keeps the pinned image without a tag.
      const isNeeded = row.id !== this.#pinned?.id && ids.has(row.id);
      if (isNeeded && kept.length === 0) await withLauncher((launcher) => images.name(launcher, row.id));
      if (isNeeded || kept.length === 0) continue;
      if (held.has(row.id) || this.#pulled.has(row.id)) {
        this.#reserved.add(row.id);
        continue;
      }
      try {
        if (await this.#forget(row.id)) await this.#unname(row.id, kept);
        else this.#blocked.add(row.id);
      } catch (error) {
        log.warn("image not removed", { image: row.id, error: errorText(error) });
      }
    }
    for (const id of this.#reserved) if (!this.#pulled.has(id)) this.#noteIdle(this.#reserved, id);
  }

  #noteIdle(waiting: Set<string>, id: string): void {
    if (waiting.delete(id)) this.#onIdle();
  }

  /** In turn with containers that take its layers (G4). */
  async #unname(id: string, names: readonly string[]): Promise<void> {
    const { images, withLauncher } = this.#options;
    await this.#turns.run(images.keyOf(id), async () => {
      if ((this.#mounts.get(id)?.users_count ?? 0) > 0 && id !== this.#pinned?.id) this.#blocked.add(id);
      else for (const name of names) await withLauncher((launcher) => images.unname(launcher, name));
    });
  }

  /** Unmounts an image that is to be removed. Resolves to false if a container needs it. */
  async #forget(id: string): Promise<boolean> {
    for (const [reference, { image }] of [...this.#found]) if (image.id === id) this.#found.delete(reference);
    if (id === this.#pinned?.id) return true;
    if ((this.#mounts.get(id)?.users_count ?? 0) > 0) return false;
    await this.#unmount(this.#options.images.keyOf(id));
    return true;
  }

  #holdPulled(id: string): PulledImage {
    this.#pulled.set(id, (this.#pulled.get(id) ?? 0) + 1);
    let isReleased = false;
    const release = () => {
      if (isReleased) return;
      isReleased = true;
      const count = (this.#pulled.get(id) ?? 1) - 1;
      if (count > 0) {
        this.#pulled.set(id, count);
        return;
      }
      this.#pulled.delete(id);
      this.#noteIdle(this.#reserved, id);
    };
    return { id, release };
  }

  /** Keeps the layers of an image for as long as the caller needs them (G4). Rejects with NOT_FOUND. */
  async enterLayers(reference: string): Promise<EnteredImage<LayeredImage>> {
    if (reference === SCRATCH_IMAGE) return { image: scratchImage(this.#options.scratch), leave: () => {} };
    const { images, files } = this.#options;
    const found = await this.find(reference);
    const leave = this.#hold(found.id, false);
    try {
      const layers = await this.#turns.run(images.keyOf(found.id), async () => {
        const state = images.state();
        const known = this.#layers.get(found.id);
        if (known?.state === state) return known.paths;
        const row = await files.image(found.id);
        const paths = images.keptNames(row).length === 0 ? [] : await files.layerPaths(row);
        this.#layers.set(found.id, { state, paths });
        return paths;
      });
      if (layers.length > 0) return { image: { ...found, layers }, leave };
    } catch (error) {
      leave();
      throw error;
    }
    leave();
    return this.enter(reference);
  }

  /** Mounts an image, where it is not, for as long as the caller needs it (G2). Rejects with NOT_FOUND. */
  async enter(reference: string): Promise<EnteredImage> {
    if (reference === SCRATCH_IMAGE) return { image: scratchImage(this.#options.scratch), leave: () => {} };
    const found = await this.find(reference);
    const leave = this.hold(found.id);
    try {
      return { image: await this.#mount(found, true), leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** Takes what a root without a user namespace lies on: the mount of an image, or its layers (G5). Rejects with NOT_FOUND. */
  async enterRoot(
    reference: string,
  ): Promise<{ readonly lower: string | readonly string[]; readonly leave: () => void }> {
    const hasOwn = reference !== SCRATCH_IMAGE && hasTriggers(await this.#configOf(reference));
    if (hasOwn) {
      const { image, leave } = await this.enterLayers(reference);
      return { lower: image.layers, leave };
    }
    const { image, leave } = await this.enter(reference);
    return { lower: image.path, leave };
  }

  async #configOf(reference: string): Promise<string> {
    return this.#options.files.config((await this.find(reference)).id);
  }

  /** Keeps what an earlier process mounted, for a container that lives on. Returns what lets it go. */
  hold(id: string): () => void {
    return this.#hold(id, true);
  }

  #hold(id: string, mayBeMounted: boolean): () => void {
    const mount = this.#mounts.get(id) ?? { mounted: null, mayBeMounted, users_count: 0 };
    this.#mounts.set(id, mount);
    mount.users_count++;
    mount.mayBeMounted ||= mayBeMounted;
    let hasLeft = false;
    return () => {
      if (hasLeft) return;
      hasLeft = true;
      mount.users_count--;
      this.#unmountUnneeded(id);
      if (mount.users_count === 0) this.#noteIdle(this.#blocked, id);
    };
  }

  /** Mounts the image of function instances, for good. `isInUse`: see `ImageStore.mount`. */
  async pin(found: FoundImage, isInUse: boolean): Promise<void> {
    this.hold(found.id);
    this.#pinned = await this.#mount(found, isInUse);
  }

  get pinned(): MountedImage {
    invariant(this.#pinned !== null, "the engine has booted");
    return this.#pinned;
  }

  /** Mounts for a new launcher what was mounted for the last one. */
  async mountAgain(launcher: LauncherClient): Promise<void> {
    const { images, log } = this.#options;
    for (const mount of [...this.#mounts.values()]) {
      const image = await mount.mounted?.catch(() => null);
      if (image === undefined || image === null) continue;
      try {
        const mounted = await images.mount(launcher, image, true);
        mount.mounted = Promise.resolve(mounted);
        if (mounted.id === this.#pinned?.id) this.#pinned = mounted;
      } catch (error) {
        if (image.id === this.#pinned?.id || !launcher.isOpen) throw error;
        log.warn("image not mounted again", { image: image.reference, error: errorText(error) });
        mount.mounted = null;
      }
    }
  }

  /** Unmounts what an earlier process mounted and no container needs. Never rejects: the next process finds the rest. */
  async sweep(): Promise<void> {
    const { images, log, withLauncher } = this.#options;
    try {
      for (const key of await withLauncher((launcher) => images.mountedKeys(launcher))) await this.#unmount(key);
    } catch (error) {
      log.warn("images of an earlier process not unmounted", { error: errorText(error) });
    }
  }

  #mount(found: FoundImage, isInUse: boolean): Promise<MountedImage> {
    const { images, files, withLauncher } = this.#options;
    const mount = this.#mounts.get(found.id);
    invariant(mount !== undefined, "the image is held");
    if (mount.mounted !== null) return mount.mounted;
    const mounting = this.#turns.run(images.keyOf(found.id), async () => {
      // G5
      if (hasTriggers(await files.config(found.id))) {
        throw new AppError(
          "START_FAILED",
          `image not mounted: ${found.reference.slice(0, 200)} has ONBUILD instructions`,
          {
            hint: "build an image on it, and use that one",
          },
        );
      }
      return withLauncher((launcher) => images.mount(launcher, found, isInUse));
    });
    mount.mounted = mounting;
    mounting.catch(() => {
      if (mount.mounted === mounting) mount.mounted = null;
    });
    return mounting;
  }

  #unmountUnneeded(id: string): void {
    const { images, log } = this.#options;
    const mount = this.#mounts.get(id);
    if (mount === undefined || mount.users_count > 0) return;
    // A container that starts again asks for its image by id: that alone keeps nothing mounted.
    if ([...this.#found.values()].some(({ image }) => image.id === id && image.reference !== id)) return;
    this.#mounts.delete(id);
    if (!mount.mayBeMounted) return;
    this.#unmount(images.keyOf(id)).catch((error) => {
      log.warn("image not unmounted", { image: id, error: errorText(error) });
    });
  }

  #unmount(key: string): Promise<void> {
    const { images, withLauncher } = this.#options;
    return this.#turns.run(key, async () => {
      // Somebody may have asked for it meanwhile.
      if ([...this.#mounts.keys()].some((id) => id.startsWith(key))) return;
      await withLauncher((launcher) => images.unmount(launcher, key));
    });
  }
}

function scratchImage(path: string): MountedImage {
  mkdirSync(path, { recursive: true, mode: 0o755 });
  return { reference: SCRATCH_IMAGE, id: SCRATCH_IMAGE, release: "", path, layers: [path] };
}
