/** The metrics as they are answered. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { telemetryRoutes } from "../../src/telemetry/routes.ts";
import { serving } from "../http/test-server.ts";
import { called } from "./called.ts";
import { poolMetrics } from "./pool-metrics.ts";

describe("GET /metrics", () => {
  const serve = serving();

  it("counts among what answers hold, for it is as large as there are functions", async () => {
    const { metrics } = poolMetrics();
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
