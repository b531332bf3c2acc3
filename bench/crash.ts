/**
 * `kill -9` of the daemon while several warm functions are called in open loop, and its start again at once, by the
 * bench as a supervisor would. Times run from the start of the new process. What is asked: when is the first warm
 * call answered, by an instance that had served before the kill, and is any record gone that a client was answered?
 *
 * Calls that were under way at the kill, or due while nobody listened, have no answer; they are counted and told, and
 * no failure of the daemon. A call sent after /health answers that fails is one.
 */
import { rmSync } from "node:fs";
import { halfPeak, startLoad } from "./baselines.ts";
import { type AnsweredCall, checkClasses, isAnswered } from "./calls.ts";
import { pauseUntil } from "./clock.ts";
import { Daemon, makeDataDir } from "./daemon.ts";
import { Connection } from "./http.ts";
import type { Call, LoadOptions } from "./load.ts";
import { type Bar, countBar, distribution, evidence, type Plot, Samples, type Section } from "./report.ts";

const PAYLOAD = '{"hello":"world"}';
const CLIENTS = 8;
const OPEN_CONNECTIONS = 64;
const MAX_INSTANCES = 4;
const SEED = 9_009;
const BAR_MS = 1_000;
const SLICE_MS = 10;

export interface CrashPlan {
  readonly rounds_count: number;
  readonly functions_count: number;
  /** Of the closed loop that finds the peak, and brings every instance up. */
  readonly peak_ms: number;
  /** Of load before the kill and behind it. */
  readonly before_ms: number;
  readonly after_ms: number;
}

/** One round as it happened, all times on the machine's clock. */
interface Crash {
  readonly calls: readonly Call[];
  readonly killed_ms: number;
  readonly begun_ms: number;
  readonly healthy_ms: number;
  /** Nonces of the instances that served before the load. */
  readonly known: Set<string>;
  readonly lost_count: number;
}

class Findings {
  readonly health = new Samples("first 200 of /health");
  readonly answer = new Samples("first answer of a call");
  readonly warm = new Samples("first warm answer, of an instance from before");
  readonly outage = new Samples("from the kill to the first answer of a call");
  readonly before = new Samples("calls before the kill");
  readonly after = new Samples("calls after /health");
  readonly warm_rounds: number[] = [];
  readonly series: [number, number][][] = [];
  lost_count = 0;
  answered_count = 0;
  cut_count = 0;
  refused_count = 0;
  cold_after_count = 0;

  get subjects(): readonly Samples[] {
    return [this.health, this.answer, this.warm, this.outage, this.before, this.after];
  }

  add(crash: Crash, plan: CrashPlan): void {
    const { calls, killed_ms, begun_ms, healthy_ms } = crash;
    const answered = calls.filter(isAnswered);
    const revived = answered.filter((call) => call.sent_ms > killed_ms);
    const nonces = new Set(crash.known);
    for (const call of answered) if (call.sent_ms <= killed_ms) nonces.add(call.record.instance_nonce);
    const isAdopted = ({ record }: AnsweredCall): boolean => !record.cold_start && nonces.has(record.instance_nonce);
    const firstDone = (list: readonly AnsweredCall[]): number =>
      list.reduce((least, call) => Math.min(least, call.done_ms), Number.POSITIVE_INFINITY);
    const note = (into: Samples, value: number): void => {
      if (Number.isFinite(value)) into.rounds.push([value]);
      else into.fail("never in this round");
    };
    const first_warm_ms = firstDone(revived.filter(isAdopted)) - begun_ms;
    note(this.health, healthy_ms - begun_ms);
    note(this.answer, firstDone(revived) - begun_ms);
    note(this.outage, firstDone(revived) - killed_ms);
    note(this.warm, first_warm_ms);
    this.warm_rounds.push(Number.isFinite(first_warm_ms) ? first_warm_ms : Number.NaN);
    this.#latencies(crash);
    this.after.failAll(checkClasses(calls, crash.known).contradictions);
    this.cold_after_count += revived.filter(({ record }) => record.cold_start).length;
    this.lost_count += crash.lost_count;
    this.answered_count += answered.length;
    this.series.push(slices(answered, killed_ms, plan));
  }

  #latencies({ calls, killed_ms, healthy_ms }: Crash): void {
    const before: number[] = [];
    const after: number[] = [];
    for (const { sent_ms, due_ms, done_ms, failure } of calls) {
      const isStatus = failure?.startsWith("status") === true;
      if (failure === null && sent_ms <= killed_ms) before.push(done_ms - due_ms);
      else if (failure === null && sent_ms >= healthy_ms) after.push(done_ms - due_ms);
      else if (failure === null) continue;
      else if (isStatus || sent_ms >= healthy_ms) this.after.fail(failure);
      else if (done_ms < killed_ms) this.before.fail(failure);
      else if (sent_ms <= killed_ms) this.cut_count += 1;
      else this.refused_count += 1;
    }
    this.before.rounds.push(before);
    this.after.rounds.push(after);
  }
}

/** Answers in each slice of time, from the kill. */
function slices(answered: readonly Call[], killed_ms: number, plan: CrashPlan): [number, number][] {
  const first = -Math.round(Math.min(500, plan.before_ms) / SLICE_MS);
  const counts = Array.from({ length: Math.round(plan.after_ms / SLICE_MS) - first }, () => 0);
  for (const { done_ms } of answered) {
    const slice = Math.floor((done_ms - killed_ms) / SLICE_MS) - first;
    if (counts[slice] !== undefined) counts[slice] += 1;
  }
  return counts.map((count, i) => [(first + i) * SLICE_MS, count]);
}

