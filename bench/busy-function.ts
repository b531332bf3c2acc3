/** One busy shell function whose warm calls are measured beside something else: at the same arrivals, a part of its peak before. */
import { runLoad } from "./baselines.ts";
import { checkClasses, failureCounts, latencies, measuredCalls, ratePerSecond } from "./calls.ts";
import type { Daemon } from "./daemon.ts";
import type { LoadOptions, LoadResult } from "./load.ts";
import type { Samples } from "./report.ts";

const PAYLOAD = '{"hello":"world"}';
const CLIENTS = 8;
const OPEN_CONNECTIONS = 64;
const PEAK_MS = 1_500;

export interface BusyPlan {
  readonly warmup_ms: number;
  readonly length_ms: number;
}

export class BusyFunction {
  readonly rate_per_second: number;
  readonly #daemon: Daemon;
  readonly #plan: BusyPlan;
  /** Nonces of instances that served. */
  readonly #known: Set<string>;

  private constructor(daemon: Daemon, plan: BusyPlan, known: Set<string>, rate_per_second: number) {
    this.#daemon = daemon;
    this.#plan = plan;
    this.#known = known;
    this.rate_per_second = rate_per_second;
  }

  /** Deploys it and finds its peak, of which later loads are one in `share`. */
  static async start(daemon: Daemon, plan: BusyPlan, share: number): Promise<BusyFunction> {
    await daemon.deploy({ name: "busy", handler: "cat", max_instances: CLIENTS });
    const known = new Set<string>();
    const busy = new BusyFunction(daemon, plan, known, 0);
    const peak = await busy.#load({ clients_count: CLIENTS, length_ms: Math.min(PEAK_MS, plan.length_ms), open: null });
    checkClasses(peak.calls, known);
    return new BusyFunction(daemon, plan, known, ratePerSecond(peak) / share);
  }

  /** An open loop, as one more round of `samples`. */
  async measure(samples: Samples, seed: number): Promise<void> {
    const { rate_per_second } = this;
    const open = { rate_per_second, seed };
    const result = await this.#load({ clients_count: OPEN_CONNECTIONS, length_ms: this.#plan.length_ms, open });
    samples.rounds.push(latencies(measuredCalls(result)));
    samples.failAll(failureCounts(result));
    samples.failAll(checkClasses(result.calls, this.#known).contradictions);
  }

  #load(options: Pick<LoadOptions, "clients_count" | "length_ms" | "open">): Promise<LoadResult> {
    return runLoad({
      port: this.#daemon.port,
      targets: [{ request: this.#daemon.invocation("busy", PAYLOAD).toString(), expected: PAYLOAD }],
      is_hearth: true,
      warmup_ms: this.#plan.warmup_ms,
      ...options,
    });
  }
}
