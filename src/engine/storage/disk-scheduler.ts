/**
 * Shares of the disk. Only the BFQ scheduler gives control groups with the same parent equal parts of a disk, and
 * containers lie in groups of their tenants (tenant-groups.ts). The storage pool is a file with a loop device of this
 * daemon's own, so its scheduler is the daemon's to choose; the schedulers of the machine's disks are not.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import type { DiskScheduler } from "../../base/config.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Budget } from "../ports/machine.ts";

const BLOCK_DEVICES = "/sys/block";

/** The loop device of a file; null without one. */
function loopOf(file: string, root: string): string | null {
  const backing = (name: string) => `${root}/${name}/loop/backing_file`;
  const isOf = (name: string) => existsSync(backing(name)) && readFileSync(backing(name), "utf8").trim() === file;
  return readdirSync(root).find(isOf) ?? null;
}

/** Sets the scheduler of a file's loop device. Returns which resource is bounded how, or why it is not. */
export function shareDisk(choice: DiskScheduler, file: string, root = BLOCK_DEVICES): Budget {
  const budget = (is_bounded: boolean, note: string): Budget => ({ name: "disk_io", is_bounded, note });
  const loop = loopOf(file, root);
  if (loop === null)
    return budget(false, "the storage pool has no device of its own; the scheduler of its disk applies");
  const queue = `${root}/${loop}/queue`;
  if (choice === "keep")
    return budget(false, "HEARTH_DISK_SCHEDULER is keep; tenants share by the number of their requests");
  try {
    writeFileSync(`${queue}/scheduler`, "bfq");
    writeFileSync(`${queue}/iosched/slice_idle_us`, String(LIMITS.disk_slice_idle_us));
    return budget(true, `tenants share reads and direct writes of containers equally, by bfq on ${loop}`);
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? "unknown";
    return budget(false, `cannot set the scheduler bfq on ${loop}: ${reason}`);
  }
}
