/**
 * Envelopes between their bytes and objects. Enumerations are names in objects (`READ_ONLY`), 64-bit numbers are
 * numbers, and the payload is `{kind, value}`. See validation.ts for the rules on the values.
 *
 * V1. `decodeEnvelope` returns an envelope with a payload, or throws an AppError that names the field.
 * V2. Unknown fields of newer clients are ignored by `decodeEnvelope` and kept by `rewriteEnvelope`.
 */
import protobuf from "protobufjs/minimal.js";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { tooLarge } from "./base64.ts";
import { EnvelopeReader, MalformedError } from "./envelope-reader.ts";
import { fieldAt } from "./field-at.ts";
import {
  Envelope as codec,
  type Envelope,
  MESSAGES,
  type Payload,
  plainEnvelope,
  rawEnvelope,
} from "./jets.generated.js";
import { invalid, refuse } from "./refusal.ts";

export type {
  AckPayload,
  AckStatus,
  ApplyMode,
  Envelope,
  EnvPatch,
  ErrorCode,
  ErrorPayload,
  ExecCommand,
  FilePatch,
  LifecycleAction,
  Payload,
  PermissionLevel,
  StatePatch,
  StateSnapshot,
} from "./jets.generated.js";

export type PayloadKind = Payload["kind"];
/** The message of one payload kind. */
export type PayloadValue<Kind extends PayloadKind> = Extract<Payload, { kind: Kind }>["value"];

const WIRE_TYPE_BITS = 3;
const FIELD_NUMBERS = new Map(MESSAGES.Envelope.fields.map(({ name, number }) => [name, number]));

/** Largest copy that `rewriteEnvelope` makes, in bytes. */
export const storedBytesMax = LIMITS.icc_message_bytes_max + LIMITS.icc_rewrite_bytes_max;
/** Reason of the dead letter of a message with a damaged envelope. */
export const DAMAGED = "the stored envelope of the message is damaged";
/** A copy has fields that the sender's envelope may lack. */
const STORED_FIELDS_MAX = LIMITS.icc_envelope_fields_max + MESSAGES.Envelope.fields.length;

/**
 * Decodes an envelope of a sender. Bytes fields of the payload share the memory of `bytes`. Throws BODY_TOO_LARGE above
 * `icc_message_bytes_max`, INVALID_ARGUMENT for all other faults.
 */
export function decodeEnvelope(bytes: Uint8Array): Envelope {
  return decoded(bytes, LIMITS.icc_message_bytes_max, LIMITS.icc_envelope_fields_max);
}

/**
 * Decodes an envelope that the daemon has stored: one of a sender, or a copy by `rewriteEnvelope`, which may be larger. Null if
 * the disk has damaged it.
 */
export function readStored(bytes: Uint8Array): Envelope | null {
  try {
    return decoded(bytes, storedBytesMax, STORED_FIELDS_MAX);
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}

/** As `readStored`; throws WRONG_STATE for a damaged envelope. */
export function decodeStored(bytes: Uint8Array): Envelope {
  const envelope = readStored(bytes);
  if (envelope === null) throw new AppError("WRONG_STATE", DAMAGED, { hint: "ask the sender to send it again" });
  return envelope;
}

function decoded(bytes: Uint8Array, bytes_max: number, fields_max: number): Envelope {
  if (bytes.length > bytes_max) throw tooLarge("envelope", bytes.length, bytes_max);
  if (bytes.length === 0) throw invalid("envelope", "is empty");
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const reader = new EnvelopeReader(buffer, fields_max);
  try {
    return plainEnvelope(codec.decode(reader), refuse, "");
  } catch (error) {
    // protobufjs throws Error and RangeError for malformed bytes; a TypeError is a fault of this program.
    if (error instanceof AppError || error instanceof TypeError) throw error;
    const problem = error instanceof MalformedError ? error.message : "is malformed or truncated";
    throw invalid(fieldAt(buffer, reader.pos), problem, { details: { received: `byte ${reader.pos}` } });
  }
}

/** Encodes an envelope, fields in the order of their numbers. Throws BODY_TOO_LARGE above `icc_message_bytes_max`. */
export function encodeEnvelope(envelope: Envelope): Buffer {
  const bytes = finished(codec.encode(rawEnvelope(envelope)));
  const max = LIMITS.icc_message_bytes_max;
  if (bytes.length > max) throw tooLarge("envelope", bytes.length, max);
  return bytes;
}

/** Fields that a copy of an envelope may have with other values; an empty text or 0 removes the field. */
export type EnvelopeChanges = Partial<
  Pick<
    Envelope,
    | "msg_id"
    | "request_id"
    | "trace_id"
    | "correlation_id"
    | "causation_id"
    | "from"
    | "to"
    | "stream_key"
    | "seq"
    | "sent_at"
    | "ttl_ms"
    | "idempotency_key"
  >
>;

/**
 * Returns a copy of an encoded envelope with other fields. The payload and unknown fields stay byte for byte. `bytes` are
 * an envelope that `decodeEnvelope` accepted.
 */
export function rewriteEnvelope(bytes: Uint8Array, changes: EnvelopeChanges): Buffer {
  const changed = new Set(Object.keys(changes).map((name) => FIELD_NUMBERS.get(name)));
  const reader = protobuf.Reader.create(bytes);
  const pieces: Uint8Array[] = [];
  let kept = 0;
  while (reader.pos < reader.len) {
    const begin = reader.pos;
    const tag = reader.tag();
    const number = tag >>> WIRE_TYPE_BITS;
    reader.skipType(tag & ((1 << WIRE_TYPE_BITS) - 1), 0, number);
    if (!changed.has(number)) continue;
    pieces.push(bytes.subarray(kept, begin));
    kept = reader.pos;
  }
  pieces.push(bytes.subarray(kept), finished(codec.encode(changes as never)));
  const copy = Buffer.concat(pieces);
  if (copy.length > storedBytesMax) throw tooLarge("envelope", copy.length, storedBytesMax);
  return copy;
}

function finished(writer: protobuf.Writer): Buffer {
  const bytes = writer.finish();
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
