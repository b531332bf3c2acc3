/** The metrics of a running daemon, as a scraper reads them. */
import { expect } from "vitest";
import { type Daemon, KEY } from "./daemon.ts";
import { type Family, parseExposition, seriesName } from "./exposition.ts";

export class Metrics {
  readonly #families: Map<string, Family>;

  constructor(families: Map<string, Family>) {
    this.#families = families;
  }

  /** A sample's value, 0 where the series is not there. */
  of(name: string, labels: Readonly<Record<string, string>> = {}): number {
    const family = this.#families.get(name.replace(/_(sum|count|bucket)$/, "")) ?? this.#families.get(name);
    expect(family, name).toBeDefined();
    return family?.samples.get(seriesName(name, labels)) ?? 0;
  }

  /** The functions that have series here, as `<tenant>/<name>`. */
  functions(): string[] {
    const series = [...(this.#families.get("hearth_function_duration_seconds_total")?.samples.keys() ?? [])];
    return series.map((one) => one.replace(/^.*\{function="(.*)",tenant_id="(.*)"\}$/, "$2/$1")).sort();
  }
}

/** Reads the metrics of a daemon, with the operator's key unless another is given. */
export async function scrape(daemon: Daemon, key = KEY): Promise<Metrics> {
  const response = await fetch(`${daemon.url}/metrics`, { headers: { "x-api-key": key } });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  return new Metrics(parseExposition(await response.text()));
}
