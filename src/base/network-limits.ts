/** Bounds of the network of containers and instances: slots, connections, private networks, and the name server. */
export const NETWORK_LIMITS = {
  network_slots_ready: 16,
  /** Addresses for each network slot that may exist, where subnet and ids allow: each rests before it is used again. */
  network_addresses_per_slot: 4,
  /** Links removed together: the kernel takes 40 to 60 ms for 50, 30 for one, and makes no others meanwhile. */
  network_removal_slots_max: 50,
  /** A link that was cut waits so long for others. */
  network_removal_wait_ms: 250,
  network_removal_retry_ms: 1_000,
  /** A batch with a full table of tracked connections takes the kernel a second or two. */
  network_removal_timeout_ms: 30_000,
  /** Tracked connections of one address; the kernel's table has 262,144 for the machine. */
  flows_max: 4_096,
  flows_max_max: 65_536,
  /** Private networks of a tenant, unless the operator sets another limit. */
  tenant_networks_default: 32,
  /** Containers of one private network, stopped ones included: two elements of the packet filter each. */
  network_members_max: 1_024,
  /** A label of a DNS name (RFC 1035, section 2.3.4), which names of networks and of their containers are. */
  dns_label_length_max: 63,
  /**
   * Packets of name queries in a second that the kernel lets pass: of one container, of one tenant, of all. Each costs the
   * daemon some 25 µs. A client without a cache sends two for each connection that it opens. The daemon counts queries in
   * the same way: a packet may hold many.
   */
  dns_container_packets_per_second: 1_000,
  dns_tenant_packets_per_second: 3_000,
  dns_packets_per_second: 10_000,
  /** Bytes of such packets, their headers included: a query has some 100, and a large packet costs as much as many small ones. */
  dns_packet_bytes: 100,
  /** A query: one question and an EDNS record. The largest that clients send has some 300 bytes. */
  dns_query_bytes_max: 1_024,
  /** Buffer of the name server's socket; the kernel gives twice this, at most twice `net.core.rmem_max`. A packet takes 768 of it. */
  dns_socket_buffer_bytes: 4 * 1024 * 1024,
  /** An answer by UDP, whatever the client announces: larger ones are fragmented (DNS flag day 2020). */
  dns_udp_bytes_max: 1_232,
  /** Queries that wait for a name server of the machine, each with a socket: of one container, of one tenant, of all. */
  dns_forwards_per_container_max: 64,
  dns_forwards_per_tenant_max: 128,
  dns_forwards_max: 512,
  /** Wait for one name server of the machine; then the next one is asked. resolv.conf(5) has at most three. */
  dns_forward_ms: 2_000,
  /** A public name that got no answer is no container's for so long: resolv.conf(5) has twice 5 s by default for each server. */
  dns_unsettled_ms: 30_000,
  dns_unsettled_per_container_max: 256,
  dns_servers_max: 3,
  /** The machine's resolv.conf is read again after this long. */
  dns_servers_reread_ms: 5_000,
  /** TCP connections to the name server: of one container, of one tenant, of all. */
  dns_connections_per_container_max: 8,
  dns_connections_per_tenant_max: 64,
  dns_connections_max: 256,
  /** A connection without a complete query is closed after this long, and each one after the second. */
  dns_connection_idle_ms: 5_000,
  dns_connection_ms: 30_000,
  /** Answers that wait on one connection for a client that does not read; above it the connection is closed. */
  dns_connection_bytes_max: 128 * 1024,
} as const;
