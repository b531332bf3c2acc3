/**
 * The port of the message bus: durable inboxes of a tenant, with leases, final states and dead letters. The concern
 * decides who may send what; a bus keeps, orders, delivers and settles.
 *
 * Rules of every implementation, which the one contract suite (test/icc) checks:
 * B1. A publish is durable when its promise resolves: it survives `kill -9` of the daemon and of a server behind the bus.
 * B2. Sequence numbers count per inbox from 1, rise in the order of the calls, and are never used again.
 * B3. An id of a message stands once in an inbox: the same id again answers the first number as a duplicate. An idempotency
 *     key holds for 24 hours per inbox: with another id it is refused.
 * B4. `receive` delivers entries in the order of their numbers, each to one receiver until its lease ends.
 * B5. A settled entry is never delivered again. Final states do not change.
 * B6. An entry that was delivered `max_deliver` times without an ack is a dead letter, as is one with a nack.
 * B7. Tenants share nothing: an inbox, an id or a number of another tenant is one that does not exist.
 */

import type { DeadCause, Settlement } from "../observer.ts";

export const ENTRY_STATES = ["unread", "acked", "failed", "expired"] as const;
/** `unread` includes entries that a receiver holds. The others are final. */
export type EntryState = (typeof ENTRY_STATES)[number];

/** One inbox of a tenant: a container's id, `queue:<name>`, `topic:<name>` or `binding:<id>`. */
export interface InboxKey {
  readonly tenant_id: string;
  readonly inbox: string;
}

export interface Outgoing extends InboxKey {
  readonly msg_id: string;
  /** Empty: none. */
  readonly idempotency_key: string;
  readonly envelope: Uint8Array;
  /** Epoch milliseconds after which nobody receives the entry. */
  readonly expires_ms: number;
  /** The entry is a record alone, acked from the start: nobody receives it. */
  readonly is_settled?: boolean;
  /** The platform itself receives the entry, to apply it; receivers without `is_action` never get it. */
  readonly is_action?: boolean;
  /** Further inboxes of the tenant that get the envelope in the same commit, or at the latest when the publish resolves. */
  readonly copies?: readonly string[];
}

export interface Published {
  readonly stream_seq: number;
  /** The inbox has an entry of this id already: nothing was written. */
  readonly is_duplicate: boolean;
}

export interface Entry extends InboxKey {
  readonly stream_seq: number;
  readonly state: EntryState;
  readonly msg_id: string;
  readonly envelope: Uint8Array;
  readonly created_ms: number;
  readonly expires_ms: number;
  /** Number of deliveries. */
  readonly deliveries: number;
  /** Epoch milliseconds until which a receiver holds it, or a requeued one waits; null: neither. */
  readonly held_until_ms: number | null;
}

export interface Delivery extends Entry {
  /** Names this delivery: an ack with it is refused once the entry was delivered again. */
  readonly lease: string;
  readonly held_until_ms: number;
}

export interface ReceiveOptions {
  readonly entries_max: number;
  readonly lease_ms: number;
  readonly max_deliver: number;
  /** Nothing is delivered while an earlier entry is held or waits. */
  readonly is_ordered: boolean;
  /** Receives what the platform applies, and nothing else; absent: everything else. */
  readonly is_action?: boolean;
}

/** One entry of an inbox, by the id of its message. */
export interface EntryRef extends InboxKey {
  readonly msg_id: string;
}

export interface SettleOptions {
  /** The delivery that is settled; null: whichever. */
  readonly lease: string | null;
  /** Moves the state version of the inbox in the same commit; only for `ack`. */
  readonly moves_version?: boolean;
}

export interface RequeueOptions extends SettleOptions {
  readonly delay_ms: number;
  readonly max_deliver: number;
  /** Reason of the dead letter, if the entry had `max_deliver` deliveries. */
  readonly reason: string;
  /** Its receiver did not try: the delivery does not count, and the entry does not become a dead letter. */
  readonly is_uncounted?: boolean;
}

export interface Settled {
  /** `unread` after a requeue. */
  readonly state: EntryState;
  readonly is_dead: boolean;
}

export interface ReadOptions {
  readonly from_seq: number;
  /** Inclusive. */
  readonly to_seq: number;
  /** Null: all. */
  readonly state: EntryState | null;
  readonly entries_max: number;
}

export interface DeadLetter {
  /** Its number among the dead letters of the tenant, from 1. */
  readonly dead_seq: number;
  readonly inbox: string;
  /** Its number in the inbox. */
  readonly stream_seq: number;
  readonly msg_id: string;
  readonly reason: string;
  readonly deliveries: number;
  readonly created_ms: number;
  readonly replayed_ms: number | null;
  readonly envelope: Uint8Array;
}

export interface InboxFacts {
  readonly inbox: string;
  /** 0: nothing was published to it yet. */
  readonly last_seq: number;
  readonly unread_count: number;
  readonly entry_count: number;
  readonly entry_bytes: number;
  readonly state_version: number;
}

