/**
 * The first call of a function that nobody has called before, each sample with a function of its own, at rest in
 * between.
 *
 * The class of a sample is read from its record: a cold start with a cell has no `start` among its timings, one without
 * has it. A sample of the wrong class, like a call whose instance had served before, is a failure and not a sample.
 */
import type { InvocationTimings } from "../src/functions/schema.ts";
import { ContainerRunner } from "./baselines.ts";
import { pause } from "./clock.ts";
import type { ContainerCommand } from "./container-peer.ts";
import { type Daemon, recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { distribution, evidence, ratioBar, Samples, type Section, timeComparison } from "./report.ts";
import { median } from "./stats.ts";

/**
 * Every side rests this long before each sample. It matters: the first process that is moved into a cgroup after a
 * quiet moment waits for an RCU grace period (about 12 ms on 2 cores; the kernel's cgroup_threadgroup_rwsem), a start
 * right behind another one does not. A cold call comes out of the quiet, and so must what it is compared with;
 * `crun run` back to back stands beside it.
 */
const REST_MS = 50;
const PAYLOAD = '{"hello":"world"}';

export interface ColdPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
}

export interface ColdCall {
  /** The client's, from the first byte sent to the last received. */
  readonly latency_ms: number;
  /** Whether a ready cell served. */
  readonly isHit: boolean;
  readonly timings: InvocationTimings;
}

/** Makes the first call of `name`; null when it was none, or failed. `nonces`: of the instances that served before. */
export async function coldCall(
  connection: Connection,
  daemon: Daemon,
  name: string,
  into: Samples,
  nonces: Set<string | null>,
): Promise<ColdCall | null> {
  const bytes = daemon.invocation(name, PAYLOAD);
  const begun_ms = performance.now();
  const reply = await connection.request(bytes);
  const latency_ms = performance.now() - begun_ms;
  const record = recordOf(reply, PAYLOAD);
  if (typeof record === "string") {
    into.fail(record);
    return null;
  }
  if (!record.cold_start || nonces.has(record.instance_nonce)) {
    into.fail("not a cold start");
    return null;
  }
  nonces.add(record.instance_nonce);
  return { latency_ms, isHit: record.timings.start === undefined, timings: record.timings };
}

/** Phases of the samples, as the records tell them. */
type Phases = Map<string, number[]>;

function coldRound(plan: ColdPlan, isWithCell: boolean, into: Samples, phases: Phases): Promise<void> {
  return withDaemon({ cells: isWithCell ? null : 0 }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const nonces = new Set<string | null>();
    const samples: number[] = [];
    // The first two are warm-up: they pay for the daemon's own first time.
    for (let i = -2; i < plan.samples_per_round; i++) {
      await daemon.deploy({ name: `cold-${i + 2}`, handler: "cat" });
      await daemon.quiet(isWithCell ? daemon.cells_target : 0);
      await pause(REST_MS);
      const result = await coldCall(connection, daemon, `cold-${i + 2}`, into, nonces);
      if (result === null || i < 0) continue;
      if (result.isHit !== isWithCell) {
        into.fail(isWithCell ? "no cell although one was ready" : "a cell although none is kept");
        continue;
      }
      samples.push(result.latency_ms);
      for (const [phase, ms] of Object.entries(result.timings)) phases.set(phase, [...(phases.get(phase) ?? []), ms]);
    }
    connection.close();
    into.rounds.push(samples);
  });
}

async function containerRound(plan: ColdPlan, command: ContainerCommand, rest_ms: number, into: Samples) {
  const runner = await ContainerRunner.open();
  const samples: number[] = [];
  for (let i = -2; i < plan.samples_per_round; i++) {
    if (rest_ms > 0) await pause(rest_ms);
    const duration_ms = await runner.run(command).catch((error) => into.fail(String(error)));
    if (i >= 0 && typeof duration_ms === "number") samples.push(duration_ms);
  }
  await runner.close();
  into.rounds.push(samples);
}

function phaseNote(phases: Phases): string {
  return `p50 of phases: ${[...phases].map(([phase, values]) => `${phase} ${median(values).toFixed(2)}`).join(", ")}`;
}

export async function benchCold(plan: ColdPlan): Promise<Section> {
  const withCell = new Samples("hearth, with a cell");
  const without = new Samples("hearth, without a cell");
  const crun = new Samples("crun run");
  const runc = new Samples("runc run");
  const crunPacked = new Samples("crun run, back to back");
  const phases: [Phases, Phases] = [new Map(), new Map()];
  const steps = [
    () => coldRound(plan, true, withCell, phases[0]),
    () => containerRound(plan, "crun", REST_MS, crun),
    () => coldRound(plan, false, without, phases[1]),
    () => containerRound(plan, "runc", REST_MS, runc),
    () => containerRound(plan, "crun", 0, crunPacked),
  ];
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const step of round % 2 === 0 ? steps : [...steps].reverse()) await step();
  }
  return {
    title: "Cold start (ms): first call of a fresh function, shell `cat`",
    method:
      "hearth: the whole HTTP call on a kept-alive connection, authentication, full isolation and committed record " +
      "included; one function a sample, pool at rest before each. crun and runc: `run` of a busybox bundle with the " +
      "configuration of `crun spec`, /bin/cat with empty input, timed by a C process from fork to exit. Fresh processes " +
      `each round, order alternating, ${REST_MS} ms of rest before each sample of either side.`,
    rows: [
      withCell.row(phaseNote(phases[0])),
      without.row(phaseNote(phases[1])),
      crun.row(),
      runc.row(),
      crunPacked.row(),
    ],
    bars: [
      ratioBar("cold with a cell, p50, of crun run", withCell, crun, "p50", 0.25),
      ratioBar("cold without a cell, p50, of crun run", without, crun, "p50", 2),
    ],
    comparisons: [
      timeComparison("cold with a cell, p50, of crun run back to back", withCell, crunPacked, "p50"),
      timeComparison("cold without a cell, p50, of crun run back to back", without, crunPacked, "p50"),
      timeComparison("cold without a cell, p50, of runc run", without, runc, "p50"),
    ],
    plots: [distribution("First call, against a container's whole run", [withCell, without, crun, runc, crunPacked])],
    ...evidence([withCell, without, crun, runc, crunPacked]),
  };
}
