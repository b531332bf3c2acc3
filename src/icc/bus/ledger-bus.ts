/**
 * Everything that both backends share: a bus on the ledger, with or without a carrier that keeps the envelopes. The order
 * of the steps is the carrier's (C1, C2 in carrier.ts).
 */
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Quotas } from "../../base/tenant-limits.ts";
import type { Row, Store } from "../../store/store.ts";
import type { DeadCause } from "../observer.ts";
import type { CarriedEntry, Carrier, Outcome } from "./carrier.ts";
import { Inboxes, type InboxState } from "./inboxes.ts";
import { type Candidate, Ledger, leaseName } from "./ledger.ts";
import type * as port from "./port.ts";
import { Pruning } from "./pruning.ts";
import { bytesOf, ENTRY_COLUMNS, entryId, seqOf, stateCode, toDeadLetter, toEntry, UNREAD } from "./rows.ts";
import { Watchers } from "./watchers.ts";

export interface LedgerBusOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly quotas: Quotas;
  readonly observer?: port.BusObserver;
}

interface Failure {
  readonly lease: string | null;
  readonly reason: string;
  readonly cause: DeadCause;
}

/** Makes the carrier of a bus, which reads the ledger. */
export type MakeCarrier = (ledger: Ledger) => Carrier;

export abstract class LedgerBus implements port.Bus {
  abstract readonly backend: port.Bus["backend"];
  abstract readonly sync_mode: string;
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #inboxes: Inboxes;
  readonly #ledger: Ledger;
  readonly #watchers: Watchers;
  readonly #pruning: Pruning;
  readonly #carrier: Carrier | null;
  readonly #observer: port.BusObserver | undefined;
  #isClosed = false;

  constructor({ store, clock, quotas, observer }: LedgerBusOptions, makeCarrier: MakeCarrier | null) {
    this.#store = store;
    this.#clock = clock;
    this.#observer = observer;
    this.#inboxes = new Inboxes(store, quotas);
    const onExpired = (count: number): void => observer?.expired(count);
    this.#ledger = new Ledger({ store, clock, inboxes: this.#inboxes, onExpired });
    this.#watchers = new Watchers(clock);
    this.#carrier = makeCarrier?.(this.#ledger) ?? null;
    const parts = { inboxes: this.#inboxes, ledger: this.#ledger, carrier: this.#carrier };
    this.#pruning = new Pruning({ store, clock, ...parts, onExpired });
  }

  abstract boot(): Promise<void>;
  abstract health(): port.BusHealth;

  async publish(message: port.Outgoing): Promise<port.Published> {
    const begun_ms = this.#clock.monotonicMs();
    const ended = (published: port.Published | null, error: unknown): void =>
      this.#observer?.published(message, published, error, this.#clock.monotonicMs() - begun_ms);
    try {
      const published = await this.#publish(message);
      ended(published, null);
      return published;
    } catch (error) {
      ended(null, error);
      throw error;
    }
  }

  async #publish(message: port.Outgoing): Promise<port.Published> {
    this.#checkOpen();
    const published = await this.#ledger.publish(message, this.#carrier);
    if (!published.is_duplicate) {
      if (message.is_settled !== true) this.#watchers.wake(message);
      for (const inbox of message.copies ?? []) this.#watchers.wake({ tenant_id: message.tenant_id, inbox });
    }
    return published;
  }

