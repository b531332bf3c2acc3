/** The metrics of a node as each tenant and the operator read them. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { step } from "../../pool/scheduler.ts";
import type { PoolState } from "../../pool/states.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Metrics } from "../../src/telemetry/metrics.ts";
import { eventually } from "../support/daemon.ts";
import { poolMetrics } from "./pool-metrics.ts";

let pool: PoolState;
let metrics: Metrics;
beforeEach(() => {
  ({ pool, metrics } = poolMetrics());
});
afterEach(() => metrics.close());

/** Returns the metrics that the tenant reads; null is the operator. */
async function textOf(tenant_id: string | null): Promise<string> {
  const texts = await Promise.all(metrics.registries(tenant_id).map((registry) => registry.metrics()));
  return texts.join("\n");
}

describe("the cells", () => {
  it("are shown by state and class, and those of a class without need not any more", async () => {
    const cells = async () => (await textOf(null)).match(/^hearth_pool_cells.*$/gm)?.sort();
    let now_ms = 0;
    step(pool, { type: "adopted", instance: "old", class: "other", group: null, now_ms });
    step(pool, { type: "cells_set", target: 1, now_ms });
    expect(await cells()).toEqual([
      'hearth_pool_cells_target{class="other"} 1',
      'hearth_pool_cells_target{class="shell"} 0',
      'hearth_pool_cells{state="ready",class="other"} 1',
      'hearth_pool_cells{state="ready",class="shell"} 0',
      'hearth_pool_cells{state="starting",class="other"} 0',
      'hearth_pool_cells{state="starting",class="shell"} 0',
    ]);
    for (let i = 0; i < 3; i++) {
      now_ms += LIMITS.cell_demand_ms;
      step(pool, { type: "woken", now_ms });
    }
    expect(await cells()).toEqual([
      'hearth_pool_cells_target{class="shell"} 1',
      'hearth_pool_cells{state="ready",class="shell"} 0',
      'hearth_pool_cells{state="starting",class="shell"} 0',
    ]);
  });
});

describe("the lag of the event loop", () => {
  /** In seconds, the longest. */
  async function longestLag(tenant_id: string | null): Promise<number> {
    return Number(/^hearth_event_loop_lag_seconds\{quantile="1"\} (\S+)$/m.exec(await textOf(tenant_id))?.[1]);
  }

  it("is there for the operator, whatever tenants have read, and for no tenant", async () => {
    // A reading begins anew: some turns are late before the operator's.
    const turns = { count: 0 };
    await eventually("the loop was late", async () => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
      expect(await longestLag("ten_a")).toBeNaN();
      return ++turns.count === 5;
    });
    const seen = await longestLag(null);
    expect(seen).toBeGreaterThan(0);
  });
});
