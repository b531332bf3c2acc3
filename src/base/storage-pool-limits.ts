/** The bounds of the storage pool, a part of LIMITS. */
export const STORAGE_POOL_LIMITS = {
  /** Below this btrfs is not worth its own bookkeeping. */
  storage_pool_mb_min: 1_024,
  /** Ids of subvolumes; those of the API have about twenty characters. */
  storage_pool_id_length_max: 64,
  /** Requests that the launcher works on at once, each in a process of its own; it has room for 64 of all kinds. */
  storage_pool_requests_at_once: 8,
  /** Counts of bytes and comparisons at once, each a process of btrfs, and those that wait for their turn. */
  storage_readers_at_once: 4,
  storage_readers_waiting_max: 64,
  /** As many as requests of the API may be under way. */
  storage_pool_requests_waiting_max: 8_000,
  /** A request may have to wait for a commit of all that was written, and the last one for all of it. */
  storage_timeout_ms: 60_000,
  /** Tenants whose limit the daemon remembers as set; it sets those of others again. */
  storage_owners_kept: 10_000,
  /** The daemon reads the disk usage of a tenant at most once in this time before it creates a subvolume for it. */
  storage_owner_look_ms: 1_000,
  /** Deadline of the freeze. A container that still runs then is copied unfrozen: each subvolume copy is atomic anyway. */
  freeze_ms_max: 1_000,
  /**
   * Reserve on the disk of the pool's file that files of containers leave free: a write without room there would end the
   * whole pool, not the writer. The daemon limits the total to what fits, every `storage_pool_look_ms`, and more often below
   * `storage_pool_pressed_bytes`.
   */
  storage_pool_host_reserve_bytes: 256 * 1024 * 1024,
  storage_pool_look_ms: 2_000,
  /** Deadline for the kernel to let go of a pool whose holders were ended. */
  storage_pool_free_wait_ms: 5_000,
  storage_pool_pressed_look_ms: 250,
  storage_pool_pressed_bytes: 4 * 1024 * 1024 * 1024,
  /**
   * Up to this size files and the pool's bookkeeping share its pieces: a piece of their own, a tenth of the whole, the
   * files may have taken before there was any for the bookkeeping, and then not even a removal can be written down.
   */
  storage_pool_mixed_mb_max: 8 * 1_024,
  /** Part of the pool that is left to its bookkeeping. */
  storage_pool_spare_ratio: 0.05,
  /** A change of the total's limit upwards by less than this can wait. */
  storage_pool_limit_step_bytes: 64 * 1024 * 1024,
  /** With less room than this nothing new is made. */
  storage_pool_room_bytes_min: 16 * 1024 * 1024,
} as const;
