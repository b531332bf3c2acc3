/**
 * Places for work on inboxes: one at a time of each, a bounded number of each tenant and of all. Tenants take turns, and so do
 * the inboxes of a tenant, one piece of work at a time, so that a long queue of one holds up no other. A tenant without a place gets
 * one even if all are taken: long work of others never holds it up.
 */
import type { InboxKey } from "../bus/port.ts";

export interface PlacesOptions {
  /** Of one tenant, and of all. */
  readonly each_max: number;
  readonly all_max: number;
  /** Does one piece of work. Resolves to whether the inbox may have more. Never rejects. */
  readonly work: (key: InboxKey) => Promise<boolean>;
}

interface Tenant {
  /** Inboxes that wait for a place, in their order. */
  readonly waiting: Map<string, InboxKey>;
  running_count: number;
}

export class Places {
  readonly #options: PlacesOptions;
  /** Tenants with work, whose turn is next first. */
  readonly #tenants = new Map<string, Tenant>();
  /** Inboxes with work in progress, each with whether there is more since. */
  readonly #running = new Map<string, { isDue: boolean }>();
  #isClosed = false;

  constructor(options: PlacesOptions) {
    this.#options = options;
  }

  /** Work of an inbox waits for a place, once. */
  add(key: InboxKey): void {
    if (this.#isClosed) return;
    const { tenant_id, inbox } = key;
    const running = this.#running.get(nameOf(key));
    if (running !== undefined) {
      running.isDue = true;
      return;
    }
    const tenant = this.#tenants.get(tenant_id) ?? { waiting: new Map(), running_count: 0 };
    this.#tenants.set(tenant_id, tenant);
    if (!tenant.waiting.has(inbox)) tenant.waiting.set(inbox, { tenant_id, inbox });
    this.#fill();
  }

  /** Begins no more work. */
  close(): void {
    this.#isClosed = true;
    for (const { waiting } of this.#tenants.values()) waiting.clear();
  }

  #fill(): void {
    const { each_max, all_max } = this.#options;
    let isFull = false;
    while (!isFull) {
      isFull = true;
      for (const [tenant_id, tenant] of this.#tenants) {
        const [next] = tenant.waiting.values();
        const { running_count } = tenant;
        const hasPlace = running_count < each_max && (running_count === 0 || this.#running.size < all_max);
        if (next === undefined || !hasPlace) continue;
        tenant.waiting.delete(next.inbox);
        // Behind the others.
        this.#tenants.delete(tenant_id);
        this.#tenants.set(tenant_id, tenant);
        void this.#run(next, tenant);
        isFull = false;
        break;
      }
    }
  }

  async #run(key: InboxKey, tenant: Tenant): Promise<void> {
    const state = { isDue: false };
    this.#running.set(nameOf(key), state);
    tenant.running_count++;
    const hasMore = await this.#options.work(key);
    this.#running.delete(nameOf(key));
    tenant.running_count--;
    if (hasMore || state.isDue) this.add(key);
    if (tenant.running_count === 0 && tenant.waiting.size === 0 && this.#tenants.get(key.tenant_id) === tenant) {
      this.#tenants.delete(key.tenant_id);
    }
    this.#fill();
  }
}

function nameOf({ tenant_id, inbox }: InboxKey): string {
  return `${tenant_id}\n${inbox}`;
}