/** An inbox that has a message id. */
export interface Found {
  readonly inbox: string;
  readonly stream_seq: number;
  readonly state: EntryState;
}

export interface BusHealth {
  /** False: publishes and receives are refused with SERVICE_UNAVAILABLE. */
  readonly is_ready: boolean;
  /** Reason why it is not ready, for the operator; null: it is ready. */
  readonly problem: string | null;
}

/** Receives changes of entries after their commits. No method throws. */
export interface BusObserver {
  /** A publish has ended; null: it was refused. */
  published(message: Outgoing, published: Published | null, error: unknown, duration_ms: number): void;
  /** Entries were delivered by a receive that began at a monotonic time. */
  delivered(deliveries: readonly Delivery[], begun_ms: number): void;
  /** An entry was settled, or given back; a repeated ack tells nothing. */
  settled(ref: EntryRef, how: Settlement): void;
  /** An entry has become a dead letter. */
  died(ref: EntryRef, reason: string, cause: DeadCause): void;
  expired(count: number): void;
}

export interface Bus {
  readonly backend: "embedded" | "jetstream";
  /** How commits reach the disk, in words. */
  readonly sync_mode: string;
  /**
   * Loads what it counts in memory, and settles what a crash left between two steps. Before all else. A server behind the bus
   * that does not answer fails no start: `health` names the problem, and the bus connects in the background.
   */
  boot(): Promise<void>;
  health(): BusHealth;
  /**
   * Publishes one message. Rejects with QUEUE_FULL if the inbox or the tenant has no room, QUOTA_EXCEEDED for one inbox too
   * many, IDEMPOTENCY_CONFLICT for a used key, SERVICE_UNAVAILABLE if a server behind the bus does not answer. Messages that
   * are published in one turn share a commit.
   */
  publish(message: Outgoing): Promise<Published>;
  /** Delivers what is due, without a wait; empty: nothing is due. */
  receive(key: InboxKey, options: ReceiveOptions): Promise<Delivery[]>;
  /**
   * Acks an entry. An acked one answers as if acked now. Rejects with NOT_FOUND, and with WRONG_STATE for another final state
   * (`details.state`) or a delivery that is no longer the last.
   */
  ack(ref: EntryRef, options: SettleOptions): Promise<Settled>;
  /** Fails an entry and makes it a dead letter. Rejects as `ack`; one that failed answers as if it failed now. */
  nack(ref: EntryRef, options: SettleOptions & { readonly reason: string }): Promise<Settled>;
  /** Gives an entry back: it is due after the delay, or dead if it was delivered `max_deliver` times. Rejects as `ack`. */
  requeue(ref: EntryRef, options: RequeueOptions): Promise<Settled>;
  /** Prolongs a lease from now. Rejects as `ack`. */
  extend(ref: EntryRef, options: { readonly lease: string; readonly lease_ms: number }): Promise<Settled>;
  /** Reads entries in the order of their numbers, without delivering them. Bounded in number and bytes. */
  read(key: InboxKey, options: ReadOptions): Promise<Entry[]>;
  /** The entry of a message id in an inbox; null: there is none. */
  entry(ref: EntryRef): Promise<Entry | null>;
  /** The inboxes of the tenant in which a message id stands, at most 100. */
  find(tenant_id: string, msg_id: string): Promise<Found[]>;
  facts(key: InboxKey): Promise<InboxFacts>;
  /** Inboxes with unread entries that the platform applies. */
  actionInboxes(): Promise<InboxKey[]>;
  /** The tenant's inboxes, in the order of their names, after a name. */
  inboxes(tenant_id: string, options: { readonly after: string; readonly inboxes_max: number }): Promise<InboxFacts[]>;
  deadLetters(
    tenant_id: string,
    options: { readonly from_seq: number; readonly entries_max: number },
  ): Promise<DeadLetter[]>;
  deadLetter(tenant_id: string, dead_seq: number): Promise<DeadLetter | null>;
  /** Number of the tenant's last dead letter; 0: none yet. */
  lastDead(tenant_id: string): Promise<number>;
  /** Notes that a dead letter was published again. */
  noteReplay(tenant_id: string, dead_seq: number): Promise<void>;
  /**
   * Calls back when entries may be due in an inbox: after a publish, a requeue, the end of a lease or of a delay. Harmless
   * where none is. Returns its end.
   */
  watch(key: InboxKey, onDue: () => void): () => void;
  /** Deletes an inbox with its entries. Its dead letters stay. */
  remove(key: InboxKey): Promise<void>;
  /** Expires what is past its time and deletes what is kept no longer, a bounded part. */
  prune(): Promise<void>;
  /** Refuses new work with SHUTTING_DOWN, and waits for what runs. */
  close(): Promise<void>;
}
