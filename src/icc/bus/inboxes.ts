/**
 * Facts of inboxes and tenants that every publish needs, in memory: numbers, the last sequence number, what is unread and
 * what is kept. The daemon is the only writer of its inboxes, so they are read once and counted from then on.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Quotas } from "../../base/tenant-limits.ts";
import type { Store } from "../../store/store.ts";
import type { InboxKey } from "./port.ts";

const MIB = 1024 * 1024;

export interface TenantFacts {
  readonly tenant_id: string;
  readonly tenant_no: number;
  /** Bytes of all entries that are kept, those of publishes in progress included. */
  bytes: number;
}

export interface InboxState {
  readonly tenant: TenantFacts;
  readonly name: string;
  readonly inbox_no: number;
  last_seq: number;
  unread_count: number;
  /** Publishes and receives in progress: while there are any, the facts stay in memory. */
  uses: number;
  /** Receives run one after the other. */
  turn: Promise<unknown>;
}

const BYTES = `SELECT tenant_no, dead_bytes + (SELECT coalesce(sum(bytes), 0) FROM icc_inboxes
  WHERE icc_inboxes.tenant_no = icc_tenants.tenant_no) AS bytes FROM icc_tenants WHERE tenant_id = ?`;
const INBOX = `SELECT inbox_no, last_seq, icc_tenants.tenant_no FROM icc_inboxes
  JOIN icc_tenants ON icc_tenants.tenant_no = icc_inboxes.tenant_no WHERE tenant_id = ? AND name = ?`;

export class Inboxes {
  readonly #store: Store;
  readonly #quotas: Quotas;
  readonly #tenants = new Map<string, Promise<TenantFacts>>();
  /** By tenant and name; the least recently used first. */
  readonly #states = new Map<string, Promise<InboxState | null>>();
  readonly #making = new Map<string, Promise<InboxState | null>>();

  constructor(store: Store, quotas: Quotas) {
    this.#store = store;
    this.#quotas = quotas;
  }

  /** The inbox, or null if nothing was published to it. */
  find(key: InboxKey): Promise<InboxState | null> {
    const name = nameOf(key);
    const known = this.#states.get(name);
    if (known === undefined) return this.#remember(name, this.#load(key));
    this.#states.delete(name);
    this.#states.set(name, known);
    return known;
  }

