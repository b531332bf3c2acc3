/**
 * What started containers take of the machine, read from the kernel while they idle. PSS is what the processes map,
 * with shared pages divided among those who share them; the cgroup's charge is what the kernel counts for the group,
 * with page tables and kernel stacks, and with pages that PSS counts too: their sum is an upper bound. What neither
 * sees (network namespaces, mounts, the launcher's part) shows in the machine's available memory.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { detectCgroupMode, groupProcesses, listGroups } from "../src/engine/kernel/control-groups.ts";
import type { Daemon } from "./daemon.ts";
import { Samples } from "./report.ts";

const KIB = 1024;
const MB = 1e6;

export interface ContainerMemory {
  readonly pss_mb: number;
  readonly charge_mb: number;
}

/** A field in kB of a file of /proc; 0 when process or field is gone. */
function kibOf(path: string, field: string): number {
  try {
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(readFileSync(path, "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** Every started container of a daemon: instances and cells, or those made through the API. */
export function containerMemory(daemon: Daemon, kind: "instances" | "containers" = "instances"): ContainerMemory[] {
  const mode = detectCgroupMode();
  const parent = `/hearth-${daemon.tag}${kind === "containers" ? "-c" : ""}`;
  const chargeFile = (group: string): string =>
    mode === "v2" ? `/sys/fs/cgroup${group}/memory.current` : `/sys/fs/cgroup/memory${group}/memory.usage_in_bytes`;
  const names = listGroups(mode, parent);
  // Those of API containers lie in their tenants' groups.
  const groups =
    kind === "instances"
      ? names
      : names.flatMap((tenant) => listGroups(mode, `${parent}/${tenant}`).map((run) => `${tenant}/${run}`));
  return groups.map((name) => {
    const pids = groupProcesses(mode, `${parent}/${name}`);
    const pss_kib = pids.reduce((sum, pid) => sum + kibOf(`/proc/${pid}/smaps_rollup`, "Pss"), 0);
    const charge_bytes = Number(readFileSync(chargeFile(`${parent}/${name}`), "utf8"));
    return { pss_mb: (pss_kib * KIB) / MB, charge_mb: charge_bytes / MB };
  });
}

/** Memory of each instance and cell of a daemon in megabytes. `label` makes a row's label of the name of its figure. */
export class ContainerWeights {
  readonly pss: Samples;
  readonly charge: Samples;
  readonly together: Samples;

  constructor(label: (figure: string) => string) {
    this.pss = new Samples(label("PSS"), "MB");
    this.charge = new Samples(label("cgroup charge"), "MB");
    this.together = new Samples(label("PSS and charge"), "MB");
  }

  get subjects(): readonly Samples[] {
    return [this.pss, this.charge, this.together];
  }

  /** Adds a round with every started instance and cell. Returns their count. */
  weigh(daemon: Daemon): number {
    const memory = containerMemory(daemon);
    this.pss.rounds.push(memory.map(({ pss_mb }) => pss_mb));
    this.charge.rounds.push(memory.map(({ charge_mb }) => charge_mb));
    this.together.rounds.push(memory.map(({ pss_mb, charge_mb }) => pss_mb + charge_mb));
    return memory.length;
  }
}

export function daemonRssMb(daemon: Daemon): number {
  return (kibOf(`/proc/${daemon.pid}/status`, "VmRSS") * KIB) / MB;
}

/** The most that was resident since `resetPeak`. */
export function daemonPeakMb(daemon: Daemon): number {
  return (kibOf(`/proc/${daemon.pid}/status`, "VmHWM") * KIB) / MB;
}

/** proc(5), clear_refs: 5 sets the peak to what is resident now. */
export function resetPeak(daemon: Daemon): void {
  writeFileSync(`/proc/${daemon.pid}/clear_refs`, "5");
}

export function availableMb(): number {
  return (kibOf("/proc/meminfo", "MemAvailable") * KIB) / MB;
}

/** Network slots that exist, in use or in reserve: each has a link. */
export function networkSlotCount(daemon: Daemon): number {
  const own = `h${daemon.tag.slice(0, 6)}`;
  return readdirSync("/sys/class/net").filter((name) => name.startsWith(own)).length;
}
