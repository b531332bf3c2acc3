/**
 * The clean-up of a bus, in bounded transactions: entries past their time expire, old ones are deleted, and of a tenant near
 * its limit the oldest settled ones and dead letters. Each run continues where the last one stopped.
 */
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Row, Statement, Store } from "../../store/store.ts";
import type { Carrier } from "./carrier.ts";
import type { Inboxes } from "./inboxes.ts";
import type { Ledger } from "./ledger.ts";
import type { InboxKey } from "./port.ts";
import { EXPIRED, seqOf } from "./rows.ts";

/** Inboxes that one step visits. */
const INBOXES_AT_ONCE = 100;
const SETTLED = "state > 0";

export interface PruningOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly inboxes: Inboxes;
  readonly ledger: Ledger;
  readonly carrier: Carrier | null;
  /** Entries have expired. Never throws. */
  readonly onExpired: (count: number) => void;
}

export class Pruning {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #inboxes: Inboxes;
  readonly #ledger: Ledger;
  readonly #carrier: Carrier | null;
  readonly #onExpired: PruningOptions["onExpired"];
  #last_inbox_no = 0;

  constructor({ store, clock, inboxes, ledger, carrier, onExpired }: PruningOptions) {
    this.#store = store;
    this.#clock = clock;
    this.#inboxes = inboxes;
    this.#ledger = ledger;
    this.#carrier = carrier;
    this.#onExpired = onExpired;
  }

  async step(): Promise<void> {
    const rows = await this.#store.read(
      `SELECT inbox_no, name, tenant_id, last_seq, entries FROM icc_inboxes JOIN icc_tenants
        ON icc_tenants.tenant_no = icc_inboxes.tenant_no WHERE inbox_no > ? ORDER BY inbox_no LIMIT ?`,
      [this.#last_inbox_no, INBOXES_AT_ONCE],
    );
    this.#last_inbox_no = rows.length < INBOXES_AT_ONCE ? 0 : Number(rows.at(-1)?.inbox_no);
    for (const row of rows) await this.#pruneInbox(row);
    await this.#makeRoom();
    await this.#deleteGone();
    await this.#deleteOld();
  }

