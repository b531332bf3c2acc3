/**
 * Versions under load: while one function with several instances is called in open loop, its version is moved forward
 * (PUT, a new version) and back (rollback to the one before) in turns. No call may fail, none during or after a
 * rollback may be cold, and the pointer is moved in milliseconds.
 *
 * What the answers say is held against the moves: a version may serve a call only if the pointer was on it, or on its
 * way, at some moment of the call. So a call that is sent after a move was answered runs on the new version or counts
 * as failed. That an instance serves one version only is checked by its nonce (`calls.ts`).
 */
import { readFileSync } from "node:fs";
import { halfPeak, startLoad } from "./baselines.ts";
import { checkClasses, failureCounts, isAnswered, latencies } from "./calls.ts";
import { machineMs, pauseUntil } from "./clock.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import type { Call, LoadOptions } from "./load.ts";
import { countBar, distribution, evidence, type Plot, Samples, type Section, timeBar } from "./report.ts";
import { median } from "./stats.ts";

const PAYLOAD = '{"hello":"world"}';
const CLIENTS = 8;
const OPEN_CONNECTIONS = 64;
const MAX_INSTANCES = 4;
const SEED = 4_711;
const BAR_MS = 5;
/** Calls after the last move. */
const TAIL_MS = 500;

export interface RollbackPlan {
  readonly rounds_count: number;
  /** Of the closed loop that finds the peak, and brings every instance up. */
  readonly peak_ms: number;
  /** Half of them rollbacks. */
  readonly moves_count: number;
  readonly interval_ms: number;
  /** Calls before the first move. */
  readonly before_ms: number;
}

/** A change of the current version. Times are on the machine's clock. */
export interface Move {
  readonly kind: "PUT" | "rollback";
  readonly version: number;
  readonly sent_ms: number;
  readonly done_ms: number;
}

/** Answered calls that no pointer position at their time explains. `first`: the version before all moves. */
export function strayCalls(calls: readonly Call[], first: number, moves: readonly Move[]): Call[] {
  const positions = [{ version: first, from_ms: Number.NEGATIVE_INFINITY, to_ms: Number.POSITIVE_INFINITY }];
  for (const { version, sent_ms, done_ms } of moves) {
    const left = positions.at(-1);
    if (left !== undefined) left.to_ms = done_ms;
    positions.push({ version, from_ms: sent_ms, to_ms: Number.POSITIVE_INFINITY });
  }
  const isExplained = (call: Call): boolean =>
    positions.some(
      ({ version, from_ms, to_ms }) =>
        call.record?.version === version && from_ms <= call.done_ms && call.sent_ms <= to_ms,
    );
  return calls.filter((call) => isAnswered(call) && !isExplained(call));
}

/** The calls under way or sent between a move of this kind and the next move. */
export function callsAfter(kind: Move["kind"], calls: readonly Call[], moves: readonly Move[]): Call[] {
  const windows = moves.map((move, i) => ({ move, to_ms: moves[i + 1]?.sent_ms ?? Number.POSITIVE_INFINITY }));
  const wanted = windows.filter(({ move }) => move.kind === kind);
  return calls.filter((call) => wanted.some(({ move, to_ms }) => move.sent_ms <= call.done_ms && call.sent_ms < to_ms));
}

/** How long after each rollback's request the pointer was moved, as the daemon's log tells. */
function pointerTimes(daemon: Daemon, moves: readonly Move[]): number[] {
  const versions = new Set(moves.filter(({ kind }) => kind === "rollback").map(({ version }) => version));
  return readFileSync(daemon.logPath, "utf8")
    .split("\n")
    .filter((line) => line.includes('"active version changed"'))
    .map((line) => JSON.parse(line) as { from: number; to: number; moved_ms: number })
    .filter(({ from, to }) => to < from && versions.has(to))
    .map(({ moved_ms }) => moved_ms);
}

class Findings {
  readonly pointer = new Samples("rollback, until the pointer is moved");
  readonly rollback = new Samples("rollback request");
  readonly put = new Samples("PUT request, which warms the new version");
  readonly before = new Samples("calls before the first move");
  readonly afterPut = new Samples("calls during and after a PUT");
  readonly afterRollback = new Samples("calls during and after a rollback");
  readonly plots: Plot[] = [];
  put_cold_count = 0;
  rollback_cold_count = 0;
  stray_count = 0;

  get subjects(): readonly Samples[] {
    return [this.pointer, this.rollback, this.put, this.before, this.afterPut, this.afterRollback];
  }

  add(calls: readonly Call[], moves: readonly Move[], first_version: number, pointer_ms: number[]): void {
    this.pointer.rounds.push(pointer_ms);
    const took = (kind: Move["kind"]): number[] =>
      moves.filter((move) => move.kind === kind).map(({ sent_ms, done_ms }) => done_ms - sent_ms);
    this.rollback.rounds.push(took("rollback"));
    this.put.rounds.push(took("PUT"));
    const first_ms = moves[0]?.sent_ms ?? 0;
    const [put, rollback] = [callsAfter("PUT", calls, moves), callsAfter("rollback", calls, moves)];
    this.before.rounds.push(latencies(calls.filter(({ done_ms }) => done_ms < first_ms)));
    this.afterPut.rounds.push(latencies(put));
    this.afterRollback.rounds.push(latencies(rollback));
    const isCold = (call: Call): boolean => call.record?.cold_start === true;
    this.put_cold_count += put.filter(isCold).length;
    this.rollback_cold_count += rollback.filter(isCold).length;
    const strays = strayCalls(calls, first_version, moves);
    this.stray_count += strays.length;
    for (const { record } of strays)
      this.afterRollback.fail(`ran on version ${record?.version}, which was not current`);
    this.plots.push(overTime(calls, moves));
  }
}

