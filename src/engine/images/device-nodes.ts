/**
 * Device nodes in the layers of the store. Roots of containers are mounted without devices, and control groups deny them: these go so
 * that neither is the only bound. No process changes a layer of the store, and no link is followed.
 */
import type { Stats } from "node:fs";
import { lstat, opendir, rm } from "node:fs/promises";
import { join } from "node:path";

/** Of character devices, as major and minor number: whiteouts of overlayfs, and those that the OCI runtime makes in each container. */
const KEPT = new Set(["0:0", "1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:1", "5:2"]);

/** Removes the nodes below some directories, a bounded number of names at a time in memory. Resolves to their number. */
export async function removeDevices(directories: readonly string[]): Promise<number> {
  let count = 0;
  const open = [...directories];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    for await (const entry of await opendir(path)) {
      const own = join(path, entry.name);
      if (entry.isDirectory()) open.push(own);
      if (!entry.isBlockDevice() && !entry.isCharacterDevice()) continue;
      if (isKept(await lstat(own))) continue;
      await rm(own);
      count++;
    }
  }
  return count;
}

/** The numbers of a device as makedev(3) of Linux puts them together. */
function isKept(stats: Stats): boolean {
  const { rdev } = stats;
  const major = (rdev >>> 8) & 0xfff;
  const minor = (rdev & 0xff) | ((rdev >>> 12) & 0xfff00);
  return stats.isCharacterDevice() && rdev < 2 ** 32 && KEPT.has(`${major}:${minor}`);
}
