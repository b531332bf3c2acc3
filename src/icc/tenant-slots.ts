/**
 * Places for work on behalf of tenants: so many of each tenant and so many in all. Tenants that wait take turns. A tenant without a
 * place gets one even if all are taken, so that long work of some tenants never holds up another.
 */
import { Turns } from "../base/turns.ts";

interface Waiter {
  readonly tenant_id: string;
  begin(): void;
}

export class TenantSlots {
  readonly #all_max: number;
  readonly #tenant_max: number;
  #count = 0;
  readonly #counts = new Map<string, number>();
  /** Callers bound their waiters. */
  readonly #waiting = new Turns<Waiter>();

  constructor({ all_max, tenant_max }: { readonly all_max: number; readonly tenant_max: number }) {
    this.#all_max = all_max;
    this.#tenant_max = tenant_max;
  }

  /** Waits for a place. The returned function gives it back. */
  async take(tenant_id: string): Promise<() => void> {
    await new Promise<void>((resolve) => {
      this.#waiting.add(tenant_id, { tenant_id, begin: resolve });
      this.#grant();
    });
    let isBack = false;
    return () => {
      if (isBack) return;
      isBack = true;
      this.#count--;
      const left = (this.#counts.get(tenant_id) ?? 1) - 1;
      if (left > 0) this.#counts.set(tenant_id, left);
      else this.#counts.delete(tenant_id);
      this.#grant();
    };
  }

  #grant(): void {
    for (;;) {
      const next = this.#waiting.next((tenant_id) => this.#hasPlace(tenant_id));
      if (next === null) return;
      this.#waiting.take(next.tenant_id, next);
      this.#count++;
      this.#counts.set(next.tenant_id, (this.#counts.get(next.tenant_id) ?? 0) + 1);
      next.begin();
    }
  }

  #hasPlace(tenant_id: string): boolean {
    const own = this.#counts.get(tenant_id) ?? 0;
    return own < this.#tenant_max && (own === 0 || this.#count < this.#all_max);
  }
}