  async #pruneInbox({ inbox_no, name, tenant_id, entries }: Row): Promise<void> {
    const now_ms = this.#clock.epochMs();
    const key = { tenant_id: String(tenant_id), inbox: String(name) };
    const expired = await this.#store.read(
      `SELECT id FROM icc_entries INDEXED BY icc_entries_unread WHERE inbox_no = ? AND state = 0 AND expires_ms <= ?
        ORDER BY id LIMIT ?`,
      [inbox_no ?? 0, now_ms, LIMITS.messages_pruned_at_once],
    );
    if (expired.length > 0) await this.#expire(key, expired);
    const cutoff_ms = now_ms - LIMITS.icc_message_kept_ms;
    await this.#deleteFirst(key, Number(inbox_no), `created_ms < ${Math.floor(cutoff_ms)}`, () => false);
    if (Number(entries) === 0 && /^(queue|topic):/.test(String(name))) await this.#deleteUnused(key, Number(inbox_no));
  }

  async #expire(key: InboxKey, rows: readonly Row[]): Promise<void> {
    const { changes } = await this.#store.write(
      rows.map(({ id }) => ({
        sql: `UPDATE icc_entries SET state = ${EXPIRED}, due_ms = 0, lease = 0 WHERE id = ? AND state = 0`,
        args: [id ?? 0],
      })),
    );
    const expired_count = changes.filter((count) => count === 1).length;
    const inbox = await this.#inboxes.find(key);
    if (inbox !== null) inbox.unread_count -= expired_count;
    this.#onExpired(expired_count);
  }

  /** Deletes the first entries of an inbox as long as they meet a condition, until `isEnough` or a bounded number. */
  async #deleteFirst(key: InboxKey, inbox_no: number, condition: string, isEnough: () => boolean): Promise<void> {
    const { messages_pruned_at_once: at_once, messages_pruned_per_inbox_max: most } = LIMITS;
    for (let count = 0; count < most && !isEnough(); count += at_once) {
      if ((await this.#deleteSome(key, inbox_no, condition)) < at_once) return;
    }
  }

  /** One transaction of `#deleteFirst`. Resolves to the number of deleted entries. */
  async #deleteSome(key: InboxKey, inbox_no: number, condition: string): Promise<number> {
    const first = await this.#store.read(
      `SELECT id, state, bytes, carried_seq, ${condition} AS goes FROM icc_entries WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?`,
      [inbox_no * 2 ** 32, (inbox_no + 1) * 2 ** 32 - 1, LIMITS.messages_pruned_at_once],
    );
    const end = first.findIndex(({ goes }) => Number(goes) !== 1);
    const going = end === -1 ? first : first.slice(0, end);
    if (going.length === 0) return 0;
    const bytes = going.reduce((sum, row) => sum + Number(row.bytes), 0);
    const { changes } = await this.#store.write([
      {
        sql: `DELETE FROM icc_entries WHERE id BETWEEN ? AND ? AND ${condition}`,
        args: [going[0]?.id ?? 0, going.at(-1)?.id ?? 0],
      },
      // A key is kept with its entry, so that the limit on entries bounds keys too.
      {
        sql: "DELETE FROM icc_keys WHERE inbox_no = ? AND stream_seq <= ?",
        args: [inbox_no, seqOf(Number(going.at(-1)?.id))],
      },
      {
        sql: "UPDATE icc_inboxes SET entries = entries - ?, bytes = bytes - ? WHERE inbox_no = ?",
        args: [going.length, bytes, inbox_no],
      },
    ]);
    const inbox = await this.#inboxes.find(key);
    const unread_count = going.filter(({ state }) => Number(state) === 0).length;
    if (inbox !== null && changes.length > 0) {
      inbox.tenant.bytes -= bytes;
      inbox.unread_count -= unread_count;
    }
    // An unread entry goes for its age alone.
    if (changes.length > 0) this.#onExpired(unread_count);
    // The carrier deletes old envelopes by itself.
    if (this.#carrier !== null && condition === SETTLED) {
      const carried = going.flatMap(({ carried_seq }) => (carried_seq === null ? [] : [Number(carried_seq)]));
      this.#carrier.drop(await this.#ledger.unused(carried));
    }
    return going.length;
  }

  /** An inbox of a queue or topic without entries, whose last one was deleted for its age. */
  async #deleteUnused(key: InboxKey, inbox_no: number): Promise<void> {
    const inbox = await this.#inboxes.find(key);
    if (inbox === null || inbox.uses > 0 || inbox.last_seq === 0) return;
    await this.#store.write([
      {
        sql: "DELETE FROM icc_inboxes WHERE inbox_no = ? AND entries = 0 AND last_seq = ?",
        args: [inbox_no, inbox.last_seq],
      },
    ]);
    this.#inboxes.forget(key);
  }

  /** Deletes the oldest settled entries, and dead letters, of tenants near their limit. */
  async #makeRoom(): Promise<void> {
    for (const tenant of await this.#inboxes.tenants()) {
      await this.#inboxes.refresh(tenant);
      await this.#boundDead(tenant.tenant_no, LIMITS.dead_letters_max);
      const bytes_max = this.#inboxes.settledBytesMax(tenant.tenant_id);
      if (bytes_max === null || tenant.bytes <= bytes_max) continue;
      const isEnough = (): boolean => tenant.bytes <= bytes_max;
      const rows = await this.#store.read(
        "SELECT inbox_no, name FROM icc_inboxes WHERE tenant_no = ? ORDER BY bytes DESC LIMIT ?",
        [tenant.tenant_no, INBOXES_AT_ONCE],
      );
      for (const { inbox_no, name } of rows) {
        if (isEnough()) break;
        const key = { tenant_id: tenant.tenant_id, inbox: String(name) };
        await this.#deleteFirst(key, Number(inbox_no), SETTLED, isEnough);
      }
      if (!isEnough()) await this.#boundDead(tenant.tenant_no, LIMITS.dead_letters_max / 2);
    }
  }

  /** Deletes the oldest dead letters of a tenant above a number. */
  async #boundDead(tenant_no: number, count_max: number): Promise<void> {
    const range = [tenant_no * 2 ** 32, (tenant_no + 1) * 2 ** 32 - 1];
    const kept = await this.#store.readOne(
      "SELECT id FROM icc_dead WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1 OFFSET ?",
      [...range, count_max],
    );
    if (kept === null) return;
    await this.#store.write([
      {
        sql: `DELETE FROM icc_dead WHERE id IN
          (SELECT id FROM icc_dead WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?)`,
        args: [range[0] ?? 0, Number(kept.id), LIMITS.messages_pruned_at_once],
      },
    ]);
  }

  /** Deletes entries of inboxes that are gone. */
  async #deleteGone(): Promise<void> {
    const { messages_pruned_at_once: at_once, messages_pruned_per_inbox_max: most } = LIMITS;
    for (let count = 0; count < most; count += at_once) {
      const gone = await this.#store.readOne("SELECT inbox_no FROM icc_gone ORDER BY inbox_no LIMIT 1");
      if (gone === null) return;
      await this.#deleteSomeGone(Number(gone.inbox_no));
    }
  }

  async #deleteSomeGone(inbox_no: number): Promise<void> {
    const range = [inbox_no * 2 ** 32, (inbox_no + 1) * 2 ** 32 - 1];
    const rows = await this.#store.read("SELECT id FROM icc_entries WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?", [
      ...range,
      LIMITS.messages_pruned_at_once,
    ]);
    const end = Number(rows.at(-1)?.id ?? range[1]);
    const statements: Statement[] = [
      { sql: "DELETE FROM icc_entries WHERE id BETWEEN ? AND ?", args: [range[0] ?? 0, end] },
    ];
    if (rows.length < LIMITS.messages_pruned_at_once) {
      statements.push(
        { sql: "DELETE FROM icc_keys WHERE inbox_no = ?", args: [inbox_no] },
        { sql: "DELETE FROM icc_gone WHERE inbox_no = ?", args: [inbox_no] },
      );
      this.#carrier?.purge(inbox_no);
    }
    await this.#store.write(statements);
  }

  /** Deletes idempotency keys and dead letters past their time. */
  async #deleteOld(): Promise<void> {
    const now_ms = Math.floor(this.#clock.epochMs());
    await this.#store.write([
      {
        sql: `DELETE FROM icc_keys WHERE (inbox_no, idempotency_key) IN
          (SELECT inbox_no, idempotency_key FROM icc_keys WHERE expires_ms <= ? LIMIT ?)`,
        args: [now_ms, LIMITS.messages_pruned_at_once],
      },
      {
        sql: "DELETE FROM icc_dead WHERE id IN (SELECT id FROM icc_dead WHERE created_ms < ? LIMIT ?)",
        args: [now_ms - LIMITS.icc_message_kept_ms, LIMITS.messages_pruned_at_once],
      },
    ]);
  }
}
