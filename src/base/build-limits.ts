/** The bounds of image builds, a part of LIMITS. */
export const BUILD_LIMITS = {
  /** One file of certificate authorities that builds trust: a bundle of all that Mozilla trusts has 220 KB. */
  ca_file_bytes_max: 2_097_152,
  /** A build file: the longest have some hundred lines. It is parsed on the main thread, in some ms. */
  build_file_bytes_max: 256 * 1024,
  build_instructions_max: 500,
  build_stages_max: 50,
  /** Steps in the history of a base; those of a longer one are left out. */
  build_history_max: 2_000,
  build_flags_max: 16,
  build_flag_length_max: 4_096,
  build_cache_id_length_max: 512,
  /** Arguments of one build, and secrets. */
  build_args_max: 128,
  build_secrets_max: 16,
  /** Builds that run at once: each may use `build_memory_mb` and a processor for minutes. */
  builds_max: 4,
  /** Memory of the machine for each build that may run at once: twice `build_memory_mb`, since containers and functions run beside. */
  build_node_memory_mb: 4_096,
  builds_per_tenant_max: 2,
  /** From the acceptance of a build to its end. */
  build_ms: 3_600_000,
  /** A container of a build, unless the tenant's limit is lower. */
  build_memory_mb: 2_048,
  /** All roots of a build together, without their bases. */
  build_disk_mb: 16_384,
  /** Share of the storage pool that builds leave free. */
  build_pool_free_ratio: 0.1,
  /** Cache mounts of one RUN: two of apt, and three of a package manager. */
  build_cache_mounts_max: 8,
  /** Bind mounts of one RUN, of which each is a copy: a file each of a package manager's lists are five or six. */
  build_bind_mounts_max: 8,
  /** Files that ADD takes from URLs, in one build. */
  build_downloads_max: 16,
  build_download_mb_max: 4_096,
  build_download_ms: 1_800_000,
  /** Refs of a git repository that ADD takes: as long as a path of Linux may be in one part. */
  build_git_ref_length_max: 255,
  /** What a host tells of itself and of refs whose names begin with the one that is asked for. */
  build_git_refs_mb_max: 16,
  /** The pack of one commit, and the tar of its files: the one of Linux has some 250 MB. Both lie on the data disk for a while. */
  build_git_pack_mb_max: 1_024,
  build_git_tar_mb_max: 2_048,
  build_git_objects_max: 400_000,
  /** One object, of which a thread holds up to four in memory. Hosts refuse files above 100 MB. */
  build_git_object_mb_max: 64,
  /** Everything that the thread inflates, with differences and what it looks at again: a minute or two. */
  build_git_inflated_mb_max: 8_192,
  build_git_recent_mb_max: 32,
  /** Chains of git have 50 differences. */
  build_git_delta_depth_max: 256,
  build_git_depth_max: 256,
  /** Files of a context, or of the sources of one COPY: their names are held in memory. */
  build_files_max: 200_000,
  /** Characters that variables put into the instructions of one build. */
  build_expanded_characters_max: 4 * 1024 * 1024,
  /** Comparisons of patterns with paths in one build: about a second of the main thread, between the reads of files. */
  build_match_steps_max: 200_000_000,
  /** Patterns of .dockerignore. */
  build_ignore_bytes_max: 64 * 1024,
  build_ignore_patterns_max: 500,
  /** Globs of one COPY. */
  build_pattern_length_max: 1_024,
  /** Of one event, so that its JSON stays below `event_bytes_max` whatever the bytes are. */
  build_log_piece_bytes: 2_048,
  /** Log of a build: of the 10,000 events that a tenant has, some 500. */
  build_log_bytes_max: 1024 * 1024,
  build_log_interval_ms: 250,
  /** Lines of the secrets of a step that the log masks; of more lines it masks whole values alone. */
  build_masked_texts_max: 256,
  /** End of a failed command's output, in the message of the failure. */
  build_tail_bytes: 700,
  /** Uncompressed layer of a build. */
  build_layer_bytes_max: 16 * 1024 * 1024 * 1024,
  build_layer_ms: 1_800_000,
  /** Disk of the data directory that a layer leaves free. */
  build_host_reserve_bytes: 512 * 1024 * 1024,
  /** Threads that turn roots into layers. */
  build_threads_max: 1,
  build_thread_idle_ms: 30_000,
  build_thread_heap_mb: 256,
  /** Cached steps and cache mounts of a tenant and of the node; the least recently used ones go first. */
  build_cache_entries_per_tenant_max: 200,
  build_cache_mb_per_tenant_max: 8_192,
  build_cache_entries_max: 2_000,
  build_cache_mb_max: 32_768,
  /** Of the storage pool, whose rest is for containers and volumes. */
  build_cache_disk_ratio: 0.25,
  /** Of the bytes of all tenants' entries, those of one. */
  build_cache_tenant_ratio: 0.5,
  /** Deadline of a root for space that the kernel still frees: it does so at its next commit, every 30 seconds at the latest. */
  build_room_wait_ms: 40_000,
  build_room_look_ms: 250,
  /** One cache mount. */
  build_cache_mount_mb: 2_048,
  /** What an entry takes beside its files: a subvolume's own bookkeeping. */
  build_cache_entry_bytes: 64 * 1024,
} as const;
