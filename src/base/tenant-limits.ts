/**
 * The limits of a tenant: one row each. The schema of the API, the store's column, the flags of the command line, the
 * tenant's record and its usage are made from these rows, so that a new limit is one more row.
 *
 * Q1. A tenant without a limit of its own has the default of the row, a share of this node. `null` set by the operator
 *     means none. The operator's tenant has no defaults: it may use the whole node.
 */
import { LIMITS } from "./limits.ts";

/** The operator's own tenant. */
export const DEFAULT_TENANT_ID = "default";

/** What the shares are taken from. */
export interface NodeBounds {
  readonly containers_max: number;
  /** Processes and threads. */
  readonly processes_max: number;
}

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
  /** What is in use, in the tenant's record. Null: nothing is counted. */
  readonly used: TenantUse | null;
}

interface TenantUse {
  readonly name: string;
  readonly about: string;
  /** An SQL expression beside a row of `tenants`; null: the daemon counts it in memory. */
  readonly sql: string | null;
}

const none = (): null => null;

export const TENANT_LIMITS = {
  requests_per_second: {
    about: "Requests of all its keys together; a second's worth may come at once.",
    counts: "requests a second",
    min: LIMITS.requests_per_second_min,
    max: LIMITS.requests_per_second_max,
    isWhole: false,
    share: none,
    used: null,
  },
  functions_max: {
    about: "Functions at the same time.",
    counts: "functions",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: none,
    used: {
      name: "functions",
      about: "Its functions.",
      sql: "(SELECT count(*) FROM functions WHERE tenant_id = tenants.id)",
    },
  },
  instances_max: {
    about: "Instances of all its functions at the same time.",
    counts: "instances at the same time",
    min: 0,
    max: 1_000_000,
    isWhole: true,
    share: none,
    used: null,
  },
  memory_mb_max: {
    about: "Sum of memory_limit_mb of its instances.",
    counts: "MB of memory that its instances may use together",
    min: 0,
    max: 100_000_000,
    isWhole: true,
    share: none,
    used: null,
  },
  processes_max: {
    about: "Processes and threads of all its containers together; a change holds from its next start of one.",
    counts: "processes and threads of its containers together",
    min: 0,
    max: 4_194_304,
    isWhole: true,
    share: ({ processes_max }) => Math.floor(processes_max * LIMITS.tenant_processes_ratio),
    used: null,
  },
  storage_mb_max: {
    about:
      "Functions, versions and records. Above it nothing is created and the oldest records go, until a tenth is free.",
    counts: "MB of functions, versions and records",
    min: 0,
    max: 100_000_000,
    isWhole: true,
    share: none,
    used: {
      name: "storage_bytes",
      about: "What its functions, versions and records take.",
      sql: "(SELECT coalesce(sum(stored_bytes), 0) FROM functions WHERE tenant_id = tenants.id)",
    },
  },
} as const satisfies Record<string, TenantLimitRow>;

export type LimitName = keyof typeof TENANT_LIMITS;
export const LIMIT_NAMES = Object.keys(TENANT_LIMITS) as LimitName[];

/** Null: no limit. */
export type TenantLimits = Readonly<Record<LimitName, number | null>>;

/** The names under which the record tells what is in use. */
export type UseName = {
  [Name in LimitName]: (typeof TENANT_LIMITS)[Name]["used"] extends { readonly name: infer Use extends string }
    ? Use
    : never;
}[LimitName];

/** What is counted of a tenant, in the order of the limits. */
export const TENANT_USES: readonly (TenantUse & { readonly name: UseName; readonly limit: LimitName })[] =
  LIMIT_NAMES.flatMap((limit) => {
    const { used } = TENANT_LIMITS[limit];
    return used === null ? [] : [{ ...used, limit }];
  });

/** A value for each limit. */
export function eachLimit<T>(value: (name: LimitName, row: TenantLimitRow) => T): Record<LimitName, T> {
  return Object.fromEntries(LIMIT_NAMES.map((name) => [name, value(name, TENANT_LIMITS[name])])) as never;
}

/** The limit of a tenant's row in SQL, as the operator set it. */
export const limitColumn = (name: LimitName): string => `(tenants.limits ->> '${name}')`;

/** The limits that hold (Q1), in memory: each concern asks before it makes something. */
export class Quotas {
  readonly #defaults: TenantLimits;
  readonly #set = new Map<string, TenantLimits>();

  constructor(node: NodeBounds) {
    this.#defaults = eachLimit((_, { share }) => share(node));
  }

  /** What holds for a tenant of whose limits the operator set these. */
  effective(tenant_id: string, own: Partial<TenantLimits>): TenantLimits {
    const isOperators = tenant_id === DEFAULT_TENANT_ID;
    return eachLimit((name) => (own[name] !== undefined ? own[name] : isOperators ? null : this.#defaults[name]));
  }

  set(tenant_id: string, own: Partial<TenantLimits>): void {
    this.#set.set(tenant_id, this.effective(tenant_id, own));
  }

  forget(tenant_id: string): void {
    this.#set.delete(tenant_id);
  }

  of(tenant_id: string): TenantLimits {
    return this.#set.get(tenant_id) ?? this.effective(tenant_id, {});
  }
}
