/**
 * The limits of a tenant: one row each. The schema of the API, the store's column, the flags of the command line, the
 * tenant's record and its usage are made from these rows, so that a new limit is one more row.
 *
 * Q1. A tenant without a limit of its own has the default of the row, a share of this node. `null` set by the operator
 *     means none. The operator's tenant has no defaults: it may use the whole node. Those of users have smaller ones.
 */
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { instancesShare, type NodeBounds } from "./node-bounds.ts";
import { jsonField } from "./sql-dialect.ts";
import { type TenantClass, userDefaults } from "./tenant-classes.ts";

export type { NodeBounds };

/** The operator's own tenant. */
export const DEFAULT_TENANT_ID = "default";

interface TenantLimitRow {
  /** For the description of the API. */
  readonly about: string;
  /** For the command line: what is counted. */
  readonly counts: string;
  readonly min: number;
  readonly max: number;
  readonly isWhole: boolean;
  /** Of a tenant for which the operator set none; null: no limit. */
  readonly share: (node: NodeBounds) => number | null;
  /** The same in words. */
  readonly default_text: string;
  /** The consequence of reaching the limit. */
  readonly above: string;
  /** Usage field in the tenant's record. Null: usage is not counted. */
  readonly used: TenantUse | null;
}

interface TenantUse {
  readonly name: string;
  readonly about: string;
  /** An SQL expression beside a row of `tenants`; null: the daemon or the kernel counts it. */
  readonly sql: string | null;
}

/** SQL beside a row of `code`: its part of the tenant's storage, with what its entries and the tree take on the disk. */
const CODE_BYTES = `size_bytes + ${LIMITS.code_entry_bytes} * entry_count + ${LIMITS.code_tree_bytes}`;

/** SQL beside a row of `tenants`: each image counts once, however many references it has. */
export const IMAGE_MEGABYTES = `(SELECT coalesce(sum((size_bytes + 1048575) / 1048576), 0) FROM
  (SELECT DISTINCT image_id, size_bytes FROM oci_images WHERE tenant_id = tenants.id) AS distinct_images)`;

