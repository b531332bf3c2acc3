/**
 * Every bound in one place: queues, buffers, caches, retries, sizes, defaults. `/api/system/info` shows all of them;
 * limit-texts.ts describes those that a client meets. A bound is never loosened to make a test pass; a new one comes
 * with its reason.
 */
import { ACCESS_LIMITS } from "./access-limits.ts";
import { ACTION_LIMITS } from "./action-limits.ts";
import { BUS_LIMITS } from "./bus-limits.ts";
import { CLI_LIMITS } from "./cli-limits.ts";
import { CODE_LIMITS } from "./code-limits.ts";
import { EDGE_LIMITS } from "./edge-limits.ts";
import { ENGINE_LIMITS } from "./engine-limits.ts";
import { FILE_LIMITS } from "./file-limits.ts";
import { FUNCTION_LIMITS } from "./function-limits.ts";
import { HEALTH_LIMITS } from "./health-limits.ts";
import { ICC_SOCKET_LIMITS } from "./icc-socket-limits.ts";
import { IMAGE_LIMITS } from "./image-limits.ts";
import { JETSTREAM_LIMITS } from "./jetstream-limits.ts";
import { KERNEL_LIMITS } from "./kernel-limits.ts";
import { NETWORK_LIMITS } from "./network-limits.ts";
import { SNAPSHOT_LIMITS } from "./snapshot-limits.ts";
import { STORAGE_POOL_LIMITS } from "./storage-pool-limits.ts";

