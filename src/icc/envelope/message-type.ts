/**
 * Types of messages. A type that names a payload kind is that kind. Any other one is the type of an application message:
 * a state_snapshot of JSON whose content_type names it, `application/json; type=order.created`.
 */
import { type Envelope, MESSAGES, type Payload } from "./jets.generated.js";

/** Types in JSON messages and in content types. */
export const MESSAGE_TYPE = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const CONTENT_TYPE = /^application\/json; type=([A-Za-z0-9][A-Za-z0-9._-]{0,127})$/;

/** Names of the payload kinds in the order of their numbers. */
export const PAYLOAD_KINDS: readonly Payload["kind"][] = MESSAGES.Payload.fields.map(
  ({ name }) => name as Payload["kind"],
);
const KINDS: ReadonlySet<string> = new Set(PAYLOAD_KINDS);

export function isPayloadKind(type: string): type is Payload["kind"] {
  return KINDS.has(type);
}

/** Returns the content_type of an application message. */
export const contentTypeOf = (type: string): string => `application/json; type=${type}`;

/** Returns the type of an application message, or null for another payload. */
export function applicationType(payload: Payload): string | null {
  if (payload.kind !== "state_snapshot") return null;
  const type = CONTENT_TYPE.exec(payload.value.content_type)?.[1];
  // A type that names a kind means the kind: senders cannot disguise a snapshot as a command.
  return type === undefined || isPayloadKind(type) ? null : type;
}

/** Returns the type of the application message, otherwise the payload kind. */
export function messageType(envelope: Envelope): string {
  return applicationType(envelope.payload) ?? envelope.payload.kind;
}
