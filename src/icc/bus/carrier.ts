/**
 * The carrier of a bus: a server that keeps envelopes outside the ledger. The ledger decides numbers, states, leases and
 * dead letters; the carrier never decides whether an entry is delivered.
 *
 * C1. A publish is carried first, then written to the ledger: an entry of the ledger always has its envelope.
 * C2. An entry is settled in the ledger first, then at the carrier: a crash between the two never delivers it again.
 */
import type { InboxState } from "./inboxes.ts";
import type { Outgoing } from "./port.ts";

/** The number that a message is about to get. */
export interface CarriedPlace {
  readonly inbox: InboxState;
  readonly stream_seq: number;
}

/** Place of an envelope in the carrier. */
export interface Carried {
  readonly seq: number;
  /** False: the ledger has the entry of an earlier publish of the message, which brought it there. */
  readonly is_new: boolean;
}

/** An entry whose envelope the carrier has. */
export interface CarriedEntry {
  readonly id: number;
  readonly msg_id: string;
  readonly carried_seq: number;
}

/** Change of an entry in the ledger. */
export type Outcome = "acked" | "failed" | "held" | { readonly delay_ms: number };

export interface Carrier {
  /**
   * Keeps the envelope of a message. Resolves to null if the ledger must keep it, such as one above the server's limit.
   * Rejects with SERVICE_UNAVAILABLE within `carrier_deadline_ms`, CAPACITY_FULL if the server has no room.
   */
  carry(message: Outgoing, place: CarriedPlace): Promise<Carried | null>;
  /** Deletes envelopes that no entry has: the ledger refused them, or has deleted their entries early. Never throws. */
  drop(seqs: readonly number[]): void;
  /** Envelopes by the ids of entries; an entry that is absent is lost. Rejects with SERVICE_UNAVAILABLE. */
  load(inbox: InboxState, entries: readonly CarriedEntry[], will_hold: boolean): Promise<Map<number, Uint8Array>>;
  /** The ledger has settled or postponed an entry. Never throws. */
  settle(inbox: InboxState, msg_id: string, outcome: Outcome): void;
  /** The inbox was removed. Never throws. */
  purge(inbox_no: number): void;
}
