/**
 * Images live in buildah's store. Each image is mounted once, inside the launcher's mount namespace, and that mount
 * is the root (or later the overlay lower) of any number of containers. The mount ends with the launcher; what is
 * left of a crashed daemon is a buildah working container. It stays while containers of it live: an overlay that loses
 * its upper directory has an empty root to whoever lists it.
 */
import { readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { AppError, errorText } from "../../base/errors.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { FoundImage } from "../ports/images.ts";
import type { ImageRow } from "./store-files.ts";

/** buildah waits for the store's lock, which a pull or an import holds while it unpacks a layer: 300,000 files take 40 s on a slow machine. */
const BUILDAH_TIMEOUT_MS = 120_000;
const LIST_ATTEMPTS_MAX = 5;
/** Pattern of a reference. buildah may take another text for a flag. */
const REFERENCE = /^\w[\w./:@-]*$/;
/** Errors of buildah for an image that the store lacks; its exit status is the same for every failure. */
const NO_SUCH_IMAGE =
  /image not known|invalid reference format|repository name must|unsupported (?:digest algorithm|transport)|invalid checksum digest/;
/** Errors of buildah if an image was removed meanwhile, with layers that another one was to share. */
const LOST = /(?:layer|image) not known|identifier is not a layer, image, or container/;
/** Repository of the names that keep images in the store: buildah refuses to remove an image of two names by its id. */
const KEPT = "localhost/hearth/kept";
/** Characters of an image's id in the names of it and of its working container: nobody finds two images with the same. */
const NAME_ID_LENGTH = 32;

/** True for what buildah says where an image or a layer was removed meanwhile: it may succeed when it is tried again. */
export const isLoss = (text: string): boolean => LOST.test(text);

export interface LayeredImage extends FoundImage {
  /** The directories that are its content, the topmost first. Empty where the store does not say. */
  readonly layers: readonly string[];
}

export interface MountedImage extends LayeredImage {
  /** The root directory, valid inside the launcher's mount namespace. */
  readonly path: string;
}

export class ImageStore {
  readonly #buildah: readonly string[];
  /** Prefix of the names of this daemon's working containers; each command on one has its name as an argument. */
  readonly names_prefix: string;

  /** The store's list of images: another file after each change. */
  readonly #list_file: string;

  /**
   * `buildah`: the command with its global flags (store, run root, driver). `tag` tells daemons apart that share a store.
   * `list_file`: where the store lists its images.
   */
  constructor(buildah: readonly string[], tag: string, list_file: string) {
    this.#buildah = buildah;
    this.#list_file = list_file;
    this.names_prefix = `hearth-${tag}-`;
  }

  /** A text that differs after every change of the store's images. */
  state(): string {
    const { ino, size, mtimeNs } = statSync(this.#list_file, { bigint: true });
    return `${ino} ${size} ${mtimeNs}`;
  }

  /**
   * Looks an image up. Rejects with NOT_FOUND only if the store lacks the image. Any other error, as of a buildah that
   * fails or takes too long, says nothing about the image.
   */
  async find(launcher: LauncherClient, reference: string): Promise<FoundImage> {
    const missing = (cause?: unknown) =>
      new AppError("NOT_FOUND", `image not in the store: ${reference}`, cause === undefined ? {} : { cause });
    if (!REFERENCE.test(reference)) throw missing();
    const format = '{{.FromImageID}} {{index .OCIv1.Config.Labels "hearth.release"}}';
    try {
      const text = await this.#run(launcher, "inspect", "--type", "image", "--format", format, "--", reference);
      const [id = "", release = ""] = text.split(" ");
      return { reference, id, release };
    } catch (cause) {
      throw NO_SUCH_IMAGE.test(errorText(cause)) ? missing(cause) : cause;
    }
  }

  /**
   * Mounts the image in the launcher's namespace. `isInUse`: containers of an earlier mount live, so what that left in
   * the store is mounted once more; where that does not work, as without it, it is made anew.
   */
  async mount(launcher: LauncherClient, image: FoundImage, isInUse: boolean): Promise<MountedImage> {
    const name = `${this.names_prefix}${this.keyOf(image.id)}`;
    if (isInUse) {
      const path = await this.#run(launcher, "mount", name).catch(() => null);
      if (path !== null) return { ...image, path, layers: layersOf(path) };
    }
    await this.#remove(launcher, name);
    await this.#run(launcher, "from", "--pull-never", "--name", name, "--", image.id);
    const path = await this.#run(launcher, "mount", name);
    return { ...image, path, layers: layersOf(path) };
  }

  /** Names a mount by its content: an image has many references (names, and every beginning of its id), and one mount. */
  keyOf(id: string): string {
    return id.slice(0, NAME_ID_LENGTH);
  }

  /** Names that this daemon gave to an image to keep it. */
  keptNames({ names = [] }: ImageRow): readonly string[] {
    return names.filter((name) => name.startsWith(`${KEPT}:${this.names_prefix}`));
  }

  /** Gives an image the name that keeps it. */
  async name(launcher: LauncherClient, id: string): Promise<void> {
    await this.rename(launcher, id, `${KEPT}:${this.names_prefix}${this.keyOf(id)}`);
  }

  /** Gives an image a name, which another one may have had. */
  async rename(launcher: LauncherClient, id: string, name: string): Promise<void> {
    await this.#run(launcher, "tag", id, name).catch((cause: unknown) => {
      if (!isLoss(errorText(cause))) throw cause;
      throw new AppError("INTERNAL", errorText(cause), { cause, retryable: true });
    });
  }

  /** Takes a name away. An image without another one is removed, with the layers that no other image has. */
  async unname(launcher: LauncherClient, name: string): Promise<void> {
    await this.#run(launcher, "rmi", name);
  }

  /** Keys of what this daemon mounted, and of what an earlier process did. */
  async mountedKeys(launcher: LauncherClient): Promise<string[]> {
    const text = await this.#list(launcher);
    const names = text.split("\n").filter((name) => name.startsWith(this.names_prefix));
    return names.map((name) => name.slice(this.names_prefix.length));
  }

  async unmount(launcher: LauncherClient, key: string): Promise<void> {
    await this.#remove(launcher, `${this.names_prefix}${key}`);
  }

  /** Unmounts every image of this daemon, those too that an earlier process mounted. */
  async shutdown(launcher: LauncherClient): Promise<void> {
    for (const key of await this.mountedKeys(launcher)) await this.unmount(launcher, key);
  }

  /** Lists the names of all working containers, one a line. Retries: a concurrent removal by any daemon fails a listing. */
  async #list(launcher: LauncherClient): Promise<string> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#run(launcher, "containers", "--noheading", "--format", "{{.ContainerName}}");
      } catch (error) {
        if (attempt >= LIST_ATTEMPTS_MAX || !launcher.isOpen) throw error;
      }
    }
  }

  async #remove(launcher: LauncherClient, name: string): Promise<void> {
    await launcher.spawn({ argv: [...this.#buildah, "rm", name], timeout_ms: BUILDAH_TIMEOUT_MS });
  }

  async #run(launcher: LauncherClient, ...args: string[]): Promise<string> {
    return (await launcher.run([...this.#buildah, ...args], BUILDAH_TIMEOUT_MS)).trim();
  }
}

/**
 * Returns the layers of a working container that is mounted at `<store>/overlay/<id>/merged`. `lower` beside it names
 * them by links below `<store>/overlay`, in the order in which overlayfs takes them. (/proc/self/mountinfo has the same, but
 * truncated, relative or escaped.) The layer above them is empty but for mount points that the OCI runtime made.
 */
function layersOf(path: string): readonly string[] {
  const own = dirname(path);
  try {
    const links = readFileSync(join(own, "lower"), "utf8").trim().split(":");
    return links.map((link) => realpathSync(join(dirname(own), link)));
  } catch {
    return [];
  }
}
