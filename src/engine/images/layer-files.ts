/**
 * Files of an image, found in the directories of its layers without a mount. Links are followed inside the image alone: a link of
 * an image never leads to a file of the machine. Of overlayfs it knows whiteouts and not opaque directories.
 */
import type { Stats } from "node:fs";
import { lstat, readlink } from "node:fs/promises";
import { join } from "node:path";

/** As the kernel's. */
const LINKS_MAX = 40;

/**
 * Returns the path on this machine of a regular file of the image, null if there is none. `layers`: the topmost first.
 */
export async function fileInLayers(layers: readonly string[], path: string): Promise<string | null> {
  let rest = path.split("/").filter((part) => part !== "");
  let at: string[] = [];
  let links_count = 0;
  for (let part = rest.shift(); part !== undefined; part = rest.shift()) {
    if (part === ".") continue;
    if (part === "..") {
      at.pop();
      continue;
    }
    const found = await entryOf(layers, [...at, part]);
    if (found === null) return null;
    if (found.stats.isSymbolicLink()) {
      if (++links_count > LINKS_MAX) return null;
      const target = await readlink(found.path);
      if (target.startsWith("/")) at = [];
      rest = [...target.split("/").filter((one) => one !== ""), ...rest];
    } else {
      at.push(part);
      if (rest.length === 0) return found.stats.isFile() ? found.path : null;
      if (!found.stats.isDirectory()) return null;
    }
  }
  return null;
}

/** Returns the topmost entry of a path none of whose parts is a link. */
async function entryOf(
  layers: readonly string[],
  parts: readonly string[],
): Promise<{ readonly path: string; readonly stats: Stats } | null> {
  for (const layer of layers) {
    let path = layer;
    for (const [index, part] of parts.entries()) {
      path = join(path, part);
      const stats = await lstat(path).catch(() => null);
      if (stats === null) break;
      if (stats.isCharacterDevice() && stats.rdev === 0) return null;
      if (index === parts.length - 1) return { path, stats };
      // It hides what the layers below have there.
      if (!stats.isDirectory()) return null;
    }
  }
  return null;
}