  async receive(key: port.InboxKey, options: port.ReceiveOptions): Promise<port.Delivery[]> {
    this.#checkOpen();
    const begun_ms = this.#clock.monotonicMs();
    const inbox = await this.#inboxes.find(key);
    if (inbox === null) return [];
    // Receivers of one inbox take turns, so that none finds what another has just chosen.
    const turn = inbox.turn.then(() => this.#deliver(key, inbox, options));
    inbox.turn = turn.catch(() => {});
    const deliveries = await turn;
    if (deliveries.length > 0) this.#observer?.delivered(deliveries, begun_ms);
    if (this.#watchers.has(key)) await this.#arm(key, inbox);
    return deliveries;
  }

  async ack(ref: port.EntryRef, { lease, moves_version = false }: port.SettleOptions): Promise<port.Settled> {
    const { is_new, ...settled } = await this.#ledger.ack(ref, lease, moves_version);
    failpoint("icc.ack.settled");
    if (is_new) this.#observer?.settled(ref, "acked");
    await this.#settleCarried(ref, "acked");
    this.#watchers.wake(ref);
    return settled;
  }

  nack(ref: port.EntryRef, { lease, reason }: port.SettleOptions & { readonly reason: string }): Promise<port.Settled> {
    return this.#nack(ref, { lease, reason, cause: "nack" });
  }

  async requeue(ref: port.EntryRef, options: port.RequeueOptions): Promise<port.Settled> {
    const { lease, delay_ms, max_deliver, reason, is_uncounted = false } = options;
    const row = is_uncounted ? null : await this.#ledger.entry(ref);
    if (row !== null && Number(row.deliveries) >= max_deliver) {
      return this.#nack(ref, { lease, reason, cause: "max_deliver" });
    }
    const due_ms = delay_ms === 0 ? 0 : Math.ceil(this.#clock.epochMs() + delay_ms);
    const how = is_uncounted ? "undelivered" : "free";
    const { is_new, ...settled } = await this.#ledger.postpone(ref, lease, due_ms, how);
    if (is_new) this.#observer?.settled(ref, "requeued");
    await this.#settleCarried(ref, { delay_ms });
    if (due_ms === 0) this.#watchers.wake(ref);
    else this.#watchers.wakeAt(ref, due_ms);
    return settled;
  }

  async extend(ref: port.EntryRef, { lease, lease_ms }: { readonly lease: string; readonly lease_ms: number }) {
    const until_ms = Math.ceil(this.#clock.epochMs() + lease_ms);
    const { state, is_dead } = await this.#ledger.postpone(ref, lease, until_ms, "held");
    await this.#settleCarried(ref, "held");
    return { state, is_dead };
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
    const envelopes = await this.#envelopes(inbox, rows, false);
    return rows.flatMap((row) => {
      const envelope = envelopes.get(Number(row.id));
      return envelope === undefined ? [] : [toEntry(key, row, envelope, now_ms)];
    });
  }

  async entry(ref: port.EntryRef): Promise<port.Entry | null> {
    const row = await this.#ledger.entry(ref);
    if (row === null) return null;
    const seq = seqOf(Number(row.id));
    const [entry = null] = await this.read(ref, { from_seq: seq, to_seq: seq, state: null, entries_max: 1 });
    return entry;
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

  async lastDead(tenant_id: string): Promise<number> {
    const sql = "SELECT dead_last_seq FROM icc_tenants WHERE tenant_id = ?";
    return Number((await this.#store.readOne(sql, [tenant_id]))?.dead_last_seq ?? 0);
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
    this.#carrier?.purge(inbox.inbox_no);
  }

  prune(): Promise<void> {
    return this.#pruning.step();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#watchers.close();
  }

  async #deliver(key: port.InboxKey, inbox: InboxState, options: port.ReceiveOptions): Promise<port.Delivery[]> {
    // Actions have no bound on held entries: receivers cannot block the platform.
    const room =
      options.is_action === true
        ? options.entries_max
        : LIMITS.inbox_leases_max - (await this.#ledger.heldCount(inbox));
    const entries_max = Math.min(options.entries_max, room, LIMITS.entries_read_max);
    if (entries_max <= 0) return [];
    const due = await this.#ledger.candidates(inbox, entries_max, options);
    const dead = due.filter(({ deliveries }) => deliveries >= options.max_deliver);
    for (const { id } of dead) await this.#bury(key, id);
    const chosen = within(due.filter(({ deliveries }) => deliveries < options.max_deliver));
    // A carrier that does not answer costs no delivery: the entries are held when their envelopes are there.
    if (this.#carrier === null && due.some(({ is_carried }) => is_carried)) throw noCarrier();
    const carried = this.#carrier === null ? null : await this.#envelopes(inbox, await this.#load(chosen), true);
    const lost = carried === null ? [] : chosen.filter((id) => !carried.has(id));
    if (lost.length > 0) await this.#ledger.lose(inbox, lost);
    const held_until_ms = Math.ceil(this.#clock.epochMs() + options.lease_ms);
    const kept = chosen.filter((id) => !lost.includes(id));
    const held = kept.length === 0 ? [] : await this.#ledger.hold(kept, held_until_ms);
    if (held.length === 0 && dead.length + lost.length > 0) return this.#deliver(key, inbox, options);
    const now_ms = this.#clock.epochMs();
    const rows = await this.#load(held, carried === null);
    return rows.map((row) => ({
      ...toEntry(key, row, carried?.get(Number(row.id)) ?? bytesOf(row.envelope), now_ms),
      lease: leaseName(Number(row.lease)),
      held_until_ms,
    }));
  }

  async #nack(ref: port.EntryRef, failure: Failure): Promise<port.Settled> {
    const settled = await this.#fail(ref, failure);
    this.#watchers.wake(ref);
    return settled;
  }

  /** Fails an entry; its envelope is taken from the carrier before, because a dead letter is the last copy. */
  async #fail(ref: port.EntryRef, { lease, reason, cause }: Failure): Promise<port.Settled> {
    const [inbox, entry] = [await this.#inboxes.find(ref), await this.#ledger.entry(ref)];
    const rows = entry === null || Number(entry.state) !== UNREAD ? [] : await this.#load([Number(entry.id)]);
    const envelopes = inbox === null ? new Map<number, Uint8Array>() : await this.#envelopes(inbox, rows, false);
    const lost = rows.filter(({ id }) => !envelopes.has(Number(id))).map(({ id }) => Number(id));
    if (inbox !== null && lost.length > 0) await this.#ledger.lose(inbox, lost);
    const envelope = envelopes.values().next().value ?? null;
    const { is_new, ...settled } = await this.#ledger.fail(ref, lease, reason, envelope);
    if (is_new) {
      this.#observer?.settled(ref, "failed");
      this.#observer?.died(ref, reason, cause);
    }
    await this.#settleCarried(ref, "failed");
    return settled;
  }

  async #settleCarried(ref: port.EntryRef, outcome: Outcome): Promise<void> {
    if (this.#carrier === null) return;
    const inbox = await this.#inboxes.find(ref);
    if (inbox !== null) this.#carrier.settle(inbox, ref.msg_id, outcome);
  }

  /** The envelopes of rows, by id; one that is absent is lost. */
  async #envelopes(inbox: InboxState, rows: readonly Row[], will_hold: boolean): Promise<Map<number, Uint8Array>> {
    const here = new Map<number, Uint8Array>();
    const there: CarriedEntry[] = [];
    for (const { id, msg_id, carried_seq, envelope } of rows) {
      if (envelope !== null) here.set(Number(id), bytesOf(envelope));
      else there.push({ id: Number(id), msg_id: String(msg_id), carried_seq: Number(carried_seq) });
    }
    if (there.length === 0) return here;
    if (this.#carrier === null) throw noCarrier();
    const carried = await this.#carrier.load(inbox, there, will_hold);
    return new Map([...here, ...carried]);
  }

  async #bury(key: port.InboxKey, id: number): Promise<void> {
    const [row] = await this.#load([id]);
    if (row === undefined) return;
    // Its receiver may ack it at this very moment: then it is not dead.
    const lease = Number(row.lease) > 0 ? leaseName(Number(row.lease)) : null;
    const why = { lease, reason: "max_deliver", cause: "max_deliver" } as const;
    await this.#fail({ ...key, msg_id: String(row.msg_id) }, why).catch((error) => {
      if (!(error instanceof AppError) || error.code !== "WRONG_STATE") throw error;
    });
  }

  async #load(ids: readonly number[], with_envelopes = true): Promise<Row[]> {
    if (ids.length === 0) return [];
    const marks = ids.map(() => "?").join(",");
    const columns = `${ENTRY_COLUMNS}, carried_seq${with_envelopes ? ", envelope" : ""}`;
    return this.#store.read(`SELECT ${columns} FROM icc_entries WHERE id IN (${marks}) ORDER BY id`, [...ids]);
  }

  async #arm(key: port.InboxKey, inbox: InboxState): Promise<void> {
    const due_ms = await this.#ledger.nextDue(inbox);
    if (due_ms !== null) this.#watchers.wakeAt(key, due_ms);
  }

  /** Something may be due in every inbox that is watched. */
  protected wakeAll(): void {
    this.#watchers.wakeAll();
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new AppError("SHUTTING_DOWN", "the message bus is closed");
  }
}

/** The setting of an earlier start is gone; the messages come back with it. */
function noCarrier(): AppError {
  return new AppError("SERVICE_UNAVAILABLE", "messages of the inbox are on a NATS server, and the daemon has none", {
    hint: "start the daemon with the HEARTH_NATS_URL that it had",
  });
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
