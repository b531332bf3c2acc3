/**
 * First calls of instances of functions with code: with a started interpreter in the reserve, and when the reserve is empty.
 *
 * A deployment loads the code in one instance, so the first call after it is warm. For a cold call the function has
 * `instance_calls_max: 1`: its first call uses that instance up, and the second binds a cell. Each sample has a function of its
 * own, with code of its own. The class is read from the record: a cold start with a cell has no `start` among its timings.
 */
import type { InvocationRecord } from "../src/functions/schema.ts";
import { machineMs, pause } from "./clock.ts";
import { type CodeSpec, cellsReady, deployCode, echo, type Files, PAYLOAD, RUNTIMES, type Runtime } from "./code.ts";
import { type Daemon, recordOf, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { type Bar, distribution, evidence, Samples, type Section } from "./report.ts";
import { median } from "./stats.ts";

/** Rest before each cold call, as in the section `cold`. */
const REST_MS = 50;
const BUNDLE_BYTES = 1_000_000;
const WARM_CALLS = 300;
const COLD_EXTRA_MS = 8;
const BUNDLE_EXTRA_MS = 25;
const STARTS_BAR: Readonly<Record<Runtime, number>> = { nodejs: 25, python3: 60 };
/** Duration of a held call, longer than all starts of a round: no instance is free before the last one has started. */
const HOLD_MS = 8_000;

export interface CodeColdPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
  readonly bundles_per_round: number;
  /** Calls at once, each of which needs an instance. */
  readonly starts_count: number;
}

const MODULES_COUNT = 10;

/** Returns a megabyte of code in modules that the handler's module imports. */
export function bundle(runtime: Runtime, note: string): Readonly<Record<string, string>> {
  const isNode = runtime === "nodejs";
  const line = (i: number): string =>
    isNode
      ? `export function f${i}(a, b) { const c = a * ${i} + b; return { c, d: [a, b, c], e: "value ${i}" }; }\n`
      : `def f${i}(a, b):\n    c = a * ${i} + b\n    return {"c": c, "d": [a, b, c], "e": "value ${i}"}\n`;
  const files: Record<string, string> = {};
  const imports: string[] = [];
  for (let m = 0; m < MODULES_COUNT; m++) {
    const [path, imported] = isNode ? [`m${m}.mjs`, `import "./m${m}.mjs";`] : [`m${m}.py`, `import m${m}`];
    let text = "";
    for (let i = 0; text.length < BUNDLE_BYTES / MODULES_COUNT; i++) text += line(i);
    files[path] = text;
    imports.push(imported);
  }
  for (const [path, text] of Object.entries(echo(runtime, note))) files[path] = `${imports.join("\n")}\n${text}`;
  return files;
}

const COMPILER = `import base64
from importlib import util, _bootstrap_external as external
def handler(payload, context):
    path, text = payload["path"], payload["text"]
    code = compile(text, "/function/" + path, "exec")
    pyc = external._code_to_hash_pyc(code, util.source_hash(text.encode()), True)
    return {"path": util.cache_from_source(path), "pyc": base64.b64encode(pyc).decode()}
`;

/** Returns the bytecode of Python files by its paths, compiled by the image's Python and checked by the hash of the source. */
async function bytecode(daemon: Daemon, files: Readonly<Record<string, string>>): Promise<Files> {
  await deployCode(daemon, { name: "compile", runtime: "python3" }, { "main.py": COMPILER });
  const connection = await Connection.open(daemon.port);
  const compiled: Record<string, Buffer> = {};
  for (const [path, text] of Object.entries(files)) {
    const reply = await connection.request(daemon.invocation("compile", { path, text }));
    const { result, status, error_message } = JSON.parse(reply.body.toString()) as InvocationRecord;
    if (status !== "success") throw new Error(`cannot compile ${path}: ${error_message}`);
    const made = result as { path: string; pyc: string };
    compiled[made.path] = Buffer.from(made.pyc, "base64");
  }
  connection.close();
  return compiled;
}

class Side {
  readonly runtime: Runtime;
  readonly warm: Samples;
  readonly rested: Samples;
  readonly cold: Samples;
  readonly bundled: Samples;
  /** For python3: the same without bytecode. Each instance compiles the code again. */
  readonly source: Samples;
  readonly starts: Samples;
  readonly churn: Samples;
  /** Durations of the phases of cold calls, as the records list them. */
  readonly phases = new Map<string, number[]>();