export const TENANT_LIMITS = {
  requests_per_second: {
    about: "Requests per second of all keys together; bursts of one second's worth are allowed.",
    counts: "requests per second",
    min: LIMITS.requests_per_second_min,
    max: LIMITS.requests_per_second_max,
    isWhole: false,
    share: () => null,
    default_text: "none",
    above: "429 with Retry-After",
    used: null,
  },
  functions_max: {
    about: "Number of functions.",
    counts: "functions",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_functions_default,
    default_text: String(LIMITS.tenant_functions_default),
    above: "403 QUOTA_EXCEEDED",
    used: {
      name: "functions",
      about: "Number of functions.",
      sql: "(SELECT count(*) FROM functions WHERE tenant_id = tenants.id)",
    },
  },
  instances_max: {
    about: "Number of instances of all functions.",
    counts: "instances at the same time",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: instancesShare,
    default_text: `half of the node's, and at most half of the processes of all instances at ${LIMITS.instance_pids_max} each, less ${LIMITS.chain_depth_max} for chains of calls`,
    above: "calls wait; 403 if no instance is possible",
    used: { name: "instances", about: "Number of instances of its functions.", sql: null },
  },
  memory_mb_max: {
    about: "Sum of memory_limit_mb of its instances.",
    counts: "MiB of memory for its instances",
    min: 0,
    max: 100_000_000,
    isWhole: true,
    share: ({ memory_budget_mb }) =>
      Math.max(Math.floor(memory_budget_mb * LIMITS.tenant_instances_ratio), LIMITS.memory_limit_mb_default),
    default_text: "half of HEARTH_MEMORY_MB",
    above: "calls wait; 403 if no instance is possible",
    used: { name: "memory_mb", about: "Sum of memory_limit_mb of its instances.", sql: null },
  },
  processes_max: {
    about: "Processes and threads of all its containers; a change applies from the tenant's next container start.",
    counts: "processes and threads of all its containers",
    min: 0,
    max: 4_194_304,
    isWhole: true,
    share: ({ processes_max }) => Math.floor(processes_max * LIMITS.tenant_processes_ratio),
    default_text: "a tenth of the machine's",
    above: "fork fails",
    used: { name: "processes", about: "Number of processes and threads of its containers.", sql: null },
  },
  storage_mb_max: {
    about:
      "Size of functions, versions, their code, and records. Above it the daemon refuses creations and deletes the oldest records until a tenth is free.",
    counts: "MiB of functions, versions, their code, and records",
    min: 0,
    max: 100_000_000,
    isWhole: true,
    share: ({ store_disk_mb }) => Math.floor(store_disk_mb * LIMITS.tenant_storage_ratio),
    default_text: "a tenth of the store's disk",
    above: "403; each minute the daemon deletes the oldest records until a tenth is free",
    used: {
      name: "storage_bytes",
      about: "Size of its functions, versions, their code, and records.",
      sql: `((SELECT coalesce(sum(stored_bytes), 0) FROM functions WHERE tenant_id = tenants.id)
        + (SELECT coalesce(sum(${CODE_BYTES}), 0) FROM code WHERE tenant_id = tenants.id))`,
    },
  },
  containers_max: {
    about: "Number of API containers, stopped ones included.",
    counts: "containers",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: ({ containers_max }) => Math.ceil(containers_max / 10),
    default_text: "a tenth of the node's",
    above: "403",
    used: {
      name: "containers",
      about: "Number of containers.",
      sql: "(SELECT count(*) FROM containers WHERE tenant_id = tenants.id)",
    },
  },
  networks_max: {
    about: "Number of private networks that its containers name.",
    counts: "private networks",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_networks_default,
    default_text: String(LIMITS.tenant_networks_default),
    above: "403",
    used: {
      name: "networks",
      about: "Number of private networks that its containers name.",
      sql: `(SELECT count(DISTINCT ${jsonField("make", "network")}) FROM containers WHERE tenant_id = tenants.id)`,
    },
  },
  volumes_max: {
    about: "Number of volumes.",
    counts: "volumes",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_volumes_default,
    default_text: String(LIMITS.tenant_volumes_default),
    above: "403",
    used: {
      name: "volumes",
      about: "Number of volumes.",
      sql: "(SELECT count(*) FROM volumes WHERE tenant_id = tenants.id)",
    },
  },
  secrets_max: {
    about: "Number of secrets and of registry credentials.",
    counts: "secrets and registry credentials",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_secrets_default,
    default_text: String(LIMITS.tenant_secrets_default),
    above: "403",
    used: {
      name: "secrets",
      about: "Number of secrets and of registry credentials.",
      sql: "(SELECT count(*) FROM secrets WHERE tenant_id = tenants.id AND kind <> 'service')",
    },
  },
  images_max: {
    about: "Number of references of images.",
    counts: "references of images",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_images_default,
    default_text: String(LIMITS.tenant_images_default),
    above: "403",
    used: {
      name: "images",
      about: "Number of references of its images.",
      sql: "(SELECT count(*) FROM oci_images WHERE tenant_id = tenants.id)",
    },
  },
  image_mb_max: {
    about: "Size of the unpacked layers of its images, in MiB; images that share layers count in full.",
    counts: "MiB of unpacked images",
    min: 0,
    max: 1_000_000_000,
    isWhole: true,
    share: ({ image_disk_mb }) => Math.floor(image_disk_mb * LIMITS.tenant_images_ratio),
    default_text: "a tenth of the image store's disk",
    above: "403",
    used: {
      name: "image_mb",
      about: "Size of the unpacked layers of its images, in MiB.",
      sql: IMAGE_MEGABYTES,
    },
  },
  build_contexts_max: {
    about: "Number of build contexts that have not expired.",
    counts: "build contexts",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_contexts_default,
    default_text: String(LIMITS.tenant_contexts_default),
    above: "403",
    used: {
      name: "build_contexts",
      about: "Number of its build contexts.",
      sql: "(SELECT count(*) FROM build_contexts WHERE tenant_id = tenants.id)",
    },
  },
  build_context_mb_max: {
    about: "Size of the unpacked build contexts, in MiB.",
    counts: "MiB of unpacked build contexts",
    min: 0,
    max: 1_000_000_000,
    isWhole: true,
    share: ({ disk_mb }) => Math.floor(disk_mb * LIMITS.tenant_context_disk_ratio),
    default_text: "a twentieth of the storage pool",
    above: "403",
    used: {
      name: "build_context_mb",
      about: "Size of its unpacked build contexts, in MiB.",
      sql: "(SELECT coalesce(sum(disk_mb), 0) FROM build_contexts WHERE tenant_id = tenants.id)",
    },
  },
  disk_mb_max: {
    about: "Sum of disk_limit_mb of its containers and quota_mb of its volumes, in MiB.",
    counts: "MiB of disk for its containers and volumes",
    min: 0,
    max: 1_000_000_000,
    isWhole: true,
    share: ({ disk_mb }) => Math.floor(disk_mb / 4),
    default_text: "a quarter of the storage pool",
    above: "403",
    used: {
      name: "disk_mb",
      about: "Sum of disk_limit_mb of its containers and quota_mb of its volumes, in MiB.",
      sql: `((SELECT coalesce(sum(${jsonField("make", "disk_limit_mb")}), 0) FROM containers WHERE tenant_id = tenants.id)
        + (SELECT coalesce(sum(quota_mb), 0) FROM volumes WHERE tenant_id = tenants.id))`,
    },
  },
  snapshots_max: {
    about: "Number of snapshots.",
    counts: "snapshots",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_snapshots_default,
    default_text: String(LIMITS.tenant_snapshots_default),
    above: "403",
    used: {
      name: "snapshots",
      about: "Number of snapshots.",
      sql: "(SELECT count(*) FROM snapshots WHERE tenant_id = tenants.id)",
    },
  },
  snapshot_mb_max: {
    about: "Size of the files of its snapshots, in MiB; snapshots that share files count in full.",
    counts: "MiB of files of snapshots",
    min: 0,
    max: 1_000_000_000,
    isWhole: true,
    share: ({ disk_mb }) => Math.floor(disk_mb * LIMITS.tenant_snapshot_disk_ratio),
    default_text: "a quarter of the storage pool",
    above: "403",
    used: {
      name: "snapshot_mb",
      about: "Size of the files of its snapshots, in MiB.",
      sql: "(SELECT coalesce(sum(disk_mb), 0) FROM snapshots WHERE tenant_id = tenants.id)",
    },
  },
  services_max: {
    about: "Number of published services, expired ones included until their removal.",
    counts: "published services",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_services_default,
    default_text: String(LIMITS.tenant_services_default),
    above: "403",
    used: {
      name: "services",
      about: "Number of its published services.",
      sql: "(SELECT count(*) FROM services WHERE tenant_id = tenants.id)",
    },
  },
  messages_mb_max: {
    about:
      "Size of its messages and dead letters, in MiB. Near it the daemon deletes the oldest settled messages and dead letters early; above it it refuses publishes.",
    counts: "MiB of messages",
    min: 0,
    max: 100_000_000,
    isWhole: true,
    share: ({ store_disk_mb }) => Math.floor(store_disk_mb * LIMITS.tenant_messages_ratio),
    default_text: "a twentieth of the store's disk",
    above: "429",
    used: {
      name: "messages_bytes",
      about: "Size of its messages and dead letters.",
      sql: `coalesce((SELECT dead_bytes + (SELECT coalesce(sum(bytes), 0) FROM icc_inboxes
        WHERE icc_inboxes.tenant_no = icc_tenants.tenant_no) FROM icc_tenants WHERE tenant_id = tenants.id), 0)`,
    },
  },
  container_memory_mb_max: {
    about: "Sum of memory_limit_mb of its running and starting containers.",
    counts: "MiB of memory for its running containers",
    min: 0,
    max: 100_000_000,
    isWhole: true,
    share: ({ container_memory_mb }) => Math.floor(container_memory_mb / 4),
    default_text: "a quarter of what the node admits (HEARTH_MEMORY_OVERCOMMIT)",
    above: "403; a restart policy retries",
    used: {
      name: "container_memory_mb",
      about: "Sum of memory_limit_mb of its running and starting containers.",
      sql: `(SELECT coalesce(sum(memory_limit_mb), 0) FROM containers
        WHERE tenant_id = tenants.id AND state IN ('starting', 'running'))`,
    },
  },
  gpus_max: {
    about: "Number of GPUs that its running containers and instances hold.",
    counts: "GPUs at the same time",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_gpus_default,
    default_text: String(LIMITS.tenant_gpus_default),
    above: "403; a restart policy retries",
    used: { name: "gpus", about: "Number of GPUs that its containers and instances hold.", sql: null },
  },
  execs_max: {
    about: "Number of concurrent commands, streams and terminals in its containers.",
    counts: "commands at the same time",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.execs_max / 4,
    default_text: String(LIMITS.execs_max / 4),
    above: "429",
    used: { name: "execs", about: "Number of running commands, streams and terminals in its containers.", sql: null },
  },
  streams_max: {
    about: "Number of open command streams and log followers.",
    counts: "command streams and log followers",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.streams_max / 8,
    default_text: String(LIMITS.streams_max / 8),
    above: "429",
    used: { name: "streams", about: "Number of its open command streams and log followers.", sql: null },
  },
  terminals_max: {
    about: "Number of concurrent terminal sessions.",
    counts: "terminal sessions",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: () => LIMITS.tenant_terminals_default,
    default_text: String(LIMITS.tenant_terminals_default),
    above: "429",
    used: { name: "terminals", about: "Number of its terminal sessions.", sql: null },
  },
} as const satisfies Record<string, TenantLimitRow>;

