/**
 * Terminal sessions that have ended: their results, and the output that no client has seen. Each tenant has bounds of its
 * own, so that no tenant evicts the sessions of another. Above the bound of tenants, the tenant whose last session ended
 * longest ago is evicted first.
 */
import { LRUCache } from "lru-cache";
import { LIMITS } from "../base/limits.ts";

interface Ended {
  readonly id: string;
  readonly tenant_id: string;
}

interface OfTenant<Session extends Ended> {
  readonly sessions: LRUCache<string, Session>;
  readonly unseen: LRUCache<string, Buffer>;
}

export class EndedSessions<Session extends Ended> {
  readonly #tenants = new LRUCache<string, OfTenant<Session>>({ max: LIMITS.terminal_ended_tenants_max });

  /** `unseen`: the last output of a session that ended without a client. */
  add(session: Session, unseen: Buffer | null): void {
    const { tenant_id, id } = session;
    const own = this.#tenants.get(tenant_id) ?? ofTenant<Session>();
    this.#tenants.set(tenant_id, own);
    own.sessions.set(id, session);
    if (unseen !== null) own.unseen.set(id, unseen);
  }

  get(tenant_id: string, id: string): Session | undefined {
    return this.#tenants.peek(tenant_id)?.sessions.get(id);
  }

  /** Undefined once a client has seen it. */
  unseen(tenant_id: string, id: string): Buffer | undefined {
    return this.#tenants.peek(tenant_id)?.unseen.get(id);
  }

  seen(tenant_id: string, id: string): void {
    this.#tenants.peek(tenant_id)?.unseen.delete(id);
  }
}

const ofTenant = <Session extends Ended>(): OfTenant<Session> => ({
  sessions: new LRUCache({ max: LIMITS.terminal_ended_kept }),
  unseen: new LRUCache({
    max: LIMITS.terminal_ended_kept,
    maxSize: LIMITS.terminal_unseen_bytes_max,
    sizeCalculation: ({ length }) => Math.max(1, length),
  }),
});
