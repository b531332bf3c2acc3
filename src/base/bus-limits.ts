/** Bounds of messages between containers and of their inboxes: part of `LIMITS`, with the same rules. */
export const BUS_LIMITS = {
  /** Entries of an inbox that nobody has settled; a publish above it is refused until a receiver catches up. */
  inbox_unread_max: 10_000,
  /** Part of the store's disk that the messages of a tenant may fill, unless the operator sets another limit. */
  tenant_messages_ratio: 0.05,
  /** Inboxes of a tenant, those of its queues, topics and bindings included. */
  tenant_inboxes_max: 5_000,
  /** Retention of an idempotency key of an inbox. */
  idempotency_key_kept_ms: 86_400_000,
  /** A lease: how long a receiver holds an entry, unless it asks for another time within these bounds. */
  lease_default_ms: 30_000,
  lease_min_ms: 100,
  lease_max_ms: 12 * 3_600_000,
  /** Deliveries of an entry until it is a dead letter, unless the receiver asks for another number. */
  max_deliver_default: 5,
  max_deliver_max: 1_000,
  /** Entries of an inbox that receivers hold at the same time. */
  inbox_leases_max: 1_000,
  /** Entries of one answer, and the bytes of their envelopes, one entry at least. */
  entries_read_max: 1_000,
  entries_read_bytes_max: 4 * 1024 * 1024,
  /** Targets of one broadcast, of messages and of commands; entries of one replay. */
  broadcast_targets_max: 1_000,
  broadcast_commands_at_once: 8,
  /** Bytes of copies of one broadcast that are on their way to the store at the same time. */
  broadcast_bytes_at_once: 4 * 1024 * 1024,
  broadcast_copies_at_once: 128,
  /** Output of all commands of one broadcast in its answer; a command above it has none there. */
  broadcast_output_bytes_max: 16 * 1024 * 1024,
  replay_entries_max: 1_000,
  /** Longest wait of a receive or a request; concurrent waits of a tenant, of all tenants, and of a tenant if all are taken. */
  message_wait_ms_max: 60_000,
  message_waits_per_tenant_max: 512,
  message_waits_max: 4_096,
  message_waits_always_max: 8,
  /** Entries of one answer, unless `limit` says another number. */
  entries_read_default: 100,
  /** Inboxes that the daemon keeps facts of in memory, beyond those in use. */
  inboxes_cached_max: 20_000,
  /** Rows that one transaction of a clean-up reads or deletes, so that none holds up the writer; and in one run, of each inbox. */
  messages_pruned_at_once: 500,
  messages_pruned_per_inbox_max: 100_000,
  /** Dead letters of a tenant; the oldest are deleted above it. */
  dead_letters_max: 10_000,
  /** Part of a tenant's `messages_mb_max` that settled entries may fill before the oldest are deleted early. */
  messages_settled_ratio: 0.9,
} as const;
