/**
 * The load generator, a process of its own: `node bench/load.ts` reads one `LoadOptions` from standard input and writes
 * one `LoadResult` to standard output. The same generator drives both sides of a comparison.
 *
 * Closed loop: each client sends its next request when the last is answered; good for the peak, and blind to the
 * queueing that a slow answer would have caused. Open loop: requests are due at Poisson times drawn from a seed, and
 * a latency runs from the moment the request was due, whatever held it up.
 */
import { Worker } from "node:worker_threads";
import { Connection } from "./http.ts";
import type { PacerData } from "./pacer.ts";

export interface LoadOptions {
  readonly port: number;
  /** The bytes of the request, as text. */
  readonly request: string;
  /** An answer counts when its status is 200 and its body holds this. */
  readonly expected: string;
  /** A body with this was a cold start; null where there is no such thing. */
  readonly cold_marker: string | null;
  readonly clients_count: number;
  readonly warmup_ms: number;
  readonly length_ms: number;
  /** Null: closed loop. */
  readonly open: { readonly rate_per_second: number; readonly seed: number } | null;
}

export interface LoadResult {
  readonly latencies_ms: readonly number[];
  /** Reasons with their counts. Failed calls have no latency in the list. */
  readonly failures: Readonly<Record<string, number>>;
  readonly cold_count: number;
  /** Good answers per second of the measured time. */
  readonly rate_per_second: number;
  /** What the generator itself used, in percent of one core. */
  readonly generator_cpu_percent: number;
}

/** Collects what is answered after the warm-up. */
class Tally {
  readonly latencies_ms: number[] = [];
  readonly failures: Record<string, number> = {};
  cold_count = 0;
  readonly #options: LoadOptions;
  readonly #request: Buffer;
  readonly #expected: Buffer;

  constructor(options: LoadOptions) {
    this.#options = options;
    this.#request = Buffer.from(options.request);
    this.#expected = Buffer.from(options.expected);
  }

  /** Sends one request; its latency runs from `from_ms`. Replaces a connection that broke. */
  async call(connection: Connection, from_ms: number, isMeasured: boolean): Promise<Connection> {
    try {
      const { status, body } = await connection.request(this.#request);
      const latency_ms = performance.now() - from_ms;
      if (status !== 200 || !body.includes(this.#expected)) {
        this.#fail(isMeasured, status === 200 ? "wrong answer" : `status ${status}`);
      } else if (isMeasured) {
        this.latencies_ms.push(latency_ms);
        const { cold_marker } = this.#options;
        if (cold_marker !== null && body.includes(cold_marker)) this.cold_count += 1;
      }
      return connection;
    } catch (error) {
      this.#fail(isMeasured, error instanceof Error ? error.message : String(error));
      connection.close();
      return Connection.open(this.#options.port);
    }
  }

  #fail(isMeasured: boolean, reason: string): void {
    const key = isMeasured ? reason : `${reason} (warm-up)`;
    this.failures[key] = (this.failures[key] ?? 0) + 1;
  }
}

async function closedLoop(options: LoadOptions, connections: Connection[], tally: Tally, start_ms: number) {
  const end_ms = start_ms + options.length_ms;
  await Promise.all(
    connections.map(async (first, index) => {
      let connection = first;
      for (let now_ms = performance.now(); now_ms < end_ms; now_ms = performance.now()) {
        connection = await tally.call(connection, now_ms, now_ms >= start_ms);
      }
      connections[index] = connection;
    }),
  );
}

/** Requests that find no free connection wait here; their latency runs all the same. */
async function openLoop(
  options: LoadOptions,
  open: { rate_per_second: number; seed: number },
  connections: Connection[],
  tally: Tally,
  start_ms: number,
) {
  const free = connections.splice(0);
  const due: number[] = [];
  const done = Promise.withResolvers<void>();
  let isPaced = false;
  let running = 0;
  const next = (): void => {
    while (due.length > 0 && free.length > 0) {
      const from_ms = due.shift() ?? 0;
      const connection = free.pop();
      if (connection === undefined) return;
      running += 1;
      tally.call(connection, from_ms, from_ms >= start_ms).then((kept) => {
        running -= 1;
        free.push(kept);
        next();
      }, done.reject);
    }
    if (isPaced && running === 0 && due.length === 0) done.resolve();
  };
  const data: PacerData = {
    rate_per_second: open.rate_per_second,
    length_ms: options.warmup_ms + options.length_ms,
    seed: open.seed,
    start_epoch_ms: performance.timeOrigin + start_ms - options.warmup_ms,
  };
  const pacer = new Worker(new URL("./pacer.ts", import.meta.url), { workerData: data });
  pacer.once("error", done.reject);
  pacer.on("message", (due_epoch_ms: number | null) => {
    if (due_epoch_ms === null) isPaced = true;
    else due.push(due_epoch_ms - performance.timeOrigin);
    next();
  });
  await done.promise;
  await pacer.terminate();
  connections.push(...free);
}

async function generate(options: LoadOptions): Promise<LoadResult> {
  const connections = await Promise.all(
    Array.from({ length: options.clients_count }, () => Connection.open(options.port)),
  );
  const tally = new Tally(options);
  // The worker thread of an open loop needs a moment to start; both kinds wait the same moment.
  const start_ms = performance.now() + options.warmup_ms + 200;
  const cpu = process.cpuUsage();
  if (options.open === null) await closedLoop(options, connections, tally, start_ms);
  else await openLoop(options, options.open, connections, tally, start_ms);
  const measured_ms = performance.now() - start_ms;
  const { user, system } = process.cpuUsage(cpu);
  for (const connection of connections) connection.close();
  return {
    latencies_ms: tally.latencies_ms,
    failures: tally.failures,
    cold_count: tally.cold_count,
    rate_per_second: (tally.latencies_ms.length * 1000) / measured_ms,
    generator_cpu_percent: (user + system) / 10 / (measured_ms + options.warmup_ms + 200),
  };
}

let input = "";
for await (const chunk of process.stdin.setEncoding("utf8")) input += chunk;
process.stdout.write(JSON.stringify(await generate(JSON.parse(input) as LoadOptions)));
