/** Limits of transfers: files of containers and volumes, archives, long lists. */
export const FILE_LIMITS = {
  /** Transfers at once; each is a process of its own with about two megabytes of buffers. */
  file_sessions_max: 64,
  /** Of one tenant: whoever reads slowly leaves the others to others. */
  file_sessions_per_tenant_max: 16,
  /** From the start of a transfer to its end: a sparse file is longer than anybody waits. */
  file_session_ms_max: 4 * 3_600_000,
  /** A helper that lives so long moves into its tenant's control group; the kernel takes about 10 ms for that. */
  file_group_after_ms: 50,
  /** So long the group stays for the next helper. */
  file_group_rest_ms: 1_000,
  /** What one transfer may hold in either direction between a fast side and a slow one. */
  file_buffer_bytes: 512 * 1024,
  /** Bytes that the transfers of one tenant move in one turn of the event loop: some tenths of a millisecond. */
  file_turn_bytes: 256 * 1024,
  /**
   * Bytes that the transfers of one tenant move in a second while other tenants send requests, unpacked where they are compressed:
   * a quarter of a gigabit, some percent of a processor. Without them a transfer is as fast as it can be.
   */
  shared_transfer_bytes_per_second: 32 * 1024 * 1024,
  /** A tenant that sent nothing for so long does not count as another. */
  shared_transfer_ms: 1_000,
  /** Items and bytes of a long list that are worked on in one go, and what one item counts; a byte of JSON takes as long as several moved. */
  turn_items: 250,
  turn_piece_bytes: 64 * 1024,
  turn_item_bytes: 512,
  turn_json_weight: 8,
  /** Requests of one transfer whose answers are awaited: an archive of small files sends them without waiting for each. */
  file_calls_max: 64,
  /** A helper that moves nothing for so long while it is waited for has failed. A disk may be busy for seconds. */
  file_stall_ms: 60_000,
  /** Entries of one page of a directory: more pages mean going over a large directory more often. */
  file_page_size_default: 100,
  file_page_size_max: 10_000,
  /** Archives: entries, what they hold together, how deep they nest. Quotas are the bound that counts before these. */
  archive_entries_max: 1_000_000,
  archive_bytes_max: 256 * 1024 * 1024 * 1024,
  archive_depth_max: 256,
  /** Long names and their like, which stand before an entry and are held whole. */
  archive_extension_bytes_max: 1024 * 1024,
  /** Pipes, sockets and devices that an archive names, since it has none of them. */
  archive_others_named_max: 1_000,
  /** What may follow the end of an archive: writers fill up a record, usually of ten kilobytes. */
  archive_trailer_bytes_max: 1024 * 1024,
} as const;
