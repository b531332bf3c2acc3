/** The bounds of checks, reserved addresses, monitors and clean-up tasks of containers, a part of LIMITS. */
export const DIAGNOSIS_LIMITS = {
  /** Deadline of each command that reads or mends the link of a container. */
  network_check_ms: 5_000,
  /** Containers whose links are read or mended at once, each by a few processes, and requests that wait for their turn. */
  network_checks_at_once: 4,
  network_checks_waiting_max: 100,
  /** Reads of links of one tenant, those that wait among them. */
  network_checks_per_tenant_max: 8,
  /** Characters of an IPv4 address in a request. */
  address_length_max: 15,
  /** Addresses that a tenant's containers may reserve. */
  reserved_addresses_per_tenant_max: 64,
  /** Parts of all addresses that the containers of one tenant, and of all, may reserve: starts need the others. */
  reserved_addresses_tenant_ratio: 1 / 16,
  reserved_addresses_ratio: 1 / 4,
  /** Clean-up tasks that are kept of one tenant, the newest, and tenants with tasks: the least recent tenant is dropped. */
  cleanup_tasks_per_tenant_max: 200,
  cleanup_tenants_max: 1_000,
  /** Events of one page of the activity: each may have event_bytes_max. */
  activity_limit_default: 50,
  activity_limit_max: 200,
} as const;
