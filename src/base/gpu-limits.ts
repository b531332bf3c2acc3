/** The bounds of GPUs and of the files that describe them, a part of LIMITS. */
export const GPU_LIMITS = {
  /** GPUs of one container. */
  gpus_max: 64,
  /** GPUs of one instance of a function. */
  function_gpus_max: 8,
  /** A version of a function that lacks GPUs looks again after this time; earlier if an instance gives GPUs back. */
  devices_retry_ms: 250,
  /** GPUs that a tenant may hold unless the operator sets another number. */
  tenant_gpus_default: 1,
  /**
   * Directories with CDI files, files of each, and bytes of a file: nvidia-ctk writes 60 KB for eight GPUs. The parser of YAML
   * takes up to 10 µs a byte, during which nothing else runs.
   */
  cdi_directories_max: 16,
  cdi_files_max: 64,
  cdi_file_bytes_max: 128 * 1024,
  /** Devices of a CDI file, and entries of a list of edits. */
  cdi_devices_max: 512,
  cdi_entries_max: 1_024,
  cdi_text_length_max: 4_096,
  /** Warnings of the inventory; more are counted. */
  cdi_warnings_max: 50,
  /** Interval of the checks for changed CDI files, of which only changed ones are read again. */
  cdi_look_interval_ms: 1_000,
  /** Concurrent checks of device nodes, and the deadline of the commands that make those of a container. */
  cdi_nodes_at_once: 16,
  cdi_make_ms: 5_000,
  /** A hook ends before the start that waits for it. */
  cdi_hook_seconds_max: 5,
} as const;
