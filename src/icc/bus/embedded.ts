/**
 * The bus in the store of the daemon, the default: entries, leases and envelopes are rows. A publish is synced to the disk
 * before it resolves; publishes of one turn share a commit and a sync. An ack is in the log of the store: it survives
 * every crash of the daemon, and after a power cut the message may come again.
 */
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Quotas } from "../../base/tenant-limits.ts";
import type { Row, Store } from "../../store/store.ts";
import { Inboxes, type InboxState } from "./inboxes.ts";
import { type Candidate, Ledger, leaseName } from "./ledger.ts";
import type * as port from "./port.ts";
import { Pruning } from "./pruning.ts";
import { bytesOf, ENTRY_COLUMNS, entryId, stateCode, toDeadLetter, toEntry } from "./rows.ts";
import { Watchers } from "./watchers.ts";

export interface EmbeddedBusOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly quotas: Quotas;
}

export class EmbeddedBus implements port.Bus {
  readonly backend = "embedded";
  readonly sync_mode = "write-ahead log, synced before a publish is answered, not before an ack";
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #inboxes: Inboxes;
  readonly #ledger: Ledger;
  readonly #watchers: Watchers;
  readonly #pruning: Pruning;
  #isClosed = false;

  constructor({ store, clock, quotas }: EmbeddedBusOptions) {
    this.#store = store;
    this.#clock = clock;
    this.#inboxes = new Inboxes(store, quotas);
    this.#ledger = new Ledger({ store, clock, inboxes: this.#inboxes });
    this.#watchers = new Watchers(clock);
    this.#pruning = new Pruning({ store, clock, inboxes: this.#inboxes });
  }

  async boot(): Promise<void> {}

  async publish(message: port.Outgoing): Promise<port.Published> {
    this.#checkOpen();
    const published = await this.#ledger.publish(message, null);
    if (!published.is_duplicate) {
      if (message.is_settled !== true) this.#watchers.wake(message);
      for (const inbox of message.copies ?? []) this.#watchers.wake({ tenant_id: message.tenant_id, inbox });
    }
    return published;
  }

