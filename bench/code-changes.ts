/**
 * Functions with code when something changes: a hundred calls at once on a function at zero, the time from a saved file to the
 * first answer of the new version, and the memory of an idle instance.
 */
import { Burst } from "./burst.ts";
import { machineMs, pause } from "./clock.ts";
import { cellsReady, deployCode, echo, type Files, PAYLOAD, RUNTIMES, type Runtime } from "./code.ts";
import { type Daemon, recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { ContainerWeights } from "./memory.ts";
import { type Bar, distribution, evidence, Samples, type Section, timeBar } from "./report.ts";

const BURST_BAR_MS = 3_000;
const BURST_INSTANCES = 50;
const SAVE_BAR_MS = 300;
const SAVED_BYTES = 20_000;
/** Time between an answer and the next save. */
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

async function fromZero({ calls_count }: CodeChangesPlan, burst: Burst): Promise<void> {
  await withDaemon({ cells: null }, async (daemon) => {
    await deployCode(daemon, { name: "burst", runtime: "nodejs", max_instances: BURST_INSTANCES }, BURST);
    // The deployment left an instance: its process exits.
    const connection = await Connection.open(daemon.port);
    await connection.request(daemon.invocation("burst", '"exit"'));
    connection.close();
    await cellsReady(daemon, "nodejs");
    const { total_count } = await daemon.stats();
    if (total_count > 0) burst.calls.fail(`${total_count} instances where none should be`);
    await burst.round(daemon, "burst", calls_count, PAYLOAD);
  });
}

/** An echo in a file of 20 kB. The number of the save makes its content differ from that of others. */
function saved(runtime: Runtime, save: number): Files {
  const comment = runtime === "nodejs" ? "//" : "#";
  let text = "";
  for (let i = 0; text.length < SAVED_BYTES; i++) text += `${comment} save ${save}, line ${i}\n`;
  const [[name = "", body = ""] = []] = Object.entries(echo(runtime));
  return { [name]: body + text };
}

/** Measures the time from a saved file to the answer of a call that the new version served. */
async function saves(plan: CodeChangesPlan, runtime: Runtime, into: Samples): Promise<void> {
  await withDaemon({ cells: null }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const samples: number[] = [];
    const request = daemon.invocation("dev", PAYLOAD);
    await deployCode(daemon, { name: "dev", runtime }, saved(runtime, -2));
    // The first save is warm-up.
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

class IdleWeights extends ContainerWeights {
  readonly runtime: Runtime;

  constructor(runtime: Runtime) {
    super((figure) => `${runtime}, ${figure} of an idle instance`);
    this.runtime = runtime;
  }

  round({ idle_count }: CodeChangesPlan): Promise<void> {
    const { runtime } = this;
    return withDaemon({ cells: 0 }, async (daemon) => {
      const sizes = { min_instances: idle_count, max_instances: idle_count };
      await deployCode(daemon, { name: "idle", runtime, ...sizes }, echo(runtime));
      await this.#serve(daemon, idle_count);
      await daemon.quiet(0);
      const count = this.weigh(daemon);
      if (count !== idle_count) this.pss.fail(`${count} instances instead of ${idle_count}`);
    });
  }

  /** Makes as many calls at once as there are instances, so that each has served. */
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
  const burst = new Burst("nodejs, ");
  const save = { nodejs: new Samples("nodejs, save to answer"), python3: new Samples("python3, save to answer") };
  const weights = RUNTIMES.map((runtime) => new IdleWeights(runtime));
  for (let round = 0; round < plan.rounds_count; round++) {
    await fromZero(plan, burst);
    for (const runtime of round % 2 === 0 ? RUNTIMES : RUNTIMES.toReversed()) await saves(plan, runtime, save[runtime]);
    for (const weight of weights) await weight.round(plan);
  }
  const saveSubjects = [save.nodejs, save.python3];
  const saveAndRest = [...saveSubjects, ...weights.flatMap((weight) => weight.subjects)];
  return {
    title: "Functions with code: from zero, from a save to an answer, and at rest (ms)",
    method:
      `From zero: ${plan.calls_count} calls at once of a function without an instance, 50 ms each, max_instances ` +
      `${BURST_INSTANCES}, the default number of cells ready. Save to answer: packing, uploading and deploying a changed file of ` +
      `${SAVED_BYTES / 1_000} kB and one call, one after the other; the call must run on the new version. At rest: ` +
      `${plan.idle_count} instances that have served ${CALLS_EACH} calls each on average.`,
    rows: [...burst.rows(), ...saveAndRest.map((one) => one.row())],
    bars: [
      ...burst.bars(`nodejs, 0 → ${plan.calls_count} calls`, BURST_BAR_MS),
      ...RUNTIMES.map((runtime) => timeBar(`${runtime}, save to answer, p50`, save[runtime], "p50", SAVE_BAR_MS)),
      ...weights.map((weight) => weight.bar()),
    ],
    plots: [
      distribution("Latency of each call from zero", [burst.calls]),
      distribution("Save to answer", saveSubjects),
    ],
    ...evidence([burst.calls, burst.last, ...saveAndRest]),
  };
}
