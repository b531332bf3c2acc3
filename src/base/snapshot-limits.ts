/** The bounds of snapshots and of copies of containers, a part of LIMITS. */
export const SNAPSHOT_LIMITS = {
  /** Of one tenant, unless the operator sets another number. */
  tenant_snapshots_default: 1_000,
  /** Part of the storage pool that the snapshots of one tenant may take. */
  tenant_snapshot_disk_ratio: 0.25,
  /** Snapshots by a schedule: how often at most, how many stay, and how often the daemon looks for those that are due. */
  schedule_seconds_min: 60,
  schedule_seconds_max: 31_536_000,
  schedule_keep_max: 1_000,
  schedule_look_ms: 5_000,
  schedules_per_pass: 500,
  schedules_at_once: 32,
  schedules_per_tenant_at_once: 4,
  /** Forks of one request. */
  forks_max: 100,
  /** Forks that are started at once: as many as make two cores busy. */
  fork_starts_at_once: 4,
  /** Longest life of a snapshot that expires: ten years. */
  snapshot_ttl_seconds_max: 315_360_000,
  /** Deadline of each hook of an application-consistent snapshot, and what of its output a failure tells. */
  snapshot_hook_ms: 30_000,
  snapshot_hook_grace_ms: 1_000,
  snapshot_hook_output_bytes: 2_048,
  /** From its acceptance to its end: two hooks, what waits in memory, and the count of its bytes. */
  snapshot_operation_ms: 300_000,
  /** Forks of many containers start one after the other. */
  fork_operation_ms: 1_800_000,
  /** At once, in all and of one tenant. Most of their time hooks take, or starts; the storage pool has bounds of its own. */
  snapshot_operations_at_once: 32,
  snapshot_operations_per_tenant_at_once: 4,
  /** Deadline of the count of a snapshot's bytes, which reads the extents of each of its files. */
  snapshot_space_ms: 30_000,
  /** Counts that are kept, and for how long: whoever polls a snapshot makes no work for the disk. */
  snapshot_spaces_cached: 1_000,
  snapshot_space_cached_ms: 10_000,
  /** Paths of one comparison of snapshots, and the size of what the kernel says of them: some 500 bytes for each new file. */
  differences_max: 10_000,
  differences_bytes_max: 16 * 1024 * 1024,
  differences_ms: 30_000,
  /** Comparisons at once, and with those that wait: of one tenant, which take turns, and of all. */
  comparisons_max: 4,
  comparisons_per_tenant_max: 32,
  comparisons_waiting_max: 256,
  /** How often a clone looks whether its snapshot is complete, if nothing tells it. */
  snapshot_look_ms: 200,
  /** Nodes of a lineage that one answer has. */
  lineage_nodes_max: 1_000,
  /** Snapshots that one round of the periodic work deletes. */
  snapshots_expired_per_pass: 100,
} as const;
