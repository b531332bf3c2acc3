/** What a report says of where it was made: machine, versions, and what no section measures. */
import { readFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { detectCgroupMode } from "../src/engine/kernel/control-groups.ts";
import { ContainerRunner } from "./baselines.ts";

export interface Header {
  readonly date: string;
  readonly is_quick: boolean;
  readonly kernel: string;
  readonly cpu: string;
  readonly cpu_count: number;
  readonly memory_mb: number;
  readonly cgroup_mode: string;
  readonly node: string;
  readonly crun: string;
  readonly runc: string;
  /** Of the last minute before the first measurement: above some tenths the figures tell of others, too. */
  readonly load_average: number;
  readonly not_measured: readonly string[];
}

const NOT_MEASURED = [
  "other machines, several nodes, a remote store",
  "podman and docker (not installed by set-up)",
  "payloads above a hundred bytes",
  "clients on another host: load generator and server share the processors, on both sides of each comparison",
  "the first start after a boot, with cold page caches",
];

export async function describeMachine(is_quick: boolean): Promise<Header> {
  const runner = await ContainerRunner.open();
  try {
    const model = /^model name\s*: (.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1];
    return {
      date: new Date().toISOString(),
      is_quick,
      kernel: release(),
      cpu: model ?? cpus()[0]?.model ?? "unknown",
      cpu_count: cpus().length,
      memory_mb: Math.round(totalmem() / 2 ** 20),
      cgroup_mode: detectCgroupMode(),
      node: process.version,
      crun: await runner.version("crun"),
      runc: await runner.version("runc"),
      load_average: loadavg()[0] ?? 0,
      not_measured: NOT_MEASURED,
    };
  } finally {
    await runner.close();
  }
}

/** Name and value of each thing a reader has to know before the figures. */
export function headerLines(header: Header): readonly (readonly [string, string])[] {
  return [
    ["date", `${header.date}${header.is_quick ? " (quick: few samples)" : ""}`],
    ["machine", `${header.cpu_count} × ${header.cpu}, ${header.memory_mb} MiB, kernel ${header.kernel}`],
    ["cgroups", header.cgroup_mode],
    ["versions", `node ${header.node}, ${header.crun}, ${header.runc}`],
    ["load before", `${header.load_average.toFixed(2)} (average of the last minute)`],
  ];
}
