/**
 * Calls of a function whose instances are ready, against a server that spawns the same command without any isolation.
 * The same load generator, in a process of its own, drives both; servers are fresh for each round and side.
 *
 * Closed loop with one client (latency) and with eight (p99 and peak), then open loop at half of the slower side's
 * peak, the same arrivals for both, and for the faster side also at half of its own.
 */
import { runLoad, SpawnServer } from "./baselines.ts";
import { type ClassReport, LoadSamples, latencies, measuredCalls, rateBar } from "./calls.ts";
import { withDaemon } from "./daemon.ts";
import { requestBytes } from "./http.ts";
import type { LoadResult } from "./load.ts";
import { distribution, evidence, type Row, ratioBar, Samples, type Section } from "./report.ts";
import { median } from "./stats.ts";

const PAYLOAD = '{"hello":"world"}';
const CLIENTS = 8;
/** Open loop: connections at hand, so that a slow answer never holds back the next request. */
const OPEN_CONNECTIONS = 64;
const SEED = 20_260;

export interface WarmPlan {
  readonly rounds_count: number;
  readonly warmup_ms: number;
  /** Length of each measured phase. */
  readonly length_ms: number;
}

type Side = "hearth" | "spawn-cat";
type Load = (clients_count: number, open: { rate_per_second: number; seed: number } | null) => Promise<LoadResult>;

/** Starts a fresh server of that side and hands `body` a way to load it. */
async function withSide(
  side: Side,
  plan: WarmPlan,
  body: (load: Load, known: Set<string>) => Promise<void>,
): Promise<void> {
  const load =
    (port: number, request: Buffer): Load =>
    (clients_count, open) =>
      runLoad({
        port,
        targets: [{ request: request.toString(), expected: PAYLOAD }],
        is_hearth: side === "hearth",
        clients_count,
        warmup_ms: plan.warmup_ms,
        length_ms: plan.length_ms,
        open,
      });
  if (side === "spawn-cat") {
    const server = await SpawnServer.start();
    try {
      await body(load(server.port, requestBytes("POST", "/", {}, PAYLOAD)), new Set());
    } finally {
      await server.stop();
    }
    return;
  }
  await withDaemon({ cells: null }, async (daemon) => {
    await daemon.deploy({ name: "warm", handler: "cat" });
    await body(load(daemon.port, daemon.invocation("warm", PAYLOAD)), new Set());
  });
}

/** One row's samples, and those of its cold starts. */
class Subject extends LoadSamples {
  /** Those of the samples that were cold starts. */
  readonly cold: Samples;
  #warm_first_count = 0;

  constructor(label: string) {
    super(label);
    this.cold = new Samples(`${label}: the cold starts among them`);
  }

  override add(result: LoadResult, known: Set<string>): ClassReport {
    const report = super.add(result, known);
    this.cold.rounds.push(latencies(measuredCalls(result).filter((call) => call.record?.cold_start === true)));
    this.#warm_first_count += report.warm_first_count;
    return report;
  }

  /** The row of all samples, and one of the cold starts where there were any. */
  rows(): Row[] {
    const started = this.#warm_first_count;
    const overtaken = started === 0 ? "" : `, ${started} instances started for a call that a freed one took`;
    const row = this.row(this.note + overtaken);
    return this.cold.summary().count === 0 ? [row] : [row, this.cold.row()];
  }
}

interface Subjects {
  readonly one: Subject;
  readonly peak: Subject;
  readonly open: Subject;
  readonly own: Subject;
}

function subjects(side: Side): Subjects {
  return {
    one: new Subject(`${side}, 1 client, closed`),
    peak: new Subject(`${side}, ${CLIENTS} clients, closed`),
    open: new Subject(`${side}, open at half of the slower peak`),
    own: new Subject(`${side}, open at half of its own peak`),
  };
}

/** Runs `body` for both sides in alternating order, once a round. */
async function alternate(rounds_count: number, body: (side: Side, round: number) => Promise<void>): Promise<void> {
  for (let round = 0; round < rounds_count; round++) {
    const order: readonly Side[] = round % 2 === 0 ? ["hearth", "spawn-cat"] : ["spawn-cat", "hearth"];
    for (const side of order) await body(side, round);
  }
}

export async function benchWarm(plan: WarmPlan): Promise<Section> {
  const sides = { hearth: subjects("hearth"), "spawn-cat": subjects("spawn-cat") };
  await alternate(plan.rounds_count, (side) =>
    withSide(side, plan, async (load, known) => {
      sides[side].one.add(await load(1, null), known);
      sides[side].peak.add(await load(CLIENTS, null), known);
    }),
  );
  const peaks = { hearth: median(sides.hearth.peak.rates), "spawn-cat": median(sides["spawn-cat"].peak.rates) };
  const faster: Side = peaks.hearth >= peaks["spawn-cat"] ? "hearth" : "spawn-cat";
  const slower_rate = Math.min(peaks.hearth, peaks["spawn-cat"]);
  await alternate(plan.rounds_count, (side, round) =>
    withSide(side, plan, async (load, known) => {
      const seed = SEED + round;
      sides[side].open.add(await load(OPEN_CONNECTIONS, { rate_per_second: slower_rate / 2, seed }), known);
      if (side !== faster) return;
      sides[side].own.add(await load(OPEN_CONNECTIONS, { rate_per_second: peaks[side] / 2, seed }), known);
    }),
  );
  const { hearth, "spawn-cat": peer } = sides;
  const rows = [hearth.one, peer.one, hearth.peak, peer.peak, hearth.open, peer.open, sides[faster].own];
  return {
    title: "Warm call (ms): shell `cat`, against an unisolated Node server that spawns /bin/cat for each request",
    method:
      `Phases of ${plan.length_ms / 1000} s after ${plan.warmup_ms / 1000} s of warm-up, the same generator for both. ` +
      "Closed loop finds the peak and hides queueing; open loop sends at Poisson times drawn from a fixed seed and " +
      "counts from the moment a request was due. hearth authenticates, isolates, bounds and commits a record.",
    rows: rows.flatMap((subject) => subject.rows()),
    bars: [
      ratioBar("warm p50, 1 client, of spawn-cat", hearth.one, peer.one, "p50", 1),
      ratioBar(`warm p99, ${CLIENTS} clients, of spawn-cat`, hearth.peak, peer.peak, "p99", 1),
      rateBar(`warm throughput, ${CLIENTS} clients, of spawn-cat`, hearth.peak, peer.peak, 1.6),
    ],
    plots: [
      distribution("1 client, closed loop", [hearth.one, peer.one]),
      distribution(`${CLIENTS} clients, closed loop`, [hearth.peak, peer.peak]),
      distribution("Open loop", [hearth.open, peer.open, sides[faster].own]),
    ],
    ...evidence(rows.flatMap((subject) => [subject, subject.cold])),
  };
}
