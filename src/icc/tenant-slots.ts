/**
 * Places for work on behalf of tenants: so many of each tenant and so many in all. Tenants that wait take turns. A tenant without a
 * place gets one even if all are taken, so that long work of some tenants never holds up another.
 */
export class TenantSlots {
  readonly #all_max: number;
  readonly #tenant_max: number;
  #count = 0;
  readonly #counts = new Map<string, number>();
  /** In their order; the tenant that had a place last is last. Callers bound their waiters. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor({ all_max, tenant_max }: { readonly all_max: number; readonly tenant_max: number }) {
    this.#all_max = all_max;
    this.#tenant_max = tenant_max;
  }

  /** Waits for a place. The returned function gives it back. */
  async take(tenant_id: string): Promise<() => void> {
    await new Promise<void>((resolve) => {
      const own = this.#waiting.get(tenant_id);
      if (own === undefined) this.#waiting.set(tenant_id, [resolve]);
      else own.push(resolve);
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
    for (const [tenant_id, waiters] of this.#waiting) {
      const own = this.#counts.get(tenant_id) ?? 0;
      if (own >= this.#tenant_max || (own > 0 && this.#count >= this.#all_max)) continue;
      const next = waiters.shift();
      this.#waiting.delete(tenant_id);
      // The loop comes to it again, after all others.
      if (waiters.length > 0) this.#waiting.set(tenant_id, waiters);
      if (next === undefined) continue;
      this.#count++;
      this.#counts.set(tenant_id, own + 1);
      next();
    }
  }
}
