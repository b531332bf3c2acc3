/**
 * Control groups, v1 and v2: which kind this machine has, the writes that set an instance's limits, the count of
 * memory kills, and removal. The OCI runtime makes the groups; here they are only written, read and swept.
 */
import { existsSync, readdirSync, readFileSync, rmdirSync, statfsSync, writeFileSync } from "node:fs";
import type { InstanceLimits } from "../ports/instances.ts";
import type { CgroupMode } from "../ports/machine.ts";

const ROOT = "/sys/fs/cgroup";
/** CGROUP2_SUPER_MAGIC, include/uapi/linux/magic.h. */
const CGROUP2_MAGIC = 0x63677270;
/** The kernel's default period; the quota is percent × 1,000 of it. */
const CPU_PERIOD_US = 100_000;

/** Limit on the memory of sockets. Its name says TCP; the kernel charges UDP to it too. */
const SOCKET_LIMIT = "memory.kmem.tcp.limit_in_bytes";

export type SocketMemoryBound = "memory" | "own" | "none";

export interface GroupKind {
  readonly mode: CgroupMode;
  readonly sockets: SocketMemoryBound;
}

export function detectCgroupMode(root = ROOT): CgroupMode {
  if (statfsSync(root).type === CGROUP2_MAGIC) return "v2";
  return existsSync(`${root}/unified/cgroup.procs`) ? "hybrid" : "v1";
}

/**
 * Returns the bound of socket buffers: v2 charges them to the memory limit, v1 to a limit of their own. A kernel with
 * neither bounds them only for the whole machine (net.ipv4.tcp_mem).
 */
export function socketMemoryBound(mode: CgroupMode, root = ROOT): SocketMemoryBound {
  if (mode === "v2") return "memory";
  return existsSync(`${root}/memory/${SOCKET_LIMIT}`) ? "own" : "none";
}

/** The file to write so that the group at `path` may use `percent` of one core; null: no quota. */
function quotaWrite(mode: CgroupMode, path: string, percent: number | null, root: string): [string, string] {
  const quota_us = percent === null ? null : Math.round(percent * 1_000);
  return mode === "v2"
    ? [`${root}${path}/cpu.max`, `${quota_us ?? "max"} ${CPU_PERIOD_US}`]
    : [`${root}/cpu${path}/cpu.cfs_quota_us`, String(quota_us ?? -1)];
}

/** The files to write, in order, so that the group at `path` (`/parent/name`) has these limits. */
export function limitWrites(
  { mode, sockets }: GroupKind,
  path: string,
  limits: InstanceLimits,
  root = ROOT,
): [string, string][] {
  const bytes = String(limits.memory_limit_mb * 1024 * 1024);
  const quota = quotaWrite(mode, path, limits.cpu_limit_percent, root);
  if (mode === "v2") return [[`${root}${path}/memory.max`, bytes], quota];
  return [
    [`${root}/memory${path}/memory.limit_in_bytes`, bytes],
    quota,
    ...(sockets === "own" ? [[`${root}/memory${path}/${SOCKET_LIMIT}`, bytes] as [string, string]] : []),
  ];
}

export function applyLimits(kind: GroupKind, path: string, limits: InstanceLimits): void {
  for (const [file, value] of limitWrites(kind, path, limits)) writeFileSync(file, value);
}

/** Lets a group use `percent` of one core from now on; null: as much as it gets. Does nothing without such a group. */
export function writeQuota(mode: CgroupMode, path: string, percent: number | null, root = ROOT): void {
  try {
    writeFileSync(...quotaWrite(mode, path, percent, root));
  } catch {
    // It ends just now.
  }
}

/** Processor time that the group's processes have used, the ended ones too, in milliseconds; 0 where it is unknown. */
export function readCpuUsedMs(mode: CgroupMode, path: string, root = ROOT): number {
  try {
    if (mode !== "v2") return Number(readFileSync(`${root}/cpuacct${path}/cpuacct.usage`, "utf8")) / 1_000_000;
    const stat = readFileSync(`${root}${path}/cpu.stat`, "utf8");
    return Number(/^usage_usec (\d+)$/m.exec(stat)?.[1] ?? 0) / 1_000;
  } catch {
    return 0;
  }
}

/** The kernel's default weight of a group, and its least: cpu.shares and cpu.weight. */
const WEIGHTS = { v1: [1_024, 2], v2: [100, 1] } as const;

