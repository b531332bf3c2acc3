/** What the function concern says of itself. */
import type { PoolTotals } from "../../pool/index.ts";
import { RUNTIMES } from "../../runtimes/index.ts";
import type { FunctionsReadiness } from "./schema.ts";

/**
 * Readiness of the concern: `ok` when calls can be served; `degraded` when containers fail to start (none of the last
 * started and some failed), with the counts that led to it.
 */
export function functionsHealth(totals: PoolTotals): FunctionsReadiness {
  const canStart = totals.start_failed_count === 0 || totals.started_count > 0;
  return {
    status: canStart ? "ok" : "degraded",
    concern: "functions",
    runtimes: [...RUNTIMES.keys()],
    pool: totals,
  };
}
