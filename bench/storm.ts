/**
 * Cold starts in numbers: many functions that nobody has called, each called once. First all of them at the same
 * moment, then others eight at a time as fast as they are answered. The first calls find cells, the rest outrun their
 * refilling; hits and misses are told apart. `crun run` has to do the same for its containers.
 */
import { ContainerRunner } from "./baselines.ts";
import { machineMs } from "./clock.ts";
import { coldCall } from "./cold.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { type Comparison, countBar, distribution, evidence, Samples, type Section, timeComparison } from "./report.ts";
import { median } from "./stats.ts";

const LANES = 8;
/** More processes than this the launcher, from which crun is started, refuses (`too many jobs`). */
const CRUN_LANES_MAX = 48;

export interface StormPlan {
  readonly rounds_count: number;
  /** Called at the same moment. */
  readonly storm_count: number;
  /** Called `LANES` at a time. */
  readonly sustained_count: number;
}

/** `lanes_count` lanes take one number after the other from 0 to `count`. Resolves to the milliseconds it took. */
async function inLanes(
  count: number,
  lanes_count: number,
  work: (index: number, lane: number) => Promise<void>,
): Promise<number> {
  const begun_ms = machineMs();
  let next = 0;
  const lanes = Array.from({ length: lanes_count }, async (_, lane) => {
    while (next < count) await work(next++, lane);
  });
  await Promise.all(lanes);
  return machineMs() - begun_ms;
}

/** Hits and misses of one way of calling, and how long all calls of a round took together. */
class HearthSide {
  readonly hits: Samples;
  readonly misses: Samples;
  readonly last: Samples;

  constructor(how: string) {
    this.hits = new Samples(`hearth, cell hits, ${how}`);
    this.misses = new Samples(`hearth, cell misses, ${how}`);
    this.last = new Samples(`hearth, all of them, ${how}`);
  }

  get subjects(): readonly Samples[] {
    return [this.hits, this.misses, this.last];
  }

  /** Deploys `count` functions and calls each of them once. */
  async round(daemon: Daemon, prefix: string, count: number, lanes_count: number): Promise<void> {
    for (let i = 0; i < count; i++) await daemon.deploy({ name: `${prefix}-${i}`, handler: "cat" });
    await daemon.quiet(daemon.cells_target);
    const connections = await Promise.all(Array.from({ length: lanes_count }, () => Connection.open(daemon.port)));
    const nonces = new Set<string | null>();
    const samples: [number[], number[]] = [[], []];
    const took_ms = await inLanes(count, lanes_count, async (index, lane) => {
      const connection = connections[lane];
      if (connection === undefined) return;
      const result = await coldCall(connection, daemon, `${prefix}-${index}`, this.misses, nonces);
      if (result !== null) samples[result.isHit ? 0 : 1].push(result.latency_ms);
    });
    for (const connection of connections) connection.close();
    this.hits.rounds.push(samples[0]);
    this.misses.rounds.push(samples[1]);
    this.last.rounds.push([took_ms]);
  }
}

class CrunSide {
  readonly runs: Samples;
  readonly last: Samples;
  readonly #run: (runner: ContainerRunner) => Promise<number>;

  constructor(what: string, how: string, run: (runner: ContainerRunner) => Promise<number>) {
    this.runs = new Samples(`${what}, ${how}`);
    this.last = new Samples(`${what}, all of them, ${how}`);
    this.#run = run;
  }

  get subjects(): readonly Samples[] {
    return [this.runs, this.last];
  }

  async round(runner: ContainerRunner, count: number, lanes_count: number): Promise<void> {
    const samples: number[] = [];
    const took_ms = await inLanes(count, lanes_count, async () => {
      const duration_ms = await this.#run(runner).catch((error) => this.runs.fail(String(error)));
      if (typeof duration_ms === "number") samples.push(duration_ms);
    });
    this.runs.rounds.push(samples);
    this.last.rounds.push([took_ms]);
    await runner.removeNetworks();
  }
}

