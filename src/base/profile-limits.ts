/** Bounds of profiles, of their builds and of the requests that wait for builds: part of `LIMITS`, with the same rules. */

export const PROFILE_LIMITS = {
  /** A first build of a desktop with slow mirrors and a slow disk. */
  profile_build_ms: 1_800_000,
  /** A request that waits for a first build: as long as the builds of eight profiles that take turns may take. */
  profile_wait_ms: 8 * 1_800_000,
  /** Requests that wait for builds, of one tenant and of all: as many as open operations, and half of `connections_max`. */
  profile_waiters_per_tenant_max: 500,
  profile_waiters_max: 4_000,
  /** Children of set-up that wait for their turn: one build per profile, and questions for updates. */
  profile_children_waiting_max: 64,
  /** After a failed build, doubled with each further failure. */
  profile_backoff_ms: 30_000,
  profile_backoff_ms_max: 900_000,
  profile_retry_seconds: 10,
  /** The last lines of a build's log. */
  profile_log_bytes_max: 8 * 1024,
  /** An answer of the apt sources. */
  profile_updates_kept_seconds: 3_600,
} as const;