  constructor(runtime: Runtime) {
    this.runtime = runtime;
    this.warm = new Samples(`${runtime}, warm, back to back`);
    this.rested = new Samples(`${runtime}, warm, after ${REST_MS} ms of rest`);
    this.cold = new Samples(`${runtime}, cold with a cell`);
    this.bundled = new Samples(`${runtime}, cold with a cell, 1 MB of code`);
    this.source = new Samples(`${runtime}, cold with a cell, 1 MB of code without its bytecode`);
    this.starts = new Samples(`${runtime}, instances a second without cells, all at once`, "a second");
    this.churn = new Samples(`${runtime}, instances a second without cells, a new one for each call`, "a second");
  }

  get subjects(): readonly Samples[] {
    const sources = this.runtime === "python3" ? [this.source] : [];
    return [this.warm, this.rested, this.cold, this.bundled, ...sources, this.starts, this.churn];
  }

  /** Makes a call. Resolves to null if it failed. */
  async #call(connection: Connection, daemon: Daemon, name: string, into: Samples) {
    const bytes = daemon.invocation(name, PAYLOAD);
    const begun_ms = machineMs();
    const reply = await connection.request(bytes).catch(String);
    const latency_ms = machineMs() - begun_ms;
    const record = typeof reply === "string" ? reply : recordOf(reply, PAYLOAD);
    if (typeof record !== "string") return { latency_ms, record };
    into.fail(record);
    return null;
  }

  async withCells(plan: CodeColdPlan, round: number): Promise<void> {
    const { runtime } = this;
    await withDaemon({ cells: null }, async (daemon) => {
      const connection = await Connection.open(daemon.port);
      await deployCode(daemon, { name: "warm", runtime }, echo(runtime));
      await this.#warm(connection, daemon, this.warm, WARM_CALLS, 0);
      await cellsReady(daemon, runtime);
      await this.#warm(connection, daemon, this.rested, plan.samples_per_round, REST_MS);
      // The first sample is warm-up of the daemon.
      await this.#cold(connection, daemon, this.cold, plan.samples_per_round + 1, (i) =>
        echo(runtime, `${round} ${i}`),
      );
      const { bundles_per_round } = plan;
      const compiled = runtime === "python3" ? await bytecode(daemon, bundle(runtime, "")) : {};
      const bundled = (i: number): Files => ({ ...bundle(runtime, `${round} ${i}`), ...compiled });
      await this.#cold(connection, daemon, this.bundled, bundles_per_round + 1, bundled);
      if (runtime === "python3") {
        const sources = (i: number): Files => bundle(runtime, `${round} ${i} source`);
        await this.#cold(connection, daemon, this.source, bundles_per_round + 1, sources);
      }
      connection.close();
    });
  }

  async #warm(connection: Connection, daemon: Daemon, into: Samples, count: number, rest_ms: number): Promise<void> {
    const samples: number[] = [];
    for (let i = 0; i < count; i++) {
      if (rest_ms > 0) await pause(rest_ms);
      const found = await this.#call(connection, daemon, "warm", into);
      // The first half of the calls back to back is warm-up.
      if (found !== null && (rest_ms > 0 || i >= count / 2)) samples.push(found.latency_ms);
    }
    into.rounds.push(samples);
  }

  async #cold(
    connection: Connection,
    daemon: Daemon,
    into: Samples,
    count: number,
    files: (i: number) => Files,
  ): Promise<void> {
    const { runtime } = this;
    const samples: number[] = [];
    const kind = into === this.cold ? "cold" : into === this.bundled ? "bundle" : "source";
    for (let i = 0; i < count; i++) {
      const name = `${kind}-${i}`;
      await deployCode(daemon, { name, runtime, instance_calls_max: 1 }, files(i));
      await this.#call(connection, daemon, name, into);
      await cellsReady(daemon, runtime);
      await pause(REST_MS);
      const found = await this.#call(connection, daemon, name, into);
      if (found === null || i === 0) continue;
      const { record, latency_ms } = found;
      if (!record.cold_start) into.fail("not a cold start");
      else if (record.timings.start !== undefined) into.fail("no cell although one was ready");
      else samples.push(latency_ms);
      if (into !== this.cold) continue;
      for (const [phase, ms] of Object.entries(record.timings))
        this.phases.set(phase, [...(this.phases.get(phase) ?? []), ms]);
    }
    into.rounds.push(samples);
  }

  /** Measures the rate at which instances start without ready cells. */
  async withoutCells(plan: CodeColdPlan): Promise<void> {
    const { runtime } = this;
    const { starts_count } = plan;
    await withDaemon({ cells: 0 }, async (daemon) => {
      const spec: CodeSpec = { name: "hold", runtime, max_instances: starts_count + 1, timeout_seconds: 60 };
      await deployCode(daemon, spec, hold(runtime));
      await daemon.quiet(0);
      // The deployment left one instance, so one more call is made than instances start.
      const connections = await Promise.all(
        Array.from({ length: starts_count + 1 }, () => Connection.open(daemon.port)),
      );
      const begun_ms = machineMs();
      await Promise.all(connections.map((connection) => this.#call(connection, daemon, "hold", this.starts)));
      this.starts.rounds.push([(starts_count * 1_000) / (machineMs() - begun_ms - HOLD_MS)]);
      await deployCode(daemon, { name: "churn", runtime, instance_calls_max: 1 }, echo(runtime));
      let left = starts_count;
      const churn_ms = machineMs();
      const lanes = connections.slice(0, 8).map(async (connection) => {
        while (left-- > 0) await this.#call(connection, daemon, "churn", this.churn);
      });
      await Promise.all(lanes);
      this.churn.rounds.push([(starts_count * 1_000) / (machineMs() - churn_ms)]);
      for (const connection of connections) connection.close();
    });
  }

  phaseNote(): string {
    return `p50 of phases: ${[...this.phases].map(([phase, values]) => `${phase} ${median(values).toFixed(2)}`).join(", ")}`;
  }

  bars(): Bar[] {
    const extra = (label: string, of: Samples, bar: number): Bar => ({
      label: `${this.runtime}, ${label}, p50 above own warm p50`,
      value: of.summary().p50 - this.warm.summary().p50,
      bar,
      compare: "at most",
      unit: " ms",
      rounds: of.rounds.map((samples, i) => median(samples) - median(this.warm.rounds[i] ?? [])),
    });
    return [
      extra("cold with a cell", this.cold, COLD_EXTRA_MS),
      extra("the same, 1 MB of code", this.bundled, BUNDLE_EXTRA_MS),
      {
        label: `${this.runtime}, starts a second without cells`,
        value: median(this.starts.rounds.flat()),
        bar: STARTS_BAR[this.runtime],
        compare: "at least",
        unit: "",
        rounds: this.starts.rounds.flat(),
      },
    ];
  }
}

/** A function that answers after all instances of a round have started. */
function hold(runtime: Runtime): Files {
  return runtime === "nodejs"
    ? {
        "index.mjs": `export const handler = (payload) => new Promise((done) => setTimeout(done, ${HOLD_MS}, payload));\n`,
      }
    : {
        "main.py": `import time\ndef handler(payload, context):\n    time.sleep(${HOLD_MS / 1_000})\n    return payload\n`,
      };
}

export async function benchCodeCold(plan: CodeColdPlan): Promise<Section> {
  const sides = RUNTIMES.map((runtime) => new Side(runtime));
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) {
      await side.withCells(plan, round);
      await side.withoutCells(plan);
    }
  }
  const subjects = sides.flatMap((side) => side.subjects);
  return {
    title: "Cold calls of functions with code (ms)",
    method:
      "The whole HTTP call, committed record included. Cold: the second call of a function with instance_calls_max 1, which binds " +
      `a cell of the reserve to code that no instance of this boot of the cell knew; ${REST_MS} ms of rest before each. Without ` +
      `cells: ${plan.starts_count + 1} calls at once of a handler that waits ${HOLD_MS / 1_000} s, so that each needs an instance ` +
      "of its own; the wait is subtracted. Then 8 clients on a function whose instances serve one call.",
    rows: sides.flatMap((side) => side.subjects.map((one) => one.row(one === side.cold ? side.phaseNote() : ""))),
    bars: sides.flatMap((side) => side.bars()),
    plots: sides.map((side) => distribution(`${side.runtime}, first call of an instance`, side.subjects.slice(0, -2))),
    ...evidence(subjects),
  };
}
