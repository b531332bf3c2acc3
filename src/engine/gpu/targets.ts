/**
 * Places inside a container where files of this machine are mounted. CDI files name paths such as /lib/firmware, and in many
 * images /lib is a link, as /run is in some: links are followed as inside of the container. Its root does not change meanwhile.
 */
import { lstat, readlink } from "node:fs/promises";
import { AppError } from "../../base/errors.ts";
import { isBelow, KERNEL_FOLDERS } from "../../base/mount-targets.ts";

const LINKS_MAX = 40;

/**
 * Returns the path that `target` leads to below `root`, a directory. `closed`: paths inside that others may change, or that are
 * mounted later. Rejects with START_FAILED if it leads to or below one of them, or to what is the kernel's.
 */
export async function resolveTarget(root: string, target: string, closed: readonly string[]): Promise<string> {
  const failed = (why: string) => new AppError("START_FAILED", `mount of ${target}: ${why}`);
  const left = target.split("/").filter((part) => part !== "");
  let resolved: string[] = [];
  for (let links = 0, part = left.shift(); part !== undefined; part = left.shift()) {
    if (part === ".." || part === ".") {
      if (part === "..") resolved.pop();
      continue;
    }
    const path = `/${[...resolved, part].join("/")}`;
    const found = await lstat(`${root}${path}`).catch(() => null);
    if (found?.isSymbolicLink() !== true) {
      resolved.push(part);
      continue;
    }
    if (++links > LINKS_MAX) throw failed("too many links in the container");
    const link = await readlink(`${root}${path}`);
    if (link.startsWith("/")) resolved = [];
    left.unshift(...link.split("/").filter((one) => one !== ""));
  }
  const path = `/${resolved.join("/")}`;
  const kept = [...KERNEL_FOLDERS, ...closed].find((one) => isBelow(path, one));
  if (kept !== undefined) throw failed(`leads to ${kept} in the container`);
  if (path === "/") throw failed("leads to / in the container");
  return path;
}
