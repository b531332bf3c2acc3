/**
 * The memory that all requests of one listener hold at the same time: bodies until their request is answered, answers
 * until the client has read them. Each alone has a bound; without one for all together a few clients that send much and
 * read nothing would end the daemon.
 *
 * B1. The sum never passes `held_bytes_max`. The last quarter is kept for requests that hold little, so that large ones
 *     cannot shut out the others.
 * B4. Requests of one tenant hold at most half of it together, and so do those without a caller. The operator's tenant may
 *     use all of it.
 * B2. What a share holds it gives back once, when it is ended.
 * B3. A client that takes nothing of a large answer for `answer_stall_ms` is cut, so that those who never read do not
 *     hold their shares for good. serve.ts does it.
 */
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { DEFAULT_TENANT_ID } from "../base/tenant-limits.ts";

const LARGE_PART = 0.75;
const TENANT_PART = 0.5;

export class MemoryBudget {
  /** Of one client that takes nothing (B3). */
  readonly stall_ms: number;
  readonly #bytes_max: number;
  #bytes = 0;
  /** Tenants that hold nothing are not in it. */
  readonly #of_tenant = new Map<string, number>();

  constructor(bytes_max: number = LIMITS.held_bytes_max, stall_ms: number = LIMITS.answer_stall_ms) {
    this.#bytes_max = bytes_max;
    this.stall_ms = stall_ms;
  }

  /** Of all shares that have not ended. */
  get bytes(): number {
    return this.#bytes;
  }

  share(): Share {
    return new Share(this);
  }

  /** For `Share`. Why `bytes` more are too much for one that holds `own_bytes`; null: they are taken. */
  take(bytes: number, own_bytes: number, tenant_id: string): "all" | "tenant" | null {
    const isSmall = own_bytes + bytes <= LIMITS.held_small_bytes_max;
    if (this.#bytes + bytes > this.#bytes_max * (isSmall ? 1 : LARGE_PART)) return "all";
    const of_tenant = (this.#of_tenant.get(tenant_id) ?? 0) + bytes;
    if (tenant_id !== DEFAULT_TENANT_ID && of_tenant > this.#bytes_max * TENANT_PART) return "tenant";
    this.#bytes += bytes;
    this.#of_tenant.set(tenant_id, of_tenant);
    return null;
  }

  /** For `Share`. */
  give(bytes: number, tenant_id: string): void {
    this.#bytes -= bytes;
    const left = (this.#of_tenant.get(tenant_id) ?? 0) - bytes;
    if (left > 0) this.#of_tenant.set(tenant_id, left);
    else this.#of_tenant.delete(tenant_id);
  }
}

/** Of requests without a caller. */
const NO_TENANT = "";

/** What one request holds. */
export class Share {
  readonly #budget: MemoryBudget;
  #bytes = 0;
  #tenant_id = NO_TENANT;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  get stall_ms(): number {
    return this.#budget.stall_ms;
  }

  get tenant_id(): string {
    return this.#tenant_id;
  }

  /** Counts for a tenant from now on. Before the first `add`. */
  belongTo(tenant_id: string): void {
    this.#tenant_id = tenant_id;
  }

  /** Undefined, or the refusal when there is no room (B1, B4). */
  add(bytes: number): AppError | undefined {
    const full = this.#budget.take(bytes, this.#bytes, this.#tenant_id);
    if (full === null) {
      this.#bytes += bytes;
      return undefined;
    }
    const whose =
      full === "all" ? "memory budget of all requests in use" : "the tenant's half of the memory budget in use";
    return new AppError("CAPACITY_FULL", `no memory for the request: ${whose}`, { retry_after: 1 });
  }

  /** Gives everything back. Harmless the second time (B2). */
  end(): void {
    this.#budget.give(this.#bytes, this.#tenant_id);
    this.#bytes = 0;
  }
}
