/** Monitors of containers: a view of their rows, of their first processes, and of the checks that the daemon makes. */
import { type Clock, type EpochMs, toEpochSeconds } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Listed, Place } from "../../base/paging.ts";
import type { Engine } from "../../engine/ports.ts";
import type { Store, StoredNode } from "../../store/store.ts";
import type { HealthChecks } from "../health/checks.ts";
import { type ContainerRow, ContainerRows } from "../rows.ts";
import type { Supervisor } from "../supervisor.ts";
import type { MonitorRecord, MonitorStatus } from "./schema.ts";

/** A source of checks of containers. */
export interface Watchers {
  readonly supervisor: Pick<Supervisor, "looksAt">;
  readonly health: Pick<HealthChecks, "checksOf">;
}

export interface MonitorsOptions {
  readonly containers: {
    readonly watchers: Watchers;
    row(tenant_id: string, id: string): Promise<ContainerRow>;
  };
  readonly engine: Engine;
  readonly store: Store;
  readonly node: StoredNode;
  readonly clock: Clock;
}

export class Monitors {
  readonly #options: MonitorsOptions;
  readonly #rows: ContainerRows;

  constructor(options: MonitorsOptions) {
    this.#options = options;
    this.#rows = new ContainerRows(options.store, options.node);
  }

  list(tenant_id: string, place: Place): Promise<Listed<MonitorRecord>> {
    return this.#rows.listStarted(tenant_id, place, (row) => this.#record(row));
  }

  /** Throws NOT_FOUND, also for a container that never started. */
  async get(tenant_id: string, id: string): Promise<MonitorRecord> {
    const row = await this.#options.containers.row(tenant_id, id);
    if (row.state !== "created") return this.#record(row);
    throw new AppError("NOT_FOUND", `container '${row.name}' has no monitor: it was never started`);
  }

  processes(tenant_id: string, place: Place) {
    return this.#rows.list(tenant_id, { state: "running" }, place, (row) => {
      return { ...this.#record(row), process_count: this.#options.engine.containers.processesIn(row.id) };
    });
  }

  async profile(tenant_id: string) {
    const { engine, clock } = this.#options;
    const counts = { monitoring: 0, completed: 0, failed: 0, aborted: 0 };
    for (const { count, ...end } of await this.#rows.endCounts(tenant_id)) counts[statusOf(end)] += count;
    return {
      container_count: Object.values(counts).reduce((sum, count) => sum + count, 0),
      monitoring_count: counts.monitoring,
      completed_count: counts.completed,
      failed_count: counts.failed,
      aborted_count: counts.aborted,
      process_count: engine.containers.processCount(tenant_id),
      check_interval_seconds: LIMITS.container_look_ms / 1_000,
      profiled_at: toEpochSeconds(clock.epochMs()),
    };
  }

  #record(row: ContainerRow): MonitorRecord {
    const { supervisor, health } = this.#options.containers.watchers;
    const [looks, checks] = [supervisor.looksAt(row.id), health.checksOf(row.id)];
    const latest_ms = Math.max(looks.at_ms ?? 0, checks.at_ms ?? 0);
    const seconds = (ms: EpochMs | null) => (ms === null ? null : toEpochSeconds(ms));
    return {
      container_id: row.id,
      container_name: row.name,
      pid: this.#options.engine.containers.live(row.id)?.pid ?? null,
      status: statusOf(row),
      started_at: seconds(row.started_at_ms),
      last_check: latest_ms === 0 ? null : seconds(latest_ms),
      check_count: looks.count + checks.count,
      error_message: row.error_message,
    };
  }
}

type End = Pick<ContainerRow, "state" | "is_wanted" | "exit_code" | "error_message">;

function statusOf({ state, is_wanted, exit_code, error_message }: End): MonitorStatus {
  if (state === "starting" || state === "running") return "monitoring";
  if (state === "error" || error_message !== null) return "failed";
  if (!is_wanted) return "aborted";
  return exit_code === 0 ? "completed" : "failed";
}
