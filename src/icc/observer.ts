/** The port through which messages are reported. src/telemetry makes metrics of them. Nothing here has a name of a tenant. */
import type { ErrorCode } from "../base/errors.ts";

/** Kinds of inboxes. */
export const INBOX_KINDS = ["container", "queue", "topic", "binding"] as const;
export type InboxKind = (typeof INBOX_KINDS)[number];

/** Ends of a delivery, and of an entry that is settled without one. */
export const SETTLEMENTS = ["acked", "failed", "requeued"] as const;
export type Settlement = (typeof SETTLEMENTS)[number];

/** Causes of dead letters: a receiver failed the message, or it was delivered as often as it may be. */
export const DEAD_CAUSES = ["nack", "max_deliver"] as const;
export type DeadCause = (typeof DEAD_CAUSES)[number];

/** Told of each change after its commit. No method throws. */
export interface MessageObserver {
  /** Entries that a publish has written, by inbox; one of several is a message to a topic, or one with copies for bindings. */
  published(inboxes: readonly InboxKind[]): void;
  /** A publish has ended, whatever its outcome. */
  publishEnded(duration_ms: number): void;
  /** The inbox had the message already: nothing was written. */
  repeated(): void;
  refused(error_code: ErrorCode): void;
  delivered(inbox: InboxKind, isAgain: boolean): void;
  settled(how: Settlement): void;
  died(cause: DeadCause): void;
  expired(count: number): void;
}
