/**
 * The load generator, a process of its own: `node bench/load.ts` reads one `LoadOptions` from standard input, writes a
 * line with the moment its load begins when it is ready, and one `LoadResult` at the end. The same generator drives
 * both sides of a comparison. It only takes down what happened; `calls.ts` judges.
 *
 * Closed loop: each client sends its next request when the last is answered; good for the peak, and blind to the
 * queueing that a slow answer would have caused. Open loop: requests are due at Poisson times drawn from a seed, and
 * a latency runs from the moment the request was due, whatever held it up.
 *
 * A server that goes away is part of some measurements: a call without a connection opens one, and one that cannot is
 * a failed call. Nothing is tried twice.
 */
import { Worker } from "node:worker_threads";
import type { InvocationRecord } from "../src/functions/schema.ts";
import { machineMs, pauseUntil } from "./clock.ts";
import { Connection } from "./http.ts";
import type { PacerData } from "./pacer.ts";
import { seededRandom } from "./stats.ts";

export interface Target {
  /** The bytes of the request, as text. */
  readonly request: string;
  /** Expected standard output or result of the record, or the expected body if answers are not records. */
  readonly expected: string;
  /** True if `expected` is the result as JSON; otherwise it is the standard output. */
  readonly is_result?: boolean;
}

export interface LoadOptions {
  /** Absent: 127.0.0.1. */
  readonly host?: string;
  readonly port: number;
  /** Which one a call goes to is drawn from the seed; in a closed loop they take turns. */
  readonly targets: readonly Target[];
  /** Whether answers are invocation records. */
  readonly is_hearth: boolean;
  readonly clients_count: number;
  readonly warmup_ms: number;
  readonly length_ms: number;
  /** Null: closed loop. */
  readonly open: { readonly rate_per_second: number; readonly seed: number } | null;
}

/** One call. Times are on the machine's clock. */
export interface Call {
  readonly target: number;
  /** In a closed loop the moment it was sent. */
  readonly due_ms: number;
  readonly sent_ms: number;
  readonly done_ms: number;
  /** Null: answered as it should. */
  readonly failure: string | null;
  readonly record: CallRecord | null;
}

export interface CallRecord {
  readonly invocation_id: string;
  readonly version: number;
  readonly cold_start: boolean;
  readonly instance_nonce: string;
}

export interface LoadResult {
  /** Every call with those of the warm-up, in the order they ended. */
  readonly calls: readonly Call[];
  /** Calls due from here on count. */
  readonly measured_from_ms: number;
  /** When the last one ended. */
  readonly ended_ms: number;
  /** What the generator itself used, in percent of one core. */
  readonly generator_cpu_percent: number;
}

/** From the moment that all connections are open to the first call. The pacer's thread needs some of it to start. */
const LEAD_MS = 200;

function recordOf(body: Buffer, { expected, is_result }: Target): CallRecord | string {
  const record = JSON.parse(body.toString()) as InvocationRecord;
  if (record.status !== "success") return `the handler ${record.status}: ${record.error_message}`;
  if (is_result !== true && record.stdout !== expected) return "wrong standard output";
  if (is_result === true && JSON.stringify(record.result) !== expected) return "wrong result";
  const { invocation_id, version, cold_start, instance_nonce } = record;
  return { invocation_id, version, cold_start, instance_nonce: instance_nonce ?? "" };
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? message;
}

/** A place from which one call at a time is made. */
class Lane {
  readonly #options: LoadOptions;
  readonly #requests: readonly Buffer[];
  readonly #calls: Call[];
  #connection: Connection | null = null;

  constructor(options: LoadOptions, requests: readonly Buffer[], calls: Call[]) {
    this.#options = options;
    this.#requests = requests;
    this.#calls = calls;
  }

