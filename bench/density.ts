/**
 * Idle instances and what they cost: the warm latency of one busy function beside 10, 100 and 500 instances that do
 * nothing, at the same arrivals, up and down in turns so that no step is always the later one; the memory of each
 * instance; the time to get there.
 */
import { BusyFunction } from "./busy-function.ts";
import { machineMs } from "./clock.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { availableMb, ContainerWeights, daemonRssMb, networkSlotCount } from "./memory.ts";
import { type Axis, countBar, distribution, evidence, type Plot, pairedBar, Samples, type Section } from "./report.ts";
import { median, summarize } from "./stats.ts";
import { figure } from "./text.ts";

const SEED = 30_500;
const BAR_MB = 2;
/** Changes of functions under way at the same time, as an operator's script would. */
const CHANGES = 4;

export interface DensityPlan {
  readonly rounds_count: number;
  /** Ascending; the first is what the last is compared with. */
  readonly idle_counts: readonly number[];
  readonly instances_per_function: number;
  readonly warmup_ms: number;
  readonly length_ms: number;
}

/** What is measured at one count of idle instances. */
class Step {
  readonly idle_count: number;
  readonly latency: Samples;
  readonly weights: ContainerWeights;
  readonly daemon: Samples;
  readonly reached: Samples;
  readonly available_mb: number[] = [];
  ready_count_min = Number.POSITIVE_INFINITY;
  slots_count_max = 0;

  constructor(idle_count: number) {
    const beside = `${idle_count} idle`;
    this.idle_count = idle_count;
    this.latency = new Samples(`warm call beside ${beside}`);
    this.weights = new ContainerWeights((figure) => `${figure} of a container, ${beside}`);
    this.daemon = new Samples(`daemon RSS, ${beside}`, "MB");
    this.reached = new Samples(`time to ${beside} from the step below`);
  }

  get subjects(): readonly Samples[] {
    return [this.latency, ...this.weights.subjects, this.daemon, this.reached];
  }

  async look(daemon: Daemon): Promise<void> {
    const stats = await daemon.quiet(daemon.cells_target);
    this.weights.weigh(daemon);
    this.daemon.rounds.push([daemonRssMb(daemon)]);
    this.available_mb.push(availableMb());
    this.ready_count_min = Math.min(this.ready_count_min, stats.ready_count);
    this.slots_count_max = Math.max(this.slots_count_max, networkSlotCount(daemon));
  }
}

/** Functions with a minimum of instances each; of them as many are deployed as a step asks for. */
class IdleFunctions {
  readonly #daemon: Daemon;
  readonly #size: number;
  readonly #ids: string[] = [];
  #deployed_count = 0;

  constructor(daemon: Daemon, size: number) {
    this.#daemon = daemon;
    this.#size = size;
  }

  async create(count: number): Promise<void> {
    const spec = { handler: "cat", min_instances: this.#size, max_instances: this.#size };
    for (let i = 0; i < count; i++) {
      const { id } = (await this.#daemon.call("POST", "/api/functions", { name: `idle-${i}`, ...spec })) as {
        id: string;
      };
      this.#ids.push(id);
    }
  }

  /** Resolves when all of them are ready, or gone. Whether there are more than before. */
  async hold(idle_count: number): Promise<boolean> {
    const wanted = Math.ceil(idle_count / this.#size);
    const isMore = wanted > this.#deployed_count;
    const [from, to] = isMore ? [this.#deployed_count, wanted] : [wanted, this.#deployed_count];
    const changed = this.#ids.slice(from, to);
    await this.#daemon.callEach(
      "POST",
      changed.map((id) => `/api/functions/${id}/${isMore ? "deploy" : "pause"}`),
      CHANGES,
    );
    this.#deployed_count = wanted;
    return isMore;
  }
}

async function measure(daemon: Daemon, plan: DensityPlan, steps: readonly Step[]): Promise<number> {
  const idle = new IdleFunctions(daemon, plan.instances_per_function);
  await idle.create(Math.ceil((plan.idle_counts.at(-1) ?? 0) / plan.instances_per_function));
  const busy = await BusyFunction.start(daemon, plan, 3);
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const step of round % 2 === 0 ? steps : [...steps].reverse()) {
      const begun_ms = machineMs();
      if (await idle.hold(step.idle_count)) step.reached.rounds.push([machineMs() - begun_ms]);
      await step.look(daemon);
      await busy.measure(step.latency, SEED + round);
    }
  }
  return busy.rate_per_second;
}

