/**
 * A histogram that is cheap to add to: prom-client's own looks its labels up and allocates at each value,
 * which costs 3 µs a value in the running daemon, this one 0.1. The registry reads it like any of its metrics.
 */
import type { MetricValueWithName, Registry } from "prom-client";

export interface DistributionOptions {
  readonly name: string;
  readonly help: string;
  /** Upper bounds of the buckets, ascending. The one without a bound is added. */
  readonly bounds: readonly number[];
  readonly registry: Registry;
}

type Labels = Readonly<Record<string, string>>;

/** The values with one set of labels. */
export class Values {
  readonly labels: Labels;
  /** One more than bounds. */
  readonly counts: Float64Array;
  readonly #bounds: readonly number[];
  sum = 0;

  constructor(labels: Labels, bounds: readonly number[]) {
    this.labels = labels;
    this.#bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    let i = 0;
    while (i < this.#bounds.length && value > (this.#bounds[i] ?? 0)) i++;
    this.counts[i] = (this.counts[i] ?? 0) + 1;
    this.sum += value;
  }
}

export class Distribution {
  readonly #options: DistributionOptions;
  readonly #series: Values[] = [];

  constructor(options: DistributionOptions) {
    this.#options = options;
    // What a registry asks of a metric is its name and `get`.
    options.registry.registerMetric(this as unknown as Parameters<Registry["registerMetric"]>[0]);
  }

  get name(): string {
    return this.#options.name;
  }

  /** A new series, there from now on. Once for each set of labels: whoever adds values keeps it. */
  series(labels: Labels = {}): Values {
    const values = new Values(labels, this.#options.bounds);
    this.#series.push(values);
    return values;
  }

  async get() {
    const { name, help } = this.#options;
    return { name, help, type: "histogram", aggregator: "sum", values: this.#series.flatMap((one) => this.#read(one)) };
  }

  /** In prom-client's order: buckets, each with all below it, the one without a bound, the sum, the count. */
  #read({ labels, counts, sum }: Values): MetricValueWithName<string>[] {
    const { name, bounds } = this.#options;
    let below = 0;
    const buckets = [...counts].map((count, i) => {
      below += count;
      return { metricName: `${name}_bucket`, labels: { ...labels, le: bounds[i] ?? "+Inf" }, value: below };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: below },
    ];
  }
}
