/**
 * The root of a container as something that can be written to, also where the container has filled its limit: overlayfs
 * then finds no room for its own working directory, and without it nothing in the root could ever be deleted again.
 */
import { constants } from "node:fs";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient, OverlayRequest } from "../launcher/launcher.ts";
import type { Storage } from "../ports/storage.ts";

const MIB = 1024 * 1024;

export interface WritableRoot {
  readonly launcher: LauncherClient;
  readonly storage: Storage;
  /** Id of the container; its subvolume exists. */
  readonly id: string;
  readonly below: Pick<OverlayRequest, "lower" | "user">;
  readonly target: string;
}

/** Mounts a root. A full one gets a little more room while it is mounted. Rejects with CAPACITY_FULL. */
export function mountWritable(root: WritableRoot): Promise<void> {
  return withRoom(root.storage, root.id, () => mount(root));
}

/** Does work that rejects with CAPACITY_FULL where the container has filled its limit: then again, with a little more room meanwhile. */
export async function withRoom(storage: Storage, id: string, work: () => Promise<void>): Promise<void> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "CAPACITY_FULL") throw error;
    const { limit_bytes } = await storage.usage("containers", id);
    if (limit_bytes === null) throw error;
    const limit_mb = Math.ceil(limit_bytes / MIB);
    await storage.setLimit("containers", id, limit_mb + LIMITS.root_room_mb);
    try {
      await work();
    } finally {
      await storage.setLimit("containers", id, limit_mb);
    }
  }
}

/**
 * Checks the targets of mounts against links in the root, which the runtime follows: one on the way would have a volume mounted
 * over /dev or /proc, where the runtime itself looks for devices and masks what must not be seen (CVE-2021-30465,
 * CVE-2025-31133). Rejects with INVALID_ARGUMENT. No process changes the root meanwhile, and no target lies in another mount
 * whose content its owner chose (M3 of src/base/mount-targets.ts).
 */
export async function checkTargets(launcher: LauncherClient, root: string, targets: readonly string[]): Promise<void> {
  for (const target of targets) {
    let path = "";
    for (const part of target.split("/").slice(1)) {
      path += `/${part}`;
      const mode = await launcher.lstatInRoot(root, path);
      if (mode === null) break;
      if ((mode & constants.S_IFMT) === constants.S_IFLNK) {
        throw new AppError("INVALID_ARGUMENT", `mount target passes a symbolic link of the container: ${path}`, {
          details: { received: target },
          hint: "use the target of the link",
        });
      }
    }
  }
}

function mount({ launcher, below, storage, id, target }: WritableRoot): Promise<void> {
  return launcher.mountOverlay({ ...below, directory: storage.subvolume("containers", id), target, isReadonly: false });
}
