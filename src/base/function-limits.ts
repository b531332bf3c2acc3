/** Bounds of versions, their calls and deployments. Part of limits.ts. */
export const FUNCTION_LIMITS = {
  /** Each of stdout and stderr; the rest is dropped and a flag set. */
  output_bytes_max: 1024 * 1024,
  /** The payload is also in `HEARTH_PAYLOAD` up to this size (Linux allows 128 KiB per variable). */
  payload_variable_bytes_max: 64 * 1024,
  /** Earlier images of profiles that versions keep; versions of further ones run on the present image. */
  function_images_max: 64,
  /** Largest result of a handler, as JSON. The programs of nodejs and python3 have the same number. */
  result_bytes_max: 1024 * 1024,
  /** Code caches of all versions in the daemon's memory, and those of one tenant. Each has at most `result_bytes_max`. */
  code_caches_bytes_max: 16 * 1024 * 1024,
  code_caches_per_tenant_bytes_max: 4 * 1024 * 1024,
  instance_calls_max: 1_000_000_000,
  /** Secrets that a version names as files. */
  function_secrets_max: 32,
  /** A longer message of a failed call is cut. */
  error_message_length_max: 4_000,
  /** Characters of the standard error of a handler that a refusal quotes. */
  /** Of a process that ended: the end of its output in the error message of its calls. */
  end_output_length_max: 500,
  /**
   * Output of a call after its answer: bytes that its record gets, in so many writes, and the time that each gathers for. How many
   * answered calls of an instance, and how many of all, may have some at a time. The program of python3 has the same number of bytes.
   */
  late_output_bytes_max: 16 * 1024,
  late_outputs_max: 8,
  late_output_ms: 250,
  late_calls_kept_max: 128,
  late_calls_max: 1_000,
  error_output_length_max: 4_000,
  version_note_length_max: 1_000,
  deployment_functions_max: 32,
  /** Files that the difference of two versions names. */
  diff_files_max: 1_000,
  /** Of the runtime custom; minit has the same numbers. */
  custom_head_bytes_max: 16 * 1024,
  custom_connections_max: 256,
  custom_error_bytes_max: 512,
  /** Of a call of the runtime custom: its request's line and headers stay within `custom_head_bytes_max`, which many servers allow. */
  call_path_bytes_max: 4 * 1024,
  call_headers_max: 64,
  call_header_name_bytes_max: 128,
  call_headers_bytes_max: 8 * 1024,
  /** A handler that is not loaded after this time is ended. */
  load_timeout_ms: 10_000,
  /** Time after the deadline of a call in which its process may still answer that it timed out. */
  resident_grace_ms: 250,
} as const;
