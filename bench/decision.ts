/**
 * What one scheduling decision costs by the number of instances on the node: the pool's `step` alone, without launcher,
 * I/O or clock. Every subject repeats a cycle of events that ends where it began, on a node that was filled for this
 * round alone; sizes alternate in their order. A sample is the mean of one step over some hundred cycles, in
 * nanoseconds.
 */
import type { AssignEffect, PoolEffect, PoolEvent } from "../pool/protocol.ts";
import { step } from "../pool/scheduler.ts";
import { PoolState } from "../pool/states.ts";
import { type Bar, evidence, type Plot, Samples, type Section } from "./report.ts";
import { median, seededRandom } from "./stats.ts";

export interface DecisionOptions {
  readonly rounds_count: number;
  readonly samples_per_round: number;
  readonly cycles_per_sample: number;
  /** Instances on the node, ascending. */
  readonly sizes: readonly number[];
}

type Untimed = PoolEvent extends infer E ? (E extends PoolEvent ? Omit<E, "now_ms"> : never) : never;

const INSTANCES_PER_GROUP = 5;
const CLASS = "shell";
/** Between two events: 10,000 calls a second, so that no keep-alive ends within a round. */
const STEP_MS = 0.03;
const WAIT_MS = 30_000;
/** The largest size may cost so many times the smallest: ten thousand records do not fit into a processor's near cache. */
const GROWTH_MAX = 3;

/** A node that is full of idle instances, the same number in each group. */
class Node {
  readonly state: PoolState;
  readonly groups: readonly string[];
  readonly #random: () => number;
  #now_ms = 0;
  #next_call = 1;
  steps_count = 0;

  constructor(size: number, spare_count: number, seed: number) {
    this.#random = seededRandom(seed);
    const settings = { instances_max: size + spare_count, starts_max: 16, start_attempts_max: 3 };
    this.state = new PoolState({ ...settings, instance_prefix: "i", default_class: CLASS });
    this.groups = Array.from({ length: size / INSTANCES_PER_GROUP }, (_, i) => `fn_${i}@1`);
    for (const group of this.groups) {
      this.open(group, INSTANCES_PER_GROUP);
      for (let i = 0; i < INSTANCES_PER_GROUP; i++) {
        this.feed({ type: "adopted", instance: `${group}#${i}`, class: CLASS, group });
      }
    }
  }

  open(group: string, max_instances: number, concurrency = 1): void {
    const policy = { class: CLASS, min_instances: 0, max_instances, queue_max: 1_000, concurrency };
    this.feed({ type: "group_set", group, ...policy });
  }

