/**
 * Messages in plain JSON, `{to, type, payload, ...}`, between their objects and envelopes. A type that names a payload kind
 * makes that kind (payload-json.ts); any other one makes an application message (message-type.ts).
 */
import { isUtf8 } from "node:buffer";
import { checkShape } from "../../base/json-shape.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Envelope, Payload } from "./jets.generated.js";
import type { JsonMessage } from "./message-schema.ts";
import { applicationType, contentTypeOf, isPayloadKind, messageType } from "./message-type.ts";
import { payloadFromJson, payloadToJson } from "./payload-json.ts";
import { PERMISSIONS } from "./validation.ts";

/** Values that the daemon gives to a message that lacks them. */
export interface MessageDefaults {
  readonly from: string;
  readonly msg_id: string;
  /** The time of the daemon, for `sent_at`: milliseconds since the Unix epoch. */
  readonly now_ms: number;
}

/** A message as receivers get it. Identifiers that the sender did not set are absent. */
export interface ReceivedMessage {
  readonly msg_id: string;
  readonly from: string;
  readonly to: string;
  readonly type: string;
  readonly payload: unknown;
  /** Name of the level, such as `READ_ONLY`. */
  readonly permission_level: string;
  /** Milliseconds since the Unix epoch. */
  readonly sent_at: number;
  readonly ttl_ms: number;
  readonly request_id?: string;
  readonly trace_id?: string;
  readonly correlation_id?: string;
  readonly causation_id?: string;
  readonly stream_key?: string;
  readonly seq?: number;
  readonly idempotency_key?: string;
}

const VERSION = 1;

/**
 * Makes the envelope of a message, which `validateEnvelope` has yet to check. Throws UNPROCESSABLE_ENTITY or
 * INVALID_ARGUMENT for a payload that does not fit its kind.
 */
export function envelopeOf(message: JsonMessage, defaults: MessageDefaults): Envelope {
  const payload = payloadOf(message.type, message.payload);
  return {
    version: VERSION,
    msg_id: message.msg_id ?? defaults.msg_id,
    request_id: message.request_id ?? "",
    trace_id: message.trace_id ?? "",
    correlation_id: message.correlation_id ?? "",
    causation_id: message.causation_id ?? "",
    from: message.from ?? defaults.from,
    to: message.to,
    stream_key: message.stream_key ?? "",
    seq: message.seq ?? 0,
    sent_at: Math.floor(defaults.now_ms),
    ttl_ms: message.ttl_ms ?? LIMITS.icc_message_kept_ms,
    permission_level: message.permission_level ?? PERMISSIONS[payload.kind][0],
    idempotency_key: message.idempotency_key ?? "",
    payload,
  };
}

/** Returns the message of an envelope. The data of an application message that is no JSON counts as a state_snapshot. */
export function messageOf(envelope: Envelope): ReceivedMessage {
  const application = applicationOf(envelope.payload);
  const optional = {
    request_id: envelope.request_id,
    trace_id: envelope.trace_id,
    correlation_id: envelope.correlation_id,
    causation_id: envelope.causation_id,
    stream_key: envelope.stream_key,
    seq: envelope.seq,
    idempotency_key: envelope.idempotency_key,
  };
  return {
    msg_id: envelope.msg_id,
    from: envelope.from,
    to: envelope.to,
    type: application === null ? envelope.payload.kind : messageType(envelope),
    payload: application === null ? payloadToJson(envelope.payload) : application.payload,
    permission_level: envelope.permission_level,
    sent_at: envelope.sent_at,
    ttl_ms: envelope.ttl_ms,
    ...Object.fromEntries(Object.entries(optional).filter(([, value]) => value !== "" && value !== 0)),
  };
}

function payloadOf(type: string, payload: unknown): Payload {
  if (isPayloadKind(type)) return payloadFromJson(type, payload);
  const data = Buffer.from(JSON.stringify(payload ?? null));
  return { kind: "state_snapshot", value: { content_type: contentTypeOf(type), data } };
}

/** The JSON of an application message, or null for another payload. */
function applicationOf(payload: Payload): { readonly payload: unknown } | null {
  if (payload.kind !== "state_snapshot" || applicationType(payload) === null) return null;
  const { data } = payload.value;
  if (!isUtf8(data)) return null;
  try {
    // A sender of envelopes chooses the text, which may be too deep to be written again.
    checkShape(data);
    return { payload: JSON.parse(data.toString()) };
  } catch {
    return null;
  }
}
