/**
 * A hundred calls at the same moment on a function that has no instance: each of them must be answered, without an
 * error, within two seconds. The connections are open before; the time runs from the first request to the last answer.
 */
import { checkClasses, coldCount, isAnswered } from "./calls.ts";
import { machineMs } from "./clock.ts";
import { recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import type { Call } from "./load.ts";
import { type Bar, countBar, distribution, evidence, Samples, type Section, type Series } from "./report.ts";

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
    const made: Call[] = [];
    const sent_ms = machineMs();
    await Promise.all(
      connections.map(async (connection) => {
        const outcome = await connection.request(request).then((reply) => recordOf(reply, ""), String);
        const done_ms = machineMs();
        const isFailed = typeof outcome === "string";
        if (isFailed) calls.fail(outcome);
        const record = isFailed ? null : { ...outcome, instance_nonce: outcome.instance_nonce ?? "" };
        made.push({ target: 0, due_ms: sent_ms, sent_ms, done_ms, failure: isFailed ? outcome : null, record });
      }),
    );
    last.rounds.push([machineMs() - sent_ms]);
    calls.rounds.push(made.filter(isAnswered).map(({ done_ms }) => done_ms - sent_ms));
    calls.failAll(checkClasses(made, new Set()).contradictions);
    for (const connection of connections) connection.close();
    return coldCount(made);
  });
}

function answersOverTime(samples: readonly number[], round: number): Series {
  const ascending = [...samples].sort((a, b) => a - b);
  const points = ascending.map((at_ms, i) => [at_ms, i + 1] as const);
  return { label: `round ${round + 1}`, points: [[0, 0], ...points], shape: "line" };
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
  return {
    title: `Burst (ms): ${plan.calls_count} calls at once on a function at zero, \`sleep 0.05\`, max_instances ${MAX_INSTANCES}`,
    method:
      "Fresh daemon a round; the default number of cells is ready. Times run from the first request's first byte.",
    rows: [calls.row(`${cold_counts.join(" ")} cold starts a round`), last.row()],
    bars: [lastBar, countBar(`0 → ${plan.calls_count} calls, failed`, calls.failed_count, " calls")],
    plots: [
      {
        kind: "lines",
        title: "Answers over time, a line a round",
        x: { label: "time since the first request, ms", scale: "linear" },
        y: { label: "calls answered", scale: "linear" },
        series: calls.rounds.map(answersOverTime),
        marks: [],
      },
      distribution("Latency of each call", [calls]),
    ],
    ...evidence([calls, last]),
  };
}
