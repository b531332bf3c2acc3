/**
 * A hundred calls at the same moment on a function that has no instance: each of them must be answered, without an
 * error, within two seconds. The connections are open before; the time runs from the first request to the last answer.
 */
import { checkClasses, coldCount, isAnswered } from "./calls.ts";
import { machineMs } from "./clock.ts";
import { type Daemon, recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import type { Call } from "./load.ts";
import {
  type Bar,
  countBar,
  distribution,
  evidence,
  type Row,
  Samples,
  type Section,
  type Series,
  timeBar,
} from "./report.ts";

const MAX_INSTANCES = 50;
const BAR_MS = 2_000;

export interface BurstPlan {
  readonly rounds_count: number;
  readonly calls_count: number;
}

/** Rounds of calls at the same moment. Each round has a function without instances. */
export class Burst {
  readonly calls: Samples;
  readonly last: Samples;
  readonly #cold_counts: number[] = [];

  /** `prefix` begins the labels. */
  constructor(prefix = "") {
    this.calls = new Samples(`${prefix}each call`);
    this.last = new Samples(`${prefix}last answer`);
  }

  /** Calls the function `name` `count` times at once. Its output or result is the payload. */
  async round(daemon: Daemon, name: string, count: number, payload: string | object): Promise<void> {
    const connections = await Promise.all(Array.from({ length: count }, () => Connection.open(daemon.port)));
    const request = daemon.invocation(name, payload);
    const made: Call[] = [];
    const sent_ms = machineMs();
    await Promise.all(
      connections.map(async (connection) => {
        const outcome = await connection.request(request).then((reply) => recordOf(reply, payload), String);
        const done_ms = machineMs();
        const isFailed = typeof outcome === "string";
        if (isFailed) this.calls.fail(outcome);
        const record = isFailed ? null : { ...outcome, instance_nonce: outcome.instance_nonce ?? "" };
        made.push({ target: 0, due_ms: sent_ms, sent_ms, done_ms, failure: isFailed ? outcome : null, record });
      }),
    );
    this.last.rounds.push([machineMs() - sent_ms]);
    this.calls.rounds.push(made.filter(isAnswered).map(({ done_ms }) => done_ms - sent_ms));
    this.calls.failAll(checkClasses(made, new Set()).contradictions);
    this.#cold_counts.push(coldCount(made));
    for (const connection of connections) connection.close();
  }

  rows(): Row[] {
    return [this.calls.row(`${this.#cold_counts.join(" ")} cold starts a round`), this.last.row()];
  }

  /** `subject` begins the labels. The last answer of the worst round has `bar_ms`. */
  bars(subject: string, bar_ms: number): Bar[] {
    return [
      timeBar(`${subject}, last answer, worst round`, this.last, "max", bar_ms),
      countBar(`${subject}, failed`, this.calls.failed_count, " calls"),
    ];
  }
}

function answersOverTime(samples: readonly number[], round: number): Series {
  const ascending = [...samples].sort((a, b) => a - b);
  const points = ascending.map((at_ms, i) => [at_ms, i + 1] as const);
  return { label: `round ${round + 1}`, points: [[0, 0], ...points], shape: "line" };
}

export async function benchBurst(plan: BurstPlan): Promise<Section> {
  const burst = new Burst();
  for (let round = 0; round < plan.rounds_count; round++) {
    await withDaemon({ cells: null }, async (daemon) => {
      await daemon.deploy({ name: "burst", handler: "sleep 0.05", max_instances: MAX_INSTANCES });
      await daemon.quiet(daemon.cells_target);
      await burst.round(daemon, "burst", plan.calls_count, "");
    });
  }
  const { calls, last } = burst;
  return {
    title: `Burst (ms): ${plan.calls_count} calls at once on a function at zero, \`sleep 0.05\`, max_instances ${MAX_INSTANCES}`,
    method:
      "Fresh daemon a round; the default number of cells is ready. Times run from the first request's first byte.",
    rows: burst.rows(),
    bars: burst.bars(`0 → ${plan.calls_count} calls`, BAR_MS),
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
