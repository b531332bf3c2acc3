/** Limits of tenants on a node of these bounds. */
import { type NodeBounds, Quotas } from "../../src/base/tenant-limits.ts";

export function nodeQuotas(bounds: Partial<NodeBounds> = {}): Quotas {
  return new Quotas({
    containers_max: 500,
    instances_max: 1_000,
    memory_budget_mb: 12_288,
    processes_max: 32_768,
    container_memory_mb: 98_304,
    disk_mb: 122_568,
    disk_limit_mb: 1_024,
    store_disk_mb: 245_136,
    image_disk_mb: 245_136,
    ...bounds,
  });
}
