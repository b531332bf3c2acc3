/**
 * Directories in the root of an image that anybody may have made, where instances need them. The OCI runtime creates the mount
 * points of a start itself. It does not know those of later mounts: code and secrets (attach.c of the helper).
 *
 * The root is the overlay of the image's working container. Its upper directory gets the missing directories, and the image
 * stays as it is. No instance can write there, so what was checked once holds while the image is mounted.
 */
import { constants } from "node:fs";
import { RUNTIME_INSIDE } from "../../base/container-environment.ts";
import { AppError } from "../../base/errors.ts";
import type { MountedImage } from "../images/image-store.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { InstanceClass } from "../ports/instances.ts";

/** Mount points of the OCI runtime. A link there must not lead its mounts elsewhere (CVE-2021-30465). */
const RUNTIME_PLACES = ["/dev", "/etc", "/proc", "/sys", "/tmp"];
/** Mount points of the helper, each behind the directory above it. */
const PLACES = ["/function", "/run", "/run/secrets"];
const MKDIR_TIMEOUT_MS = 5_000;

type WithLauncher = <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;

export class ForeignRoots {
  readonly #withLauncher: WithLauncher;
  /** An image that is mounted again is another object. */
  readonly #prepared = new WeakMap<MountedImage, Promise<void>>();

  constructor(withLauncher: WithLauncher) {
    this.#withLauncher = withLauncher;
  }

  /** Makes the missing directories, once for each mount of an image. Rejects with START_FAILED if something else is in their place. */
  prepare(image: MountedImage, { foreign, runtime_directory }: InstanceClass): Promise<void> {
    if (foreign === undefined) return Promise.resolve();
    const known = this.#prepared.get(image);
    const preparing = known ?? this.#withLauncher((launcher) => this.#prepare(launcher, image.path));
    if (known === undefined) {
      this.#prepared.set(image, preparing);
      preparing.catch(() => this.#prepared.delete(image));
    }
    if (runtime_directory === null) return preparing;
    return preparing.then(() => this.#withLauncher((launcher) => this.#checkRuntime(launcher, image.path)));
  }

  async #prepare(launcher: LauncherClient, root: string): Promise<void> {
    for (const path of RUNTIME_PLACES) await isDirectory(launcher, root, path);
    for (const path of PLACES) {
      // No part of the path is a link, so mkdir(1) stays below the root.
      if (!(await isDirectory(launcher, root, path))) {
        await launcher.run(["mkdir", "-p", "-m", "755", `${root}${path}`], MKDIR_TIMEOUT_MS);
      }
    }
  }

  async #checkRuntime(launcher: LauncherClient, root: string): Promise<void> {
    for (const path of ["/opt", RUNTIME_INSIDE]) await isDirectory(launcher, root, path);
  }
}

/** Returns false if the path is missing. Rejects with START_FAILED if it is no directory. */
async function isDirectory(launcher: LauncherClient, root: string, path: string): Promise<boolean> {
  const mode = await launcher.lstatInRoot(root, path);
  if (mode === null) return false;
  if ((mode & constants.S_IFMT) === constants.S_IFDIR) return true;
  throw new AppError("START_FAILED", `not a directory in the image: ${path}`);
}
