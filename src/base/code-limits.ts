/** The bounds of functions' code, a part of LIMITS. */
export const CODE_LIMITS = {
  /** An archive as sent, its files, and its entries: the largest bundles of dependencies have some 60,000. */
  code_archive_bytes_max: 256 * 1024 * 1024,
  code_bytes_max: 1024 * 1024 * 1024,
  code_entries_max: 100_000,
  /** Names of all entries together, which stay in memory during an upload: a name has some 80 bytes. */
  code_names_bytes_max: 16 * 1024 * 1024,
  /** Characters of paths that the check of symbolic links may look up: about 100 ms. */
  code_link_work_max: 16 * 1024 * 1024,
  /** An archive with headers and padding, as a stream: 1.5 KiB an entry beside the files. */
  code_stream_bytes_max: 1280 * 1024 * 1024,
  /** Disk of a tree in MiB: its files, the rest of their last blocks, and what btrfs needs for each entry. */
  code_disk_mb: 2_048,
  /** Counted in a tenant's storage beside the bytes of files: what an entry, and a tree, takes on the disk. */
  code_entry_bytes: 1_024,
  code_tree_bytes: 64 * 1024,
  /** Uploads at once: each has a process, 2 MB of buffers and up to 40 MB of names. */
  code_uploads_per_tenant_max: 2,
  code_uploads_max: 8,
  /** Part of a zip that stays in memory; a larger one is in a file until it is unpacked. */
  code_memory_bytes: 256 * 1024,
  /** Code without a version is kept for this time: a client uploads before it creates the version. */
  code_unused_seconds: 3_600,
  /** Code is kept at least this long after its upload if its last version is deleted: another version may follow. */
  code_reuse_seconds: 60,
  /** Rows that one read checks: about 2 ms. */
  code_rows_per_pass: 1_000,
  /** Entries, or links, that are processed before the event loop runs other work: about 2 ms. */
  code_slice_count: 1_000,
} as const;
