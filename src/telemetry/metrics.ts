/**
 * The node's metrics, under names that end in their unit: what is counted as it happens (requests, calls,
 * commits, refusals) and what is read when it is asked for (pool, store, process). routes.ts serves them.
 *
 * M1. Every label takes its values from a fixed set (codes, states, route patterns) or from the pool's bounded list of
 *     instance classes; only function-series.ts, which has a bound of its own, knows names.
 */
import { readdirSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { Counter, Gauge, Registry } from "prom-client";
import type { PoolTotals } from "../../pool/index.ts";
import { ERRORS } from "../base/errors.ts";
import type { Served } from "../base/request-observer.ts";
import type { InvocationRecord, InvocationStatus } from "../functions/schema.ts";
import type { StoreStats } from "../store/store.ts";
import { Distribution, type Values } from "./distribution.ts";
import { FunctionSeries } from "./function-series.ts";
import { addMachineSeries, type MachineSources } from "./machine-series.ts";
import { MessageSeries } from "./message-series.ts";
import { addProfileSeries, type ProfileSample } from "./profile-series.ts";
import { ServiceSeries } from "./service-series.ts";

export interface MetricsOptions {
  readonly version: string;
  readonly node_id: string;
  /** Read whenever the metrics are asked for. */
  readonly sources: {
    readonly pool: () => PoolTotals;
    readonly store: () => StoreStats;
    readonly socket_memory: () => {
      readonly tcp_bytes: number;
      readonly udp_bytes: number;
      readonly tcp_max_bytes: number;
    };
    readonly machine: MachineSources;
    readonly profiles: () => readonly ProfileSample[];
    readonly log_dropped_count: () => number;
    /** Counts processor time of idle instances up to now (`idled`). */
    readonly countIdleCpu: () => void;
    /** Entries of the audit log that were not written. */
    readonly audit: () => { readonly dropped_count: number; readonly suppressed_count: number };
  };
}

/** What the series are refreshed from. */
interface Now {
  readonly pool: PoolTotals;
  readonly store: StoreStats;
}

/** Seconds, from the fastest warm call to the longest timeout. */
const CALL_BUCKETS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600,
];
const REQUEST_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30, 300, 3_600];
const COMMIT_BUCKETS = [0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1];
const BATCH_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
const STATUSES: readonly InvocationStatus[] = ["success", "failed", "timeout", "cancelled"];
const LAG_QUANTILES = [0.5, 0.99, 1];
/** The sampling interval, which Node counts into every sample. */
const LAG_RESOLUTION_MS = 20;

export class Metrics {
  readonly #registry = new Registry();
  readonly #functions = new FunctionSeries();
  readonly #sources: MetricsOptions["sources"];
  readonly #lag = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  readonly #requests: Distribution;
  /** By route, method and class of status; made when first answered (M1). */
  readonly #by_route = new Map<string | null, Map<string, Values[]>>();
  readonly #refusals: Counter<string>;
  readonly #operations: Counter<string>;
  readonly #builds: Counter<string>;
  readonly #warm: Readonly<Record<InvocationStatus, Values>>;
  readonly #cold: Readonly<Record<InvocationStatus, Values>>;
  readonly #waits: Values;
  readonly #batches: Values;
  readonly #commits: Values;
  /** Published services. */
  readonly services: ServiceSeries;
  readonly messages: MessageSeries;
  readonly #refreshers: ((now: Now) => void)[] = [];

