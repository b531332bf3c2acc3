/** The parts of an engine that bring images into a store and mount them, on a store of a test's own. */
import { systemClock } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { ImageExports } from "../../src/engine/images/image-exports.ts";
import { ImagePulls } from "../../src/engine/images/image-pulls.ts";
import { ImageStore } from "../../src/engine/images/image-store.ts";
import type { MountedImagesOptions } from "../../src/engine/images/mounted-images.ts";
import { StoreFiles } from "../../src/engine/images/store-files.ts";
import type { LauncherClient } from "../../src/engine/launcher/launcher.ts";

/** Command lines of a store at `directory`, as of the machine's own store. */
export function storeCommands(directory: string) {
  const root = `${directory}/storage`;
  const run_root = `${directory}/run`;
  return {
    root,
    buildah: ["buildah", "--root", root, "--runroot", run_root, "--storage-driver", "overlay"],
    storage: ["containers-storage", "--graph", root, "--run", run_root, "--storage-driver", "overlay"],
  };
}

/** Options of `MountedImages`, but for one. */
export function imageParts(
  directory: string,
  launcher: () => LauncherClient,
): Omit<MountedImagesOptions, "references_max"> {
  const { root, buildah, storage } = storeCommands(directory);
  const list_file = `${root}/overlay-images/images.json`;
  const images = new ImageStore(buildah, "test", list_file);
  const files = new StoreFiles(list_file);
  const withLauncher = <Result>(work: (client: LauncherClient) => Promise<Result>) => work(launcher());
  const log = createLog("silent", systemClock);
  const pulls = new ImagePulls({
    images,
    files,
    buildah,
    storage,
    directory: `${directory}/pulls`,
    lock_file: `${directory}/pulls.lock`,
    clock: systemClock,
    log,
    withLauncher,
  });
  const exports = new ImageExports({
    ...{ files, minit: `${directory}/minit`, launcher_socket: `${directory}/launcher.sock` },
    directory: `${directory}/exports`,
    clock: systemClock,
    log,
    withLauncher,
  });
  return { images, files, pulls, exports, log, withLauncher, scratch: `${directory}/scratch` };
}
