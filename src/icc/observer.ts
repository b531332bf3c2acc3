/** The port through which messages are reported. src/telemetry makes metrics and spans of them. */
import type { ErrorCode } from "../base/errors.ts";
import type { Trace } from "../base/trace.ts";

/** Kinds of inboxes. */
export const INBOX_KINDS = ["container", "queue", "topic", "binding"] as const;
export type InboxKind = (typeof INBOX_KINDS)[number];

/** Ends of a delivery, and of an entry that is settled without one. */
export const SETTLEMENTS = ["acked", "failed", "requeued"] as const;
export type Settlement = (typeof SETTLEMENTS)[number];

/** Causes of dead letters: a receiver failed the message, or it was delivered as often as it may be. */
export const DEAD_CAUSES = ["nack", "max_deliver"] as const;
export type DeadCause = (typeof DEAD_CAUSES)[number];

/** A step of a message in its trace. */
export interface MessageStep {
  readonly operation: "publish" | "receive" | "ack" | "fail" | "requeue";
  readonly target: InboxKind | "state";
  /** Of the step's own span. */
  readonly trace: Trace;
  readonly tenant_id: string;
  readonly inbox: string;
  readonly msg_id: string;
  readonly correlation_id: string;
  /** Null for a publish. */
  readonly deliveries: number | null;
  /** Monotonic. */
  readonly from_ms: number;
  readonly length_ms: number;
  readonly error_code: ErrorCode | null;
}

/** The kind of an inbox by its name. */
export function kindOf(inbox: string): InboxKind {
  const prefix = inbox.slice(0, Math.max(inbox.indexOf(":"), 0));
  return prefix === "queue" || prefix === "topic" || prefix === "binding" ? prefix : "container";
}

/** Receives each change after its commit. No method throws. */
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
