/** Current usage of tenants that the store does not know, such as execs and streams: counted from start to end. */
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { Shares } from "./shares.ts";
import type { LimitName, Quotas, UseName } from "./tenant-limits.ts";

const COUNTED = ["execs", "streams", "terminals"] as const satisfies readonly UseName[];
type CountedUse = (typeof COUNTED)[number];

export const isCounted = (use: UseName): use is CountedUse => COUNTED.some((name) => name === use);

export class TenantShares {
  readonly #shares: Readonly<Record<CountedUse, Shares>>;

  constructor(quotas: Quotas) {
    const shares = (limit: LimitName, all_max: number) =>
      new Shares({ each_max: (tenant_id) => quotas.of(tenant_id)[limit], all_max });
    this.#shares = {
      execs: shares("execs_max", LIMITS.execs_max),
      streams: shares("streams_max", LIMITS.streams_max),
      terminals: shares("terminals_max", LIMITS.terminal_sessions_max),
    };
  }

  countOf(use: CountedUse, tenant_id: string): number {
    return this.#shares[use].countOf(tenant_id);
  }

  /** Takes a place until what is returned is called. Throws CONCURRENCY_LIMIT at the tenant's limit, CAPACITY_FULL. */
  take(use: CountedUse, tenant_id: string): () => void {
    return this.#shares[use].take(tenant_id, (reached, max) =>
      reached === "each_max"
        ? new AppError("CONCURRENCY_LIMIT", `too many ${use} of the tenant: ${max} (limit ${use}_max ${max})`, {
            details: { expected: [`${max}`], received: `${max + 1}` },
            hint: `wait until some end, or ask the operator for a higher ${use}_max`,
            retry_after: 5,
          })
        : new AppError("CAPACITY_FULL", `too many ${use} on this node: ${max} (limit ${max})`, { retry_after: 5 }),
    );
  }
}
