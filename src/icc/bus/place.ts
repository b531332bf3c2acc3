/** The place of an entry that is about to be written. */
import type { InboxState } from "./inboxes.ts";

/** An entry that is about to be written: its number in the inbox, and what it counts for. */
export class Place {
  readonly inbox: InboxState;
  readonly bytes: number;
  readonly is_unread: boolean;
  readonly stream_seq: number;

  constructor(inbox: InboxState, bytes: number, is_unread: boolean) {
    this.inbox = inbox;
    this.bytes = bytes;
    this.is_unread = is_unread;
    this.stream_seq = ++inbox.last_seq;
    inbox.uses++;
    inbox.tenant.bytes += bytes;
    if (is_unread) inbox.unread_count++;
  }

  /** Nothing was written: the number is free, unless a later one was given already. */
  giveBack(): void {
    if (this.inbox.last_seq === this.stream_seq) this.inbox.last_seq--;
    this.abandon();
  }

  abandon(): void {
    this.inbox.tenant.bytes -= this.bytes;
    if (this.is_unread) this.inbox.unread_count--;
  }
}
