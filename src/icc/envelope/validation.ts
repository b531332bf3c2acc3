/**
 * Rules on the values of an envelope, which protobuf does not have.
 *
 * R1. version is above 0; msg_id, from and to are not blank; sent_at and ttl_ms are not 0.
 * R2. Identifiers, addresses and keys have at most `icc_id_bytes_max` bytes and no control characters.
 * R3. sent_at + ttl_ms is not past, and sent_at at most `icc_clock_skew_ms` ahead of the daemon's clock.
 * R4. permission_level is one of those that the payload kind permits.
 */
import { LIMITS } from "../../base/limits.ts";
import { ENUMS, type Envelope, type Payload, type PermissionLevel } from "./jets.generated.js";
import { invalid } from "./refusal.ts";

const WRITERS = ["WRITE_STATE", "ADMIN", "FULL"] as const;
/** What is written to a file or an environment is what commands run later. */
const RUNNERS = ["EXECUTE", "ADMIN", "FULL"] as const;
const REPORTERS = ["ADMIN", "FULL"] as const;

/** Permission levels that each payload kind permits, the least first. */
export const PERMISSIONS: Readonly<Record<Payload["kind"], readonly [PermissionLevel, ...PermissionLevel[]]>> = {
  state_snapshot: ["READ_ONLY", ...WRITERS],
  state_patch: WRITERS,
  exec_command: RUNNERS,
  file_patch: RUNNERS,
  env_patch: RUNNERS,
  lifecycle_action: WRITERS,
  ack: REPORTERS,
  error: REPORTERS,
};

/** Texts that must not be blank, then those that may be empty. */
const REQUIRED = ["msg_id", "from", "to"] as const;
const OPTIONAL = ["request_id", "trace_id", "correlation_id", "causation_id", "stream_key", "idempotency_key"] as const;
const CONTROL = /\p{Cc}/u;
/** A character of UTF-16 has at most 3 bytes in UTF-8. */
const BYTES_PER_CHARACTER_MAX = 3;

/**
 * Throws INVALID_ARGUMENT for an envelope that breaks a rule. `reason_code` is EXPIRED after the end of the lifetime,
 * PERMISSION_DENIED for a permission level that the payload kind does not permit, otherwise INVALID_SCHEMA.
 */
export function validateEnvelope(envelope: Envelope, now_ms: number): void {
  if (envelope.version === 0) throw invalid("version", "must be above 0: 0", { details: { expected: [">= 1"] } });
  for (const name of REQUIRED) {
    if (envelope[name].trim() === "") throw invalid(name, "must not be blank", { details: { expected: ["text"] } });
    checkText(name, envelope[name]);
  }
  for (const name of OPTIONAL) if (envelope[name] !== "") checkText(name, envelope[name]);
  checkTimes(envelope, now_ms);
  checkPermission(envelope);
}

/**
 * Returns the end of the message's lifetime: sent_at + ttl_ms, and at most `icc_message_kept_ms` from now. Milliseconds
 * since the Unix epoch.
 */
export function expiresAt(envelope: Envelope, now_ms: number): number {
  return Math.min(envelope.sent_at + envelope.ttl_ms, now_ms + LIMITS.icc_message_kept_ms);
}

/** True if `level` is at most `grant`, in the order of the enumeration. */
export function isWithin(level: PermissionLevel, grant: PermissionLevel): boolean {
  return ENUMS.PermissionLevel[level] <= ENUMS.PermissionLevel[grant];
}

/** True if a payload kind may have this permission level (R4). */
export function permits(kind: Payload["kind"], level: PermissionLevel): boolean {
  return PERMISSIONS[kind].includes(level);
}

function checkText(name: string, value: string): void {
  const max = LIMITS.icc_id_bytes_max;
  if (value.length * BYTES_PER_CHARACTER_MAX > max && Buffer.byteLength(value) > max) {
    const size = `${Buffer.byteLength(value)} bytes`;
    throw invalid(name, `is too long: ${size} (limit ${max})`, {
      details: { expected: [`<= ${max} bytes`], received: size },
    });
  }
  if (CONTROL.test(value)) throw invalid(name, "must not contain control characters");
}

function checkTimes({ sent_at, ttl_ms }: Envelope, now_ms: number): void {
  if (sent_at === 0) throw invalid("sent_at", "must be above 0: 0", { details: { expected: [">= 1"] } });
  if (ttl_ms === 0) throw invalid("ttl_ms", "must be above 0: 0", { details: { expected: [">= 1"] } });
  if (now_ms > sent_at + ttl_ms) {
    const late = Math.ceil(now_ms - sent_at - ttl_ms);
    throw invalid("ttl_ms", `is over: sent_at + ttl_ms is ${late} ms before the daemon's clock`, {
      reason_code: "EXPIRED",
      details: { expected: [`sent_at + ttl_ms >= ${Math.floor(now_ms)}`], received: `${sent_at} + ${ttl_ms}` },
      hint: "check the sender's clock, or send a longer time to live",
    });
  }
  const ahead = Math.floor(sent_at - now_ms);
  if (ahead <= LIMITS.icc_clock_skew_ms) return;
  throw invalid("sent_at", `is ${ahead} ms ahead of the daemon's clock (limit ${LIMITS.icc_clock_skew_ms})`, {
    details: { expected: [`<= ${Math.floor(now_ms) + LIMITS.icc_clock_skew_ms}`], received: String(sent_at) },
    hint: "send milliseconds since the Unix epoch, and check the sender's clock",
  });
}

function checkPermission({ permission_level, payload }: Envelope): void {
  if (permits(payload.kind, permission_level)) return;
  const permitted = PERMISSIONS[payload.kind];
  throw invalid("permission_level", `does not permit ${payload.kind}: ${permission_level}`, {
    reason_code: "PERMISSION_DENIED",
    details: { expected: permitted, received: permission_level },
    hint: `send ${payload.kind} with ${permitted.join(", ")}`,
  });
}