export type LimitName = keyof typeof TENANT_LIMITS;
export const LIMIT_NAMES = Object.keys(TENANT_LIMITS) as LimitName[];

/** Null: no limit. */
export type TenantLimits = Readonly<Record<LimitName, number | null>>;

/** Names of usage fields in the record. */
export type UseName = {
  [Name in LimitName]: (typeof TENANT_LIMITS)[Name]["used"] extends { readonly name: infer Use extends string }
    ? Use
    : never;
}[LimitName];

/** Usage fields of a tenant, in the order of the limits. */
export const TENANT_USES: readonly (TenantUse & { readonly name: UseName; readonly limit: LimitName })[] =
  LIMIT_NAMES.flatMap((limit) => {
    const { used } = TENANT_LIMITS[limit];
    return used === null ? [] : [{ ...used, limit }];
  });

/** A value for each limit. */
export function eachLimit<T>(value: (name: LimitName, row: TenantLimitRow) => T): Record<LimitName, T> {
  return Object.fromEntries(LIMIT_NAMES.map((name) => [name, value(name, TENANT_LIMITS[name])])) as never;
}

/** The limits that hold (Q1), in memory: each concern asks before it makes something. */
export class Quotas {
  /** Of all containers that run or start, those of the operator's tenant included. */
  readonly container_memory_mb: number;
  readonly #disk_limit_mb: number;
  readonly #defaults: Readonly<Record<TenantClass, TenantLimits>>;
  readonly #set = new Map<string, TenantLimits>();

