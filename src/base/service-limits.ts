/** Bounds of published services: part of `LIMITS`, with the same rules. */
export const SERVICE_LIMITS = {
  /** Services of this node; on loopback addresses each has a listening socket, of 20,000 descriptors. */
  services_max: 1_000,
  /** Services of a tenant, unless the operator sets another limit. */
  tenant_services_default: 50,
  /** Requests and WebSockets in progress, each with a connection of the client and one to the container. */
  service_requests_max: 1_024,
  /** Those of one tenant: a quarter, so that it leaves the others theirs. */
  service_requests_per_tenant_max: 256,
  /** Connections of clients, idle ones included, and those on which a tenant's services were authenticated. */
  service_connections_max: 2_048,
  service_connections_per_tenant_max: 512,
  /** A container on this machine accepts at once or not at all; a busy one may take a moment. */
  service_connect_ms: 5_000,
  /** From the end of the request to the headers of the response. */
  service_response_ms: 120_000,
  /** A request, response or WebSocket on which no byte moves for so long has ended for one of its sides. */
  service_idle_ms: 300_000,
  /** Bound of the bytes that a client sends before the proxy accepts its WebSocket. */
  service_early_bytes_max: 64 * 1024,
  /** A WebSocket of which one side has ended is closed when no byte moved for so long. */
  service_half_closed_ms: 2_000,
  /** Headers of a response, and informational responses before it. */
  service_header_bytes_max: 64 * 1024,
  service_informational_max: 16,
  /** A client that waits for 100 Continue gets it after this time, whatever the backend does. */
  service_continue_ms: 1_000,
  /** Idle connections to one service, to all, and how long each stays: Node's servers close theirs after 5 s. */
  service_free_sockets_max: 32,
  service_free_sockets_all_max: 512,
  service_free_socket_ms: 4_000,
  /** The probe of readiness, and how long its outcome counts. */
  service_probe_ms: 500,
  service_ready_ms: 1_000,
  service_pending_ms: 100,
  service_probes_at_once: 32,
  /** Loopback addresses that are tried for a new service. */
  service_address_attempts_max: 16,
  /** Interval of the check for expired services, and retention of their records. */
  service_look_ms: 1_000,
  service_expired_kept_seconds: 3_600,
  /** Requests in progress have this long when the daemon stops; WebSockets are closed at once. */
  service_drain_ms: 5_000,
  /** Wrong tokens of one source for one service in a minute that are answered 401, and sources that are counted. */
  service_wrong_tokens_max: 30,
  service_wrong_tokens_window_ms: 60_000,
  service_wrong_sources_max: 1_000,
  /** RFC 1035 §2.3.4. */
  service_hostname_length_max: 253,
  /** Host names that the operator grants to one tenant. */
  service_hostname_grants_max: 32,
} as const;
