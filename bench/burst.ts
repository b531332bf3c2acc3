/**
 * A hundred calls at the same moment on a function that has no instance: each of them must be answered, without an
 * error, within two seconds. The connections are open before; the time runs from the first request to the last answer.
 */
import { recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { type Bar, evidence, Samples, type Section } from "./report.ts";

const MAX_INSTANCES = 50;
const BAR_MS = 2_000;

export interface BurstPlan {
  readonly rounds_count: number;
  readonly calls_count: number;
}

function burstRound(plan: BurstPlan, calls: Samples, last: Samples): Promise<number> {
  return withDaemon({ cells: null }, async (daemon) => {
    await daemon.deploy({ name: "burst", handler: "sleep 0.05", max_instances: MAX_INSTANCES });
    await daemon.quiet(daemon.cells_target);
    const connections = await Promise.all(Array.from({ length: plan.calls_count }, () => Connection.open(daemon.port)));
    const request = daemon.invocation("burst", "");
    const samples: number[] = [];
    let cold_count = 0;
    const begun_ms = performance.now();
    await Promise.all(
      connections.map(async (connection) => {
        try {
          const record = recordOf(await connection.request(request), "");
          if (typeof record === "string") return calls.fail(record);
          samples.push(performance.now() - begun_ms);
          if (record.cold_start) cold_count += 1;
        } catch (error) {
          calls.fail(String(error));
        }
      }),
    );
    last.rounds.push([performance.now() - begun_ms]);
    calls.rounds.push(samples);
    for (const connection of connections) connection.close();
    return cold_count;
  });
}

export async function benchBurst(plan: BurstPlan): Promise<Section> {
  const calls = new Samples("each call");
  const last = new Samples("last answer");
  const cold_counts: number[] = [];
  for (let round = 0; round < plan.rounds_count; round++) cold_counts.push(await burstRound(plan, calls, last));
  const lastBar: Bar = {
    label: `0 → ${plan.calls_count} calls, last answer, worst round`,
    value: last.summary().max,
    bar: BAR_MS,
    compare: "at most",
    unit: " ms",
    rounds: last.rounds.flat(),
  };
  const failedBar: Bar = {
    label: `0 → ${plan.calls_count} calls, failed`,
    value: calls.failed_count,
    bar: 0,
    compare: "at most",
    unit: " calls",
    rounds: [],
  };
  return {
    title: `Burst (ms): ${plan.calls_count} calls at once on a function at zero, \`sleep 0.05\`, max_instances ${MAX_INSTANCES}`,
    method:
      "Fresh daemon a round; the default number of cells is ready. Times run from the first request's first byte.",
    rows: [calls.row(`${cold_counts.join(" ")} cold starts a round`), last.row()],
    bars: [lastBar, failedBar],
    ...evidence([calls, last]),
  };
}
