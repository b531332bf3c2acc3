/** The disk that a daemon's storage pool takes. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, statfsSync } from "node:fs";
import { machineMs, pause } from "./clock.ts";
import type { Daemon } from "./daemon.ts";

const LOOK_MS = 500;
const REST_MB = 0.1;

/** Writes dirty pages of all file systems. */
export function writeBack(): void {
  execFileSync("sync");
}

/**
 * Megabytes in use of a daemon's storage pool, after dirty pages are written. The pool's file has blocks for more than is in use, so
 * its file system is asked, as the launcher sees it.
 */
export function poolMb({ pid, data_dir }: Daemon): number {
  writeBack();
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  const pool = children.map((child) => `/proc/${child}/root${data_dir}/area`).find((path) => existsSync(path));
  if (pool === undefined) throw new Error("no process of the daemon sees a storage pool");
  const { blocks, bfree, bsize } = statfsSync(pool);
  return ((blocks - bfree) * bsize) / 1e6;
}

/** Waits until the kernel has freed deleted subvolumes, which it does after the deletion. Resolves to the megabytes in use then. */
export async function poolMbAtRest(daemon: Daemon, deadline_ms: number): Promise<number> {
  const end_ms = machineMs() + deadline_ms;
  for (let before_mb = poolMb(daemon); ; ) {
    await pause(LOOK_MS);
    const mb = poolMb(daemon);
    if (Math.abs(mb - before_mb) < REST_MB) return mb;
    if (machineMs() > end_ms) throw new Error(`the storage pool still changes after ${deadline_ms} ms: ${mb} MB`);
    before_mb = mb;
  }
}
