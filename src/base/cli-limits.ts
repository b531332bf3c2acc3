/** The bounds of the command line, a part of LIMITS. */
export const CLI_LIMITS = {
  /** A sign-in with a password makes a key for so long. */
  cli_key_seconds: 90 * 24 * 3_600,
  /** An answer that takes longer is not waited for: a PUT waits 60 s for warm instances, a deletion 10 s for calls. */
  cli_request_timeout_ms: 120_000,
  /** A call may wait in the queue as long as it may run. */
  cli_call_timeout_ms: (2 * 3_600 + 60) * 1_000,
  /** What only helps (names to complete, names that were meant) may not keep a person waiting. */
  cli_aside_timeout_ms: 1_000,
  cli_spinner_delay_ms: 300,
  /** A third of socket_silence_ms. */
  cli_ping_ms: 20_000,
  /** How often the line of an upload or a download is written again. */
  cli_meter_interval_ms: 100,
  /** Between two looks at a pull, whose bar a person watches. */
  cli_pull_poll_ms: 300,
  /** Between two looks of `pool --watch` and `logs --follow`. */
  cli_poll_interval_ms: 1_000,
  /** A stream that broke is asked for again so often, at that interval: a daemon starts again within seconds. */
  cli_reconnects_max: 30,
  /** Records of one look of `logs --follow`; what was more in between is said to be left out. */
  cli_follow_records_max: 100,
  /** Of a file or standard input that is read whole: what a request may hold. */
  cli_input_bytes_max: 8 * 1024 * 1024,
  /** A file that goes in one request, in base64; cp has no such bound. */
  cli_put_bytes_max: 5 * 1024 * 1024,
  /** Pages of one list, each of a thousand entries or 16 MiB: all of them stand in memory. */
  cli_list_pages_max: 10,
  /** Entries of a directory that are shown together, whose table is made in memory. */
  cli_files_max: 100_000,
  /** hearth.toml, and a file of ignore rules. */
  cli_project_bytes_max: 256 * 1024,
  /** Code of a folder above which `hearth deploy` says how large it is. */
  cli_code_bytes_note: 64 * 1024 * 1024,
  /** `hearth dev`: an editor writes a file in several steps; so long after the last one they are taken for one save. */
  cli_dev_settle_ms: 20,
  /** A folder that changes continuously is deployed after this time. */
  cli_dev_settle_ms_max: 1_000,
  /** Folders that `hearth dev` watches: each is a watch of the kernel, of which a user has some 8,000 at least. */
  cli_watched_folders_max: 4_096,
  /** A container of `hearth deploy --build` that outlives its client is deleted by the daemon after this time. */
  cli_build_seconds: 3_600,
  cli_build_memory_mb: 1_024,
  /** The copies and the snapshot of `hearth fork … -- <command>` that outlive their client are deleted after this time. */
  cli_fork_seconds: 86_400,
  /** Copies in which `hearth fork` runs its command at the same time. */
  cli_forks_at_once: 8,
  /** Lines of the output of each copy, and of its changed files, that `hearth fork` prints. */
  cli_fork_output_lines_max: 10,
  cli_fork_changes_max: 20,
  /** A file whose lines `hearth diff` compares; of larger ones it only says that they differ. */
  cli_diff_bytes_max: 64 * 1024,
  cli_diff_lines_max: 2_000,
  /** Deadline of `hearth publish --wait` for a port that accepts connections. */
  cli_service_wait_seconds: 60,
} as const;
