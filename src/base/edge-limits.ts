/** Bounds of what the daemon exchanges with others beside requests: part of `LIMITS`, with the same rules. */
import { GUI_LIMITS } from "./gui-limits.ts";
import { ICC_LIMITS } from "./icc-limits.ts";
import { SERVICE_LIMITS } from "./service-limits.ts";

export const EDGE_LIMITS = {
  ...GUI_LIMITS,
  ...ICC_LIMITS,
  ...SERVICE_LIMITS,

  // Outgoing requests
  /** The keys of an outside issuer: how long a fetch may take, rest between two of them, how long an answer is good. */
  jwks_timeout_ms: 5_000,
  jwks_cooldown_ms: 30_000,
  jwks_cache_ms: 600_000,
  /** An issuer has a handful of keys of a kilobyte or so; what sends without end is not read on. */
  jwks_bytes_max: 1024 * 1024,
  /** Requests that the daemon itself sends at once: each may hold a thread of the resolver and a descriptor. */
  outgoing_requests_max: 64,
  /** Redirects that one of them follows. */
  outgoing_redirects_max: 5,

  // Rotation of keys
  /** Keys of own access tokens that verify at the same time; a token without a key id is tried with each. */
  token_keys_max: 8,
  /** Keys of secrets in the key file: a rotation that cannot finish keeps its earlier key. */
  secrets_keys_max: 8,
  /** Secrets that one batch of a rotation encrypts again: at most 1 MiB, some 2 ms of the event loop. */
  secrets_batch_rows: 16,
  /** The operator's previous key is good for at most a week. */
  operator_key_overlap_seconds_max: 7 * 24 * 3_600,

  // Secrets
  /** Size of a value: certificates and key files fit. The values of one instance are in memory at the same time. */
  secret_bytes_max: 64 * 1024,
  secret_name_length_max: 64,
  /** Secrets of one tenant, unless the operator sets another limit: some 6 MiB of the store. */
  tenant_secrets_default: 100,

  // Audit log
  /** Days and entries that are kept: of a tenant's changes and of its refusals, some 30 MB together. */
  audit_kept_seconds: 90 * 24 * 3_600,
  audit_changes_kept_per_tenant: 50_000,
  audit_refusals_kept_per_tenant: 10_000,
  /**
   * Merged entries of a tenant's changes beyond those, one for a key and operation: less than `delete_rows_per_pass`, so
   * that each pass deletes. A hundred keys make some five kinds of changes each.
   */
  audit_merged_max: 500,
  /** Entries of a tenant are counted after so many new ones. */
  audit_counted_every: 100,
  /** Tenants with fewer new entries that wait for their count: beyond so many, the next pruning counts theirs too. */
  audit_uncounted_tenants_max: 1_000,
  /** Refusals of one source that are recorded: at once, and for long. A flood of them would fill the disk. */
  audit_refusals_burst: 60,
  audit_refusals_per_second: 1,
  /** A tenant with all its keys, or all callers without one, has so many times that. */
  audit_sources_factor: 10,
  /** Sources whose rate is known; the one seen longest ago is forgotten. */
  audit_sources_max: 10_000,
  /** Characters of a target: the path of a file may be long. */
  audit_target_length_max: 512,
  /** A read looks at so many entries, some milliseconds, and takes so many; an answer makes so many reads. */
  audit_window_rows: 10_000,
  audit_rows_per_read: 500,
  audit_windows_per_answer: 50,

  // CORS
  /** Browsers keep the answer to a preflight request so long; Chromium keeps it at most two hours. */
  cors_max_age_seconds: 600,

  // WebSockets
  /** Open ones of one listener; each costs some 20 KiB beside what waits for it. */
  sockets_max: 1_024,
  /** A message of a client; a pasted text is one message. */
  socket_message_bytes_max: 1024 * 1024,
  /** Bytes that a client has not taken; above it the sender waits. As much as a terminal shows in a second. */
  socket_buffer_bytes: 256 * 1024,
  /** Interval between checks of each socket's credential and silence. */
  socket_tick_ms: 2_000,
  /** A client is asked for a sign of life this often, and cut when none of any kind came for so long. */
  socket_ping_ms: 20_000,
  socket_silence_ms: 60_000,
  /** Deadline for the last bytes and the client's close frame. */
  socket_close_ms: 10_000,

  // Telemetry
  /** Log lines gather so long or up to so many characters before they are written: one write for many requests. */
  log_flush_ms: 100,
  log_chunk_length: 64 * 1024,
  /** Bytes buffered for a slow reader of the log; lines above it are dropped and counted. */
  log_buffer_bytes_max: 1024 * 1024,
  /** Functions with series of their own at /metrics; the least recently called go into one named `other`. */
  metrics_functions_max: 1_000,
  /** Characters of a `tracestate` that is handed on: what W3C asks every party to carry. */
  tracestate_length_max: 512,
  /** Spans that wait for the collector; above it they are dropped. Eight a call, sent in batches. */
  spans_waiting_max: 4_096,
  spans_batch_max: 512,
  /** Traces and deliveries of messages that the daemon remembers, for their sampling and the spans of their acks. */
  message_traces_max: 10_000,
  spans_interval_ms: 1_000,
  /** A collector may take so long to answer, and what is left at the end of the daemon may take so long to go. */
  otlp_timeout_ms: 5_000,
  otlp_end_ms: 2_000,
  /** A collector that does not answer is named in the log so often. */
  otlp_complaint_interval_ms: 60_000,
} as const;