  async receive(key: port.InboxKey, options: port.ReceiveOptions): Promise<port.Delivery[]> {
    this.#checkOpen();
    const inbox = await this.#inboxes.find(key);
    if (inbox === null) return [];
    // Receivers of one inbox take turns, so that none finds what another has just chosen.
    const turn = inbox.turn.then(() => this.#deliver(key, inbox, options));
    inbox.turn = turn.catch(() => {});
    const deliveries = await turn;
    if (this.#watchers.has(key)) await this.#arm(key, inbox);
    return deliveries;
  }

  async ack(ref: port.EntryRef, { lease, moves_version = false }: port.SettleOptions): Promise<port.Settled> {
    const settled = await this.#ledger.ack(ref, lease, moves_version);
    this.#watchers.wake(ref);
    return settled;
  }

  async nack(ref: port.EntryRef, { lease, reason }: port.SettleOptions & { readonly reason: string }) {
    const settled = await this.#ledger.fail(ref, lease, reason, null);
    this.#watchers.wake(ref);
    return settled;
  }

  async requeue(ref: port.EntryRef, options: port.RequeueOptions): Promise<port.Settled> {
    const { lease, delay_ms, max_deliver, reason } = options;
    const row = await this.#ledger.entry(ref);
    if (row !== null && Number(row.deliveries) >= max_deliver) return this.nack(ref, { lease, reason });
    const due_ms = delay_ms === 0 ? 0 : Math.ceil(this.#clock.epochMs() + delay_ms);
    const settled = await this.#ledger.postpone(ref, lease, due_ms, false);
    if (due_ms === 0) this.#watchers.wake(ref);
    else this.#watchers.wakeAt(ref, due_ms);
    return settled;
  }

  extend(ref: port.EntryRef, { lease, lease_ms }: { readonly lease: string; readonly lease_ms: number }) {
    return this.#ledger.postpone(ref, lease, Math.ceil(this.#clock.epochMs() + lease_ms), true);
  }

  async read(key: port.InboxKey, options: port.ReadOptions): Promise<port.Entry[]> {
    const inbox = await this.#inboxes.find(key);
    if (inbox === null) return [];
    const now_ms = this.#clock.epochMs();
    const [condition, args] = stateCondition(options.state, now_ms);
    const from = entryId(inbox.inbox_no, options.from_seq);
    const to = entryId(inbox.inbox_no, Math.min(options.to_seq, inbox.last_seq));
    const found = await this.#store.read(
      `SELECT id, bytes FROM icc_entries WHERE inbox_no = ? AND id BETWEEN ? AND ? ${condition} ORDER BY id LIMIT ?`,
      [inbox.inbox_no, from, to, ...args, options.entries_max],
    );
    const rows = await this.#load(within(found.map(({ id, bytes }) => ({ id: Number(id), bytes: Number(bytes) }))));
    return rows.map((row) => toEntry(key, row, bytesOf(row.envelope), now_ms));
  }

  find(tenant_id: string, msg_id: string): Promise<port.Found[]> {
    return this.#ledger.find(tenant_id, msg_id);
  }

  actionInboxes(): Promise<port.InboxKey[]> {
    return this.#ledger.actionInboxes();
  }

  facts(key: port.InboxKey): Promise<port.InboxFacts> {
    return this.#ledger.facts(key);
  }

  inboxes(tenant_id: string, { after, inboxes_max }: { readonly after: string; readonly inboxes_max: number }) {
    return this.#ledger.list(tenant_id, after, inboxes_max);
  }

  async deadLetters(tenant_id: string, options: { readonly from_seq: number; readonly entries_max: number }) {
    const { tenant_no } = await this.#inboxes.tenant(tenant_id);
    const found = await this.#store.read(
      "SELECT id, length(envelope) AS bytes FROM icc_dead WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
      [entryId(tenant_no, options.from_seq), entryId(tenant_no + 1, 0) - 1, options.entries_max],
    );
    const ids = within(found.map(({ id, bytes }) => ({ id: Number(id), bytes: Number(bytes) })));
    const rows = await Promise.all(ids.map((id) => this.#store.readOne("SELECT * FROM icc_dead WHERE id = ?", [id])));
    return rows.flatMap((row) => (row === null ? [] : [toDeadLetter(row, bytesOf(row.envelope))]));
  }

  async deadLetter(tenant_id: string, dead_seq: number): Promise<port.DeadLetter | null> {
    const { tenant_no } = await this.#inboxes.tenant(tenant_id);
    const row = await this.#store.readOne("SELECT * FROM icc_dead WHERE id = ?", [entryId(tenant_no, dead_seq)]);
    return row === null ? null : toDeadLetter(row, bytesOf(row.envelope));
  }

  async noteReplay(tenant_id: string, dead_seq: number): Promise<void> {
    const { tenant_no } = await this.#inboxes.tenant(tenant_id);
    await this.#store.write([
      {
        sql: "UPDATE icc_dead SET replayed_ms = ? WHERE id = ?",
        args: [Math.floor(this.#clock.epochMs()), entryId(tenant_no, dead_seq)],
      },
    ]);
  }

  watch(key: port.InboxKey, onDue: () => void): () => void {
    const end = this.#watchers.add(key, onDue);
    void this.#inboxes.find(key).then(
      (inbox) => (inbox === null ? undefined : this.#arm(key, inbox)),
      () => {},
    );
    return end;
  }

  async remove(key: port.InboxKey): Promise<void> {
    const inbox = await this.#inboxes.find(key);
    if (inbox === null) return;
    await this.#store.write([{ sql: "DELETE FROM icc_inboxes WHERE inbox_no = ?", args: [inbox.inbox_no] }], {
      durable: true,
    });
    this.#inboxes.forget(key);
  }

  prune(): Promise<void> {
    return this.#pruning.step();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#watchers.close();
  }

  async #deliver(key: port.InboxKey, inbox: InboxState, options: port.ReceiveOptions): Promise<port.Delivery[]> {
    const room = LIMITS.inbox_leases_max - (await this.#ledger.heldCount(inbox));
    const entries_max = Math.min(options.entries_max, room, LIMITS.entries_read_max);
    if (entries_max <= 0) return [];
    const due = await this.#ledger.candidates(inbox, entries_max, options);
    const dead = due.filter(({ deliveries }) => deliveries >= options.max_deliver);
    for (const { id } of dead) await this.#bury(key, id);
    const chosen = within(due.filter(({ deliveries }) => deliveries < options.max_deliver));
    const held_until_ms = Math.ceil(this.#clock.epochMs() + options.lease_ms);
    const held = chosen.length === 0 ? [] : await this.#ledger.hold(chosen, held_until_ms);
    if (held.length === 0 && dead.length > 0) return this.#deliver(key, inbox, options);
    const now_ms = this.#clock.epochMs();
    const rows = await this.#load(held);
    return rows.map((row) => ({
      ...toEntry(key, row, bytesOf(row.envelope), now_ms),
      lease: leaseName(Number(row.lease)),
      held_until_ms,
    }));
  }

  async #bury(key: port.InboxKey, id: number): Promise<void> {
    const [row] = await this.#load([id]);
    if (row === undefined) return;
    // Its receiver may ack it at this very moment: then it is not dead.
    await this.#ledger
      .fail(
        { ...key, msg_id: String(row.msg_id) },
        Number(row.lease) > 0 ? leaseName(Number(row.lease)) : null,
        "max_deliver",
        null,
      )
      .catch((error) => {
        if (!(error instanceof AppError) || error.code !== "WRONG_STATE") throw error;
      });
  }

  async #load(ids: readonly number[]): Promise<Row[]> {
    if (ids.length === 0) return [];
    const marks = ids.map(() => "?").join(",");
    return this.#store.read(`SELECT ${ENTRY_COLUMNS}, envelope FROM icc_entries WHERE id IN (${marks}) ORDER BY id`, [
      ...ids,
    ]);
  }

  async #arm(key: port.InboxKey, inbox: InboxState): Promise<void> {
    const due_ms = await this.#ledger.nextDue(inbox);
    if (due_ms !== null) this.#watchers.wakeAt(key, due_ms);
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new AppError("SHUTTING_DOWN", "the message bus is closed");
  }
}

/** The first ones whose bytes fit into one answer, one at least. */
function within(entries: readonly Pick<Candidate, "id" | "bytes">[]): number[] {
  const ids: number[] = [];
  let sum = 0;
  for (const { id, bytes } of entries) {
    sum += bytes;
    if (ids.length > 0 && sum > LIMITS.entries_read_bytes_max) break;
    ids.push(id);
  }
  return ids;
}

function stateCondition(state: port.EntryState | null, now_ms: number): readonly [string, readonly number[]] {
  switch (state) {
    case null:
      return ["", []];
    case "unread":
      return ["AND state = 0 AND expires_ms > ?", [now_ms]];
    case "expired":
      return ["AND (state = 3 OR (state = 0 AND expires_ms <= ?))", [now_ms]];
    default:
      return ["AND state = ?", [stateCode(state)]];
  }
}
