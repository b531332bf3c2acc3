/** Bounds of actions that the platform applies, and of the tenants' keys and values: part of `LIMITS`, with the same rules. */
export const ACTION_LIMITS = {
  /** Containers on which the platform applies an action at the same time, of one tenant and of all; one of each tenant always. */
  actions_per_tenant_at_once: 4,
  actions_at_once: 64,
  /** An action is held for so long, and its lease prolonged three times in it: after a crash it is applied again this late. */
  action_lease_ms: 10_000,
  /** Attempts at an action that ends without an outcome: a crash, a stop of the daemon, or a refusal that may pass. */
  action_attempts_max: 5,
  /** The first pause before such an attempt; each later one is twice as long. */
  action_retry_ms: 500,
  /** Attempts to tell the sender the outcome while the bus cannot be reached, one in a second. */
  action_outcome_attempts_max: 30,
  /** Bytes of the text in an outcome. */
  action_error_bytes_max: 1_024,
  /** Actions in progress have this long when the daemon stops; they are applied again by the next one. */
  action_drain_ms: 2_000,
  /** Keys of a tenant, bytes of one value, and bytes of all keys and values together. */
  state_keys_max: 10_000,
  state_value_bytes_max: 256 * 1024,
  state_bytes_max: 64 * 1024 * 1024,
  /** Entries and bytes of values in one answer, one entry at least. */
  state_page_max: 1_000,
  state_page_bytes_max: 4 * 1024 * 1024,
  /** Keys that changed and that a watcher has not taken, deleted ones included; above it the watch ends. */
  state_watch_changes_max: 20_000,
} as const;
