/** Series of published services: how many there are, what is in progress, and the responses by status class and refusal. */
import { Counter, Gauge, type Registry } from "prom-client";
import type { ErrorCode } from "../base/errors.ts";

/** Is read for each scrape. */
type ServiceSource = () => { readonly count: number; readonly active_count: number };

export class ServiceSeries {
  readonly #responses: Counter<string>;
  readonly #refusals: Counter<string>;
  #source: ServiceSource = () => ({ count: 0, active_count: 0 });

  constructor(registry: Registry) {
    const registers = [registry];
    const gauge = (name: string, help: string, read: () => number) => {
      const series: Gauge = new Gauge({ name, help, registers, collect: () => series.set(read()) });
    };
    gauge("hearth_services", "Published services that this node serves.", () => this.#source().count);
    const active = "Requests and WebSockets to published services in progress.";
    gauge("hearth_service_requests_active", active, () => this.#source().active_count);
    this.#responses = new Counter({
      name: "hearth_service_responses_total",
      help: "Responses of published services and refusals of requests to them, by status class.",
      labelNames: ["status"],
      registers,
    });
    this.#refusals = new Counter({
      name: "hearth_service_refusals_total",
      help: "Requests to published services that the daemon refused, or whose container failed, by error code.",
      labelNames: ["error_code"],
      registers,
    });
  }

  /** Reads the counts from `source` from now on. */
  read(source: ServiceSource): void {
    this.#source = source;
  }

  /** Counts a response. `error_code`: of the daemon's own; null: it is the container's. */
  served(status: number, error_code: ErrorCode | null): void {
    this.#responses.inc({ status: `${Math.floor(status / 100)}xx` });
    if (error_code !== null) this.#refusals.inc({ error_code });
  }
}
