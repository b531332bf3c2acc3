/**
 * Counts the calls of a function and of a tenant in flight (waiting or running), and refuses calls above a limit. A call
 * inside a call counts as one more: at its limit it is refused at once and never waits for the call that waits for it.
 *
 * C1. Calls are counted whether or not a limit is set, so that one set while calls run counts these too.
 * C2. A refused call is not counted; every other one leaves once. An entry ends with its last call, so the maps are
 *     bounded by the calls in flight.
 */
import { AppError, invariant } from "../../base/errors.ts";

/**
 * The port of the limiter of calls in flight. Single writer: one process counts in its memory; a second node would grant
 * each function and tenant its limit once more.
 */
export interface ConcurrencyLimiter {
  /** Counts one call. Throws CONCURRENCY_LIMIT when a limit is reached; a limit of null is none. Synchronous. */
  enter(function_id: string, function_limit: number | null, tenant_id: string, tenant_limit: number | null): void;
  /** Once for each call that entered, whatever became of it. */
  leave(function_id: string, tenant_id: string): void;
}

export class LocalConcurrency implements ConcurrencyLimiter {
  readonly #functions = new Map<string, number>();
  readonly #tenants = new Map<string, number>();

  enter(function_id: string, function_limit: number | null, tenant_id: string, tenant_limit: number | null): void {
    const of_function = this.#functions.get(function_id) ?? 0;
    if (function_limit !== null && of_function >= function_limit)
      throw atLimit("function", function_id, function_limit);
    const of_tenant = this.#tenants.get(tenant_id) ?? 0;
    if (tenant_limit !== null && of_tenant >= tenant_limit) throw atLimit("tenant", tenant_id, tenant_limit);
    this.#functions.set(function_id, of_function + 1);
    this.#tenants.set(tenant_id, of_tenant + 1);
  }

  leave(function_id: string, tenant_id: string): void {
    countDown(this.#functions, function_id);
    countDown(this.#tenants, tenant_id);
  }

  /** Entries of both maps: 0 when nothing is in flight (C2). */
  get size(): number {
    return this.#functions.size + this.#tenants.size;
  }
}

function countDown(counts: Map<string, number>, id: string): void {
  const count = counts.get(id);
  invariant(count !== undefined, `C2: a call of ${id} left that had not entered`);
  if (count === 1) counts.delete(id);
  else counts.set(id, count - 1);
}

function atLimit(whose: "function" | "tenant", id: string, limit: number): AppError {
  return new AppError("CONCURRENCY_LIMIT", `too many concurrent calls of ${whose} ${id} (limit ${limit})`, {
    details: { expected: [`<= ${limit}`] },
    hint: "retry when a call has ended, or raise the limit",
    retry_after: 1,
  });
}
