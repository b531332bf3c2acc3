/**
 * The ledger of a bus: which entries an inbox has, who holds them and how they ended, in the store. Both backends write
 * it, and it decides every state. The embedded bus keeps the envelopes in it too; a bus with a server behind it keeps
 * their numbers there.
 *
 * L1. A state changes by compare-and-set in SQL, so no order of requests can settle an entry twice.
 * L2. An entry, the count of its inbox and its idempotency key are one commit.
 */
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Row, Statement, Store } from "../../store/store.ts";
import type { Carried, Carrier } from "./carrier.ts";
import type { Inboxes, InboxState } from "./inboxes.ts";
import { Place } from "./place.ts";
import type {
  EntryRef,
  EntryState,
  Found,
  InboxFacts,
  InboxKey,
  Outgoing,
  Published,
  ReceiveOptions,
  Settled,
} from "./port.ts";
import { ACKED, ENTRY_COLUMNS, EXPIRED, entryId, FAILED, seqOf, stateAt, storedBytes, UNREAD } from "./rows.ts";

/** An entry that may be delivered. */
export interface Candidate {
  readonly id: number;
  readonly bytes: number;
  readonly deliveries: number;
  /** A server has its envelope. */
  readonly is_carried: boolean;
}

const INSERT_ENTRY = `INSERT INTO icc_entries
  (id, inbox_no, tenant_no, state, is_action, created_ms, expires_ms, bytes, carried_seq, msg_id, envelope)
  SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM icc_inboxes WHERE inbox_no = ?)
  ON CONFLICT (tenant_no, msg_id, inbox_no) DO NOTHING`;
const COUNT_ENTRY = `UPDATE icc_inboxes SET last_seq = max(last_seq, ?), entries = entries + 1, bytes = bytes + ?
  WHERE inbox_no = ?`;
const COUNT_COPY = `${COUNT_ENTRY} AND EXISTS (SELECT 1 FROM icc_entries WHERE id = ?)`;
const INSERT_KEY = `INSERT INTO icc_keys (inbox_no, idempotency_key, msg_id, stream_seq, expires_ms) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (inbox_no, idempotency_key) DO UPDATE SET msg_id = excluded.msg_id, stream_seq = excluded.stream_seq,
  expires_ms = excluded.expires_ms WHERE expires_ms <= ?`;
const HOLD = `UPDATE icc_entries SET due_ms = ?, deliveries = deliveries + 1, lease = deliveries + 1
  WHERE id = ? AND state = 0 AND due_ms <= ?`;
const BURY = `INSERT INTO icc_dead (id, inbox, stream_seq, msg_id, reason, deliveries, created_ms, envelope)
  SELECT icc_entries.tenant_no * 4294967296 + dead_last_seq, ?, ?, msg_id, ?, deliveries, ?, coalesce(?, envelope)
  FROM icc_entries JOIN icc_tenants ON icc_tenants.tenant_no = icc_entries.tenant_no WHERE id = ?`;

/** Statements of a batch in their order, each with what it means when it changes nothing. */
type Missed = "gone" | "key" | "duplicate";

export interface LedgerOptions {
  readonly store: Store;
  readonly inboxes: Inboxes;
  readonly clock: Clock;
  /** Entries have expired. Never throws. */
  readonly onExpired: (count: number) => void;
}

/** `is_new`: this call has settled it. */
interface LedgerSettled extends Settled {
  readonly is_new: boolean;
}

export class Ledger {
  readonly #store: Store;
  readonly #inboxes: Inboxes;
  readonly #clock: Clock;
  readonly #onExpired: LedgerOptions["onExpired"];

