/**
 * The view of a container's own control groups at /sys/fs/cgroup: programs read the limits of memory and processor there, and
 * size heaps and pools by them.
 *
 * G1 A mount has the container's own group as root: none above it, beside it or of another container is below the mount. In its
 *    control-group namespace that group is `/`, in /proc/self/cgroup and /proc/self/mountinfo too.
 * G2 Every mount is read-only, and a container has no way to mount or remount. Groups would outlast it, and cost the kernel memory
 *    that nobody is charged for.
 * G3 Only controllers in whose hierarchy the OCI runtime makes a group for each container are shown: in any other, the
 *    container is in a group that it shares.
 */
import { existsSync } from "node:fs";
import type { CgroupMode } from "../ports/machine.ts";
import type { OciMount } from "./mounts.ts";

const ROOT = "/sys/fs/cgroup";
/** Those that programs read on v1: OpenJDK 17 needs the first four to see any limit. */
const CONTROLLERS = ["memory", "cpu", "cpuacct", "cpuset", "pids"];
const OPTIONS = ["nosuid", "nodev", "noexec", "ro"];

/** Control groups of this machine, as far as containers see theirs. */
export interface VisibleGroups {
  readonly mode: CgroupMode;
  /** Mounted controllers of v1, by the names of their directories. Empty on v2. */
  readonly controllers: readonly string[];
}

/** Looks for the controllers that containers see. */
export function visibleGroups(mode: CgroupMode, root = ROOT): VisibleGroups {
  const controllers = mode === "v2" ? [] : CONTROLLERS.filter((name) => existsSync(`${root}/${name}/cgroup.procs`));
  return { mode, controllers };
}

/** Mounts of the groups at `path` (`/parent/name`), outer before inner. The OCI runtime makes the groups before it mounts. */
export function groupMounts({ mode, controllers }: VisibleGroups, path: string): readonly OciMount[] {
  const own = (source: string, destination: string): OciMount => ({
    destination,
    type: "bind",
    source,
    options: ["bind", ...OPTIONS],
  });
  if (mode === "v2") return [own(`${ROOT}${path}`, ROOT)];
  return [
    // One inode for the directory, one for each mount point.
    {
      destination: ROOT,
      type: "tmpfs",
      source: "tmpfs",
      options: [...OPTIONS, "mode=755", "size=4k", `nr_inodes=${controllers.length + 1}`],
    },
    ...controllers.map((name) => own(`${ROOT}/${name}${path}`, `${ROOT}/${name}`)),
  ];
}
