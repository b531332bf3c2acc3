/** The bounds of snapshots and of copies of containers, a part of LIMITS. */
export const SNAPSHOT_LIMITS = {
  /** Of one tenant, unless the operator sets another number. */
  tenant_snapshots_default: 1_000,
  /** Part of the storage pool that the snapshots of one tenant may take. */
  tenant_snapshot_disk_ratio: 0.25,
  /** Schedules: bounds of the interval and of `keep`; the daemon queries the due ones every `schedule_look_ms`. */
  schedule_seconds_min: 60,
  schedule_seconds_max: 31_536_000,
  schedule_keep_max: 1_000,
  schedule_look_ms: 5_000,
  schedules_per_pass: 500,
  schedules_at_once: 32,
  schedules_per_tenant_at_once: 4,
  /** Forks of one request. */
  forks_max: 100,
  /** Forks that start at once: these keep two cores busy. */
  fork_starts_at_once: 4,
  /** Longest life of a snapshot that expires: ten years. */
  snapshot_ttl_seconds_max: 315_360_000,
  /** Deadline of each hook of an application-consistent snapshot, and the part of its output that a failure reports. */
  snapshot_hook_ms: 30_000,
  snapshot_hook_grace_ms: 1_000,
  snapshot_hook_output_bytes: 2_048,
  /** Deadline of a snapshot from acceptance to end: two hooks, a sync of the written data, the count of its bytes. */
  snapshot_operation_ms: 300_000,
  /** Forks of many containers start one after the other. */
  fork_operation_ms: 1_800_000,
  /** Operations at once, in all and of one tenant. Hooks and starts dominate; the storage pool has its own bounds. */
  snapshot_operations_at_once: 32,
  snapshot_operations_per_tenant_at_once: 4,
  /** Deadline of the count of a snapshot's bytes, which reads the extents of each of its files. */
  snapshot_space_ms: 30_000,
  /** The daemon caches this many counts for this long: a client that polls a snapshot causes no reads from the disk. */
  snapshot_spaces_cached: 1_000,
  snapshot_space_cached_ms: 10_000,
  /** Paths of one comparison of snapshots, and the size of the kernel's stream for it: some 500 bytes for each new file. */
  differences_max: 10_000,
  differences_bytes_max: 16 * 1024 * 1024,
  differences_ms: 30_000,
  /** Comparisons at once; running and queued ones of one tenant; queued ones of all tenants, who take turns. */
  comparisons_max: 4,
  comparisons_per_tenant_max: 32,
  comparisons_waiting_max: 256,
  /** Requests that wait for a snapshot that is being taken, of one tenant and of all. */
  snapshot_waits_per_tenant_max: 64,
  snapshot_waits_max: 512,
  /** Who waits for a snapshot polls its state at this interval, in case no notification arrives. */
  snapshot_look_ms: 200,
  /** Nodes of a lineage in one response. */
  lineage_nodes_max: 1_000,
  /** Snapshots that one round of the periodic work deletes. */
  snapshots_expired_per_pass: 100,
} as const;
