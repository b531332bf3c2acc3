/** What waits on behalf of tenants: they take turns, and what one tenant waits for goes in its order. */
export class Turns<Item> {
  /** In the order of turns: the tenant whose turn was last is last. Callers bound what waits. */
  readonly #waiting = new Map<string, Set<Item>>();

  add(tenant_id: string, item: Item): void {
    const own = this.#waiting.get(tenant_id);
    if (own === undefined) this.#waiting.set(tenant_id, new Set([item]));
    else own.add(item);
  }

  /** Returns the next item of the first tenant that `isReady`; it waits on. Null: there is none. */
  next(isReady: (tenant_id: string) => boolean): Item | null {
    for (const [tenant_id, items] of this.#waiting) {
      const [first] = items;
      if (first !== undefined && isReady(tenant_id)) return first;
    }
    return null;
  }

  /** Ends the wait of an item whose turn it is; all other tenants come before its tenant's next. */
  take(tenant_id: string, item: Item): void {
    const own = this.#waiting.get(tenant_id);
    if (own === undefined) return;
    own.delete(item);
    this.#waiting.delete(tenant_id);
    if (own.size > 0) this.#waiting.set(tenant_id, own);
  }

  /** Ends the wait of an item that has no turn. */
  leave(tenant_id: string, item: Item): void {
    const own = this.#waiting.get(tenant_id);
    if (own?.delete(item) === true && own.size === 0) this.#waiting.delete(tenant_id);
  }
}
