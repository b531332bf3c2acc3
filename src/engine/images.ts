/**
 * Images live in buildah's store. Each image is mounted once, inside the launcher's mount namespace, and that mount
 * is the root (or later the overlay lower) of any number of containers. The mount ends with the launcher; what is
 * left of a crashed daemon is a buildah working container, which the next boot replaces by name.
 */
import { AppError, errorText } from "../base/errors.ts";
import type { LauncherClient } from "./launcher.ts";

const BUILDAH_TIMEOUT_MS = 30_000;

export interface MountedImage {
  readonly reference: string;
  readonly release: string;
  /** The root directory, valid inside the launcher's mount namespace. */
  readonly path: string;
}

export class Images {
  readonly #buildah: readonly string[];
  readonly #tag: string;
  readonly #mounted = new Set<string>();

  /** `buildah`: the command with its global flags (store, run root, driver). `tag` tells daemons apart that share a store. */
  constructor(buildah: readonly string[], tag: string) {
    this.#buildah = buildah;
    this.#tag = tag;
  }

  /** Mounts the image in the launcher's namespace. Rejects with NOT_FOUND when the store does not hold it. */
  async mount(launcher: LauncherClient, reference: string): Promise<MountedImage> {
    const name = this.#containerName(reference);
    let release: string;
    try {
      const label = '{{index .OCIv1.Config.Labels "hearth.release"}}';
      release = await this.#run(launcher, "inspect", "--type", "image", "--format", label, reference);
    } catch (cause) {
      throw new AppError("NOT_FOUND", `image ${reference} is not in the store: ${errorText(cause)}`, { cause });
    }
    await this.#remove(launcher, name);
    this.#mounted.add(name);
    await this.#run(launcher, "from", "--pull-never", "--name", name, reference);
    const path = await this.#run(launcher, "mount", name);
    return { reference, release, path };
  }

  /** Unmounts everything that this object mounted. */
  async shutdown(launcher: LauncherClient): Promise<void> {
    for (const name of this.#mounted) await this.#remove(launcher, name);
    this.#mounted.clear();
  }

  #containerName(reference: string): string {
    return `hearth-${this.#tag}-${reference.replace(/[^a-zA-Z0-9]+/g, "-")}`;
  }

  async #remove(launcher: LauncherClient, name: string): Promise<void> {
    await launcher.spawn({ argv: [...this.#buildah, "rm", name], timeout_ms: BUILDAH_TIMEOUT_MS });
  }

  async #run(launcher: LauncherClient, ...args: string[]): Promise<string> {
    return (await launcher.run([...this.#buildah, ...args], BUILDAH_TIMEOUT_MS)).trim();
  }
}
