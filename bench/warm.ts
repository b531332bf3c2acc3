/**
 * Calls of a function whose instances are ready, against a server that spawns the same command without any isolation.
 * The same load generator, in a process of its own, drives both; servers are fresh for each round and side.
 *
 * Closed loop with one client (latency) and with eight (p99 and peak), then open loop at half of the slower side's
 * peak, the same arrivals for both, and for the faster side also at half of its own.
 */
import { runLoad, SpawnServer } from "./baselines.ts";
import { withDaemon } from "./daemon.ts";
import { requestBytes } from "./http.ts";
import type { LoadResult } from "./load.ts";
import { type Bar, evidence, type Row, ratioBar, Samples, type Section } from "./report.ts";
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
async function withSide(side: Side, plan: WarmPlan, body: (load: Load) => Promise<void>): Promise<void> {
  const load =
    (port: number, request: Buffer, expected: string): Load =>
    (clients_count, open) =>
      runLoad({
        port,
        request: request.toString(),
        expected,
        cold_marker: side === "hearth" ? '"cold_start":true' : null,
        clients_count,
        warmup_ms: plan.warmup_ms,
        length_ms: plan.length_ms,
        open,
      });
  if (side === "spawn-cat") {
    const server = await SpawnServer.start();
    try {
      await body(load(server.port, requestBytes("POST", "/", {}, PAYLOAD), PAYLOAD));
    } finally {
      await server.stop();
    }
    return;
  }
  await withDaemon({ cells: null }, async (daemon) => {
    await daemon.deploy({ name: "warm", handler: "cat" });
    const expected = `"stdout":${JSON.stringify(PAYLOAD)}`;
    await body(load(daemon.port, daemon.invocation("warm", PAYLOAD), expected));
  });
}

/** One row's samples with the figures of which there is one a round. */
class Subject extends Samples {
  readonly rates: number[] = [];
  readonly generator_cpu_percents: number[] = [];
  cold_count = 0;

  add(result: LoadResult): void {
    this.rounds.push([...result.latencies_ms]);
    this.rates.push(result.rate_per_second);
    this.generator_cpu_percents.push(result.generator_cpu_percent);
    this.cold_count += result.cold_count;
    for (const [reason, count] of Object.entries(result.failures)) this.fail(reason, count);
  }

  override row(): Row {
    const cold = this.cold_count === 0 ? "" : `, ${this.cold_count} cold starts among them`;
    const generator = `generator ${median(this.generator_cpu_percents).toFixed(0)} % of a core`;
    return super.row(`${median(this.rates).toFixed(0)} a second, ${generator}${cold}`);
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

function throughputBar(hearth: Subject, peer: Subject): Bar {
  return {
    label: `warm throughput, ${CLIENTS} clients, of spawn-cat`,
    value: median(hearth.rates) / median(peer.rates),
    bar: 1.6,
    compare: "at least",
    unit: "×",
    rounds: hearth.rates.map((rate, i) => rate / (peer.rates[i] ?? Number.NaN)),
  };
}

export async function benchWarm(plan: WarmPlan): Promise<Section> {
  const sides = { hearth: subjects("hearth"), "spawn-cat": subjects("spawn-cat") };
  await alternate(plan.rounds_count, (side) =>
    withSide(side, plan, async (load) => {
      sides[side].one.add(await load(1, null));
      sides[side].peak.add(await load(CLIENTS, null));
    }),
  );
  const peaks = { hearth: median(sides.hearth.peak.rates), "spawn-cat": median(sides["spawn-cat"].peak.rates) };
  const faster: Side = peaks.hearth >= peaks["spawn-cat"] ? "hearth" : "spawn-cat";
  const slower_rate = Math.min(peaks.hearth, peaks["spawn-cat"]);
  await alternate(plan.rounds_count, (side, round) =>
    withSide(side, plan, async (load) => {
      const seed = SEED + round;
      sides[side].open.add(await load(OPEN_CONNECTIONS, { rate_per_second: slower_rate / 2, seed }));
      if (side !== faster) return;
      sides[side].own.add(await load(OPEN_CONNECTIONS, { rate_per_second: peaks[side] / 2, seed }));
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
    rows: rows.map((row) => row.row()),
    bars: [
      ratioBar("warm p50, 1 client, of spawn-cat", hearth.one, peer.one, "p50", 1),
      ratioBar(`warm p99, ${CLIENTS} clients, of spawn-cat`, hearth.peak, peer.peak, "p99", 1),
      throughputBar(hearth.peak, peer.peak),
    ],
    ...evidence(rows),
  };
}
