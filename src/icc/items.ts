/** Messages, dead letters and inboxes as answers of the API show them. */
import { DEAD_STREAM, streamOf, subjectOf } from "./addresses.ts";
import type { Bus, DeadLetter, Delivery, Entry } from "./bus/port.ts";
import { decodeStored, readStored } from "./envelope/envelope.ts";
import { messageOf } from "./envelope/messages.ts";
import { damagedSummary, summaryOf } from "./envelope/summary.ts";

const seconds = (ms: number): number => Math.floor(ms / 1_000);

/** A message as lists show it. */
export function messageItem(entry: Entry, include_message = false) {
  return {
    ...itemOf(entry, entry.stream_seq, include_message),
    state: entry.state,
    deliveries: entry.deliveries,
    is_leased: entry.held_until_ms !== null,
    created_at: seconds(entry.created_ms),
    expires_at: seconds(entry.expires_ms),
  };
}

/** A message as a receiver gets it. */
export function deliveryItem(delivery: Delivery) {
  return {
    ...messageItem(delivery),
    lease: delivery.lease,
    lease_expires_at: seconds(delivery.held_until_ms),
    message: { ...messageOf(decodeStored(delivery.envelope)) },
  };
}

function itemOf({ inbox, msg_id, envelope: bytes }: Entry | DeadLetter, stream_seq: number, include_message: boolean) {
  const envelope = readStored(bytes);
  return {
    msg_id,
    stream: streamOf(inbox),
    stream_seq,
    envelope_b64: Buffer.from(bytes).toString("base64"),
    envelope_summary: envelope === null ? damagedSummary(msg_id, inbox) : summaryOf(envelope),
    ...(include_message && envelope !== null ? { message: { ...messageOf(envelope) } } : {}),
  };
}

/** A dead letter as lists show it. */
export function deadItem(letter: DeadLetter, include_message = false) {
  return {
    ...itemOf(letter, letter.dead_seq, include_message),
    stream: DEAD_STREAM,
    container_id: letter.inbox,
    original_stream: streamOf(letter.inbox),
    original_stream_seq: letter.stream_seq,
    reason: letter.reason,
    deliveries: letter.deliveries,
    created_at: seconds(letter.created_ms),
    replayed_at: letter.replayed_ms === null ? null : seconds(letter.replayed_ms),
  };
}

/** The counts of an inbox. */
export function factsItem(facts: Awaited<ReturnType<Bus["facts"]>>) {
  return {
    container_id: facts.inbox,
    stream: streamOf(facts.inbox),
    subject: subjectOf(facts.inbox),
    last_seq: facts.last_seq,
    unread: facts.unread_count,
    messages: facts.entry_count,
    bytes: facts.entry_bytes,
    state_version: facts.state_version,
  };
}
