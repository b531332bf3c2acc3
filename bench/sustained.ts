/**
 * Cold starts without a pause: many distinct functions, each called once, eight calls at a time, as fast as they are
 * answered. The first calls find cells, the rest outrun their refilling. Hits and misses are told apart.
 */
import { ContainerRunner } from "./baselines.ts";
import { coldCall } from "./cold.ts";
import { withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { evidence, Samples, type Section } from "./report.ts";
import { median } from "./stats.ts";

const CLIENTS = 8;

export interface SustainedPlan {
  readonly rounds_count: number;
  readonly functions_count: number;
}

/** `CLIENTS` lanes take one number after the other from 0 to `count`. Resolves to numbers per second. */
async function inLanes(count: number, work: (index: number, lane: number) => Promise<void>): Promise<number> {
  const begun_ms = performance.now();
  let next = 0;
  const lanes = Array.from({ length: CLIENTS }, async (_, lane) => {
    while (next < count) await work(next++, lane);
  });
  await Promise.all(lanes);
  return (count * 1000) / (performance.now() - begun_ms);
}

function hearthRound(plan: SustainedPlan, hits: Samples, misses: Samples): Promise<number> {
  return withDaemon({ cells: null }, async (daemon) => {
    const { functions_count } = plan;
    for (let i = 0; i < functions_count; i++) await daemon.deploy({ name: `sustained-${i}`, handler: "cat" });
    await daemon.quiet(daemon.cells_target);
    const connections = await Promise.all(Array.from({ length: CLIENTS }, () => Connection.open(daemon.port)));
    const nonces = new Set<string | null>();
    const samples: [number[], number[]] = [[], []];
    const rate = await inLanes(functions_count, async (index, lane) => {
      const connection = connections[lane];
      if (connection === undefined) return;
      const result = await coldCall(connection, daemon, `sustained-${index}`, misses, nonces);
      if (result !== null) samples[result.isHit ? 0 : 1].push(result.latency_ms);
    });
    for (const connection of connections) connection.close();
    hits.rounds.push(samples[0]);
    misses.rounds.push(samples[1]);
    return rate;
  });
}

async function crunRound(plan: SustainedPlan, into: Samples): Promise<number> {
  const runner = await ContainerRunner.open();
  const samples: number[] = [];
  const rate = await inLanes(plan.functions_count, async () => {
    const duration_ms = await runner.run("crun").catch((error) => into.fail(String(error)));
    if (typeof duration_ms === "number") samples.push(duration_ms);
  });
  await runner.close();
  into.rounds.push(samples);
  return rate;
}

export async function benchSustained(plan: SustainedPlan): Promise<Section> {
  const hits = new Samples("hearth, cell hits");
  const misses = new Samples("hearth, cell misses");
  const crun = new Samples("crun run");
  const rates: { hearth: number[]; crun: number[] } = { hearth: [], crun: [] };
  for (let round = 0; round < plan.rounds_count; round++) {
    const steps = [
      async () => rates.hearth.push(await hearthRound(plan, hits, misses)),
      async () => rates.crun.push(await crunRound(plan, crun)),
    ];
    for (const step of round % 2 === 0 ? steps : steps.reverse()) await step();
  }
  const rateNote = (values: number[]) => `${median(values).toFixed(0)} a second, all together`;
  const { raw, failures } = evidence([hits, misses, crun]);
  return {
    title: `Sustained cold rate (ms): ${plan.functions_count} functions called once, ${CLIENTS} at a time`,
    method:
      "Closed loop. A hit found a ready cell, a miss waited for a container start. The instances stay: after the call " +
      "each function is warm. crun run: the same number of busybox containers, eight at a time, from start to removal.",
    rows: [hits.row(rateNote(rates.hearth)), misses.row(), crun.row(rateNote(rates.crun))],
    bars: [],
    raw: { ...raw, "hearth, calls a second": [rates.hearth], "crun run, a second": [rates.crun] },
    failures,
  };
}