/** How many of the answered records the daemon does not have, or has otherwise. */
async function countLost(daemon: Daemon, ids: readonly string[], answered: readonly AnsweredCall[]): Promise<number> {
  const connections = await Promise.all(Array.from({ length: CLIENTS }, () => Connection.open(daemon.port)));
  let next = 0;
  let lost_count = 0;
  const lanes = connections.map(async (connection) => {
    for (let call = answered[next++]; call !== undefined; call = answered[next++]) {
      const { invocation_id, instance_nonce } = call.record;
      const path = `/api/functions/${ids[call.target]}/invocations/${invocation_id}`;
      const record = await daemon.callOn(connection, "GET", path, null).catch(() => null);
      const kept = record as { status: string; instance_nonce: string } | null;
      if (kept?.status !== "success" || kept.instance_nonce !== instance_nonce) lost_count += 1;
    }
  });
  await Promise.all(lanes);
  for (const connection of connections) connection.close();
  return lost_count;
}

/** The rate is half of the peak that the first round finds; null there. Resolves to it. */
async function crashRound(plan: CrashPlan, rate: number | null, round: number, findings: Findings): Promise<number> {
  const data_dir = makeDataDir();
  let daemon = await Daemon.start(data_dir, { cells: null });
  try {
    const ids: string[] = [];
    const names = Array.from({ length: plan.functions_count }, (_, i) => `crash-${i}`);
    for (const name of names) ids.push(await daemon.deploy({ name, handler: "cat", max_instances: MAX_INSTANCES }));
    const options: Omit<LoadOptions, "open" | "length_ms"> = {
      port: daemon.port,
      targets: names.map((name) => ({ request: daemon.invocation(name, PAYLOAD).toString(), expected: PAYLOAD })),
      is_hearth: true,
      clients_count: OPEN_CONNECTIONS,
      warmup_ms: 0,
    };
    const { known, ...found } = await halfPeak(options, CLIENTS, plan.peak_ms);
    const rate_per_second = rate ?? found.rate_per_second;
    const length_ms = plan.before_ms + plan.after_ms;
    const load = await startLoad({ ...options, length_ms, open: { rate_per_second, seed: SEED + round } });
    await pauseUntil(load.begins_ms + plan.before_ms);
    const killed_ms = await daemon.kill();
    daemon = await Daemon.start(data_dir, { cells: null, port: daemon.port });
    const { begun_ms, healthy_ms } = daemon;
    const { calls } = await load.result;
    const lost_count = await countLost(daemon, ids, calls.filter(isAnswered));
    findings.add({ calls, killed_ms, begun_ms, healthy_ms, known, lost_count }, plan);
    await daemon.quiet(daemon.cells_target);
    return rate_per_second;
  } finally {
    await daemon.stop();
    rmSync(data_dir, { recursive: true, force: true });
  }
}

function plots({ series, before, after }: Findings): Plot[] {
  const each = series.map(
    (points, i): Plot => ({
      kind: "lines",
      title: `Answers in each ${SLICE_MS} ms, round ${i + 1}`,
      x: { label: "time since the kill, ms", scale: "linear" },
      y: { label: `answers in ${SLICE_MS} ms`, scale: "linear" },
      series: [{ label: "answers", points, shape: "steps" }],
      marks: [{ at: 0, label: "kill -9" }],
    }),
  );
  // Two rounds show whether one was special; all are in the samples.
  return [...each.slice(0, 2), distribution("Calls before and after", [before, after])];
}

export async function benchCrash(plan: CrashPlan): Promise<Section> {
  const findings = new Findings();
  let rate: number | null = null;
  for (let round = 0; round < plan.rounds_count; round++) rate = await crashRound(plan, rate, round, findings);
  const { cut_count, refused_count, cold_after_count, lost_count, answered_count } = findings;
  const warmBar: Bar = {
    label: "after kill -9, first warm answer of an adopted instance, worst round",
    value: Math.max(...findings.warm_rounds),
    bar: BAR_MS,
    compare: "at most",
    unit: " ms",
    rounds: findings.warm_rounds,
  };
  return {
    title: "Restart under load (ms): kill -9 of the daemon, started again at once",
    method:
      `${plan.functions_count} warm functions, \`cat\`, open loop at ${rate?.toFixed(0)} calls a second (half of the peak), ` +
      `${OPEN_CONNECTIONS} connections. Times from the start of the new process. A warm answer says cold_start false and ` +
      "comes from an instance that served before the kill. Afterwards every answered record is asked for again.",
    rows: [
      findings.health.row(),
      findings.answer.row(),
      findings.warm.row(),
      findings.outage.row(`${cut_count} calls cut by the kill, ${refused_count} refused while nobody listened`),
      findings.before.row(),
      findings.after.row(`${cold_after_count} cold starts after the kill`),
    ],
    bars: [
      warmBar,
      countBar(`after kill -9, answered records missing, of ${answered_count}`, lost_count, " records"),
      countBar("after kill -9, calls sent after /health that failed", findings.after.failed_count, " calls"),
    ],
    plots: plots(findings),
    ...evidence(findings.subjects),
  };
}
