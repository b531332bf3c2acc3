/** The metrics as they are answered. */
import { describe, expect, it } from "vitest";
import { PoolState } from "../../pool/states.ts";
import { totalsOf } from "../../pool/stats.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";
import { telemetryRoutes } from "../../src/telemetry/routes.ts";
import { serving } from "../http/test-server.ts";
import { called } from "./called.ts";

describe("GET /metrics", () => {
  const serve = serving();

  it("counts among what answers hold, for it is as large as there are functions", async () => {
    const settings = { instances_max: 1, starts_max: 1, start_attempts_max: 1 };
    const pool = new PoolState({ ...settings, instance_prefix: "i", default_class: "shell" });
    const metrics = new Metrics({
      version: "1",
      node_id: "node_1",
      sources: {
        pool: () => totalsOf(pool),
        store: () => ({ queue_count: 0, queue_bytes: 0, wal_bytes: 0 }),
        socket_memory: () => ({ tcp_bytes: 0, udp_bytes: 0, tcp_max_bytes: 1 }),
        machine: {
          containers: async () => new Map(),
          storage: async () => ({ size_mb: 1, used_mb: 0, free_mb: 1 }),
          connections: () => ({ used_count: 0, count_max: 1 }),
          flows_refused: async () => 0,
        },
        log_dropped_count: () => 0,
        audit: () => ({ dropped_count: 0, suppressed_count: 0 }),
      },
    });
    try {
      for (let i = 0; i < LIMITS.metrics_functions_max; i++) metrics.invoked("ten_a", called(`function-${i}`));
      const routes = telemetryRoutes({ metrics });
      const { call } = await serve(routes);
      const text = await (await call("GET", "/metrics")).text();
      expect(text).toContain('function="function-999"');
      const full = await serve(routes, {}, { budget: new MemoryBudget(text.length) });
      expect((await full.call("GET", "/metrics")).status).toBe(503);
    } finally {
      metrics.close();
    }
  });
});