  constructor({ store, inboxes, clock, onExpired }: LedgerOptions) {
    this.#store = store;
    this.#inboxes = inboxes;
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  /** Writes an entry, with the envelope unless the carrier has taken it. Rejects as `Bus.publish`. */
  async publish(message: Outgoing, carrier: Pick<Carrier, "carry" | "drop"> | null): Promise<Published> {
    const inbox = await this.#inboxes.make(message);
    const copies = await this.#copyInboxes(message);
    const bytes = storedBytes(message.envelope);
    const is_settled = message.is_settled === true;
    this.#inboxes.checkRoom(inbox, bytes, !is_settled);
    for (const copy of copies) this.#inboxes.checkRoom(copy, bytes, true);
    const main = new Place(inbox, bytes, !is_settled);
    const places = [main, ...copies.map((copy) => new Place(copy, bytes, true))];
    const { stream_seq } = main;
    let isTried = false;
    let carried: Carried | null = null;
    try {
      carried = carrier === null ? null : await carrier.carry(message, main);
      if (carried !== null) failpoint("icc.publish.carried");
      isTried = true;
      const missed = await this.#insert(message, places, carried?.seq ?? null);
      if (missed === null) return { stream_seq, is_duplicate: false };
      if (carried?.is_new === true) carrier?.drop(await this.unused([carried.seq]));
      for (const place of places) place.giveBack();
      return await this.#explain(message, inbox, missed);
    } catch (error) {
      // A commit of which nobody knows the outcome may have used the numbers. A full store has written nothing.
      const isFull = error instanceof AppError && error.code === "CAPACITY_FULL";
      for (const place of places) isTried && !isFull ? place.abandon() : place.giveBack();
      if (isFull && carried?.is_new === true) carrier?.drop(await this.unused([carried.seq]));
      throw error;
    } finally {
      inbox.uses--;
      for (const copy of copies) copy.uses--;
    }
  }

  /** Unread entries that are due, in their order, at most `entries_max`. */
  async candidates(inbox: InboxState, entries_max: number, options: ReceiveOptions): Promise<Candidate[]> {
    const { is_ordered, is_action = false } = options;
    const now_ms = this.#clock.epochMs();
    const rows = await this.#store.read(
      `SELECT id, bytes, deliveries, due_ms, carried_seq FROM icc_entries INDEXED BY icc_entries_unread
        WHERE inbox_no = ? AND state = 0 AND is_action = ? AND expires_ms > ? ${is_ordered ? "" : "AND due_ms <= ?"} ORDER BY id LIMIT ?`,
      [inbox.inbox_no, is_action ? 1 : 0, now_ms, ...(is_ordered ? [] : [now_ms]), entries_max],
    );
    if (is_ordered && rows.some(({ due_ms }) => Number(due_ms) > now_ms)) return [];
    return rows.map(({ id, bytes, deliveries, carried_seq }) => ({
      id: Number(id),
      bytes: Number(bytes),
      deliveries: Number(deliveries),
      is_carried: carried_seq !== null,
    }));
  }

  /** Holds entries until a time, each only if it is still due. Resolves to those that are held. */
  async hold(ids: readonly number[], until_ms: number): Promise<number[]> {
    const now_ms = this.#clock.epochMs();
    const { changes } = await this.#store.write(ids.map((id) => ({ sql: HOLD, args: [until_ms, id, now_ms] })));
    return ids.filter((_, i) => changes[i] === 1);
  }

  /** Expires entries whose envelopes the carrier has lost. */
  async lose(inbox: InboxState, ids: readonly number[]): Promise<void> {
    const sql = `UPDATE icc_entries SET state = ${EXPIRED}, due_ms = 0, lease = 0 WHERE id = ? AND state = 0`;
    const { changes } = await this.#store.write(ids.map((id) => ({ sql, args: [id] })));
    const lost_count = changes.filter((count) => count === 1).length;
    inbox.unread_count -= lost_count;
    this.#onExpired(lost_count);
  }

