/** The summary of an envelope in answers and events: its addresses and identifiers without the payload. */
import type { Envelope } from "./jets.generated.js";
import { messageType } from "./message-type.ts";

export interface EnvelopeSummary {
  readonly msg_id: string;
  readonly from: string;
  readonly to: string;
  readonly request_id: string;
  /** Name of the level, such as `EXECUTE`. */
  readonly permission_level: string;
  /** Name of the payload kind, such as `exec_command`. */
  readonly payload_kind: string;
  /** Type of an application message, otherwise the payload kind. */
  readonly type: string;
  readonly trace_id: string;
  readonly correlation_id: string;
  readonly causation_id: string;
  /** Milliseconds since the Unix epoch. */
  readonly sent_at: number;
  readonly ttl_ms: number;
}

/** The summary of a message whose envelope the disk has damaged: what its entry says. */
export function damagedSummary(msg_id: string, to: string): EnvelopeSummary {
  const unknown = {
    from: "",
    request_id: "",
    permission_level: "",
    trace_id: "",
    correlation_id: "",
    causation_id: "",
  };
  return { msg_id, to, ...unknown, payload_kind: "damaged", type: "damaged", sent_at: 0, ttl_ms: 0 };
}

export function summaryOf(envelope: Envelope): EnvelopeSummary {
  return {
    msg_id: envelope.msg_id,
    from: envelope.from,
    to: envelope.to,
    request_id: envelope.request_id,
    permission_level: envelope.permission_level,
    payload_kind: envelope.payload.kind,
    type: messageType(envelope),
    trace_id: envelope.trace_id,
    correlation_id: envelope.correlation_id,
    causation_id: envelope.causation_id,
    sent_at: envelope.sent_at,
    ttl_ms: envelope.ttl_ms,
  };
}
