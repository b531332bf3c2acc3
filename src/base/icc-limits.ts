/** Bounds of messages between containers: part of `LIMITS`, with the same rules. */
export const ICC_LIMITS = {
  // Envelopes
  /** Size of an encoded envelope, payload included. */
  icc_message_bytes_max: 1024 * 1024,
  /** Growth of an envelope through new addresses and identifiers: a copy is at most this much above the limit. */
  icc_rewrite_bytes_max: 16 * 1024,
  /** Fields in an envelope, entries of lists and maps and unknown fields included: each costs an object. */
  icc_envelope_fields_max: 10_000,
  /** Entries of one list or map in a JSON message: a list and a map of an envelope, 3 fields an entry, stay below. */
  icc_list_entries_max: 2_000,
  /** Levels of nested groups in unknown fields; the envelope itself has four levels. */
  icc_envelope_depth_max: 16,
  /** Bytes of each identifier, address and key. */
  icc_id_bytes_max: 256,
  /** A sender's clock may be an hour ahead of the daemon's; the rest is the margin for its drift. */
  icc_clock_skew_ms: 65 * 60_000,
  /** The daemon keeps a message for at most 7 days, whatever its ttl_ms. */
  icc_message_kept_ms: 7 * 24 * 3_600_000,

  // Topics and function bindings
  /** Subscribers of one topic, each of which costs an entry in the commit of a publish. */
  topic_subscribers_max: 1_000,
  tenant_subscriptions_max: 10_000,
  /** Bytes of the copies of one publish: all of them are in memory until their commit. */
  message_copies_bytes_max: 64 * 1024 * 1024,
  /** Function bindings of a tenant; each publish of the tenant is matched against them. */
  tenant_bindings_max: 100,
  /**
   * Calls in flight of one binding, of all bindings of a tenant, and of all bindings of the node, above which each tenant still has
   * one. Each call holds a message.
   */
  binding_concurrency_default: 4,
  binding_concurrency_max: 16,
  tenant_binding_calls_max: 32,
  binding_calls_max: 128,
  /** Lease of a message, which the daemon extends while the call runs: after a crash the message is delivered then. */
  binding_lease_ms: 30_000,
  binding_lease_extended_ms: 10_000,
  /** Pauses after a failed delivery, doubled with each up to the maximum. */
  binding_backoff_ms_default: 1_000,
  binding_backoff_ms_min: 50,
  binding_backoff_ms_max: 15 * 60_000,
  /** Pauses while a function takes no calls, doubled with each up to the maximum. */
  binding_pause_ms_min: 100,
  binding_pause_ms_max: 10_000,
  binding_max_deliver_max: 100,
  /** Characters of the reason of a dead letter, and of the last error of a binding. */
  binding_error_length_max: 1_000,
} as const;
