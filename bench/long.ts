/**
 * A million calls of one function with code, and the memory and files of the daemon meanwhile. The bench reads heap, RSS,
 * descriptors and size of the store after each phase of a closed loop. After the warm-up phases they may not grow. The store may
 * grow until it was pruned of the records of a function above those that it keeps.
 */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { LIMITS } from "../src/base/limits.ts";
import { runLoad } from "./baselines.ts";
import { failureCounts, latencies, measuredCalls, ratePerSecond } from "./calls.ts";
import { machineMs } from "./clock.ts";
import { deployCode, echo, PAYLOAD } from "./code.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection, requestBytes } from "./http.ts";
import { daemonRssMb } from "./memory.ts";
import { type Bar, countBar, evidence, type Plot, Samples, type Section, type Series } from "./report.ts";
import { median, summarize } from "./stats.ts";

const RSS_BAR_MB = 150;
/** Largest ratio of the last third of the figures to the first third after the warm-up. */
const FLAT = 1.1;
const MB = 1e6;

export interface LongPlan {
  readonly calls_count: number;
  readonly clients_count: number;
  readonly phase_ms: number;
  readonly warm_phases_count: number;
}

interface Look {
  /** Since the first call. */
  readonly at_ms: number;
  readonly calls_count: number;
  readonly heap_mb: number;
  readonly rss_mb: number;
  readonly descriptors_count: number;
  readonly store_mb: number;
}

const FIGURES = ["heap_mb", "rss_mb", "descriptors_count", "store_mb"] as const;
const NAMES = {
  heap_mb: "heap, MB",
  rss_mb: "RSS, MB",
  descriptors_count: "descriptors",
  store_mb: "store, MB",
} as const;

async function heapMb(daemon: Daemon): Promise<number> {
  const connection = await Connection.open(daemon.port);
  const reply = await connection.request(requestBytes("GET", "/metrics", daemon.headers, null));
  connection.close();
  const value = /^hearth_process_heap_used_bytes(?:\{[^}]*\})? (\S+)$/m.exec(reply.body.toString())?.[1];
  return Number(value) / MB;
}

/** Size of the store's files with their log. */
function storeMb(daemon: Daemon): number {
  const names = readdirSync(daemon.data_dir).filter((name) => name.includes(".db"));
  return names.reduce((sum, name) => sum + statSync(join(daemon.data_dir, name)).size, 0) / MB;
}

async function look(daemon: Daemon, at_ms: number, calls_count: number): Promise<Look> {
  return {
    at_ms,
    calls_count,
    heap_mb: await heapMb(daemon),
    rss_mb: daemonRssMb(daemon),
    descriptors_count: readdirSync(`/proc/${daemon.pid}/fd`).length,
    store_mb: storeMb(daemon),
  };
}

/** Returns the ratio of the median of the last third to that of the first third. */
function growth(looks: readonly Look[], figure: (typeof FIGURES)[number]): number {
  const values = looks.map((one) => one[figure]);
  const third = Math.max(1, Math.floor(values.length / 3));
  return median(values.slice(-third)) / median(values.slice(0, third));
}

function plot(looks: readonly Look[], figures: readonly (typeof FIGURES)[number][], unit: string): Plot {
  const series = figures.map(
    (figure): Series => ({
      label: NAMES[figure],
      points: looks.map((one) => [one.calls_count, one[figure]] as const),
      shape: "line",
    }),
  );
  return {
    kind: "lines",
    title: `The daemon over calls: ${figures.map((figure) => NAMES[figure]).join(", ")}`,
    x: { label: "calls", scale: "linear" },
    y: { label: unit, scale: "linear" },
    series,
    marks: [],
  };
}

export async function benchLong(plan: LongPlan): Promise<Section> {
  const calls = new Samples("nodejs echo, p50 of each phase");
  const rates = new Samples("rate of each phase", "a second");
  const looks: Look[] = [];
  await withDaemon({ cells: null }, async (daemon) => {
    await deployCode(daemon, { name: "long", runtime: "nodejs", instance_concurrency: 100 }, echo("nodejs"));
    const request = daemon.invocation("long", PAYLOAD).toString();
    const target = { request, expected: JSON.stringify(PAYLOAD), is_result: true };
    const begun_ms = machineMs();
    for (let made = 0; made < plan.calls_count; ) {
      const { clients_count, phase_ms } = plan;
      const load = { port: daemon.port, targets: [target], is_hearth: true, clients_count, open: null };
      const result = await runLoad({ ...load, warmup_ms: 0, length_ms: phase_ms });
      made += result.calls.length;
      calls.failAll(failureCounts(result));
      calls.rounds.push([summarize(latencies(measuredCalls(result))).p50]);
      rates.rounds.push([ratePerSecond(result)]);
      looks.push(await look(daemon, machineMs() - begun_ms, made));
    }
  });
  const warm = looks.slice(plan.warm_phases_count);
  // Records above those that are kept go at the next pruning.
  const full = warm.filter(
    ({ calls_count, at_ms }) =>
      calls_count >= 1.5 * LIMITS.invocations_kept_per_function && at_ms > LIMITS.prune_interval_ms,
  );
  const flat = (figure: (typeof FIGURES)[number]): Bar => ({
    label: `${NAMES[figure].split(",")[0]} of the daemon, last third of the looks of the first`,
    value: growth(figure === "store_mb" && full.length > 0 ? full : warm, figure),
    bar: FLAT,
    compare: "at most",
    unit: "×",
    rounds: [],
  });
  const held = FIGURES.map((figure) => {
    const samples = new Samples(`${NAMES[figure].split(",")[0]} at each look`, NAMES[figure].split(", ")[1] ?? "");
    samples.rounds.push(looks.map((one) => one[figure]));
    return samples;
  });
  const rssBar: Bar = {
    label: "RSS of the daemon after the last call",
    value: looks.at(-1)?.rss_mb ?? Number.NaN,
    bar: RSS_BAR_MB,
    compare: "at most",
    unit: " MB",
    rounds: [],
  };
  return {
    title: `${plan.calls_count} calls of a function with code (ms)`,
    method:
      `Phases of ${plan.phase_ms / 1_000} s, ${plan.clients_count} clients, closed loop; a look at the daemon after each. The first ` +
      `${plan.warm_phases_count} are warm-up. The store counts once it has half as many records more than it keeps, and was pruned.`,
    rows: [calls.row(), rates.row(), ...held.map((samples) => samples.row())],
    bars: [...FIGURES.map(flat), rssBar, countBar("calls failed", calls.failed_count, " calls")],
    plots: [plot(looks, ["heap_mb", "rss_mb", "store_mb"], "MB"), plot(looks, ["descriptors_count"], "descriptors")],
    ...evidence([calls, rates, ...held]),
  };
}
