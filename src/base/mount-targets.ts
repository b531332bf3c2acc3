/**
 * Places inside a container where something may be mounted for its owner: volumes, caches and secrets of builds, directories
 * in memory. The one set of rules for every specification; the engine holds each start to it (src/engine/bundles/mounts.ts).
 *
 * M1. A target is absolute and plain: links that other containers may change, and `..`, would lead a mount elsewhere.
 * M2. The kernel's folders are the engine's: PID 1 lies on /dev, and /proc and /sys are masked in part.
 * M3. A target hides nothing that the engine mounts, and is in no other mount whose content its owner chose. The OCI runtime
 *     resolves targets while it mounts, so a link in one such mount could move the next (CVE-2021-30465).
 */
import { LIMITS } from "./limits.ts";

/** The engine and the OCI runtime mount these (M2). */
export const KERNEL_FOLDERS: readonly string[] = ["/dev", "/proc", "/sys"];

/** Files of this machine that every container sees. */
export const ENGINE_FILES: readonly string[] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/** Folders that hold the programs and settings of every image: a mount may be below one, and never in its place. */
const SYSTEM_FOLDERS: readonly string[] = ["/", "/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"];

/** The path without doubled and final slashes and `.` parts; null where a part leads up. */
export function plainPath(path: string): string | null {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  return parts.includes("..") ? null : `/${parts.join("/")}`;
}

export const isBelow = (path: string, folder: string): boolean =>
  path === folder || folder === "/" || path.startsWith(`${folder}/`);

/** Returns why nothing may be mounted at `target`; null if it may (M1, M2, M3). */
export function targetProblem(target: string): string | null {
  if (target.includes("\0") || plainPath(target) !== target)
    return "must be an absolute path without '..', '.' and '//'";
  if (Buffer.byteLength(target) > LIMITS.path_bytes_max) return `exceeds ${LIMITS.path_bytes_max} bytes`;
  const folder = KERNEL_FOLDERS.find((one) => isBelow(target, one));
  if (folder !== undefined) return `must not be at or below ${folder}`;
  const file = ENGINE_FILES.find((one) => isBelow(one, target) || isBelow(target, one));
  if (SYSTEM_FOLDERS.includes(target)) return `must not be in the place of ${target}`;
  return file === undefined ? null : `must not be in the place of ${file}`;
}

/** Returns the first two targets of which one is at or below the other; null if there are none (M3). */
export function nestedTargets(targets: readonly string[]): { readonly inner: string; readonly outer: string } | null {
  for (const [i, one] of targets.entries()) {
    for (const other of targets.slice(i + 1)) {
      if (isBelow(one, other)) return { inner: one, outer: other };
      if (isBelow(other, one)) return { inner: other, outer: one };
    }
  }
  return null;
}
