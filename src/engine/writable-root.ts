/**
 * The root of a container as something that can be written to. What the kernel does by itself where the container has
 * filled its limit is not that: overlayfs finds no room for its own working directory, mounts the root read-only
 * without a word (fs/overlayfs/super.c, ovl_make_workdir), and nothing in it can ever be deleted again.
 */
import { readFile } from "node:fs/promises";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { StoreArea } from "./area.ts";
import type { LauncherClient, OverlayRequest } from "./launcher.ts";

const MIB = 1024 * 1024;
/** Of a mode, what kind of thing it is (inode(7)). */
const S_IFMT = 0o170000;
const S_IFLNK = 0o120000;

export interface WritableRoot {
  readonly launcher: LauncherClient;
  /** Of the process whose mounts are looked at. */
  readonly launcher_pid: number;
  readonly area: StoreArea;
  /** Of the container, whose subvolume is there. */
  readonly id: string;
  readonly below: Pick<OverlayRequest, "lower" | "user">;
  readonly target: string;
}

/** Mounts it. Where it is full, with a little more room for as long as that takes. Rejects with CAPACITY_FULL. */
export async function mountWritable(root: WritableRoot): Promise<void> {
  const { launcher, area, id, target } = root;
  await mount(root);
  if (!(await isReadonly(root))) return;
  await launcher.unmount(target);
  const { limit_bytes } = await area.usage("containers", id);
  if (limit_bytes !== null) {
    const limit_mb = Math.ceil(limit_bytes / MIB);
    await area.setLimit("containers", id, limit_mb + LIMITS.root_room_mb);
    try {
      await mount(root);
    } finally {
      await area.setLimit("containers", id, limit_mb);
    }
    if (!(await isReadonly(root))) return;
    await launcher.unmount(target);
  }
  throw new AppError("CAPACITY_FULL", "the disk has no room for what the container's root needs to be written to");
}

/**
 * Mounts of volumes follow links in the root: one that was put on the way would have a volume mounted over /dev or /proc, where
 * the runtime itself looks for devices and masks what must not be seen (CVE-2021-30465, CVE-2025-31133). Rejects with
 * INVALID_ARGUMENT. Nobody changes the root meanwhile, and no target lies in another volume, which others may change.
 */
export async function checkTargets(launcher: LauncherClient, root: string, targets: readonly string[]): Promise<void> {
  for (const target of targets) {
    let path = "";
    for (const part of target.split("/").slice(1)) {
      path += `/${part}`;
      const mode = await launcher.lstatInRoot(root, path);
      if (mode === null) break;
      if ((mode & S_IFMT) === S_IFLNK) {
        throw new AppError("INVALID_ARGUMENT", `volumes: ${path} is a link in the container`, {
          details: { received: target },
          hint: "name the place that it leads to",
        });
      }
    }
  }
}

function mount({ launcher, below, area, id, target }: WritableRoot): Promise<void> {
  return launcher.mountOverlay({ ...below, directory: area.subvolume("containers", id), target, isReadonly: false });
}

/** Whether the file system itself is, as proc_pid_mountinfo(5) tells behind the dash. */
async function isReadonly({ launcher_pid, target }: WritableRoot): Promise<boolean> {
  const mounts = (await readFile(`/proc/${launcher_pid}/mountinfo`, "utf8")).split("\n");
  const own = mounts.findLast((line) => line.split(" ", 5)[4] === target);
  return / - \S+ \S+ ro(,|$)/.test(own ?? "");
}
