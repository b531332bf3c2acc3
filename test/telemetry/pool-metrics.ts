/** The metrics of a pool, for a node whose machine, store and log report nothing. */
import { PoolState } from "../../pool/states.ts";
import { totalsOf } from "../../pool/stats.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";

/** Returns an empty pool and its metrics, which the test closes. */
export function poolMetrics(): { readonly pool: PoolState; readonly metrics: Metrics } {
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
        images: async () => ({ count: 0, size_bytes: 0 }),
        image_disk: () => ({ size_bytes: 0, used_bytes: 0 }),
        gpus: async () => ({ count: 2, held_count: 1 }),
        flows_refused: async () => 0,
      },
      profiles: () => [],
      log_dropped_count: () => 0,
      countIdleCpu: () => {},
      audit: () => ({ dropped_count: 0, suppressed_count: 0 }),
    },
  });
  return { pool, metrics };
}
