/**
 * Every bound in one place: queues, buffers, caches, retries, sizes, defaults. `/api/system/info` shows them and
 * README lists them. A bound is never loosened to make a test pass; a new one comes with its reason.
 */
export const LIMITS = {
  // Requests
  /** A JSON body above this is refused with 413 (an invoke payload travels inside one). */
  body_bytes_max: 8 * 1024 * 1024,
  /** Characters of an `X-Request-Id` that are echoed; anything longer or not printable is replaced. */
  request_id_length_max: 128,
  /** Default and maximum of `limit` on list routes. Above the maximum it is clamped. */
  list_limit_default: 100,
  list_limit_max: 1_000,
  /** Caller cache, one entry per credential seen. */
  credential_cache_entries: 10_000,
  credential_cache_ttl_ms: 60_000,

  // Functions
  function_name_length_max: 128,
  handler_length_max: 64 * 1024,
  description_length_max: 4_096,
  path_length_max: 4_096,
  environment_entries_max: 256,
  /** Names and values together, per map. */
  environment_bytes_max: 128 * 1024,
  memory_limit_mb_min: 256,
  memory_limit_mb_max: 16_384,
  memory_limit_mb_default: 256,
  cpu_limit_percent_min: 1,
  timeout_seconds_min: 1,
  timeout_seconds_max: 3_600,
  timeout_seconds_default: 30,
  max_instances_default: 10,
  max_instances_max: 1_000,
  function_cache_entries: 10_000,

  // Invocations
  /** Each of stdout and stderr; the rest is dropped and a flag set. */
  output_bytes_max: 1024 * 1024,
  /** The payload is also in `HEARTH_PAYLOAD` up to this size (Linux allows 128 KiB per variable). */
  payload_variable_bytes_max: 64 * 1024,
  invocations_kept_per_function: 100_000,
  invocations_kept_seconds: 7 * 24 * 3600,
  prune_interval_ms: 60_000,
  prune_rows_per_pass: 5_000,

  // Pool
  queue_per_function_max: 1_000,
  /** Running instances and cells together on this node. */
  instances_max: 1_000,
  /** Cells kept ready per profile. */
  cells_target: 8,
  /** Containers being started at the same time: more only makes each of them slower on few cores. */
  starts_max: 4,
  /** Attempts to start an instance for one queued call before the call is refused. */
  start_attempts_max: 3,
  /** Process ids per function instance. */
  instance_pids_max: 256,
  keep_alive_ms_default: 300_000,
  keep_alive_ms_min: 60_000,
  keep_alive_ms_max: 600_000,
  /** How long deploy waits for `min_instances` to be ready. */
  deploy_wait_ms: 60_000,

  // Engine
  start_timeout_ms: 10_000,
  remove_timeout_ms: 10_000,
  /** A call that minit has not answered this long after its deadline costs the instance its life. */
  deadline_grace_ms: 1_000,
  /** /tmp and /dev/shm of an instance; what lies there is charged to its memory limit. */
  tmpfs_mb: 512,
  frame_bytes_max: 16 * 1024 * 1024,
  network_slots_ready: 16,

  // Store
  writer_queue_max: 20_000,
  writer_batch_max: 1_000,
  /** The write-ahead log is copied back to the file above this size. */
  wal_checkpoint_bytes: 4 * 1024 * 1024,
  /** Above this size commits wait for the checkpoint, so the log cannot grow without end. */
  wal_bytes_max: 256 * 1024 * 1024,

  // Process
  drain_ms: 20_000,
} as const;
