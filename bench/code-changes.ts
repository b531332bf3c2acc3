/**
 * Functions with code when something changes: a hundred calls at once on a function at zero, the time from a saved file to the
 * first answer of the new version, and what an idle instance takes of memory.
 */
import { checkClasses, coldCount, isAnswered } from "./calls.ts";
import { machineMs, pause } from "./clock.ts";
import { cellsReady, deployCode, echo, type Files, PAYLOAD, RUNTIMES, type Runtime } from "./code.ts";
import { type Daemon, recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import type { Call } from "./load.ts";
import { containerMemory } from "./memory.ts";
import { type Bar, countBar, distribution, evidence, Samples, type Section } from "./report.ts";

const BURST_BAR_MS = 3_000;
const BURST_INSTANCES = 50;
const SAVE_BAR_MS = 300;
const SAVED_BYTES = 20_000;
/** Somebody who saves has looked at the answer before. */
const REST_MS = 100;
const PSS_BAR_MB: Readonly<Record<Runtime, number>> = { nodejs: 25, python3: 8 };
/** Calls for each idle instance before it is weighed. */
const CALLS_EACH = 5;

export interface CodeChangesPlan {
  readonly rounds_count: number;
  readonly calls_count: number;
  readonly saves_per_round: number;
  readonly idle_count: number;
}

const BURST: Files = {
  "index.mjs":
    "export const handler = (payload) =>\n" +
    '  payload === "exit" ? process.exit() : new Promise((done) => setTimeout(done, 50, payload));\n',
};

class Burst {
  readonly calls = new Samples("nodejs, each of the calls at once");
  readonly last = new Samples("nodejs, last answer");
  readonly cold_counts: number[] = [];

  round({ calls_count }: CodeChangesPlan): Promise<void> {
    return withDaemon({ cells: null }, async (daemon) => {
      const spec = { name: "burst", runtime: "nodejs", max_instances: BURST_INSTANCES } as const;
      await deployCode(daemon, spec, BURST);
      await this.#toZero(daemon);
      const connections = await Promise.all(Array.from({ length: calls_count }, () => Connection.open(daemon.port)));
      const request = daemon.invocation("burst", PAYLOAD);
      const made: Call[] = [];
      const sent_ms = machineMs();
      await Promise.all(
        connections.map(async (connection) => {
          const outcome = await connection.request(request).then((reply) => recordOf(reply, PAYLOAD), String);
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
      this.cold_counts.push(coldCount(made));
      for (const connection of connections) connection.close();
    });
  }

  /** Ends the instance that the deployment left: its process exits. */
  async #toZero(daemon: Daemon): Promise<void> {
    const connection = await Connection.open(daemon.port);
    await connection.request(daemon.invocation("burst", '"exit"'));
    connection.close();
    await cellsReady(daemon, "nodejs");
    const { total_count } = await daemon.stats();
    if (total_count > 0) this.calls.fail(`${total_count} instances where none should be`);
  }
}

/** An echo in a file of 20 kB that says which save it is of. */
function saved(runtime: Runtime, save: number): Files {
  const comment = runtime === "nodejs" ? "//" : "#";
  let text = "";
  for (let i = 0; text.length < SAVED_BYTES; i++) text += `${comment} save ${save}, line ${i}\n`;
  const [[name = "", body = ""] = []] = Object.entries(echo(runtime));
  return { [name]: body + text };
}

/** From the moment a file was saved to the answer of a call that the new version served. */
async function saves(plan: CodeChangesPlan, runtime: Runtime, into: Samples): Promise<void> {
  await withDaemon({ cells: null }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const samples: number[] = [];
    const request = daemon.invocation("dev", PAYLOAD);
    await deployCode(daemon, { name: "dev", runtime }, saved(runtime, -2));
    // The first is warm-up.
    for (let i = -1; i < plan.saves_per_round; i++) {
      await cellsReady(daemon, runtime);
      await pause(REST_MS);
      const files = saved(runtime, i);
      const begun_ms = machineMs();
      const { version } = await deployCode(daemon, { name: "dev", runtime }, files);
      const record = recordOf(await connection.request(request), PAYLOAD);
      const took_ms = machineMs() - begun_ms;
      if (typeof record === "string") into.fail(record);
      else if (record.version !== version) into.fail(`version ${record.version} answered, not ${version}`);
      else if (i >= 0) samples.push(took_ms);
    }
    connection.close();
    into.rounds.push(samples);
  });
}

class Weight {
  readonly runtime: Runtime;
  readonly pss: Samples;
  readonly charge: Samples;
  readonly together: Samples;

  constructor(runtime: Runtime) {
    this.runtime = runtime;
    this.pss = new Samples(`${runtime}, PSS of an idle instance`, "MB");
    this.charge = new Samples(`${runtime}, cgroup charge of an idle instance`, "MB");
    this.together = new Samples(`${runtime}, both`, "MB");
  }

  get subjects(): readonly Samples[] {
    return [this.pss, this.charge, this.together];
  }

  round({ idle_count }: CodeChangesPlan): Promise<void> {
    const { runtime } = this;
    return withDaemon({ cells: 0 }, async (daemon) => {
      const sizes = { min_instances: idle_count, max_instances: idle_count };
      await deployCode(daemon, { name: "idle", runtime, ...sizes }, echo(runtime));
      await this.#serve(daemon, idle_count);
      await daemon.quiet(0);
      const memory = containerMemory(daemon);
      if (memory.length !== idle_count) this.pss.fail(`${memory.length} instances instead of ${idle_count}`);
      this.pss.rounds.push(memory.map(({ pss_mb }) => pss_mb));
      this.charge.rounds.push(memory.map(({ charge_mb }) => charge_mb));
      this.together.rounds.push(memory.map(({ pss_mb, charge_mb }) => pss_mb + charge_mb));
    });
  }

  /** Calls as many at once as there are instances, so that each has served. */
  async #serve(daemon: Daemon, count: number): Promise<void> {
    const request = daemon.invocation("idle", PAYLOAD);
    const lanes = Array.from({ length: count }, async () => {
      const connection = await Connection.open(daemon.port);
      for (let i = 0; i < CALLS_EACH; i++) {
        const record = recordOf(await connection.request(request), PAYLOAD);
        if (typeof record === "string") this.pss.fail(record);
      }
      connection.close();
    });
    await Promise.all(lanes);
  }

  bar(): Bar {
    const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
    return {
      label: `${this.runtime}, PSS of an idle instance, mean`,
      value: mean(this.pss.rounds.flat()),
      bar: PSS_BAR_MB[this.runtime],
      compare: "at most",
      unit: " MB",
      rounds: this.pss.rounds.map(mean),
    };
  }
}

export async function benchCodeChanges(plan: CodeChangesPlan): Promise<Section> {
  const burst = new Burst();
  const save = { nodejs: new Samples("nodejs, save to answer"), python3: new Samples("python3, save to answer") };
  const weights = RUNTIMES.map((runtime) => new Weight(runtime));
  for (let round = 0; round < plan.rounds_count; round++) {
    await burst.round(plan);
    for (const runtime of round % 2 === 0 ? RUNTIMES : RUNTIMES.toReversed()) await saves(plan, runtime, save[runtime]);
    for (const weight of weights) await weight.round(plan);
  }
  const lastBar: Bar = {
    label: `nodejs, 0 → ${plan.calls_count} calls, last answer, worst round`,
    value: burst.last.summary().max,
    bar: BURST_BAR_MS,
    compare: "at most",
    unit: " ms",
    rounds: burst.last.rounds.flat(),
  };
  const saveBars = RUNTIMES.map(
    (runtime): Bar => ({
      label: `${runtime}, save to answer, p50`,
      value: save[runtime].summary().p50,
      bar: SAVE_BAR_MS,
      compare: "at most",
      unit: " ms",
      rounds: [],
    }),
  );
  const saveSubjects = [save.nodejs, save.python3];
  const subjects = [burst.calls, burst.last, ...saveSubjects, ...weights.flatMap((weight) => weight.subjects)];
  return {
    title: "Functions with code: from zero, from a save to an answer, and at rest (ms)",
    method:
      `From zero: ${plan.calls_count} calls at once of a function without an instance, 50 ms each, max_instances ` +
      `${BURST_INSTANCES}, the default number of cells ready. Save to answer: packing, uploading and deploying a changed file of ` +
      `${SAVED_BYTES / 1_000} kB and one call, one after the other; the call must run on the new version. At rest: ` +
      `${plan.idle_count} instances that have served ${CALLS_EACH} calls each on average.`,
    rows: subjects.map((one) =>
      one.row(one === burst.calls ? `${burst.cold_counts.join(" ")} cold starts a round` : ""),
    ),
    bars: [
      lastBar,
      countBar(`nodejs, 0 → ${plan.calls_count} calls, failed`, burst.calls.failed_count, " calls"),
      ...saveBars,
      ...weights.map((weight) => weight.bar()),
    ],
    plots: [
      distribution("Latency of each call from zero", [burst.calls]),
      distribution("Save to answer", saveSubjects),
    ],
    ...evidence(subjects),
  };
}