  /** The numbers of the carrier that entries have, within a range, and the highest of all. */
  async carried(from_seq: number, to_seq: number): Promise<Set<number>> {
    const rows = await this.#store.read(
      "SELECT carried_seq FROM icc_entries INDEXED BY icc_entries_carried WHERE carried_seq BETWEEN ? AND ?",
      [from_seq, to_seq],
    );
    return new Set(rows.map(({ carried_seq }) => Number(carried_seq)));
  }

  /** Those of some numbers of the carrier that no entry has. */
  async unused(carried_seqs: readonly number[]): Promise<number[]> {
    if (carried_seqs.length === 0) return [];
    const rows = await this.#store.read(
      `SELECT carried_seq FROM icc_entries INDEXED BY icc_entries_carried
        WHERE carried_seq IN (${carried_seqs.map(() => "?").join(",")})`,
      [...carried_seqs],
    );
    const used = new Set(rows.map(({ carried_seq }) => Number(carried_seq)));
    return carried_seqs.filter((seq) => !used.has(seq));
  }

  async lastCarried(): Promise<number | null> {
    const row = await this.#store.readOne(
      "SELECT max(carried_seq) AS seq FROM icc_entries INDEXED BY icc_entries_carried WHERE carried_seq IS NOT NULL",
    );
    return row === null || row.seq === null ? null : Number(row.seq);
  }

  /**
   * Returns true if a carried message without an entry never had one. One that had lies before the entries that are kept, or
   * has a number that was given already; and an inbox that was removed and made again has another number.
   */
  async isNew(key: InboxKey, inbox_no: number, carried: { seq: number; stream_seq: number }): Promise<boolean> {
    const inbox = await this.#inboxes.find(key);
    if (inbox === null || inbox.inbox_no !== inbox_no) return false;
    if (carried.stream_seq > inbox.last_seq) return true;
    const first = await this.#store.readOne(
      "SELECT carried_seq FROM icc_entries WHERE id BETWEEN ? AND ? AND carried_seq IS NOT NULL ORDER BY id LIMIT 1",
      [entryId(inbox_no, 0), entryId(inbox_no + 1, 0) - 1],
    );
    return first !== null && carried.seq > Number(first.carried_seq);
  }

  /** The states of entries by their numbers at the carrier, of those that exist. */
  async statesOf(inbox_no: number, carried_seqs: readonly number[]): Promise<Map<number, EntryState>> {
    const marks = carried_seqs.map(() => "?").join(",");
    const rows = await this.#store.read(
      `SELECT carried_seq, state, expires_ms FROM icc_entries WHERE carried_seq IN (${marks}) AND inbox_no = ?`,
      [...carried_seqs, inbox_no],
    );
    const now_ms = this.#clock.epochMs();
    return new Map(rows.map((row) => [Number(row.carried_seq), stateAt(row, now_ms)]));
  }

  /** Number of entries that receivers hold now. */
  async heldCount(inbox: InboxState): Promise<number> {
    const row = await this.#store.readOne(
      `SELECT count(*) AS count FROM icc_entries INDEXED BY icc_entries_unread
        WHERE inbox_no = ? AND state = 0 AND lease > 0 AND due_ms > ?`,
      [inbox.inbox_no, this.#clock.epochMs()],
    );
    return Number(row?.count ?? 0);
  }

  /** Due time of the next unread entry that is held or delayed; null: none. */
  async nextDue(inbox: InboxState): Promise<number | null> {
    const row = await this.#store.readOne(
      `SELECT min(due_ms) AS due_ms FROM icc_entries INDEXED BY icc_entries_unread
        WHERE inbox_no = ? AND state = 0 AND due_ms > ?`,
      [inbox.inbox_no, this.#clock.epochMs()],
    );
    return row === null || row.due_ms === null ? null : Number(row.due_ms);
  }

  /** Acks an entry; one that moves the version also past its time. Rejects as `Bus.ack`. */
  async ack(ref: EntryRef, lease: string | null, moves_version: boolean): Promise<LedgerSettled> {
    const inbox = await this.#existing(ref);
    const now_ms = moves_version ? 0 : this.#clock.epochMs();
    const statements: Statement[] = [
      {
        sql: `UPDATE icc_entries SET state = ${ACKED}, due_ms = 0, lease = 0 WHERE ${OPEN}`,
        args: openArgs(ref, inbox, lease, now_ms),
        expect_changes: 1,
      },
    ];
    if (moves_version) {
      statements.push({
        sql: "UPDATE icc_inboxes SET state_version = state_version + 1 WHERE inbox_no = ?",
        args: [inbox.inbox_no],
        expect_changes: 1,
      });
    }
    return this.#settle(ref, inbox, { statements, state: "acked", is_dead: false });
  }

  /** Fails an entry and makes it a dead letter; `envelope` where a server has it. Rejects as `Bus.nack`. */
  async fail(ref: EntryRef, lease: string | null, reason: string, envelope: Uint8Array | null): Promise<LedgerSettled> {
    const inbox = await this.#existing(ref);
    const now_ms = this.#clock.epochMs();
    const row = await this.entry(ref);
    if (row === null) throw noEntry(ref);
    const id = Number(row.id);
    const statements: Statement[] = [
      {
        sql: `UPDATE icc_entries SET state = ${FAILED}, due_ms = 0, lease = 0 WHERE ${OPEN}`,
        args: openArgs(ref, inbox, lease, now_ms),
        expect_changes: 1,
      },
      {
        sql: "UPDATE icc_tenants SET dead_last_seq = dead_last_seq + 1 WHERE tenant_no = ?",
        args: [inbox.tenant.tenant_no],
      },
      { sql: BURY, args: [inbox.name, seqOf(id), reason, now_ms, envelope, id], expect_changes: 1 },
    ];
    return this.#settle(ref, inbox, { statements, state: "failed", is_dead: true });
  }

  /** Lets an unread entry become due at a time: held by its delivery, free, or free as if not delivered. Rejects as `Bus.ack`. */
  async postpone(
    ref: EntryRef,
    lease: string | null,
    due_ms: number,
    how: "held" | "free" | "undelivered",
  ): Promise<LedgerSettled> {
    const inbox = await this.#existing(ref);
    const now_ms = this.#clock.epochMs();
    const statements: Statement[] = [
      {
        sql: `UPDATE icc_entries SET due_ms = ?${POSTPONED[how]} WHERE ${OPEN}`,
        args: [due_ms, ...openArgs(ref, inbox, lease, now_ms)],
        expect_changes: 1,
      },
    ];
    return this.#settle(ref, inbox, { statements, state: "unread", is_dead: false });
  }

  /** The row of an entry without its envelope, or null. */
  async entry({ tenant_id, inbox, msg_id }: EntryRef): Promise<Row | null> {
    const state = await this.#inboxes.find({ tenant_id, inbox });
    if (state === null) return null;
    return this.#store.readOne(
      `SELECT ${ENTRY_COLUMNS} FROM icc_entries WHERE tenant_no = ? AND msg_id = ? AND inbox_no = ?`,
      [state.tenant.tenant_no, msg_id, state.inbox_no],
    );
  }

  /** Inboxes that have a message id, at most 100. */
  async find(tenant_id: string, msg_id: string): Promise<Found[]> {
    const { tenant_no } = await this.#inboxes.tenant(tenant_id);
    const rows = await this.#store.read(
      `SELECT name, id, state, expires_ms FROM icc_entries JOIN icc_inboxes ON icc_inboxes.inbox_no = icc_entries.inbox_no
        WHERE icc_entries.tenant_no = ? AND msg_id = ? ORDER BY icc_entries.inbox_no LIMIT 100`,
      [tenant_no, msg_id],
    );
    const now_ms = this.#clock.epochMs();
    return rows.map((row) => ({
      inbox: String(row.name),
      stream_seq: seqOf(Number(row.id)),
      state: stateAt(row, now_ms),
    }));
  }

  /** Inboxes with unread entries that the platform applies. */
  async actionInboxes(): Promise<InboxKey[]> {
    const rows = await this.#store.read(
      `SELECT DISTINCT tenant_id, name FROM icc_entries INDEXED BY icc_entries_actions
        JOIN icc_inboxes ON icc_inboxes.inbox_no = icc_entries.inbox_no
        JOIN icc_tenants ON icc_tenants.tenant_no = icc_inboxes.tenant_no WHERE state = 0 AND is_action = 1`,
    );
    return rows.map(({ tenant_id, name }) => ({ tenant_id: String(tenant_id), inbox: String(name) }));
  }

  async facts(key: InboxKey): Promise<InboxFacts> {
    const state = await this.#inboxes.find(key);
    const [facts] = state === null ? [] : await this.#facts("inbox_no = ?", [state.inbox_no], 1);
    return (
      facts ?? { inbox: key.inbox, last_seq: 0, unread_count: 0, entry_count: 0, entry_bytes: 0, state_version: 0 }
    );
  }

  async list(tenant_id: string, after: string, inboxes_max: number): Promise<InboxFacts[]> {
    const { tenant_no } = await this.#inboxes.tenant(tenant_id);
    return this.#facts("tenant_no = ? AND name > ?", [tenant_no, after], inboxes_max);
  }

  async #facts(where: string, args: readonly (string | number)[], inboxes_max: number): Promise<InboxFacts[]> {
    const rows = await this.#store.read(
      `SELECT name, last_seq, entries, bytes, state_version, (SELECT count(*) FROM icc_entries
        INDEXED BY icc_entries_unread WHERE icc_entries.inbox_no = icc_inboxes.inbox_no AND state = 0
        AND expires_ms > ?) AS unread FROM icc_inboxes WHERE ${where} ORDER BY name LIMIT ?`,
      [this.#clock.epochMs(), ...args, inboxes_max],
    );
    return rows.map((row) => ({
      inbox: String(row.name),
      last_seq: Number(row.last_seq),
      unread_count: Number(row.unread),
      entry_count: Number(row.entries),
      entry_bytes: Number(row.bytes),
      state_version: Number(row.state_version),
    }));
  }

  async #copyInboxes({ tenant_id, copies = [] }: Outgoing): Promise<InboxState[]> {
    return Promise.all(copies.map((inbox) => this.#inboxes.make({ tenant_id, inbox })));
  }

  async #insert(message: Outgoing, [main, ...copies]: readonly Place[], carried_seq: number | null) {
    if (main === undefined) return null;
    const now_ms = this.#clock.epochMs();
    const isAction = (inbox: InboxState) => (message.is_action === true && inbox === main.inbox ? 1 : 0);
    const insert = ({ inbox, stream_seq, bytes, is_unread }: Place, carried_seq: number | null): Statement => ({
      sql: INSERT_ENTRY,
      args: [
        ...[entryId(inbox.inbox_no, stream_seq), inbox.inbox_no, inbox.tenant.tenant_no, is_unread ? UNREAD : ACKED],
        ...[isAction(inbox), now_ms, message.expires_ms, bytes, carried_seq, message.msg_id],
        ...[carried_seq === null ? message.envelope : null, inbox.inbox_no],
      ],
    });
    const meanings: Missed[] = ["gone"];
    const statements: Statement[] = [
      { sql: COUNT_ENTRY, args: [main.stream_seq, main.bytes, main.inbox.inbox_no], expect_changes: 1 },
    ];
    if (message.idempotency_key !== "") {
      meanings.push("key");
      const until_ms = now_ms + LIMITS.idempotency_key_kept_ms;
      statements.push({
        sql: INSERT_KEY,
        args: [main.inbox.inbox_no, message.idempotency_key, message.msg_id, main.stream_seq, until_ms, now_ms],
        expect_changes: 1,
      });
    }
    meanings.push("duplicate");
    statements.push({ ...insert(main, carried_seq), expect_changes: 1 });
    // A copy that stands there already, or whose inbox ends at this moment, changes nothing.
    for (const copy of copies) {
      const { inbox, stream_seq, bytes } = copy;
      const id = entryId(inbox.inbox_no, stream_seq);
      statements.push(insert(copy, carried_seq), { sql: COUNT_COPY, args: [stream_seq, bytes, inbox.inbox_no, id] });
    }
    // The row of a carried message without copies comes back from the server if a power cut takes it.
    const first_copy = statements.length - 2 * copies.length;
    const { conflict, changes } = await this.#store.write(statements, {
      durable: carried_seq === null || copies.length > 0,
      is_record: true,
    });
    if (conflict === null) {
      for (const [i, copy] of copies.entries()) if (changes[first_copy + 2 * i] !== 1) copy.abandon();
    }
    return conflict === null ? null : (meanings[conflict] ?? "gone");
  }

  /** Answer of a publish that wrote nothing. */
  async #explain(message: Outgoing, inbox: InboxState, missed: Missed): Promise<Published> {
    if (missed === "gone") {
      this.#inboxes.forget(message);
      throw new AppError("NOT_FOUND", `inbox ${message.inbox} was removed`);
    }
    if (missed === "key") {
      const used = await this.#store.readOne(
        "SELECT msg_id, stream_seq FROM icc_keys WHERE inbox_no = ? AND idempotency_key = ?",
        [inbox.inbox_no, message.idempotency_key],
      );
      if (used !== null && used.msg_id === message.msg_id) {
        return { stream_seq: Number(used.stream_seq), is_duplicate: true };
      }
      throw new AppError(
        "IDEMPOTENCY_CONFLICT",
        `message ${used?.msg_id} to ${message.inbox} has this idempotency key`,
        {
          details: { expected: null, received: message.msg_id, example: null, state: "IDMP_REPLAY" },
          hint: "repeat a message with the id of the first one, or send another one with another idempotency key",
        },
      );
    }
    const row = await this.entry(message);
    return { stream_seq: seqOf(Number(row?.id ?? 0)), is_duplicate: true };
  }

  async #existing(ref: EntryRef): Promise<InboxState> {
    const inbox = await this.#inboxes.find(ref);
    if (inbox === null) throw noEntry(ref);
    return inbox;
  }

  async #settle(
    ref: EntryRef,
    inbox: InboxState,
    { statements, state, is_dead }: { statements: readonly Statement[]; state: EntryState; is_dead: boolean },
  ): Promise<LedgerSettled> {
    // An ack that a power cut takes is a message that comes again; a dead letter is the last copy.
    const { conflict } = await this.#store.write(statements, { durable: is_dead, is_record: is_dead });
    if (conflict === null) {
      if (state !== "unread") inbox.unread_count--;
      return { state, is_dead, is_new: true };
    }
    const row = await this.entry(ref);
    if (row === null) throw noEntry(ref);
    const found = stateAt(row, this.#clock.epochMs());
    if (found === state && state !== "unread") return { state, is_dead: state === "failed", is_new: false };
    throw new AppError(
      "WRONG_STATE",
      found === "unread"
        ? `message ${ref.msg_id} was delivered again, or given back, since that lease`
        : `message ${ref.msg_id} is ${found}`,
      {
        details: {
          expected: ["unread"],
          received: null,
          example: null,
          state: found === "unread" ? "stale_lease" : found,
        },
      },
    );
  }
}

const POSTPONED = { held: "", free: ", lease = 0", undelivered: ", lease = 0, deliveries = max(deliveries - 1, 0)" };

/** An entry that can still be settled, by the delivery where one is named. */
const OPEN =
  "tenant_no = ? AND msg_id = ? AND inbox_no = ? AND state = 0 AND expires_ms > ? AND (? IS NULL OR lease = ?)";

function openArgs({ msg_id }: EntryRef, inbox: InboxState, lease: string | null, now_ms: number) {
  const number = lease === null ? null : leaseNumber(lease);
  return [inbox.tenant.tenant_no, msg_id, inbox.inbox_no, now_ms, number, number];
}

/** The name of a delivery: the number of its delivery. */
export function leaseName(deliveries: number): string {
  return `lease_${deliveries}`;
}

/** Of a lease that no delivery has: one that no entry has, so that it is refused as stale. */
function leaseNumber(lease: string): number {
  const number = /^lease_([1-9]\d{0,8})$/.exec(lease)?.[1];
  return number === undefined ? -1 : Number(number);
}

function noEntry({ inbox, msg_id }: EntryRef): AppError {
  return new AppError("NOT_FOUND", `inbox ${inbox} has no message ${msg_id}`);
}
