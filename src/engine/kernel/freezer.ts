/** The freezer of a control group, v1 and v2: what stops the processes of a container while its files are copied. */
import { existsSync, writeFileSync } from "node:fs";
import type { CgroupMode } from "../ports/machine.ts";

const ROOT = "/sys/fs/cgroup";

/** Returns the file that freezes the group at `path`; null where the kernel has no freezer, or the group none. */
export function freezerFile(mode: CgroupMode, path: string, root = ROOT): string | null {
  const file = mode === "v2" ? `${root}${path}/cgroup.freeze` : `${root}/freezer${path}/freezer.state`;
  return existsSync(file) ? file : null;
}

/** Thaws a group. One that is not frozen, or gone, stays as it is. */
export function thaw(mode: CgroupMode, path: string, root = ROOT): void {
  const file = freezerFile(mode, path, root);
  if (file === null) return;
  try {
    writeFileSync(file, mode === "v2" ? "0" : "THAWED");
  } catch {
    // The group went meanwhile.
  }
}