  constructor(node: NodeBounds, user_percent: number = LIMITS.user_limits_percent_default) {
    this.container_memory_mb = node.container_memory_mb;
    this.#disk_limit_mb = node.disk_limit_mb;
    const tenant = eachLimit((_, { share }) => share(node));
    this.#defaults = { operator: eachLimit(() => null), tenant, user: userDefaults(tenant, user_percent) };
  }

  /** Effective limits of a tenant for which the operator set `own`. */
  effective(tenant_id: string, own: Partial<TenantLimits>, tenant_class: TenantClass = "tenant"): TenantLimits {
    const defaults = this.#defaults[tenant_id === DEFAULT_TENANT_ID ? "operator" : tenant_class];
    return eachLimit((name) => (own[name] !== undefined ? own[name] : defaults[name]));
  }

  set(...tenant: Parameters<Quotas["effective"]>): void {
    this.#set.set(tenant[0], this.effective(...tenant));
  }

  forget(tenant_id: string): void {
    this.#set.delete(tenant_id);
  }

  of(tenant_id: string): TenantLimits {
    return this.#set.get(tenant_id) ?? this.effective(tenant_id, {});
  }

  /**
   * The disk of a container or volume that is asked for with this limit. Null, no limit, only where the tenant has none.
   * Without a limit it is at most a part of the tenant's: on a small disk too a tenant makes several without one.
   */
  diskLimitMb(tenant_id: string, wanted_mb: number | null | undefined): number | null {
    const { disk_mb_max } = this.of(tenant_id);
    if (wanted_mb != null || disk_mb_max === null) return wanted_mb ?? null;
    const part_mb = Math.floor(disk_mb_max * LIMITS.disk_limit_ratio);
    return Math.min(this.#disk_limit_mb, Math.max(part_mb, LIMITS.disk_limit_mb_min));
  }

  /**
   * The most that all files of a tenant's containers, volumes and snapshots may take on the disk: what it may have of each
   * together. Null: no limit. The storage pool holds it, whatever shares what.
   */
  filesMb(tenant_id: string): number | null {
    const { disk_mb_max, snapshot_mb_max } = this.of(tenant_id);
    return disk_mb_max === null || snapshot_mb_max === null ? null : disk_mb_max + snapshot_mb_max;
  }

  /** Stands before what adds to a use that the store knows: no two requests at once pass the limit together. */
  guards(tenant_id: string, adds: Partial<Record<LimitName, number>>): QuotaGuard[] {
    const limits = this.of(tenant_id);
    return LIMIT_NAMES.flatMap((limit) => {
      const [added = 0, max] = [adds[limit], limits[limit]];
      const use = TENANT_USES.find((one) => one.limit === limit)?.sql ?? null;
      if (added === 0 || max === null || use === null) return [];
      const statement = tenantGuard(tenant_id, `${use} + ? <= ?`, [added, max]);
      return [{ statement, refusal: () => quotaExceeded(limit, max, added) }];
    });
  }
}

/** A statement that changes nothing; a conflict means that the tenant does not meet the condition. */
export function tenantGuard(tenant_id: string, condition: string, args: readonly (string | number)[] = []) {
  const sql = `UPDATE tenants SET state = state WHERE id = ? AND ${condition}`;
  return { sql, args: [tenant_id, ...args], expect_changes: 1 };
}

/** A `Guard` of the store. */
interface QuotaGuard {
  readonly statement: ReturnType<typeof tenantGuard>;
  readonly refusal: () => AppError;
}

export function quotaExceeded(limit: LimitName, max: number, added: number): AppError {
  const asked = added === 1 ? "" : `, ${added} more requested`;
  return new AppError("QUOTA_EXCEEDED", `the tenant would exceed ${limit} (limit ${max}${asked})`, {
    details: { expected: [String(max)] },
    hint: `delete or stop unused resources, or ask the operator for a higher ${limit}; GET /api/tenant shows the usage`,
  });
}