  /** The inbox; makes it. Rejects with QUOTA_EXCEEDED if the tenant has too many. */
  async make(key: InboxKey): Promise<InboxState> {
    const found = await this.find(key);
    if (found !== null) return found;
    const name = nameOf(key);
    // Of two first publishes, the second waits for the row that the first makes.
    let making = this.#making.get(name);
    if (making === undefined) {
      making = this.#insert(key).then(() => this.find(key));
      this.#making.set(name, making);
      making.finally(() => this.#making.delete(name)).catch(() => {});
    }
    const made = await making;
    if (made === null) throw new AppError("NOT_FOUND", `inbox ${key.inbox} was removed`);
    return made;
  }

  /** Throws QUEUE_FULL if the inbox or its tenant has no room for one more entry of that size. */
  checkRoom(inbox: InboxState, bytes: number, is_unread: boolean): void {
    if (is_unread && inbox.unread_count >= LIMITS.inbox_unread_max) {
      throw new AppError("QUEUE_FULL", `inbox ${inbox.name} holds ${LIMITS.inbox_unread_max} unread messages`, {
        retry_after: 1,
        hint: "receive and ack the messages of the inbox, or send them with a shorter time to live",
      });
    }
    const { messages_mb_max } = this.#quotas.of(inbox.tenant.tenant_id);
    if (messages_mb_max !== null && inbox.tenant.bytes + bytes > messages_mb_max * MIB) {
      throw new AppError("QUEUE_FULL", `the messages of the tenant fill ${messages_mb_max} MiB`, {
        retry_after: 60,
        hint: "ack messages, remove containers with full inboxes, or ask the operator for a higher messages_mb_max",
      });
    }
  }

  /** Bytes that the tenant's entries may take until the oldest settled ones go early; null: no bound. */
  settledBytesMax(tenant_id: string): number | null {
    const { messages_mb_max } = this.#quotas.of(tenant_id);
    return messages_mb_max === null ? null : messages_mb_max * MIB * LIMITS.messages_settled_ratio;
  }

  /** The tenants in memory: every one that published or received since the start. */
  tenants(): Promise<TenantFacts[]> {
    return Promise.all(this.#tenants.values());
  }

  tenant(tenant_id: string): Promise<TenantFacts> {
    const known = this.#tenants.get(tenant_id);
    if (known !== undefined) return known;
    const loading = this.#loadTenant(tenant_id);
    this.#tenants.set(tenant_id, loading);
    loading.catch(() => this.#tenants.delete(tenant_id));
    return loading;
  }

  /** Reads what the tenant's messages take: inboxes end with their containers, which nobody reports here. */
  async refresh(tenant: TenantFacts): Promise<void> {
    const row = await this.#store.readOne(BYTES, [tenant.tenant_id]);
    tenant.bytes = Number(row?.bytes ?? 0);
  }

  /** Its facts are read again at the next use. */
  forget(key: InboxKey): void {
    this.#states.delete(nameOf(key));
  }

  #remember(name: string, loading: Promise<InboxState | null>): Promise<InboxState | null> {
    const forget = () => {
      if (this.#states.get(name) === loading) this.#states.delete(name);
    };
    this.#states.set(name, loading);
    loading.then((state) => {
      if (state === null) forget();
    }, forget);
    void this.#evict();
    return loading;
  }

  async #load(key: InboxKey): Promise<InboxState | null> {
    const tenant = await this.tenant(key.tenant_id);
    const row = await this.#store.readOne(INBOX, [key.tenant_id, key.inbox]);
    if (row === null) return null;
    const inbox_no = Number(row.inbox_no);
    const unread = await this.#store.readOne(
      "SELECT count(*) AS count FROM icc_entries INDEXED BY icc_entries_unread WHERE inbox_no = ? AND state = 0",
      [inbox_no],
    );
    return {
      tenant,
      name: key.inbox,
      inbox_no,
      last_seq: Number(row.last_seq),
      unread_count: Number(unread?.count ?? 0),
      uses: 0,
      turn: Promise.resolve(),
    };
  }

  async #insert({ tenant_id, inbox }: InboxKey): Promise<void> {
    const { tenant_no } = await this.tenant(tenant_id);
    const { conflict } = await this.#store.write(
      [
        {
          sql: `INSERT INTO icc_inboxes (tenant_no, name) SELECT ?, ?
            WHERE ? OR (SELECT count(*) FROM icc_inboxes WHERE tenant_no = ? AND name LIKE '%:%') < ? ON CONFLICT DO NOTHING`,
          // Containers are bounded by themselves, and none shall lack an inbox because others fill queues.
          args: [tenant_no, inbox, inbox.includes(":") ? 0 : 1, tenant_no, LIMITS.tenant_inboxes_max],
          expect_changes: 1,
        },
      ],
      { durable: true },
    );
    if (conflict === null) return;
    const exists = await this.#store.readOne("SELECT 1 AS one FROM icc_inboxes WHERE tenant_no = ? AND name = ?", [
      tenant_no,
      inbox,
    ]);
    if (exists !== null) return;
    throw new AppError("QUOTA_EXCEEDED", `the tenant has ${LIMITS.tenant_inboxes_max} inboxes already`, {
      hint: "remove containers, topics or queues that are not needed",
    });
  }

  async #loadTenant(tenant_id: string): Promise<TenantFacts> {
    await this.#store.write(
      [{ sql: "INSERT INTO icc_tenants (tenant_id) VALUES (?) ON CONFLICT DO NOTHING", args: [tenant_id] }],
      { durable: true },
    );
    const row = await this.#store.readOne(BYTES, [tenant_id]);
    return { tenant_id, tenant_no: Number(row?.tenant_no), bytes: Number(row?.bytes ?? 0) };
  }

  async #evict(): Promise<void> {
    if (this.#states.size <= LIMITS.inboxes_cached_max) return;
    for (const [name, loading] of this.#states) {
      const state = await loading.catch(() => null);
      if (state === null || state.uses > 0) continue;
      if (this.#states.get(name) === loading) this.#states.delete(name);
      if (this.#states.size <= LIMITS.inboxes_cached_max) return;
    }
  }
}

function nameOf({ tenant_id, inbox }: InboxKey): string {
  return `${tenant_id}\n${inbox}`;
}
