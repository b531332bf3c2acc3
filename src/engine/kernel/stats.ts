/** Usage and processes of a running container, read from its control groups, from /proc and from its link. */
import { readFileSync } from "node:fs";
import { LIMITS } from "../../base/limits.ts";
import type { ContainerMetrics, ContainerProcess, ProcessList } from "../ports/containers.ts";
import type { CgroupMode } from "../ports/machine.ts";
import { readCommandLine } from "./command-lines.ts";
import { containerProcesses } from "./control-groups.ts";

const ROOT = "/sys/fs/cgroup";
/** Unit of `cpuacct.stat`: the kernel counts hundredths of a second for all programs (USER_HZ, proc_stat(5)). */
const TICK_USEC = 10_000;
const PAGE_KB = 4;
const GUARD = "minit-guard";
/** What stands for the command line of a container's first process, which is hearth's own and repeats the container's command. */
const FIRST_PROCESS = "init";

/** `group`: `/parent/name`; `link`: the container's end on this machine. Values that the kernel does not count are 0. */
export function readMetrics(mode: CgroupMode, group: string, link: string, root = ROOT): ContainerMetrics {
  const counted = mode === "v2" ? metricsV2(`${root}${group}`) : metricsV1(root, group);
  return {
    ...counted,
    ...linkMetrics(link),
    processes_count: containerProcesses(mode, group, root).length,
  };
}

/** Lists the processes of a container, within bounds, without those that end meanwhile. Rests regularly: it takes processor. */
export async function readProcesses(mode: CgroupMode, group: string, rest: () => Promise<void>): Promise<ProcessList> {
  const inside = new Map<number, number>();
  let first_line = FIRST_PROCESS;
  const found: { ppid: number; process: ContainerProcess }[] = [];
  const pids = containerProcesses(mode, group);
  let isTruncated = pids.length > LIMITS.process_list_max;
  let left_bytes: number = LIMITS.process_list_bytes_max;
  for (const [i, pid] of pids.slice(0, LIMITS.process_list_max).entries()) {
    if (i % LIMITS.census_slice_count === LIMITS.census_slice_count - 1) await rest();
    try {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      const own = Number(/^NSpid:.*\t(\d+)$/m.exec(status)?.[1]);
      inside.set(pid, own);
      const { ppid, state, name, memory_kb, started_s } = parseStat(readFileSync(`/proc/${pid}/stat`, "utf8"));
      // Minit's own, between it and each command (runtimes/minit/proc.h, P4).
      if (name === GUARD) continue;
      const bytes_max = Math.min(LIMITS.command_line_bytes_max, left_bytes);
      const text = bytes_max === 0 ? "" : readCommandLine(pid, bytes_max);
      const bytes = Buffer.byteLength(text);
      // One that fills its bound may have more.
      if (bytes >= bytes_max) isTruncated = true;
      left_bytes = Math.max(0, left_bytes - bytes);
      const line = text.split("\0").join(" ").trim();
      const command = line === "" ? `[${name}]` : line;
      if (own === 1) first_line = command;
      found.push({ ppid, process: { pid: own, ppid: 0, command, state, memory_kb, started_s } });
    } catch {
      // It ended while we looked.
    }
  }
  const processes = found.map(({ ppid, process }) => ({
    ...process,
    ppid: inside.get(ppid) ?? 0,
    // A child of the first process has its line, too, until it executes its command.
    command: process.pid === 1 || process.command === first_line ? FIRST_PROCESS : process.command,
  }));
  return { processes: processes.sort((a, b) => a.pid - b.pid), isTruncated };
}

/** proc_pid_stat(5): the name is in parentheses and may hold anything. */
function parseStat(text: string) {
  const name = text.slice(text.indexOf("(") + 1, text.lastIndexOf(")"));
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const field = (number: number) => Number(fields[number - 3]);
  return {
    name,
    state: fields[0] ?? "?",
    ppid: field(4),
    started_s: field(22) / 100,
    memory_kb: field(24) * PAGE_KB,
  };
}

