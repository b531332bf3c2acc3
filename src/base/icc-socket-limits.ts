/** Bounds of the sockets inside of containers: part of `LIMITS`, with the same rules. */
export const ICC_SOCKET_LIMITS = {
  /**
   * Connections of one container, of a tenant's containers, of all, and of a tenant's containers if all are taken. Beside
   * them each container has a listening socket; the daemon has 20,000 descriptors.
   */
  icc_connections_per_container_max: 32,
  icc_connections_per_tenant_max: 1_024,
  icc_connections_max: 2_048,
  icc_connections_always_max: 4,
  /** Connections that the kernel accepts while the daemon is busy. */
  icc_backlog: 64,
  /** Refused connections of one container that read why, and how long each may take. */
  icc_refused_connections_max: 8,
  icc_refused_ms: 500,
  /**
   * New connections of one container and of a tenant's containers in a second. Each costs the daemon some 0.1 ms; above these
   * nothing listens on the container's socket until the second is over.
   */
  icc_connects_per_container_max: 250,
  icc_connects_per_tenant_max: 1_000,
  icc_connects_window_ms: 1_000,
  /**
   * Requests of one container and of a tenant's containers in each such time. Those above them wait for the next. A request
   * takes the daemon at least 60 µs: a container gets a sixth of its main thread at most.
   */
  icc_requests_per_container_max: 250,
  icc_requests_per_tenant_max: 500,
  icc_requests_window_ms: 100,
  /** A message of 1 MiB as base64, and what is around it. */
  icc_socket_body_bytes_max: 1_536 * 1024,
  /** Bodies of requests in progress, and answers that were not yet read, of all containers. A tenant has half. */
  icc_socket_held_bytes_max: 64 * 1024 * 1024,
  /** A connection on which no byte moves for so long is closed: longer than the longest poll. */
  icc_socket_idle_ms: 90_000,
  /** A stream that has nothing to say says so at this interval. */
  icc_socket_heartbeat_ms: 15_000,
  /** A socket that cannot be bound is tried again after this time. */
  icc_socket_retry_ms: 1_000,
  /** Messages of one answer: each may have a megabyte. */
  icc_receive_max: 32,
  /** Requests in progress have this long when the daemon stops; polls and streams end at once. */
  icc_socket_drain_ms: 2_000,
} as const;
