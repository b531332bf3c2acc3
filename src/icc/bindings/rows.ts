/** Bindings in the store. */
import { LIMITS } from "../../base/limits.ts";
import type { Row, Store } from "../../store/store.ts";
import type { InboxKey } from "../bus/port.ts";

export interface Binding {
  readonly id: string;
  readonly tenant_id: string;
  readonly function_id: string;
  readonly function_name: string;
  /** A container's id, `queue:<name>` or `topic:<name>`; null: any address. */
  readonly subject: string | null;
  /** Exact, or with `*` at its end; null: any type. */
  readonly message_type: string | null;
  readonly is_ordered: boolean;
  /** Publishes what a call returns to the sender. */
  readonly replies: boolean;
  readonly max_deliver: number;
  readonly backoff_ms: number;
  readonly concurrency: number;
  readonly created_at: number;
}

const SELECT = `SELECT icc_bindings.*, functions.name AS function_name FROM icc_bindings
  JOIN functions ON functions.id = function_id`;
const INSERT = `INSERT INTO icc_bindings (id, tenant_id, function_id, subject, message_type, is_ordered, replies, max_deliver,
  backoff_ms, concurrency, created_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
  WHERE (SELECT count(*) FROM icc_bindings WHERE tenant_id = ?) < ?
  AND EXISTS (SELECT 1 FROM functions WHERE id = ?)
  AND (? IS NULL OR EXISTS (SELECT 1 FROM containers WHERE id = ? AND is_removing = 0))`;

/**
 * Inboxes of bindings that ended while a publish copied a message for them. CROSS JOIN fixes the order of the tables: one search per
 * tenant in the index of names, and no scan of all inboxes.
 */
const ORPHANS = `SELECT tenant_id, name FROM icc_tenants
  CROSS JOIN icc_inboxes ON icc_tenants.tenant_no = icc_inboxes.tenant_no
  WHERE name >= 'binding:' AND name < 'binding;' AND substr(name, 9) NOT IN (SELECT id FROM icc_bindings) LIMIT ?`;

export class BindingRows {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  async all(): Promise<Binding[]> {
    return (await this.#store.read(`${SELECT} ORDER BY icc_bindings.id`)).map(toBinding);
  }

  /** As many as a tenant may have, by id. */
  async list(tenant_id: string): Promise<Binding[]> {
    const rows = await this.#store.read(`${SELECT} WHERE icc_bindings.tenant_id = ? ORDER BY icc_bindings.id`, [
      tenant_id,
    ]);
    return rows.map(toBinding);
  }

  async get(tenant_id: string, id: string): Promise<Binding | null> {
    const row = await this.#store.readOne(`${SELECT} WHERE icc_bindings.id = ? AND icc_bindings.tenant_id = ?`, [
      id,
      tenant_id,
    ]);
    return row === null ? null : toBinding(row);
  }

  /** False: the tenant has too many, or the function or `container_id` is gone. */
  async insert(binding: Binding, container_id: string | null): Promise<boolean> {
    const { id, tenant_id, function_id, subject, message_type, is_ordered, replies } = binding;
    const { max_deliver, backoff_ms, concurrency, created_at } = binding;
    const args = [
      ...[id, tenant_id, function_id, subject, message_type, is_ordered ? 1 : 0, replies ? 1 : 0, max_deliver],
      ...[backoff_ms, concurrency, created_at, tenant_id, LIMITS.tenant_bindings_max, function_id],
      ...[container_id, container_id],
    ];
    const { changes } = await this.#store.write([{ sql: INSERT, args }], { durable: true });
    return changes[0] === 1;
  }

  async orphans(): Promise<InboxKey[]> {
    const rows = await this.#store.read(ORPHANS, [LIMITS.messages_pruned_at_once]);
    return rows.map(({ tenant_id, name }) => ({ tenant_id: String(tenant_id), inbox: String(name) }));
  }

  async delete(tenant_id: string, id: string): Promise<boolean> {
    const sql = "DELETE FROM icc_bindings WHERE id = ? AND tenant_id = ?";
    const { changes } = await this.#store.write([{ sql, args: [id, tenant_id] }], { durable: true });
    return changes[0] === 1;
  }
}

function toBinding(row: Row): Binding {
  const text = (value: unknown) => (value === null ? null : String(value));
  return {
    ...{ id: String(row.id), tenant_id: String(row.tenant_id) },
    ...{ function_id: String(row.function_id), function_name: String(row.function_name) },
    ...{ subject: text(row.subject), message_type: text(row.message_type) },
    ...{ is_ordered: Number(row.is_ordered) === 1, replies: Number(row.replies) === 1 },
    ...{ max_deliver: Number(row.max_deliver), backoff_ms: Number(row.backoff_ms) },
    ...{ concurrency: Number(row.concurrency), created_at: Number(row.created_at) },
  };
}

const isQueue = ({ subject }: Binding): boolean => subject?.startsWith("queue:") === true;

/** A binding of a queue receives from the queue; each other one has an inbox of its own. */
export const inboxOf = (binding: Binding): string =>
  isQueue(binding) && binding.subject !== null ? binding.subject : `binding:${binding.id}`;

/** Returns true if the inbox of the binding gets a copy of a message. */
export function takes(binding: Binding, { to, type }: { readonly to: string; readonly type: string }): boolean {
  if (isQueue(binding) || (binding.subject !== null && binding.subject !== to)) return false;
  const wanted = binding.message_type;
  if (wanted === null || wanted === type) return true;
  return wanted.endsWith("*") && type.startsWith(wanted.slice(0, -1));
}
