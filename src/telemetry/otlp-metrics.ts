/** The metrics of prom-client registries as OpenTelemetry's reader wants them. Loaded only where they are exported. */
import { ValueType } from "@opentelemetry/api";
import type { Resource } from "@opentelemetry/resources";
import {
  AggregationTemporality,
  type DataPoint,
  DataPointType,
  type Histogram,
  type MetricData,
  type MetricProducer,
} from "@opentelemetry/sdk-metrics";
import type { MetricObjectWithValues, MetricValue, MetricValueWithName, Registry } from "prom-client";
import type { Clock } from "../base/clock.ts";

export interface MetricBridgeOptions {
  readonly resource: Resource;
  readonly version: string;
  readonly clock: Clock;
  readonly registries: () => readonly Registry[];
}

type Metric = MetricObjectWithValues<MetricValue<string>>;
type Times = Pick<DataPoint<number>, "startTime" | "endTime">;

/** Cumulative since the bridge was made, which is the start of the daemon. */
export function metricBridge({ resource, version, clock, registries }: MetricBridgeOptions): MetricProducer {
  const begun_ms = clock.epochMs();
  return {
    async collect() {
      const times: Times = { startTime: hrTime(begun_ms), endTime: hrTime(clock.epochMs()) };
      const found = (await Promise.all(registries().map((registry) => registry.getMetricsAsJSON()))).flat();
      const metrics = (found as Metric[]).map((metric) => metricData(metric, times));
      return {
        resourceMetrics: { resource, scopeMetrics: [{ scope: { name: "hearth", version }, metrics }] },
        errors: [],
      };
    },
  };
}

/** prom-client's own type is a const enum; its values arrive as text. */
function metricData({ name, help, type, values }: Metric, times: Times): MetricData {
  const unit = /_seconds(_total)?$/.test(name) ? "s" : /_bytes$/.test(name) ? "By" : "1";
  const descriptor = { name, description: help, unit, valueType: ValueType.DOUBLE };
  const base = { descriptor, aggregationTemporality: AggregationTemporality.CUMULATIVE };
  const points = (): DataPoint<number>[] =>
    values.map(({ labels, value }) => ({ ...times, attributes: { ...labels }, value }));
  switch (String(type)) {
    case "histogram":
      return { ...base, dataPointType: DataPointType.HISTOGRAM, dataPoints: histogramPoints(values, times) };
    case "counter":
      return { ...base, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints: points() };
    default:
      return { ...base, dataPointType: DataPointType.GAUGE, dataPoints: points() };
  }
}

/** Values come series by series: its buckets, each with all below it, the one without a bound, the sum, the count. */
function histogramPoints(values: readonly MetricValue<string>[], times: Times): DataPoint<Histogram>[] {
  const points: DataPoint<Histogram>[] = [];
  let boundaries: number[] = [];
  let counts: number[] = [];
  let below = 0;
  let sum = 0;
  for (const { labels, value, metricName = "" } of values as readonly MetricValueWithName<string>[]) {
    const { le, ...attributes } = labels;
    if (le !== undefined) {
      if (le !== "+Inf") boundaries.push(Number(le));
      counts.push(value - below);
      below = value;
    } else if (metricName.endsWith("_sum")) {
      sum = value;
    } else {
      points.push({ ...times, attributes, value: { buckets: { boundaries, counts }, sum, count: value } });
      [boundaries, counts, below] = [[], [], 0];
    }
  }
  return points;
}

function hrTime(ms: number): [number, number] {
  return [Math.floor(ms / 1000), Math.round((ms % 1000) * 1e6)];
}
