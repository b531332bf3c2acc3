/** Rows of inboxes, entries and dead letters in the store: their numbers, and what a read row means. */
import type { Row } from "../../store/store.ts";
import { type DeadLetter, ENTRY_STATES, type Entry, type EntryState, type InboxKey } from "./port.ts";

/** Entries of an inbox lie side by side: the row number of an entry is made of both numbers. 2^21 inboxes fit into 2^53. */
const SEQ_SPAN = 2 ** 32;

/** States as the store has them. */
export const UNREAD = 0;
export const ACKED = 1;
export const FAILED = 2;
export const EXPIRED = 3;

/** Size of an entry in the store beside its envelope: its row and its places in three indexes. */
const ENTRY_BYTES = 256;

export function entryId(inbox_no: number, seq: number): number {
  return inbox_no * SEQ_SPAN + seq;
}

export function seqOf(id: number): number {
  return id % SEQ_SPAN;
}

export function stateCode(state: EntryState): number {
  return ENTRY_STATES.indexOf(state);
}

/** Bytes that an entry counts for its tenant. */
export function storedBytes(envelope: Uint8Array): number {
  return envelope.byteLength + ENTRY_BYTES;
}

/** Columns of an entry without its envelope, for reads that choose which to load. */
export const ENTRY_COLUMNS = "id, state, msg_id, created_ms, expires_ms, due_ms, deliveries, lease, bytes";

/** The state that an entry has at a time: an unread one past its time has expired, also before the clean-up says so. */
export function stateAt(row: Row, now_ms: number): EntryState {
  const state = Number(row.state);
  return ENTRY_STATES[state === UNREAD && Number(row.expires_ms) <= now_ms ? EXPIRED : state] ?? "failed";
}

/** Reads an entry as it is at a time. */
export function toEntry(key: InboxKey, row: Row, envelope: Uint8Array, now_ms: number): Entry {
  const due_ms = Number(row.due_ms);
  const state = stateAt(row, now_ms);
  return {
    tenant_id: key.tenant_id,
    inbox: key.inbox,
    stream_seq: seqOf(Number(row.id)),
    state,
    msg_id: String(row.msg_id),
    envelope,
    created_ms: Number(row.created_ms),
    expires_ms: Number(row.expires_ms),
    deliveries: Number(row.deliveries),
    held_until_ms: state === "unread" && due_ms > now_ms ? due_ms : null,
  };
}

/** Reads a dead letter; a row of `icc_dead`. */
export function toDeadLetter(row: Row, envelope: Uint8Array): DeadLetter {
  return {
    dead_seq: seqOf(Number(row.id)),
    inbox: String(row.inbox),
    stream_seq: Number(row.stream_seq),
    msg_id: String(row.msg_id),
    reason: String(row.reason),
    deliveries: Number(row.deliveries),
    created_ms: Number(row.created_ms),
    replayed_ms: row.replayed_ms === null ? null : Number(row.replayed_ms),
    envelope,
  };
}

export function bytesOf(value: unknown): Uint8Array {
  return value instanceof Uint8Array ? value : new Uint8Array(value as ArrayBuffer);
}