export const LIMITS = {
  // Requests
  /** A JSON body above this is refused with 413 (an invoke payload travels inside one). */
  body_bytes_max: 8 * 1024 * 1024,
  /**
   * Levels of objects and arrays in a JSON body, and values in it: each value costs up to 1 µs of the event loop, and every
   * valid request needs fewer. A payload above them is sent as a string.
   */
  json_depth_max: 128,
  json_values_max: 65_536,
  /** Unknown fields of a body are counted up to this. */
  unknown_fields_max: 100,
  /** Characters of an `X-Request-Id` that are echoed; anything longer or not printable is replaced. */
  request_id_length_max: 128,
  /** Entries of one page of a list, unless `limit` says fewer. Above it `limit` is clamped. */
  list_limit_max: 1_000,
  /** Characters of a `cursor`; those that the daemon makes have 48. */
  cursor_length_max: 128,
  /** Stored bytes of the records in one list answer: a thousand outputs would be gigabytes. The page ends early. */
  list_bytes_max: 16 * 1024 * 1024,
  /** Caller cache, one entry per credential seen. */
  credential_cache_entries: 10_000,
  credential_cache_chars: 4 * 1024 * 1024,
  credential_cache_ttl_ms: 60_000,
  /** A refused credential is looked up again after this long, so that a new key works at once. */
  credential_refusal_ttl_ms: 1_000,
  /** Characters of a credential; a longer one is refused unread. Tokens of outside issuers carry claims. */
  credential_length_max: 4_096,
  requests_per_second_min: 0.1,
  requests_per_second_max: 1_000_000,
  /**
   * A body in chunks smaller than this on average, after so many of them, ends its connection: each costs some 2 µs and 400
   * bytes, of what is read from a connection at once some hundred thousand.
   */
  body_chunk_bytes_min: 16,
  body_small_chunks_max: 4_096,
  /** After so many chunks smaller than this on average, some 5 ms, a connection is not read for so long. */
  body_chunk_bytes_small: 256,
  body_chunks_rest_ms: 50,
  /** Open connections; each costs a file descriptor, of which machines like this give 20,000. */
  connections_max: 8_000,
  /**
   * The same for the listener inside the bridge, whose clients are handlers: all of them, and those of one instance,
   * so that one that opens connections without end takes them from itself.
   */
  inner_connections_max: 1_024,
  inner_per_address_connections_max: 32,
  /** Those of all instances of one tenant: half, so that it leaves the others theirs. */
  inner_per_tenant_connections_max: 512,
  header_bytes_max: 16 * 1024,
  /** A client has this long to send its headers, its whole request, and its next request on the same connection. */
  headers_timeout_ms: 15_000,
  request_timeout_ms: 60_000,
  connection_idle_ms: 65_000,
  /** How often those three are looked at. */
  connection_check_ms: 1_000,
  /** A body that is too large is read and thrown away up to this: most clients read no answer before they have sent it. */
  refused_body_bytes_max: 64 * 1024 * 1024,
  refused_body_ms: 2_000,
  /**
   * Bodies whose requests run or wait, and answers that clients have not yet taken, of one listener together: a queue of
   * a thousand calls of 8 MiB would be more than the heap has.
   */
  held_bytes_max: 256 * 1024 * 1024,
  /** A JSON body that carries a file or an archive in base64; the rest of it has the bound of every body. */
  base64_body_bytes_max: 192 * 1024 * 1024,
  /** Its decoded content is held in memory up to this, then in a file: so many of a tenant, so many in all (2.3 GB). */
  spool_memory_bytes: 256 * 1024,
  spools_per_tenant_max: 4,
  spools_max: 16,
  /** A body that is handed on as it comes may take long, but each piece of it comes within this. */
  upload_stall_ms: 30_000,
  /** One that holds a spool place has this much in each such time: 64 KiB a second, an hour for the largest upload. */
  spool_bytes_min: 30 * 64 * 1024,
  /** A client that takes nothing of a large answer for this long is cut: it holds what others could have. */
  answer_stall_ms: 30_000,
  /** Headers of a long exec leave after this time at the latest: some clients wait 30 s for them. */
  early_headers_ms: 15_000,
  /** A request that holds no more than this finds room when larger ones do not. */
  held_small_bytes_max: 16 * 1024,
  /** Requests sent on one connection before the one ahead is answered; hardly any client sends a second one. */
  pipelined_requests_max: 4,

  /**
   * At its start the daemon connects to its own address: how long until that has arrived, how often it looks, and how many
   * addresses of a machine it tries.
   */
  self_check_ms: 5_000,
  self_check_look_ms: 5,
  self_check_addresses_max: 16,

  // Terminal sessions
  /** Each holds a shell, a connection to it, and of what nobody looked at up to `terminal_backlog_bytes`. */
  terminal_sessions_max: 256,
  /** A session ends so long after its last client has gone, and so long after it was made. */
  terminal_idle_seconds_default: 1_800,
  terminal_ttl_seconds_default: 14_400,
  /** What a timer can wait: 2^31 milliseconds. */
  terminal_seconds_max: 2_000_000,
  /** Output that the next client is shown: a few thousand lines. */
  terminal_backlog_bytes: 256 * 1024,
  /** Ended sessions of one tenant whose result stays readable, and tenants with such sessions. */
  terminal_ended_kept: 100,
  terminal_ended_tenants_max: 256,
  /** Unseen output of one tenant's ended sessions; the oldest is evicted first. 256 MiB for all tenants. */
  terminal_unseen_bytes_max: 1024 * 1024,
  /** Characters of a frame of a client; the longest that means something has some fifty. */
  terminal_frame_length_max: 4_096,
  terminal_columns_default: 80,
  terminal_columns_max: 1_000,
  terminal_rows_default: 24,
  terminal_rows_max: 1_000,

  // Functions
  name_length_max: 128,
  /** It is one argument of a command, of which Linux allows 128 KiB (MAX_ARG_STRLEN). */
  handler_bytes_max: 64 * 1024,
  description_length_max: 4_096,
  /** PATH_MAX of Linux counts the NUL behind it. */
  path_bytes_max: 4_095,
  environment_entries_max: 256,
  /** Of any map of names in a body; some have less. */
  map_entries_max: 256,
  /** Names and values together, per map. */
  environment_bytes_max: 128 * 1024,
  memory_limit_mb_min: 256,
  memory_limit_mb_max: 16_384,
  memory_limit_mb_default: 256,
  cpu_limit_percent_min: 1,
  cpu_limit_percent_max: 102_400,
  timeout_seconds_min: 1,
  timeout_seconds_max: 3_600,
  timeout_seconds_default: 30,
  /** Functions of a tenant, unless the operator sets another limit: a tenth of those that the daemon keeps in memory. */
  tenant_functions_default: 1_000,
  /** Part of the node's instances, their processes and their memory that one tenant gets: the others keep as much. */
  tenant_instances_ratio: 0.5,
  max_instances_default: 10,
  max_instances_max: 1_000,
  /** Versions kept of a function; a rollback reaches no further back. */
  versions_kept_max: 1_000,
  concurrency_limit_max: 100_000,
  function_cache_entries: 10_000,

  // Invocations
  invocations_kept_per_function: 100_000,
  invocations_kept_seconds: 7 * 24 * 3600,
  prune_interval_ms: 60_000,
  /** One statement deletes at most so many records and so many bytes of them: it runs on the main thread (about 10 ms). */
  delete_rows_per_pass: 1_000,
  delete_bytes_per_pass: 4 * 1024 * 1024,

  /** Tokens of running calls; one call runs per instance, of which the setting allows at most as many. */
  invocation_tokens_max: 10_000,

  // Pool
  queue_per_function_max: 1_000,
  /** Running instances and cells together on this node. */
  instances_max: 1_000,
  /** Cells kept ready, of all instance classes together. */
  cells_target: 8,
  /**
   * Tenants' claims on cells, one for each class that a tenant needed; for a new one the tenant with the most loses its
   * oldest.
   */
  cell_claims_max: 128,
  /** A claim on cells is halved this often: one needed instance keeps a cell for two to three times as long. */
  cell_demand_ms: 60_000,
  /** Containers being started at the same time: more only makes each of them slower on few cores. */
  starts_max: 4,
  /** Attempts to start an instance for one queued call before the call is refused. */
  start_attempts_max: 3,
  /** Containers that are started to see whether they work: one may fail because the machine is busy. */
  user_namespace_probes_max: 3,
  keep_alive_ms_default: 300_000,
  keep_alive_ms_min: 60_000,
  keep_alive_ms_max: 600_000,
  /** Inter-arrival samples kept in a function's histogram; above it all are halved, so that old habits fade. */
  arrival_samples_max: 4_096,
  /** Idle instances of a superseded version: a rollback within this time starts nothing. */
  retired_keep_alive_ms: 300_000,
  /** First and longest pause between failing starts that no call waits for (cells, `min_instances`). */
  start_backoff_ms_min: 1_000,
  start_backoff_ms_max: 60_000,
  /** An instance that stood this long had started well: its end does not count as a failed start. */
  settled_ms: 10_000,
  /** Cells are refilled this long after the last one was taken, so that refilling does not compete with those calls. */
  cell_refill_delay_ms: 20,
  /** An instance that is still being cleaned up this long after its call is removed. */
  recycling_ms_max: 10_000,
  /** An instance that takes no more calls is removed after the longest timeout of a function and 10 s for its launcher. */
  closing_ms_max: 3_610_000,
  /**
   * A queued call leaves it this long to instances in cleanup before another one is started: a cleanup takes about 1 ms,
   * a start from a cell 5 ms, a cold start 25 ms.
   */
  recycling_patience_ms: 5,
  /** Functions that call functions: how deep. Each level may hold one instance beyond the bounds of group and node. */
  chain_depth_max: 8,
  /** How often the memory of all instances is held against its budget, and how often while that is used up. */
  memory_interval_ms: 2_000,
  memory_pressed_interval_ms: 250,
  /** `Retry-After` never promises more than this. */
  retry_after_seconds_max: 60,
  /** A call counts as using the processor for at most this long after its dispatch; then the next may be dispatched. */
  dispatch_phase_ms: 5,
  /** Timers are cut to this; waking early is harmless. */
  wake_ms_max: 60_000,
  /** Scheduler events kept for the report of a fault. */
  recent_events_max: 256,
  /** How long deploy waits for `min_instances` to be ready. */
  deploy_wait_ms: 60_000,
  /** How long pause and delete wait for running calls; delete then ends them. */
  group_close_wait_ms: 10_000,

  // Containers
  /** API containers on this node. */
  containers_max: 500,
  /** Memory of running containers together, as a multiple of the machine's: most use far less than their limit. */
  memory_overcommit_default: 6,
  /** Disk of a container or volume for which none is given, in MiB: a system with its packages. */
  disk_limit_mb_default: 1_024,
  /** Of its tenant's disk, at most. */
  disk_limit_ratio: 1 / 8,
  /** Volumes and terminal sessions of a tenant, unless the operator sets others. */
  tenant_volumes_default: 100,
  tenant_terminals_default: 50,
  /** Part of the store's disk that functions, versions and records of one tenant may take, unless the operator sets another. */
  tenant_storage_ratio: 0.1,
  /** Log lines at a start, each about a tenant and a limit that it exceeds; the others are counted in one line. */
  tenant_excess_lines_max: 100,
  container_memory_mb_default: 512,
  container_volumes_max: 32,
  container_ports_max: 32,
  egress_rules_max: 64,
  egress_rule_length_max: 64,
  /** Ports of this machine that containers may publish: those below are for its own services. */
  host_port_min: 1_024,
  /** Ports of tenants' containers unless set: below those that Linux gives to clients (ip_local_port_range). */
  host_port_first: 20_000,
  host_port_last: 29_999,
  /** A container's own file system. */
  disk_limit_mb_min: 16,
  disk_limit_mb_max: 1_048_576,
  /** What one that has filled its own has more while its root is mounted: overlayfs makes a directory. */
  root_room_mb: 1,
  labels_max: 64,
  label_length_max: 256,
  image_reference_length_max: 512,
  image_references_max: 1_000,
  /** `<user>:<group>`; names have at most 32 characters (useradd(8)). */
  user_length_max: 128,
  /** One argument (MAX_ARG_STRLEN of Linux), all of them, and their number. */
  argument_bytes_max: 128 * 1024 - 1,
  arguments_bytes_max: 1024 * 1024,
  arguments_max: 4_096,
  batch_items_max: 100,
  /** Failed items that the message of a batch names; `items` has all. An error text is some 100 characters. */
  batch_failures_named_max: 5,
  /** Thirty days. */
  container_seconds_max: 30 * 24 * 3_600,
  exec_timeout_ms_default: 30_000,
  exec_timeout_ms_max: 3_600_000,
  /** Execs, streams and terminals at once in one container, and on this node. */
  execs_per_container_max: 250,
  execs_max: 2_000,
  /** What of a stream waits for its reader in this process; above it the command waits. */
  stream_buffer_bytes: 1024 * 1024,
  /** How long the output of a container that is made to be attached to waits for its first client. */
  attach_hold_ms: 10_000,
  /** A client that attaches later, and takes nothing for so long, is detached: a service does not wait for who looks at it. */
  attach_stall_ms: 30_000,
  /** How long an open WebSocket of an exec may be without the request for its command. */
  exec_request_ms: 10_000,
  /** Between SIGTERM at the deadline and SIGKILL. */
  exec_grace_ms: 2_000,
  /** An exec that runs for longer has its record and its event before its end. */
  exec_noted_ms: 1_000,
  /** Execs of a tenant that emit events, in a minute: two each, of the 10,000 events that are kept. */
  exec_events_per_window_max: 60,
  exec_events_window_ms: 60_000,
  /** Tenants with execs that emitted no event: beyond so many, the count of the tenant that execs least recently is lost. */
  exec_events_omitted_tenants_max: 1_000,
  /**
   * Records of execs that a container keeps, and of those with more output than this the number that keep it: with 1 MiB of
   * each stream some 45 MiB in all.
   */
  jobs_per_container_max: 200,
  job_output_bytes_small: 64 * 1024,
  jobs_large_max: 16,
  /** Lines of a log unless given; log_lines_max is the most. */
  log_lines_default: 100,
  /** An operation that moves files: an archive, the removal of a volume. */
  tree_operation_ms: 3_600_000,
  /** An archive as it is sent. */
  upload_bytes_max: 64 * 1024 * 1024 * 1024,
  /** An operation that starts or removes one container. */
  container_operation_ms: 60_000,
  stop_grace_ms_default: 10_000,
  stop_grace_ms_max: 300_000,
  /** A container whose first process does not answer to its end is ended from outside after this long. */
  container_kill_wait_ms: 2_000,
  /** First and longest pause before a restart policy starts a container again; one that ran that long begins anew. */
  restart_backoff_ms_min: 100,
  restart_backoff_ms_max: 60_000,
  restart_settled_ms: 10_000,
  /** How often at least, and at most, it is looked whether a container's time is up or nobody has used it for long. */
  container_look_ms: 1_000,
  container_look_ms_min: 20,
  /** What expires at a time in seconds: the longest wait of its timer, and the pause after a removal before the next. */
  expiry_look_ms_max: 60_000,
  expiry_retry_ms: 500,
  ...HEALTH_LIMITS,
  /** How long a container's first process may take to say that it lives. */
  readiness_wait_ms: 1_000,

  // Engine
  ...ENGINE_LIMITS,
  /** A call that minit has not answered this long after its deadline costs the instance its life. */
  deadline_grace_ms: 1_000,
  frame_bytes_max: 16 * 1024 * 1024,
  /** A container's minit greets and answers at once; one that does not is stopped, or its node has no time for it. */
  minit_answer_ms: 5_000,
  /** Input for a command is cut into frames of this size, so that none of them is held whole in its container. */
  stdin_frame_bytes_max: 64 * 1024,
  /** A command that was killed and of which nothing is heard for this long: its connection is closed instead. */
  exec_kill_ms: 2_000,
  /** Starts and removals that may wait for a worker thread. */
  engine_tasks_max: 12_000,
  ...NETWORK_LIMITS,

  ...FILE_LIMITS,
  ...STORAGE_POOL_LIMITS,
  ...ACCESS_LIMITS,
  ...ACTION_LIMITS,
  ...BUS_LIMITS,
  ...JETSTREAM_LIMITS,

  // Events
  /** Of one tenant; the oldest go first. A reader that comes back later is told that some are missing. */
  events_kept_per_tenant: 10_000,
  events_kept_seconds: 7 * 24 * 3600,
  /** A tenant's events are counted again after so many new ones: the bound above is passed by no more than these. */
  events_counted_every: 500,
  /** Of one event's data. Events tell that something changed; what it is now is read from where it is. */
  event_bytes_max: 4 * 1024,
  /** Rows that are read at once, for a reader that catches up or for all that follow. */
  event_page_rows: 100,
  /** What a reader has not taken; above it it is cut, and resumes by the id that it saw last. */
  event_stream_bytes_max: 256 * 1024,
  /** Readers of one tenant, and of all: each costs a connection and at most the bytes above. */
  event_streams_per_tenant_max: 64,
  event_streams_max: 512,
  /** Proxies and clients give a silent stream up after a minute or so; a revoked key ends one within this too. */
  event_heartbeat_ms: 15_000,
  /** What a reader that was cut should wait before it comes back. */
  event_retry_ms: 1_000,

  // Operations
  /** Accepted and not ended: of one tenant, and of all. */
  operations_open_per_tenant_max: 500,
  operations_open_max: 5_000,
  /** Under way at once: in all, of one tenant (others have their turn), of one type unless the type says less. */
  operations_running_max: 64,
  operations_running_per_tenant_max: 32,
  /** The longest that a type may allow; a timer of Node's holds 24 days. */
  operation_timeout_ms_max: 24 * 3_600_000,
  operations_kept_per_tenant: 10_000,
  operations_kept_seconds: 7 * 24 * 3600,
  /** What one is asked to do: as much as a request's body. */
  operation_input_bytes_max: 8 * 1024 * 1024,
  /** Of finished steps, and of what came out: result, items, warnings. */
  operation_journal_bytes_max: 256 * 1024,
  operation_result_bytes_max: 1024 * 1024,
  /** Characters of a message; a progress bar has one line. */
  operation_message_length_max: 1_000,
  /** Progress is written at most so often. */
  operation_progress_interval_ms: 500,
  /** How long one that was cancelled, or is past its deadline, may take to stop before it is recorded as ended. */
  operation_stop_ms: 10_000,
  /** At the end of the daemon one that the next start can take up has this long to finish. */
  operation_drain_ms: 2_000,
  /** How long a request may wait for one (`execution=sync`); after it the answer is the handle. */
  operation_wait_ms_max: 600_000,
  /** `wait_seconds` of a look-up. */
  operation_wait_seconds_max: 60,
  /** An end that cannot be stored is tried again so often, at this interval; the next start then finds it open. */
  operation_end_attempts_max: 30,
  operation_end_retry_ms: 1_000,

  // Idempotency-Keys
  idempotency_key_length_max: 255,
  /** A client that saw no answer tries again within minutes; a queue of the client's own may take hours. */
  idempotency_kept_seconds: 24 * 3600,
  /** Records of one tenant; the oldest go first. A record takes about a kilobyte. */
  idempotency_keys_per_tenant_max: 10_000,
  idempotency_bytes_per_tenant_max: 16 * 1024 * 1024,
  /** A tenant's records are counted again after so many new ones, or as many bytes as one answer may have. */
  idempotency_counted_every: 500,
  /** Of one answer. The result of an operation is the largest part that an answer has, and is bounded by 1 MiB. */
  idempotency_body_bytes_max: 4 * 1024 * 1024,

  // Store
  writer_queue_max: 20_000,
  /** Bytes of values that may wait for a commit, beside the count above: a few hundred full outputs. */
  writer_queue_bytes_max: 256 * 1024 * 1024,
  writer_batch_max: 1_000,
  /** A commit runs on the main thread, so one transaction takes at most this many bytes of values (about 10 ms). */
  writer_batch_bytes_max: 4 * 1024 * 1024,
  /** Prepared statements kept per connection, oldest out first. */
  store_statements_max: 256,
  /** Rows one read may return: lists are paged, so more is a fault. */
  store_read_rows_max: 100_000,
  /** Page cache of each connection. */
  store_cache_bytes: 16 * 1024 * 1024,
  /** Only another process that writes to the file can make the store wait: one daemon per data directory holds. */
  store_busy_timeout_ms: 1_000,
  /** Deadline for one answer of a store on a server. */
  store_answer_ms: 10_000,
  /** A checkpoint that takes longer counts as failed. */
  checkpoint_timeout_ms: 30_000,
  /** The write-ahead log is copied back to the file above this size. */
  wal_checkpoint_bytes: 4 * 1024 * 1024,
  /** A log of this size is begun again, for which commits wait a few ms: on a short log they are twice as fast. */
  wal_restart_bytes: 16 * 1024 * 1024,
  /** Disk space that records of calls leave to deletions and changes of state; a checkpoint may need all of the log's size. */
  store_reserve_bytes: 32 * 1024 * 1024,
  /** How often a full disk is looked at for room. */
  store_reserve_look_ms: 250,
  /** Above this size commits wait for the checkpoint, so the log cannot grow without end. */
  wal_bytes_max: 256 * 1024 * 1024,

  ...CLI_LIMITS,
  ...CODE_LIMITS,
  ...FUNCTION_LIMITS,
  ...ICC_SOCKET_LIMITS,
  ...IMAGE_LIMITS,
  ...KERNEL_LIMITS,
  ...SNAPSHOT_LIMITS,
  ...EDGE_LIMITS,

  drain_ms: 20_000,
} as const;
