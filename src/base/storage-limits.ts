/** The bounds of the store area, a part of LIMITS. */
export const AREA_LIMITS = {
  /** Below this btrfs is not worth its own bookkeeping. */
  area_mb_min: 1_024,
  /** Ids of subvolumes; those of the API have about twenty characters. */
  area_id_length_max: 64,
  /** Requests that the launcher works on at once, each in a process of its own; it has room for 64 of all kinds. */
  area_requests_at_once: 8,
  /** As many as requests of the API may be under way. */
  area_requests_waiting_max: 8_000,
  /** A request may have to wait for a commit of all that was written, and the last one for all of it. */
  storage_timeout_ms: 60_000,
  /**
   * Reserve on the disk of the area's file that files of containers leave free: a write without room there would end the
   * whole area, not the writer. The daemon limits the total to what fits, every `area_look_ms`, and more often below
   * `area_pressed_bytes`.
   */
  area_host_reserve_bytes: 256 * 1024 * 1024,
  area_look_ms: 2_000,
  area_pressed_look_ms: 250,
  area_pressed_bytes: 4 * 1024 * 1024 * 1024,
  /**
   * Up to this size files and the area's bookkeeping share its pieces: a piece of their own, a tenth of the whole, the
   * files may have taken before there was any for the bookkeeping, and then not even a removal can be written down.
   */
  area_mixed_mb_max: 8 * 1_024,
  /** Part of the area that is left to its bookkeeping. */
  area_spare_ratio: 0.05,
  /** A change of the total's limit upwards by less than this can wait. */
  area_limit_step_bytes: 64 * 1024 * 1024,
  /** With less room than this nothing new is made. */
  area_room_bytes_min: 16 * 1024 * 1024,
} as const;
