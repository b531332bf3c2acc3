/**
 * Work on inboxes: one piece at a time of each, in the places of its tenant. The inboxes of a tenant take turns, one piece of work
 * at a time, so that a long queue of one holds up no other.
 */
import type { InboxKey } from "../bus/port.ts";
import { TenantSlots } from "../tenant-slots.ts";

export interface PlacesOptions {
  /** Of one tenant, and of all. */
  readonly tenant_max: number;
  readonly all_max: number;
  /** Does one piece of work. Resolves to whether the inbox may have more. Never rejects. */
  readonly work: (key: InboxKey) => Promise<boolean>;
}

export class Places {
  readonly #options: PlacesOptions;
  readonly #slots: TenantSlots;
  /** Inboxes that wait for a place. */
  readonly #waiting = new Set<string>();
  /** Inboxes with work in progress, each with whether there is more since. */
  readonly #running = new Map<string, { isDue: boolean }>();
  #isClosed = false;

  constructor(options: PlacesOptions) {
    this.#options = options;
    this.#slots = new TenantSlots(options);
  }

  /** Work of an inbox waits for a place, once. */
  add(key: InboxKey): void {
    const name = nameOf(key);
    const running = this.#running.get(name);
    if (running !== undefined) running.isDue = true;
    if (this.#isClosed || running !== undefined || this.#waiting.has(name)) return;
    this.#waiting.add(name);
    void this.#run(key, name);
  }

  /** Begins no more work. */
  close(): void {
    this.#isClosed = true;
  }

  async #run(key: InboxKey, name: string): Promise<void> {
    const giveBack = await this.#slots.take(key.tenant_id);
    this.#waiting.delete(name);
    const state = { isDue: false };
    let hasMore = false;
    if (!this.#isClosed) {
      this.#running.set(name, state);
      hasMore = await this.#options.work(key);
      this.#running.delete(name);
    }
    // Behind the others of its tenant.
    if (hasMore || state.isDue) this.add(key);
    giveBack();
  }
}

function nameOf({ tenant_id, inbox }: InboxKey): string {
  return `${tenant_id}\n${inbox}`;
}