function rateComparison(label: string, hearth: Samples, crun: Samples): Comparison {
  const { value, rounds } = timeComparison(label, crun, hearth, "p50");
  return { label, value, rounds, better: "higher" };
}

export async function benchStorm(plan: StormPlan): Promise<Section> {
  const { storm_count, sustained_count } = plan;
  const hearth = { storm: new HearthSide("at once"), sustained: new HearthSide(`${LANES} at a time`) };
  const bare = (runner: ContainerRunner) => runner.run("crun");
  const crun = {
    storm: new CrunSide("crun run", `up to ${CRUN_LANES_MAX} at a time`, bare),
    sustained: new CrunSide("crun run", `${LANES} at a time`, bare),
    networked: new CrunSide("crun run in a fresh network", `${LANES} at a time`, (runner) => runner.runNetworked()),
  };
  const hearthRound = (): Promise<void> =>
    withDaemon({ cells: null }, async (daemon) => {
      await hearth.storm.round(daemon, "storm", storm_count, storm_count);
      await hearth.sustained.round(daemon, "sustained", sustained_count, LANES);
    });
  const crunRound = async (): Promise<void> => {
    const runner = await ContainerRunner.open();
    await crun.storm.round(runner, storm_count, Math.min(storm_count, CRUN_LANES_MAX));
    await crun.sustained.round(runner, sustained_count, LANES);
    await crun.networked.round(runner, sustained_count, LANES);
    await runner.close();
  };
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const step of round % 2 === 0 ? [hearthRound, crunRound] : [crunRound, hearthRound]) await step();
  }
  const rate = (last: Samples, count: number): string =>
    `${((count * 1_000) / median(last.rounds.flat())).toFixed(0)} a second`;
  const storm = [...hearth.storm.subjects, ...crun.storm.subjects];
  const sustained = [...hearth.sustained.subjects, ...crun.sustained.subjects, ...crun.networked.subjects];
  const ours = [...hearth.storm.subjects, ...hearth.sustained.subjects];
  const failed_count = ours.reduce((sum, { failed_count }) => sum + failed_count, 0);
  return {
    title: `Cold storm (ms): ${storm_count} functions called at once, then ${sustained_count} others ${LANES} at a time`,
    method:
      "Each function is called once. A hit found a ready cell, a miss waited for a container start; the reserve is full " +
      "before. The instances stay: after its call a function is warm. crun run: as many busybox containers, " +
      `${CRUN_LANES_MAX} and ${LANES} at a time, from start to removal. In a fresh network: a script makes a ` +
      "namespace, a link to a bridge, an address and a route for each; these stay.",
    rows: [...storm, ...sustained].map((subject) => {
      if (subject === hearth.storm.last || subject === crun.storm.last) return subject.row(rate(subject, storm_count));
      if ([hearth.sustained.last, crun.sustained.last, crun.networked.last].includes(subject)) {
        return subject.row(rate(subject, sustained_count));
      }
      return subject.row();
    }),
    bars: [
      countBar(
        `cold storm, ${storm_count} functions at once and ${sustained_count} in lanes, failed`,
        failed_count,
        " calls",
      ),
    ],
    comparisons: [
      rateComparison("rate of starts, all at once, of crun run", hearth.storm.last, crun.storm.last),
      rateComparison(`rate of starts, ${LANES} at a time, of crun run`, hearth.sustained.last, crun.sustained.last),
      rateComparison("the same, of crun run in a fresh network each", hearth.sustained.last, crun.networked.last),
    ],
    plots: [
      distribution(`${storm_count} at once`, [hearth.storm.hits, hearth.storm.misses, crun.storm.runs]),
      distribution(`${LANES} at a time`, [hearth.sustained.hits, hearth.sustained.misses, crun.sustained.runs]),
    ],
    ...evidence([...storm, ...sustained]),
  };
}