  async connect(): Promise<Connection> {
    if (this.#connection?.isOpen !== true)
      this.#connection = await Connection.open(this.#options.port, this.#options.host);
    return this.#connection;
  }

  /** Makes one call and takes it down, whatever comes of it. */
  async call(target: number, due_ms: number): Promise<void> {
    const sent_ms = machineMs();
    let outcome: CallRecord | string | null;
    try {
      outcome = await this.#exchange(target);
    } catch (error) {
      outcome = reasonOf(error);
      this.close();
    }
    const [failure, record] = typeof outcome === "string" ? [outcome, null] : [null, outcome];
    this.#calls.push({ target, due_ms, sent_ms, done_ms: machineMs(), failure, record });
  }

  close(): void {
    this.#connection?.close();
    this.#connection = null;
  }

  async #exchange(target: number): Promise<CallRecord | string | null> {
    const request = this.#requests[target];
    const wanted = this.#options.targets[target];
    if (request === undefined || wanted === undefined) throw new Error(`no target ${target}`);
    const connection = this.#connection?.isOpen === true ? this.#connection : await this.connect();
    const { status, body } = await connection.request(request);
    if (status !== 200) return `status ${status}`;
    if (this.#options.is_hearth) return recordOf(body, wanted);
    return body.toString() === wanted.expected ? null : "wrong answer";
  }
}

async function closedLoop(options: LoadOptions, lanes: readonly Lane[], start_ms: number): Promise<void> {
  const end_ms = start_ms + options.warmup_ms + options.length_ms;
  await pauseUntil(start_ms);
  await Promise.all(
    lanes.map(async (lane, index) => {
      let turn = index;
      for (let now_ms = machineMs(); now_ms < end_ms; now_ms = machineMs()) {
        await lane.call(turn++ % options.targets.length, now_ms);
      }
    }),
  );
}

/** Requests that find no free lane wait here; their latency runs all the same. */
async function openLoop(
  options: LoadOptions,
  open: { rate_per_second: number; seed: number },
  lanes: readonly Lane[],
  start_ms: number,
): Promise<void> {
  const free = [...lanes];
  const due: number[] = [];
  const done = Promise.withResolvers<void>();
  const random = seededRandom(open.seed + 1);
  let isPaced = false;
  const next = (): void => {
    while (due.length > 0) {
      const lane = free.pop();
      if (lane === undefined) return;
      const target = Math.floor(random() * options.targets.length);
      lane.call(target, due.shift() ?? 0).then(() => {
        free.push(lane);
        next();
      }, done.reject);
    }
    if (isPaced && free.length === lanes.length) done.resolve();
  };
  const data: PacerData = {
    rate_per_second: open.rate_per_second,
    length_ms: options.warmup_ms + options.length_ms,
    seed: open.seed,
    start_ms,
  };
  const pacer = new Worker(new URL("./pacer.ts", import.meta.url), { workerData: data });
  pacer.once("error", done.reject);
  pacer.on("message", (due_ms: number | null) => {
    if (due_ms === null) isPaced = true;
    else due.push(due_ms);
    next();
  });
  await done.promise;
  await pacer.terminate();
}

async function generate(options: LoadOptions): Promise<LoadResult> {
  const calls: Call[] = [];
  const requests = options.targets.map((target) => Buffer.from(target.request));
  const lanes = Array.from({ length: options.clients_count }, () => new Lane(options, requests, calls));
  await Promise.all(lanes.map((lane) => lane.connect()));
  const start_ms = machineMs() + LEAD_MS;
  process.stdout.write(`${start_ms}\n`);
  const cpu = process.cpuUsage();
  if (options.open === null) await closedLoop(options, lanes, start_ms);
  else await openLoop(options, options.open, lanes, start_ms);
  const ended_ms = machineMs();
  const { user, system } = process.cpuUsage(cpu);
  for (const lane of lanes) lane.close();
  return {
    calls,
    measured_from_ms: start_ms + options.warmup_ms,
    ended_ms,
    generator_cpu_percent: (user + system) / 10 / (ended_ms - start_ms + LEAD_MS),
  };
}

let input = "";
for await (const chunk of process.stdin.setEncoding("utf8")) input += chunk;
process.stdout.write(JSON.stringify(await generate(JSON.parse(input) as LoadOptions)));
