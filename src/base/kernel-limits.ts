/** Bounds of what one container or instance takes from the kernel, a part of LIMITS (src/engine/README.md). */
export const KERNEL_LIMITS = {
  /** Process ids per function instance. */
  instance_pids_max: 256,
  /** The same of a container. */
  container_pids_max: 1_024,
  /** User ids of instances: this plus the network slot number, above what Debian gives to users and sub-users. */
  instance_uid_base: 700_000_000,
  /**
   * Ids of user namespaces of containers: this plus the slot number times so many. As many as there are users and groups,
   * `nobody` included; within what systemd leaves to containers (524,288 to 1,879,048,191), above the uids of instances,
   * and a multiple of their number, so that the lower half of an id is what it is inside.
   */
  user_namespace_first_id: 10_987 * 65_536,
  user_namespace_ids: 65_536,
  /** Open files per process of an instance. */
  instance_files_max: 4_096,
  /** The same of a container. */
  container_files_max: 16_384,
  /** Terminals of one container (`max` of devpts). The daemon raises kernel.pty.max to hold those of all. */
  container_terminals_max: 64,
  /** /tmp and /dev/shm of an instance; what lies there is charged to its memory limit. */
  tmpfs_mb: 512,
  /** Files and directories in each of them: 1 KiB of kernel memory each, so 128 MiB of the memory limit. */
  tmpfs_inodes_max: 131_072,
  /** The same of /dev, where root in a container may make files. */
  dev_inodes_max: 1_024,
  /** Signals that wait and timers (timer_create) of one uid in a container or instance. */
  pending_signals_max: 4_096,
  /**
   * Parts of this machine's processes (kernel.pid_max) and socket memory (net.ipv4.tcp_mem) for all function instances,
   * and the same for all API containers: the rest is the host's own. And the part of one tenant's containers.
   */
  kind_processes_ratio: 0.4,
  kind_sockets_ratio: 0.4,
  tenant_sockets_ratio: 0.2,
  tenant_processes_ratio: 0.1,
  /** Interval at which weights of instances follow running calls, and the number written each time (some 5 µs each). */
  weights_interval_ms: 100,
  weights_written_max: 100,
  /**
   * Processor time of all processes of an instance without a call, in percent of one core: keep-alives and timers need less. Its part
   * of a tenant's share: fifty such instances compete as one call does. The interval at which the daemon looks for such
   * instances, and how many it limits each time (three small writes and a read).
   */
  idle_cpu_percent: 5,
  idle_share: 0.02,
  idle_look_ms: 500,
  idle_limited_max: 100,
  /** Time that bfq waits for the next request of a reader: longer is fairer and slower. */
  disk_slice_idle_us: 600,
  /** Classes of the uplink: tenants beyond so many share them. */
  uplink_classes: 64,
  /** How long the kernel's maps of tenants may lag: changes in that time share one transaction. */
  attribution_lag_ms: 250,
  /** Of a tenant with more addresses than that; each has as many tracked connections as one address may have. */
  connection_buckets: 8,
  /**
   * Bytes queued in a class: a tenth of a second of the whole uplink, within these bounds. No control group is charged for
   * them; with the smallest packets they may take twenty times as much memory.
   */
  uplink_queue_bytes_min: 131_072,
  uplink_queue_bytes_max: 524_288,
  /** Part of net.ipv4.tcp_mem in use from which the daemon warns: from there to the whole it takes seconds. */
  socket_memory_warn_ratio: 0.75,
} as const;