function plots(steps: readonly Step[]): Plot[] {
  const x: Axis = { label: "idle instances", scale: "log" };
  const each = (pick: "p50" | "p99") =>
    steps.flatMap(({ idle_count, latency }) =>
      latency.rounds.map((samples) => [idle_count, summarize(samples)[pick]] as const),
    );
  const line = (label: string, value: (step: Step) => number) => ({
    label,
    points: steps.map((step) => [step.idle_count, value(step)] as const),
    shape: "line" as const,
  });
  const middle = (samples: Samples): number => samples.summary().p50;
  return [
    distribution(
      "Warm call of one busy function",
      steps.map(({ latency }) => latency),
    ),
    {
      kind: "lines",
      title: "Warm latency over idle instances",
      x,
      y: { label: "latency, ms", scale: "log" },
      series: [
        line("p50, all rounds", ({ latency }) => middle(latency)),
        line("p99, all rounds", ({ latency }) => latency.summary().p99),
        { label: "p50, each round", points: each("p50"), shape: "points" },
        { label: "p99, each round", points: each("p99"), shape: "points" },
      ],
      marks: [],
    },
    {
      kind: "lines",
      title: "Memory of one idle container, median",
      x,
      y: { label: "MB", scale: "linear" },
      series: [
        line("PSS of its processes", ({ weights }) => middle(weights.pss)),
        line("charge of its control group", ({ weights }) => middle(weights.charge)),
        line("both", ({ weights }) => middle(weights.together)),
      ],
      marks: [],
    },
    {
      kind: "lines",
      title: "Memory of the daemon",
      x,
      y: { label: "RSS, MB", scale: "linear" },
      series: [line("daemon RSS, median", ({ daemon }) => middle(daemon))],
      marks: [],
    },
  ];
}

/** What the whole machine gave for one more instance, between the first step and the last. */
function perInstanceText(first: Step, last: Step): string {
  const each = (median(first.available_mb) - median(last.available_mb)) / (last.idle_count - first.idle_count);
  return `the machine's available memory fell by ${figure(each)} MB an instance`;
}

export async function benchDensity(plan: DensityPlan): Promise<Section> {
  const steps = plan.idle_counts.map((count) => new Step(count));
  const [first, last] = [steps[0], steps.at(-1)];
  if (first === undefined || last === undefined || first === last) throw new Error("density needs two steps");
  const rate_per_second = await withDaemon({ cells: null }, (daemon) => measure(daemon, plan, steps));
  const most = last.weights.together.summary().max;
  return {
    title: `Density (ms): ${plan.idle_counts.join(", ")} idle shell instances beside one busy function`,
    method:
      `One daemon; functions of ${plan.instances_per_function} minimum instances each, deployed and paused, ${CHANGES} ` +
      `changes at a time, up and down in turns. At each step: rest, memory, then ${plan.length_ms / 1_000} s of open loop on ` +
      `the busy function, at ${figure(rate_per_second)} calls a second, a third of its peak before: at half of it both ` +
      "processors are two thirds busy, and p99 is that of the queue which chance makes (0.7 to 4 times from round to " +
      "round, with the same instances). The bar holds for the median of the rounds. Memory is that of every started " +
      "container, cells and the busy function's among them; pages that PSS and charge both count are twice in the sum.",
    rows: [
      ...steps.map(({ latency, slots_count_max }) => latency.row(`${slots_count_max} network slots`)),
      last.weights.pss.row(),
      last.weights.charge.row(),
      last.weights.together.row(perInstanceText(first, last)),
      first.daemon.row(),
      last.daemon.row(),
      ...steps.map(({ reached }) => reached.row()).filter(({ summary }) => summary.count > 0),
    ],
    bars: [
      {
        label: `idle instances held`,
        value: last.ready_count_min,
        bar: last.idle_count,
        compare: "at least",
        unit: " instances",
        rounds: [],
      },
      pairedBar(
        `warm p99 beside ${last.idle_count} idle, of ${first.idle_count}, median of rounds`,
        last.latency,
        first.latency,
        "p99",
        2,
      ),
      countBar("PSS and charge of an idle container, the largest", most, " MB", BAR_MB),
    ],
    plots: plots(steps),
    ...evidence(steps.flatMap(({ subjects }) => subjects)),
  };
}