function overTime(calls: readonly Call[], moves: readonly Move[]): Plot {
  const begun_ms = calls.reduce((least, { due_ms }) => Math.min(least, due_ms), Number.POSITIVE_INFINITY);
  const seconds = (at_ms: number): number => (at_ms - begun_ms) / 1_000;
  const points = calls
    .filter(({ failure }) => failure === null)
    .map(({ due_ms, done_ms }) => [seconds(due_ms), done_ms - due_ms] as const);
  return {
    kind: "lines",
    title: "Latency of each call over time, the moves of the pointer marked with the version they lead to",
    x: { label: "time, s", scale: "linear" },
    y: { label: "latency, ms", scale: "log" },
    series: [{ label: "a call, when it was due", points, shape: "points" }],
    marks: moves.map(({ version, done_ms }) => ({ at: seconds(done_ms), label: `v${version}` })),
  };
}

async function makeMoves(daemon: Daemon, id: string, from_ms: number, plan: RollbackPlan): Promise<Move[]> {
  const moves: Move[] = [];
  let version = 1;
  let before = 1;
  for (let i = 0; i < plan.moves_count; i++) {
    await pauseUntil(from_ms + i * plan.interval_ms);
    const kind = i % 2 === 0 ? "PUT" : "rollback";
    const sent_ms = machineMs();
    const answer =
      kind === "PUT"
        ? await daemon.call("PUT", `/api/functions/${id}`, { environment: { MOVE: String(i) } })
        : await daemon.call("POST", `/api/functions/${id}/rollback`, { version: before });
    const done_ms = machineMs();
    before = version;
    version = (answer as { version: number }).version;
    moves.push({ kind, version, sent_ms, done_ms });
  }
  return moves;
}

/** Resolves to the calls a second that were sent. */
function rollbackRound(plan: RollbackPlan, rate: number | null, round: number, into: Findings): Promise<number> {
  return withDaemon({ cells: null }, async (daemon) => {
    const id = await daemon.deploy({ name: "moved", handler: "cat", max_instances: MAX_INSTANCES });
    const options: Omit<LoadOptions, "open" | "length_ms"> = {
      port: daemon.port,
      targets: [{ request: daemon.invocation("moved", PAYLOAD).toString(), expected: PAYLOAD }],
      is_hearth: true,
      clients_count: OPEN_CONNECTIONS,
      warmup_ms: 0,
    };
    const { known, ...found } = await halfPeak(options, CLIENTS, plan.peak_ms);
    const rate_per_second = rate ?? found.rate_per_second;
    const length_ms = plan.before_ms + plan.moves_count * plan.interval_ms + TAIL_MS;
    const load = await startLoad({ ...options, length_ms, open: { rate_per_second, seed: SEED + round } });
    const moves = await makeMoves(daemon, id, load.begins_ms + plan.before_ms, plan);
    const result = await load.result;
    into.afterRollback.failAll(failureCounts(result));
    into.afterRollback.failAll(checkClasses(result.calls, known).contradictions);
    into.add(result.calls, moves, 1, pointerTimes(daemon, moves));
    return rate_per_second;
  });
}

export async function benchRollback(plan: RollbackPlan): Promise<Section> {
  const findings = new Findings();
  const rates: number[] = [];
  for (let round = 0; round < plan.rounds_count; round++) {
    rates.push(await rollbackRound(plan, rates[0] ?? null, round, findings));
  }
  const { pointer, rollback, put, before, afterPut, afterRollback } = findings;
  const rollbacks_count = rollback.rounds.flat().length - pointer.rounds.flat().length;
  return {
    title: `Rollback under load (ms): ${plan.moves_count} moves of the version a round, every second one a rollback`,
    method:
      `One function, \`cat\`, ${MAX_INSTANCES} instances, open loop at ${median(rates).toFixed(0)} calls a second (half of ` +
      `the peak), a move each ${plan.interval_ms} ms: PUT makes a version, rollback leads to the one before. A call ` +
      "counts for a move when it was under way or sent between it and the next one. Times of requests are the client's; when the pointer was " +
      "moved is the daemon's, from the request's body until new calls follow it. The answer waits for the disk too.",
    rows: [
      pointer.row(),
      rollback.row(),
      put.row(),
      before.row(),
      afterPut.row(`${findings.put_cold_count} cold starts`),
      afterRollback.row(`${findings.rollback_cold_count} cold starts`),
    ],
    bars: [
      countBar("rollback under load, calls that failed", afterRollback.failed_count, " calls"),
      countBar("rollback under load, cold starts during and after a rollback", findings.rollback_cold_count, " calls"),
      countBar("rollback under load, calls on a version that was not current", findings.stray_count, " calls"),
      countBar("rollbacks missing in the log", rollbacks_count, " calls"),
      timeBar("pointer moved, p50", pointer, "p50", BAR_MS),
      timeBar("pointer moved, slowest", pointer, "max", BAR_MS),
    ],
    plots: [
      ...findings.plots.slice(0, 1),
      distribution("Calls before, after a PUT, after a rollback", [before, afterPut, afterRollback]),
    ],
    ...evidence(findings.subjects),
  };
}