  constructor({ version, node_id, sources }: MetricsOptions) {
    this.#sources = sources;
    this.#requests = this.#distribution(
      "hearth_http_request_duration_seconds",
      "Duration of HTTP requests from headers to response, by route pattern and status class.",
      REQUEST_BUCKETS,
    );
    this.#refusals = this.#counter("hearth_refusals_total", "Refused and failed requests, by error code.", [
      "error_code",
    ]);
    for (const error_code of Object.keys(ERRORS)) this.#refusals.inc({ error_code }, 0);
    const ended = "Ended operations, by type and status.";
    this.#operations = this.#counter("hearth_operations_total", ended, ["operation_type", "status"]);
    const calls = this.#distribution(
      "hearth_invocation_duration_seconds",
      "Duration of calls from arrival to outcome, by warm or cold start and outcome.",
      CALL_BUCKETS,
    );
    const byStatus = (start: string) =>
      Object.fromEntries(STATUSES.map((status) => [status, calls.series({ start, status })])) as Record<
        InvocationStatus,
        Values
      >;
    this.#warm = byStatus("warm");
    this.#cold = byStatus("cold");
    this.#waits = this.#distribution(
      "hearth_queue_wait_seconds",
      "Time of calls in the queue, from arrival to hand-over to an instance.",
      CALL_BUCKETS,
    ).series();
    const batches = "hearth_store_batch_items";
    this.#batches = this.#distribution(batches, "Writes in one commit.", BATCH_BUCKETS).series();
    const commits = "hearth_store_commit_duration_seconds";
    this.#commits = this.#distribution(
      commits,
      "Time for which one commit blocked the event loop.",
      COMMIT_BUCKETS,
    ).series();
    this.#readPool();
    this.#readStore();
    this.#readAudit();
    this.#readProcess();
    addMachineSeries(this.#registry, sources.machine);
    this.services = new ServiceSeries(this.#registry);
    this.messages = new MessageSeries(this.#registry);
    this.#builds = addProfileSeries(this.#registry, sources.profiles);
    const info = this.#gauge("hearth_build_info", "Always 1; the labels name the version.", [
      "version",
      "node_version",
      "node_id",
    ]);
    info.set({ version, node_version: process.versions.node, node_id }, 1);
    this.#lag.enable();
  }

  served({ method, route, status, error_code, begun_ms, ended_ms }: Served): void {
    const status_class = Math.floor(status / 100);
    const values = this.#by_route.get(route)?.get(method)?.[status_class];
    (values ?? this.#newRoute(route, method, status_class)).observe((ended_ms - begun_ms) / 1000);
    if (error_code !== null) this.#refusals.inc({ error_code });
  }

  invoked(tenant_id: string, record: InvocationRecord): void {
    const { status, cold_start, timings } = record;
    (cold_start ? this.#cold : this.#warm)[status].observe(timings.total / 1000);
    this.#waits.observe(timings.queue / 1000);
    this.#functions.count(tenant_id, record);
  }

  /** Counts processor time of an instance without a call. */
  idled(tenant_id: string, function_name: string, cpu_ms: number): void {
    this.#functions.idled(tenant_id, function_name, cpu_ms);
  }

  /** Counts a build of a profile that has ended. */
  built(profile: string, outcome: string): void {
    this.#builds.inc({ profile, outcome });
  }

  /** Counts an operation that has ended. */
  ended(operation_type: string, status: string): void {
    this.#operations.inc({ operation_type, status });
  }

  deleted(tenant_id: string, name: string): void {
    this.#functions.forget(tenant_id, name);
  }

  committed(items_count: number, duration_ms: number): void {
    this.#batches.observe(items_count);
    this.#commits.observe(duration_ms / 1000);
  }

  /** For null, the operator, all series as they stand; for a tenant those of its functions: the node's tell of others. */
  registries(tenant_id: string | null): readonly Registry[] {
    this.#sources.countIdleCpu();
    const functions = this.#functions.registry(tenant_id);
    if (tenant_id !== null) return [functions];
    const now = { pool: this.#sources.pool(), store: this.#sources.store() };
    for (const refresh of this.#refreshers) refresh(now);
    return [this.#registry, functions];
  }

  /** Ends the sampling of the event loop. */
  close(): void {
    this.#lag.disable();
  }

  #newRoute(route: string | null, method: string, status_class: number): Values {
    const by_method = this.#by_route.get(route) ?? new Map<string, Values[]>();
    this.#by_route.set(route, by_method);
    const by_class = by_method.get(method) ?? [];
    by_method.set(method, by_class);
    const values = this.#requests.series({ method, route: route ?? "none", status: `${status_class}xx` });
    by_class[status_class] = values;
    return values;
  }

  #readPool(): void {
    const instances = this.#gauge("hearth_pool_instances", "Instances of functions, by state.", ["state"]);
    const cells = this.#gauge(
      "hearth_pool_cells",
      "Started containers that belong to no function yet, by state and instance class.",
      ["state", "class"],
    );
    const targets = this.#gauge("hearth_pool_cells_target", "Cells that an instance class has by its share.", [
      "class",
    ]);
    const queued = this.#gauge("hearth_calls_queued", "Calls waiting for an instance.");
    const running = this.#gauge("hearth_calls_running", "Running calls.");
    this.#refreshers.push(({ pool }) => {
      for (const state of ["warming", "ready", "busy", "recycling", "terminating"] as const) {
        instances.set({ state }, pool[`${state}_count`]);
      }
      for (const gauge of [cells, targets]) gauge.reset();
      for (const { class: key, cells: ready_count, cells_starting, cells_target } of pool.classes) {
        cells.set({ state: "ready", class: key }, ready_count);
        cells.set({ state: "starting", class: key }, cells_starting);
        targets.set({ class: key }, cells_target);
      }
      queued.set(pool.queued);
      running.set(pool.calls_running);
    });
    const totals = {
      hearth_instances_started_total: ["started_count", "Started containers."],
      hearth_instance_start_failures_total: ["start_failed_count", "Failed container starts."],
      hearth_instances_crashed_total: ["crashed_count", "Instances and cells that exited unexpectedly."],
      hearth_instances_evicted_total: ["evicted_count", "Idle instances evicted for capacity."],
      hearth_instances_expired_total: ["expired_count", "Idle instances removed after their keep-alive."],
      hearth_instance_remove_failures_total: ["remove_failed_count", "Failed removals."],
      hearth_cell_hits_total: ["cell_hit_count", "Cold starts with a ready cell."],
      hearth_cell_misses_total: ["cell_miss_count", "Cold starts without a ready cell."],
    } as const;
    for (const [name, [field, help]] of Object.entries(totals)) {
      const counter = this.#counter(name, help);
      this.#refreshers.push(({ pool }) => setCounter(counter, pool[field]));
    }
  }

  #readStore(): void {
    const items = this.#gauge("hearth_store_queue_items", "Writes waiting for a commit.");
    const bytes = this.#gauge("hearth_store_queue_bytes", "Bytes of values waiting for a commit.");
    const wal = this.#gauge("hearth_store_wal_bytes", "Size of the write-ahead log.");
    this.#refreshers.push(({ store }) => {
      items.set(store.queue_count);
      bytes.set(store.queue_bytes);
      wal.set(store.wal_bytes);
    });
  }

  #readAudit(): void {
    const dropped = this.#counter("hearth_audit_dropped_total", "Entries that could not be stored.");
    const suppressed = this.#counter("hearth_audit_suppressed_total", "Refusals above the recorded rate.");
    this.#refreshers.push(() => {
      const { dropped_count, suppressed_count } = this.#sources.audit();
      setCounter(dropped, dropped_count);
      setCounter(suppressed, suppressed_count);
    });
  }

  #readProcess(): void {
    const lag = this.#gauge(
      "hearth_event_loop_lag_seconds",
      "Lag of the event loop since the operator's last scrape; quantile 1 is the maximum.",
      ["quantile"],
    );
    const cpu = this.#counter("hearth_process_cpu_seconds_total", "Processor time of the daemon.", ["mode"]);
    const resident = this.#gauge("hearth_process_resident_memory_bytes", "Resident memory of the daemon.");
    const heap = this.#gauge("hearth_process_heap_used_bytes", "JavaScript heap in use.");
    const fds = this.#gauge("hearth_process_open_fds", "Open file descriptors of the daemon.");
    const sockets = this.#gauge("hearth_socket_memory_bytes", "Bytes in socket buffers of this machine.", ["protocol"]);
    const sockets_max = this.#gauge("hearth_socket_memory_max_bytes", "The kernel's limit of TCP buffer bytes.");
    const uptime = this.#gauge("hearth_process_uptime_seconds", "Seconds since the start of the daemon.");
    const dropped = this.#counter(
      "hearth_log_lines_dropped_total",
      "Log lines dropped because the reader of the log was slow or closed.",
    );
    this.#refreshers.push(() => {
      for (const quantile of LAG_QUANTILES) {
        const ns = quantile === 1 ? this.#lag.max : this.#lag.percentile(quantile * 100);
        const is_empty = this.#lag.count === 0;
        lag.set({ quantile: String(quantile) }, is_empty ? 0 : Math.max(0, ns / 1e9 - LAG_RESOLUTION_MS / 1e3));
      }
      this.#lag.reset();
      const { user, system } = process.cpuUsage();
      cpu.reset();
      cpu.inc({ mode: "user" }, user / 1e6);
      cpu.inc({ mode: "system" }, system / 1e6);
      const { rss, heapUsed } = process.memoryUsage();
      resident.set(rss);
      heap.set(heapUsed);
      fds.set(readdirSync("/proc/self/fd").length);
      const { tcp_bytes, udp_bytes, tcp_max_bytes } = this.#sources.socket_memory();
      sockets.set({ protocol: "tcp" }, tcp_bytes);
      sockets.set({ protocol: "udp" }, udp_bytes);
      sockets_max.set(tcp_max_bytes);
      uptime.set(process.uptime());
      setCounter(dropped, this.#sources.log_dropped_count());
    });
  }

  #distribution(name: string, help: string, bounds: readonly number[]): Distribution {
    return new Distribution({ name, help, bounds, registry: this.#registry });
  }

  #counter(name: string, help: string, labelNames: readonly string[] = []) {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  #gauge(name: string, help: string, labelNames: readonly string[] = []) {
    return new Gauge({ name, help, labelNames, registers: [this.#registry] });
  }
}

function setCounter(counter: Counter<string>, value: number): void {
  counter.reset();
  counter.inc(value);
}
