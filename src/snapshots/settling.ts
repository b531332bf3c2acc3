/**
 * Requests on a snapshot that is being taken: they wait until it is complete, as a clone does. One that another process or
 * a schedule takes is waited for alike.
 */
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { Shares } from "../base/shares.ts";
import type { Operations } from "../operations/service.ts";
import type { SnapshotRow } from "./rows.ts";
import { type Snapshots, unfinished } from "./service.ts";

export interface SettlingOptions {
  readonly snapshots: Snapshots;
  readonly operations: Operations;
  readonly clock: Clock;
}

export class Settling {
  readonly #options: SettlingOptions;
  /** Requests that wait. */
  readonly #shares = new Shares({
    each_max: LIMITS.snapshot_waits_per_tenant_max,
    all_max: LIMITS.snapshot_waits_max,
  });

  constructor(options: SettlingOptions) {
    this.#options = options;
  }

  /**
   * The row of a snapshot that is no longer being taken. Throws NOT_FOUND, also where taking it failed; WRONG_STATE past the
   * deadline of taking one, or if another node holds it; CONCURRENCY_LIMIT, CAPACITY_FULL for too many that wait. `signal`:
   * the client has gone, so that nothing is to be done any more.
   */
  async row(tenant_id: string, id: string, signal?: AbortSignal): Promise<SnapshotRow> {
    const { snapshots, operations, clock } = this.#options;
    const row = await snapshots.held(tenant_id, id);
    if (row.state !== "creating") return row;
    const release = this.#shares.take(tenant_id, tooMany);
    const end_ms = clock.monotonicMs() + LIMITS.snapshot_operation_ms;
    try {
      for (let now = row; ; now = await snapshots.held(tenant_id, id)) {
        if (signal?.aborted === true) throw unfinished(now);
        if (now.state !== "creating") return now;
        if (operations.isDraining) throw new AppError("SHUTTING_DOWN", "the daemon is shutting down");
        if (clock.monotonicMs() >= end_ms) throw unfinished(now);
        await snapshots.changed();
      }
    } finally {
      release();
    }
  }
}

function tooMany(reached: "each_max" | "all_max", max: number): AppError {
  const [code, whose] =
    reached === "each_max"
      ? (["CONCURRENCY_LIMIT", "of the tenant"] as const)
      : (["CAPACITY_FULL", "on this node"] as const);
  return new AppError(code, `too many requests wait for snapshots ${whose} (limit ${max})`, { retry_after: 1 });
}
