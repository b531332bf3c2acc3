/** The directory of this machine for state that a reboot may take. */
import { statfsSync } from "node:fs";

/** TMPFS_MAGIC, include/uapi/linux/magic.h. */
const TMPFS_MAGIC = 0x01021994;

/**
 * Where state goes that a reboot may take: `/run`, or `/dev/shm` on a machine whose `/run` is a folder on a disk. The
 * OCI runtime writes and renames some files there for each start; on ext4 that costs half of what crun costs.
 */
export function volatileDirectory(): string {
  const isInMemory = (path: string): boolean => {
    try {
      return statfsSync(path).type === TMPFS_MAGIC;
    } catch {
      return false;
    }
  };
  return !isInMemory("/run") && isInMemory("/dev/shm") ? "/dev/shm" : "/run";
}
