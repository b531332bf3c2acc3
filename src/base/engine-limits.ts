/** The bounds of starts, removals, adoption, logs and the launcher, a part of LIMITS. */
import { DIAGNOSIS_LIMITS } from "./diagnosis-limits.ts";
import { GPU_LIMITS } from "./gpu-limits.ts";

export const ENGINE_LIMITS = {
  ...DIAGNOSIS_LIMITS,
  ...GPU_LIMITS,
  start_timeout_ms: 10_000,
  remove_timeout_ms: 10_000,
  /** Calls in flight of one resident process (CALLS_MAX of protocol.h), and largest `concurrency` of a group of the pool. */
  resident_calls_max: 100,
  /** The newest output of a resident process that belongs to no call. */
  resident_tail_bytes: 4_096,
  /** Deadline for the end of a killed container's processes and groups. */
  reap_wait_ms: 5_000,
  /** Secrets of one instance as files, and their bytes together (protocol.h has the same). */
  secret_files_max: 64,
  secret_files_bytes_max: 256 * 1024,
  /** A failed removal is retried with growing pauses between these two, until it succeeds or the daemon ends. */
  removal_retry_ms_min: 100,
  removal_retry_ms: 5_000,
  /** A request waits this long for the removal of a container: longer than two failed attempts take. */
  removal_wait_ms: 30_000,
  /** Of a container that was deleted; what is left then is removed at the next start. */
  removal_attempts_max: 100,
  /** An idle minit that an earlier process left answers at once; one that does not is removed. */
  adopt_wait_ms: 500,
  /** Leftovers inspected at a time, and removed at a time if a request waits for their removal. */
  leftovers_at_once: 16,
  /** Leftovers removed at a time if no request waits: starts and calls come first. */
  leftovers_removed_at_once: 4,
  /** Deadline for a helper of an earlier process to end by itself. */
  predecessor_wait_ms: 5_000,
  /** Interval between comparisons of running containers with known ones; an unknown one is removed at the second. */
  census_interval_ms: 5_000,
  /** Containers looked at in one go, and the rest before the next go: half a millisecond of work in five. */
  census_slice_count: 25,
  census_rest_ms: 5,
  /** Of a process's command line, the most that is read: it may have 2 MB, in each of a thousand processes. */
  command_line_bytes_max: 4_096,
  /** Command lines that are read at once where all processes of the machine are searched. */
  command_lines_at_once: 16,
  /** Processes in one list, and bytes of their command lines together. */
  process_list_max: 1_024,
  process_list_bytes_max: 1024 * 1024,
  /** Containers whose processes are listed at once, and requests that wait for their turn. */
  process_lists_at_once: 2,
  process_lists_waiting_max: 100,
  /** Lookups of images that run at once, each a process of the launcher, and those that wait for their turn. */
  image_lookups_at_once: 4,
  image_lookups_waiting_max: 1_000,
  /**
   * JSON of an image's configuration, whose history has a line for each instruction of its build. Configurations kept in
   * memory: their environments and commands have bounds of their own, and are some kilobytes.
   */
  image_config_bytes_max: 512 * 1024,
  image_configs_kept: 64,
  /** Volumes and ports that an image declares. */
  image_volumes_max: 64,
  image_ports_max: 256,
  /** Longest pause between two tries to start a launcher in place of one that ended. */
  launcher_retry_ms_max: 5_000,
  /** Attempts at work that needs the launcher, each with another one: a launcher that dies again and again has a cause. */
  launcher_attempts_max: 3,
  /** A container's log: files in a ring and the bytes of one, as runtimes/minit/protocol.h has them. */
  log_segments: 4,
  log_segment_bytes_max: 4 * 1024 * 1024,
  /**
   * Disk for the log and the exit record of a container, in MiB: twice its segments, since the disk writes a changed block
   * elsewhere before it frees the old one.
   */
  log_disk_mb: 33,
  /** Lines of one answer about a log: its bytes are bounded by the ring. */
  log_lines_max: 10_000,
  /** Logs that are looked at at once, each a segment in memory, and requests that wait for their turn. */
  log_reads_max: 4,
  log_reads_waiting_max: 1_000,
  /** Followers of logs, each of which holds log_segments files open, and streams of commands. */
  streams_max: 1_024,
  /** What a follower reads at a time, and how often it looks: at most and at least. */
  log_read_bytes: 64 * 1024,
  log_poll_ms_min: 20,
  log_poll_ms_max: 200,
} as const;
