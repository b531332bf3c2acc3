/** The bounds of desktops and of their viewers, a part of EDGE_LIMITS. */
export const GUI_LIMITS = {
  /** Time in which the viewer's URL can be opened; while a viewer is open, and so long after it, it can be opened again. */
  gui_token_seconds: 300,
  /** An open viewer is closed after so long, and its URL is invalid. */
  gui_session_seconds_max: 43_200,
  /** Valid URLs of one tenant, of which the oldest is dropped, and on this node: some 400 bytes each. */
  gui_tokens_per_tenant_max: 64,
  gui_tokens_max: 4_096,
  /** Open viewers: each has a process in the container and a connection to it. */
  gui_viewers_per_container_max: 8,
  gui_viewers_per_tenant_max: 32,
  gui_viewers_max: 256,
  /** Deadline of the RFB handshake with a container, and with a viewer. */
  gui_handshake_ms: 5_000,
  /** Bytes of a handshake: a version, some types, one result. */
  gui_handshake_bytes_max: 512,
  /** Bytes of standard error of a connection to a desktop, which the daemon reads and drops; more end it. */
  gui_complaint_bytes_max: 64 * 1024,
  /** A container that accepts no input from a viewer for so long loses the viewer. */
  gui_stall_ms: 30_000,
  /** Pixels of a side of a screen, and bytes of its name: beyond these the canvas of a browser fails. */
  gui_side_max: 16_384,
  gui_name_bytes_max: 1_024,
  /** Deadline of the check that a desktop answers, and the life of its result. */
  gui_check_ms: 1_000,
  gui_check_cached_ms: 1_000,
  /** Containers whose last result is kept. */
  gui_checks_cached: 4_096,
  /** A start waits so long for the desktop, and checks in this interval. */
  gui_ready_ms: 10_000,
  gui_ready_interval_ms: 100,
  /** Deadline and size of a screenshot: 4,096 × 2,304 pixels of noise have 28 MB. */
  gui_screenshot_ms: 10_000,
  gui_screenshot_bytes_max: 32 * 1024 * 1024,
  /** Chunks of a screenshot, which the event loop reads: those of libpng have 8 KiB. */
  gui_screenshot_chunks_max: 16_384,
  /** Screenshots at the same time. */
  gui_screenshots_per_tenant_max: 2,
  gui_screenshots_max: 4,
  /** Events of one request, characters that it types, and its deadline. A pause between events is an event. */
  gui_events_max: 100,
  gui_text_length_max: 4_096,
  gui_input_ms: 60_000,
  /** The keys of one request, which wait for programs: a longer text would end half typed at the deadline. */
  gui_typing_ms_max: 30_000,
  gui_keys_length_max: 100,
  gui_pause_ms_max: 5_000,
  gui_scroll_steps_max: 50,
  /** Requests with input at the same time. */
  gui_inputs_per_tenant_max: 8,
  gui_inputs_max: 64,
} as const;