/** Gives a group `share` (0 to 1) of the processor time that a group has by default, beside those next to it. */
export function writeShare(mode: CgroupMode, path: string, share: number, root = ROOT): void {
  const file = mode === "v2" ? `${root}${path}/cpu.weight` : `${root}/cpu${path}/cpu.shares`;
  const [whole, least] = WEIGHTS[mode === "v2" ? "v2" : "v1"];
  writeFileSync(file, String(Math.max(least, Math.round(whole * share))));
}

/** Folder of the group's memory files. */
function memoryFolder(mode: CgroupMode, path: string, root: string): string {
  return mode === "v2" ? `${root}${path}` : `${root}/memory${path}`;
}

/** The group's count of processes killed for memory; 0 where the group or the counter is missing. */
export function readOomKills(mode: CgroupMode, path: string, root = ROOT): number {
  const file = `${memoryFolder(mode, path, root)}/${mode === "v2" ? "memory.events" : "memory.oom_control"}`;
  try {
    return Number(/^oom_kill (\d+)$/m.exec(readFileSync(file, "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/**
 * Memory charged to the group at `path` and all below it, less its pages of files: the kernel takes those back when it
 * needs them, and they stay charged when the instance that read them has gone, which ending instances would not change.
 * Files in /tmp count as memory, not as pages of files. Two small reads, however many groups there are. 0 without such a
 * group.
 */
export function readMemoryUsedMb(mode: CgroupMode, path: string, root = ROOT): number {
  const folder = memoryFolder(mode, path, root);
  // v2 counts what is below into every line; v1 has lines of their own for that sum.
  const [usage, cached] =
    mode === "v2"
      ? ["memory.current", /^(?:in)?active_file (\d+)$/gm]
      : ["memory.usage_in_bytes", /^total_(?:in)?active_file (\d+)$/gm];
  try {
    const bytes = Number(readFileSync(`${folder}/${usage}`, "utf8"));
    let cached_bytes = 0;
    for (const [, count] of readFileSync(`${folder}/memory.stat`, "utf8").matchAll(cached))
      cached_bytes += Number(count);
    return Math.max(0, bytes - cached_bytes) / (1024 * 1024);
  } catch {
    return 0;
  }
}

/** The folders in which a container's groups lie: one with v2, with v1 one for each controller. */
export function hierarchies(mode: CgroupMode, root = ROOT): string[] {
  return mode === "v2" ? [root] : readdirSync(root).map((name) => `${root}/${name}`);
}

/** Names of the groups below `parent`, over all hierarchies. */
export function listGroups(mode: CgroupMode, parent: string, root = ROOT): string[] {
  const names = new Set<string>();
  for (const hierarchy of hierarchies(mode, root)) {
    for (const name of groupsIn(hierarchy, parent)) names.add(name);
  }
  return [...names];
}

/** Names of the groups below `parent` in one of the hierarchies. */
export function groupsIn(hierarchy: string, parent: string): string[] {
  if (!existsSync(`${hierarchy}${parent}`)) return [];
  const entries = readdirSync(`${hierarchy}${parent}`, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/** Every process in the group at `path`, over all hierarchies. */
export function groupProcesses(mode: CgroupMode, path: string, root = ROOT): number[] {
  return [...new Set(hierarchies(mode, root).flatMap((hierarchy) => processesIn(`${hierarchy}${path}`)))];
}

/** The same by one look, which is right for a container whose start is over: its processes are in all hierarchies. */
export function containerProcesses(mode: CgroupMode, path: string, root = ROOT): number[] {
  return processesIn(memoryFolder(mode, path, root));
}

/** Returns the file that lists the processes of a container whose start is complete. */
export function processFile(mode: CgroupMode, path: string, root = ROOT): string {
  return `${memoryFolder(mode, path, root)}/cgroup.procs`;
}

function processesIn(folder: string): number[] {
  try {
    return readFileSync(`${folder}/cgroup.procs`, "utf8").split("\n").filter(Boolean).map(Number);
  } catch (error) {
    // ENODEV: the group was removed after the file was opened. ENOTDIR: what lies beside the hierarchies is none.
    if (["ENOENT", "ENODEV", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
    throw error;
  }
}

/** Removes a group from every hierarchy. False when something still lives in it somewhere. */
export function removeGroup(mode: CgroupMode, path: string, root = ROOT): boolean {
  let isGone = true;
  for (const hierarchy of hierarchies(mode, root)) {
    try {
      rmdirSync(`${hierarchy}${path}`);
    } catch {
      // Mostly it was never made in this hierarchy; what matters is whether it is there.
      if (existsSync(`${hierarchy}${path}`)) isGone = false;
    }
  }
  return isGone;
}
