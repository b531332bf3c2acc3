/** Bounds of a NATS JetStream server behind the message bus: part of `LIMITS`, with the same rules. */
export const JETSTREAM_LIMITS = {
  /** The longest wait for an answer of the server. */
  carrier_deadline_ms: 5_000,
  /** The longest wait for a connection, and for the server's first answers, at a start of the daemon. */
  jetstream_boot_ms: 3_000,
  /** Pauses between attempts to connect double from the first to the second. */
  jetstream_reconnect_min_ms: 100,
  jetstream_reconnect_max_ms: 5_000,
  /** The connection counts as broken if the server leaves two pings unanswered. */
  jetstream_ping_ms: 5_000,
  /** Publishes that wait for the server, and the bytes of their envelopes. */
  jetstream_publishes_max: 1_024,
  jetstream_publish_bytes_max: 64 * 1024 * 1024,
  /** The server ignores a message id that it has had within this time. */
  jetstream_duplicates_ms: 86_400_000,
  /** Envelopes that one receive or read asks for at the same time. */
  jetstream_gets_at_once: 64,
  /** Messages that one clean-up deletes at the same time. */
  jetstream_drops_at_once: 8,
  /** Durable consumers that the daemon knows; the least recently used one is deleted. */
  jetstream_consumers_max: 1_000,
  /** The server deletes a consumer from which nobody has pulled for this long. */
  jetstream_consumer_idle_ms: 3_600_000,
  /** The server delivers an entry again that is not acked for this long; the ledger decides whether a receiver gets it. */
  jetstream_ack_wait_ms: 300_000,
  /** Messages of the stream that one step of a recovery looks at. */
  jetstream_recovered_at_once: 256,
  /** Messages above the ledger's last one that a recovery looks at; newer ones are skipped with a line in the log. */
  jetstream_recovered_max: 100_000,
} as const;
