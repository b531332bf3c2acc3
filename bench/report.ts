/**
 * The shapes of results and their table. A bar is printed with its ratio and "met" or "not met", as it came out; a
 * round's own ratios stand beside it, so that a lucky round shows.
 */
import { readFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { detectCgroupMode } from "../src/engine/cgroup.ts";
import { ContainerRunner } from "./baselines.ts";
import { type Summary, summarize } from "./stats.ts";

/** One line of the table: milliseconds, or a rate where `unit` says so. */
export interface Row {
  readonly label: string;
  readonly summary: Summary;
  readonly failed_count: number;
  readonly note: string;
}

export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly bar: number;
  readonly compare: "at most" | "at least";
  /** A ratio, milliseconds or a count. */
  readonly unit: "×" | " ms" | " calls";
  /** The same figure of each round alone. */
  readonly rounds: readonly number[];
}

export interface Section {
  readonly title: string;
  /** How it was measured. */
  readonly method: string;
  readonly rows: readonly Row[];
  readonly bars: readonly Bar[];
  /** Every sample, by row label and round. */
  readonly raw: Readonly<Record<string, readonly (readonly number[])[]>>;
  /** Reasons of failed calls with their counts. */
  readonly failures: Readonly<Record<string, number>>;
}

export interface Header {
  readonly date: string;
  readonly kernel: string;
  readonly cpu: string;
  readonly cpu_count: number;
  readonly memory_mb: number;
  readonly cgroup_mode: string;
  readonly node: string;
  readonly crun: string;
  readonly runc: string;
  readonly not_measured: readonly string[];
}

const NOT_MEASURED = [
  "other machines, several nodes, a remote store",
  "podman and docker (not installed by set-up)",
  "payloads above a hundred bytes, runtimes other than shell",
  "clients on another host: load generator and server share the processors, on both sides of each comparison",
  "the first start after a boot, with cold page caches",
];

/** Samples of one subject, a list a round, and its failures. */
export class Samples {
  readonly label: string;
  readonly rounds: number[][] = [];
  readonly failures: Record<string, number> = {};

  constructor(label: string) {
    this.label = label;
  }

  get failed_count(): number {
    return Object.values(this.failures).reduce((sum, count) => sum + count, 0);
  }

  fail(reason: string, count = 1): void {
    this.failures[reason] = (this.failures[reason] ?? 0) + count;
  }

  summary(): Summary {
    return summarize(this.rounds.flat());
  }

  row(note = ""): Row {
    return { label: this.label, summary: this.summary(), failed_count: this.failed_count, note };
  }
}

/** The bar on the ratio of two subjects, over all samples together. */
export function ratioBar(label: string, subject: Samples, peer: Samples, pick: "p50" | "p99", bar: number): Bar {
  const rounds = subject.rounds.map((samples, i) => summarize(samples)[pick] / summarize(peer.rounds[i] ?? [])[pick]);
  const value = subject.summary()[pick] / peer.summary()[pick];
  return { label, value, bar, compare: "at most", unit: "×", rounds };
}

export function isMet(bar: Bar): boolean {
  return bar.compare === "at most" ? bar.value <= bar.bar : bar.value >= bar.bar;
}

/** A section's raw samples and failures from its subjects. */
export function evidence(subjects: readonly Samples[]): Pick<Section, "raw" | "failures"> {
  const failures: Record<string, number> = {};
  for (const { label, failures: own } of subjects) {
    for (const [reason, count] of Object.entries(own)) failures[`${label}: ${reason}`] = count;
  }
  return { raw: Object.fromEntries(subjects.map(({ label, rounds }) => [label, rounds])), failures };
}

export async function describeMachine(): Promise<Header> {
  const runner = await ContainerRunner.open();
  try {
    const models = /^model name\s*: (.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1];
    return {
      date: new Date().toISOString(),
      kernel: release(),
      cpu: models ?? cpus()[0]?.model ?? "unknown",
      cpu_count: cpus().length,
      memory_mb: Math.round(totalmem() / 2 ** 20),
      cgroup_mode: detectCgroupMode(),
      node: process.version,
      crun: await runner.version("crun"),
      runc: await runner.version("runc"),
      not_measured: NOT_MEASURED,
    };
  } finally {
    await runner.close();
  }
}

export function headerText(header: Header): string {
  return [
    `date          ${header.date}`,
    `machine       ${header.cpu_count} × ${header.cpu}, ${header.memory_mb} MiB, kernel ${header.kernel}`,
    `cgroups       ${header.cgroup_mode}`,
    `versions      node ${header.node}, ${header.crun}, ${header.runc}`,
    ...header.not_measured.map((text, i) => `${i === 0 ? "not measured" : ""}`.padEnd(14) + text),
  ].join("\n");
}

function figure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Breaks prose at 112 columns, each line indented by two. */
function wrapped(text: string): string {
  return text.replace(/(.{1,110})(\s+|$)/g, "  $1\n").trimEnd();
}

export function sectionText(section: Section): string {
  const width = Math.max(...section.rows.map((row) => row.label.length), 10);
  const column = (text: string): string => text.padStart(9);
  const head = `  ${"".padEnd(width)}${["samples", "failed", "p50", "p90", "p99", "max"].map(column).join("")}`;
  const rows = section.rows.map(({ label, summary, failed_count, note }) => {
    const figures = [summary.p50, summary.p90, summary.p99, summary.max].map(figure);
    const cells = [String(summary.count), String(failed_count), ...figures].map(column).join("");
    return `  ${label.padEnd(width)}${cells}${note === "" ? "" : `  ${note}`}`;
  });
  const bars = section.bars.map((bar) => {
    const rounds = bar.rounds.length > 1 ? `, rounds ${bar.rounds.map(figure).join(" ")}` : "";
    const verdict = isMet(bar) ? "met" : "NOT MET";
    return `  ${verdict.padEnd(8)}${bar.label}: ${figure(bar.value)}${bar.unit} (bar: ${bar.compare} ${bar.bar}${bar.unit}${rounds})`;
  });
  const failures = Object.entries(section.failures).map(([reason, count]) => `  failed ${count} × ${reason}`);
  return ["", section.title, wrapped(section.method), head, ...rows, ...bars, ...failures].join("\n");
}
