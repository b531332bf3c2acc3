/** The bounds of image layers and of the store of images, a part of LIMITS. */
export const LAYER_LIMITS = {
  /** Checks of layers at once: buildah fetches six layers of each pull at a time. A check has some 2 MB of buffers. */
  layer_checks_max: 48,
  /** Worker threads that check layers. Decompression runs beside them, in the threads of libuv. */
  layer_threads_max: 2,
  /** An idle thread ends after this time. */
  layer_thread_idle_ms: 30_000,
  /** Heap of a thread in MiB: the paths of links of all its layers. */
  layer_thread_heap_mb: 512,
  /** Bytes of one layer on their way to its thread; above it a write waits. */
  layer_window_bytes: 1024 * 1024,
  /** Bytes that the decompressor takes and gives in one step. */
  layer_step_bytes: 256 * 1024,
  /** Entries of one layer. The largest bundles of machine learning have some 300,000. */
  layer_entries_max: 1_000_000,
  /** Memory for the paths and targets of a layer's symbolic links: a file system of Debian has some 20,000 of 100 bytes. */
  layer_links_bytes_max: 16 * 1024 * 1024,
  /** What each takes beside them. */
  layer_link_bytes: 64,
  /**
   * Bytes of paths that are compared with the paths of a layer's links: each part of a directory's path costs `layer_link_bytes` and
   * the path up to it. 200,000 directories of 150 bytes need some 350 MB; this many take a second or two.
   */
  layer_resolved_bytes_max: 1024 * 1024 * 1024,
  /** PAX and GNU extensions before one entry: Go, which unpacks the layer, reads no longer ones. */
  layer_extension_bytes_max: 1024 * 1024,
  layer_extensions_per_entry_max: 8,
  /** Disk that a directory takes beside its header: one block. */
  layer_directory_bytes: 4_096,
  /** Memory of zstd for one layer, as a power of two. Builders use 8 MiB; zstd --ultra takes up to 128 MiB. */
  layer_zstd_window_log_max: 24,
  /** Frames of a zstd layer: zstd:chunked has one for each file. Each costs a step of the decompressor, some 30 µs. */
  layer_zstd_frames_max: 2_000_000,
  /** Pulls that buildah runs at once, and those that wait for their turn. */
  image_pulls_at_once: 4,
  image_pulls_waiting_max: 100,
  /** Failed pulls whose layers wait for the end of another pull to be removed. */
  image_pulls_left_max: 100,
  /** A line of the store's record of a layer's tar: the extensions of one entry, or a megabyte of padding, in base64. */
  layer_split_line_bytes_max: 16 * 1024 * 1024,
  /** Files of a layer that are asked for before the first of them has come. */
  layer_export_reads_max: 32,
  /** Exports at once, each with a thread and a helper, and those that wait for their turn. */
  image_exports_at_once: 2,
  image_exports_waiting_max: 50,
  /** Disk space that exports of images leave free. */
  image_exports_reserve_bytes: 256 * 1024 * 1024,
  /** A manifest, or a configuration, that is read from the store. Registries' ones are smaller. */
  image_document_bytes_max: 16 * 1024 * 1024,
  /** Age of an uncompressed layer without an image at which it is removed: until then it may belong to a running commit. */
  orphan_layer_ms: 3_600_000,
  /** Interval at which a cancelled pull is looked for and killed, until its end is known. */
  pull_kill_interval_ms: 50,
} as const;