  feed(event: Untimed): readonly PoolEffect[] {
    this.#now_ms += STEP_MS;
    this.steps_count += 1;
    return step(this.state, Object.assign(event, { now_ms: this.#now_ms }) as PoolEvent);
  }

  /** One of the first so many groups, of all unless given. */
  anyGroup(among = this.groups.length): string {
    return this.groups[Math.floor(this.#random() * among)] ?? "";
  }

  call(group: string): readonly PoolEffect[] {
    const deadline_ms = this.#now_ms + WAIT_MS;
    return this.feed({ type: "call_arrived", call: this.#next_call++, group, deadline_ms, depth: 0 });
  }

  /** A call's end, the last one unless given; its place is free again, or taken by the next call. */
  end(instance: string, call = this.#next_call - 1): readonly PoolEffect[] {
    this.feed({ type: "finished", instance, call, assigned_ms: this.#now_ms, reuse: true });
    return this.feed({ type: "idle", instance, call });
  }
}

function instanceOf(effects: readonly PoolEffect[], type: "assign" | "start" | "remove"): string {
  for (const effect of effects) if (effect.type === type) return effect.instance;
  throw new Error(`no ${type} among ${JSON.stringify(effects)}`);
}

function assignOf(effects: readonly PoolEffect[]): AssignEffect {
  for (const effect of effects) if (effect.type === "assign") return effect;
  throw new Error(`no assign among ${JSON.stringify(effects)}`);
}

interface Subject {
  readonly label: string;
  readonly events: string;
  /** Room beyond the idle instances. */
  readonly spare_count: number;
  /** Brings the node to where the cycles begin. */
  readonly prepare: (node: Node) => () => void;
}

const SUBJECTS: readonly Subject[] = [
  {
    label: "warm",
    events: "arrived, finished, idle",
    spare_count: 0,
    prepare: (node) => () => {
      node.end(instanceOf(node.call(node.anyGroup()), "assign"));
    },
  },
  {
    // What the scheduler does for each call, without what the processor does to reach its records.
    label: "warm, two groups",
    events: "the same, always the same ten instances",
    spare_count: 0,
    prepare: (node) => () => {
      node.end(instanceOf(node.call(node.anyGroup(2)), "assign"));
    },
  },
  {
    label: "shared",
    events: "arrived in an instance beside 49 others, one of them finished, idle",
    spare_count: 0,
    prepare: (node) => {
      const group = node.anyGroup();
      node.open(group, INSTANCES_PER_GROUP, 100);
      // Far more than half of the places, so that the least loaded instance is looked for each time.
      const running = Array.from({ length: 50 * INSTANCES_PER_GROUP }, () => assignOf(node.call(group)));
      let next = 0;
      return () => {
        const oldest = running[next];
        if (oldest !== undefined) node.end(oldest.instance, oldest.call);
        running[next] = assignOf(node.call(group));
        next = (next + 1) % running.length;
      };
    },
  },
  {
    label: "queued",
    events: "arrived behind 50, finished, idle with the first of them",
    spare_count: 0,
    prepare: (node) => {
      const group = node.anyGroup();
      let busy = Array.from({ length: INSTANCES_PER_GROUP }, () => instanceOf(node.call(group), "assign"));
      for (let i = 0; i < 50; i++) node.call(group);
      return () => {
        node.call(group);
        const [first = "", ...rest] = busy;
        busy = [...rest, instanceOf(node.end(first), "assign")];
      };
    },
  },
  {
    label: "start",
    events: "arrived, started, finished and not used again, removed",
    spare_count: 1,
    prepare: (node) => {
      node.open("fn_new@1", 1);
      return () => {
        const instance = instanceOf(node.call("fn_new@1"), "start");
        node.feed({ type: "started", instance });
        node.feed({ type: "finished", instance, call: 1, assigned_ms: 0, reuse: false });
        node.feed({ type: "removed", instance });
      };
    },
  },
  {
    label: "evict",
    events: "arrived on a full node, the oldest removed, started, finished, idle",
    spare_count: 0,
    prepare: (node) => {
      // By turns, so that each call finds its group's instances evicted: the one used longest ago goes first.
      let turn = 0;
      return () => {
        const group = `fn_turn_${turn % (node.groups.length * INSTANCES_PER_GROUP + 1)}@1`;
        turn += 1;
        if (!node.state.groups.has(group)) node.open(group, 1);
        node.feed({ type: "removed", instance: instanceOf(node.call(group), "remove") });
        const instance = `i${node.state.next_instance - 1}`;
        node.feed({ type: "started", instance });
        node.end(instance);
      };
    },
  },
];

/** Samples of one subject on one fresh node. */
function measure(subject: Subject, size: number, round: number, options: DecisionOptions): number[] {
  const node = new Node(size, subject.spare_count, round);
  const cycle = subject.prepare(node);
  for (let i = 0; i < options.cycles_per_sample; i++) cycle();
  return Array.from({ length: options.samples_per_round }, () => {
    const steps_before = node.steps_count;
    const begun_ns = process.hrtime.bigint();
    for (let i = 0; i < options.cycles_per_sample; i++) cycle();
    return Number(process.hrtime.bigint() - begun_ns) / (node.steps_count - steps_before);
  });
}

/** Largest size against smallest. */
function growthBar(label: string, bySize: readonly Samples[]): Bar {
  const smallest = bySize[0]?.rounds ?? [];
  const largest = bySize.at(-1)?.rounds ?? [];
  const rounds = largest.map((samples, i) => median(samples) / median(smallest[i] ?? []));
  const value = median(largest.flat()) / median(smallest.flat());
  return { label, value, bar: GROWTH_MAX, compare: "at most", unit: "×", rounds };
}

function overSizes(subjects: readonly { label: string; bySize: readonly Samples[] }[], sizes: readonly number[]): Plot {
  const series = subjects.map(({ label, bySize }) => ({
    label,
    points: bySize.map((samples, i) => [sizes[i] ?? Number.NaN, samples.summary().p50] as const),
    shape: "line" as const,
  }));
  const x = { label: "instances on the node", scale: "log" } as const;
  const y = { label: "median of one step, ns", scale: "log" } as const;
  return { kind: "lines", title: "Cost of one step over instances", x, y, series, marks: [] };
}

export async function benchDecision(options: DecisionOptions): Promise<Section> {
  const { sizes } = options;
  const subjects = SUBJECTS.map((subject) => ({
    ...subject,
    bySize: sizes.map((size) => new Samples(`${subject.label}, ${size.toLocaleString("en")} instances`, "ns")),
  }));
  // Once for nothing: later ones would find the code compiled by those before.
  for (const subject of SUBJECTS) measure(subject, sizes[0] ?? INSTANCES_PER_GROUP, 0, options);
  for (let round = 1; round <= options.rounds_count; round++) {
    const order = round % 2 === 1 ? [...sizes.keys()] : [...sizes.keys()].reverse();
    for (const subject of subjects) {
      for (const i of order) subject.bySize[i]?.rounds.push(measure(subject, sizes[i] ?? 0, round, options));
    }
  }
  const all = subjects.flatMap(({ bySize }) => bySize);
  return {
    title: "One scheduling decision, nanoseconds a step",
    method:
      "The pool's step alone, in this process, on a node full of idle instances, five in each group; the mean of one " +
      `step over ${options.cycles_per_sample} cycles is one sample. Each round fills fresh nodes; sizes alternate in their order.`,
    rows: subjects.flatMap(({ bySize, events }) => bySize.map((samples) => samples.row(events))),
    bars: subjects.map(({ label, bySize }) => {
      const [smallest = 0, largest = 0] = [sizes[0], sizes.at(-1)];
      return growthBar(`decision, ${label}: median at ${largest} instances against ${smallest}`, bySize);
    }),
    plots: [overSizes(subjects, sizes)],
    ...evidence(all),
  };
}
