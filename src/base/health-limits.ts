/** The bounds of health checks of containers, a part of LIMITS. Each check is a command in its container. */
export const HEALTH_LIMITS = {
  health_interval_seconds_default: 30,
  health_interval_seconds_max: 86_400,
  health_timeout_seconds_default: 30,
  health_timeout_seconds_max: 3_600,
  health_start_period_seconds_max: 86_400,
  health_retries_default: 3,
  health_retries_max: 1_000,
  /** Pause between checks while a container starts, and before the first check of one that an earlier daemon started. */
  health_start_interval_ms: 5_000,
  health_adopted_ms: 1_000,
  /** Kept output of a check: a record has it. */
  health_output_bytes: 1_024,
  /** Checks that run at once, of all tenants and of one; a check without a place is repeated after so long. */
  health_checks_max: 64,
  health_checks_per_tenant_max: 8,
  health_postponed_ms: 1_000,
  /** A container emits at most one event of its health in this time: one that flaps must not displace other events. */
  health_event_ms: 10_000,
  /** A list shows the last checks of first processes. It waits so long for those without one, so many at the same time. */
  readiness_list_ms: 500,
  readiness_checks_at_once: 16,
  /** Containers whose last check is kept. */
  readiness_checks_cached: 4_096,
} as const;