type Counted = Omit<
  ContainerMetrics,
  | "network_rx_bytes"
  | "network_tx_bytes"
  | "network_rx_packets"
  | "network_tx_packets"
  | "network_rx_errors"
  | "network_tx_errors"
  | "processes_count"
>;

function metricsV1(root: string, group: string): Counted {
  const memory = (name: string) => numberIn(`${root}/memory${group}/memory.${name}`);
  const stat = textOf(`${root}/memory${group}/memory.stat`);
  const usage = textOf(`${root}/cpuacct${group}/cpuacct.stat`);
  const disk = (name: string) => textOf(`${root}/blkio${group}/blkio.throttle.${name}_recursive`);
  const bytes = disk("io_service_bytes");
  const counts = disk("io_serviced");
  return {
    cpu_usage_usec: Math.round(numberIn(`${root}/cpuacct${group}/cpuacct.usage`) / 1_000),
    cpu_user_usec: line(usage, "user") * TICK_USEC,
    cpu_system_usec: line(usage, "system") * TICK_USEC,
    cpu_throttled_usec: Math.round(line(textOf(`${root}/cpu${group}/cpu.stat`), "throttled_time") / 1_000),
    memory_current_bytes: memory("usage_in_bytes"),
    memory_peak_bytes: memory("max_usage_in_bytes"),
    memory_limit_bytes: memory("limit_in_bytes"),
    memory_cache_bytes: line(stat, "total_cache"),
    memory_rss_bytes: line(stat, "total_rss"),
    disk_read_bytes: total(bytes, /^\S+ Read (\d+)$/gm),
    disk_write_bytes: total(bytes, /^\S+ Write (\d+)$/gm),
    disk_read_count: total(counts, /^\S+ Read (\d+)$/gm),
    disk_write_count: total(counts, /^\S+ Write (\d+)$/gm),
  };
}

function metricsV2(folder: string): Counted {
  const cpu = textOf(`${folder}/cpu.stat`);
  const stat = textOf(`${folder}/memory.stat`);
  const io = textOf(`${folder}/io.stat`);
  return {
    cpu_usage_usec: line(cpu, "usage_usec"),
    cpu_user_usec: line(cpu, "user_usec"),
    cpu_system_usec: line(cpu, "system_usec"),
    cpu_throttled_usec: line(cpu, "throttled_usec"),
    memory_current_bytes: numberIn(`${folder}/memory.current`),
    memory_peak_bytes: numberIn(`${folder}/memory.peak`),
    memory_limit_bytes: numberIn(`${folder}/memory.max`),
    memory_cache_bytes: line(stat, "file"),
    memory_rss_bytes: line(stat, "anon"),
    disk_read_bytes: total(io, /\brbytes=(\d+)/g),
    disk_write_bytes: total(io, /\bwbytes=(\d+)/g),
    disk_read_count: total(io, /\brios=(\d+)/g),
    disk_write_count: total(io, /\bwios=(\d+)/g),
  };
}

/** Reads the counters of a link. This machine's sent packets are the container's received ones. */
function linkMetrics(link: string) {
  const of = (name: string) => numberIn(`/sys/class/net/${link}/statistics/${name}`);
  return {
    network_rx_bytes: of("tx_bytes"),
    network_tx_bytes: of("rx_bytes"),
    network_rx_packets: of("tx_packets"),
    network_tx_packets: of("rx_packets"),
    network_rx_errors: of("tx_errors"),
    network_tx_errors: of("rx_errors"),
  };
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function numberIn(path: string): number {
  const value = Number(textOf(path));
  return Number.isFinite(value) ? value : 0;
}

/** The number behind a word at the beginning of a line. */
function line(text: string, word: string): number {
  return Number(new RegExp(`^${word} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
}

function total(text: string, pattern: RegExp): number {
  return [...text.matchAll(pattern)].reduce((sum, [, count]) => sum + Number(count), 0);
}
