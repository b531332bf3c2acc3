/** The rules on the values of envelopes, each with its refusal. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Envelope, PayloadKind, PermissionLevel } from "../../src/icc/envelope/envelope.ts";
import { PAYLOAD_KINDS } from "../../src/icc/envelope/message-type.ts";
import { summaryOf } from "../../src/icc/envelope/summary.ts";
import { expiresAt, isWithin, PERMISSIONS, validateEnvelope } from "../../src/icc/envelope/validation.ts";
import { SAMPLES, SENT_AT, sample } from "./sample-envelopes.ts";

const HOUR_MS = 3_600_000;
const NOW = SENT_AT + 1;
const LEVELS: readonly PermissionLevel[] = [
  "PERMISSION_LEVEL_UNSPECIFIED",
  "READ_ONLY",
  "WRITE_STATE",
  "EXECUTE",
  "ADMIN",
  "FULL",
];

/** `<reason code> <message>`, or `valid`. */
function outcome(changes: Partial<Envelope>, now_ms = NOW, kind: PayloadKind = "exec_command"): string {
  try {
    validateEnvelope({ ...sample(kind).envelope, ...changes }, now_ms);
    return "valid";
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return `${error.code} ${error.reason_code} ${error.message}`;
  }
}

describe("an envelope", () => {
  it.each(SAMPLES)("of $kind is valid with every field set", ({ kind }) => {
    expect(outcome({}, NOW, kind)).toBe("valid");
  });

  it.each<readonly [Partial<Envelope>, string]>([
    [{ version: 0 }, "version must be above 0: 0"],
    [{ msg_id: "" }, "msg_id must not be blank"],
    [{ msg_id: " \t\u00a0" }, "msg_id must not be blank"],
    [{ from: "" }, "from must not be blank"],
    [{ to: " " }, "to must not be blank"],
    [{ msg_id: "m".repeat(257) }, "msg_id is too long: 257 bytes (limit 256)"],
    [{ to: "ä".repeat(129) }, "to is too long: 258 bytes (limit 256)"],
    [{ idempotency_key: "k".repeat(300) }, "idempotency_key is too long: 300 bytes (limit 256)"],
    [{ msg_id: "a\r\nNats-Msg-Id: b" }, "msg_id must not contain control characters"],
    [{ trace_id: "a\0" }, "trace_id must not contain control characters"],
    [{ stream_key: "\u0085" }, "stream_key must not contain control characters"],
    [{ sent_at: 0 }, "sent_at must be above 0: 0"],
    [{ ttl_ms: 0 }, "ttl_ms must be above 0: 0"],
  ])("with %j is refused", (changes, message) => {
    expect(outcome(changes)).toBe(`INVALID_ARGUMENT INVALID_SCHEMA ${message}`);
  });

  it("with identifiers of 256 bytes, or without the optional ones, is valid", () => {
    const longest = { msg_id: "m".repeat(256), from: "ä".repeat(128), to: "😀".repeat(64) };
    const none = {
      request_id: "",
      trace_id: "",
      correlation_id: "",
      causation_id: "",
      stream_key: "",
      idempotency_key: "",
    };
    expect([outcome(longest), outcome(none)]).toEqual(["valid", "valid"]);
  });

  it("is valid until the last millisecond of its lifetime, then EXPIRED", () => {
    expect(outcome({}, SENT_AT + 60_000)).toBe("valid");
    expect(outcome({}, SENT_AT + 60_001)).toBe(
      "INVALID_ARGUMENT EXPIRED ttl_ms is over: sent_at + ttl_ms is 1 ms before the daemon's clock",
    );
  });

  it("from a clock an hour ahead is valid, and refused further ahead", () => {
    expect(outcome({ sent_at: NOW + HOUR_MS })).toBe("valid");
    expect(outcome({ sent_at: NOW + LIMITS.icc_clock_skew_ms })).toBe("valid");
    expect(outcome({ sent_at: NOW + LIMITS.icc_clock_skew_ms + 1 })).toBe(
      "INVALID_ARGUMENT INVALID_SCHEMA sent_at is 3900001 ms ahead of the daemon's clock (limit 3900000)",
    );
    // Seconds are in the past, microseconds in the future.
    expect(outcome({ sent_at: SENT_AT / 1_000 })).toContain("EXPIRED");
    expect(outcome({ sent_at: SENT_AT * 1_000 })).toContain("sent_at is");
  });

  it("from a clock an hour behind is valid if its ttl_ms is longer", () => {
    expect(outcome({ sent_at: NOW - HOUR_MS, ttl_ms: HOUR_MS })).toBe("valid");
    expect(outcome({ sent_at: NOW - HOUR_MS, ttl_ms: 60_000 })).toContain(" EXPIRED ");
  });

  it("expires after ttl_ms, and after 7 days at most whatever the sender's clock and ttl_ms are", () => {
    const { envelope } = sample("ack");
    expect(expiresAt(envelope, NOW)).toBe(SENT_AT + 60_000);
    for (const ttl_ms of [30 * 24 * HOUR_MS, Number.MAX_SAFE_INTEGER]) {
      expect(outcome({ ttl_ms })).toBe("valid");
      expect(expiresAt({ ...envelope, ttl_ms }, NOW)).toBe(NOW + 7 * 24 * HOUR_MS);
    }
  });

  it.each(PAYLOAD_KINDS)("of %s has one of the permission levels of its kind, otherwise PERMISSION_DENIED", (kind) => {
    for (const permission_level of LEVELS) {
      const found = outcome({ permission_level }, NOW, kind);
      const denied = `INVALID_ARGUMENT PERMISSION_DENIED permission_level does not permit ${kind}: ${permission_level}`;
      expect(found).toBe(PERMISSIONS[kind].includes(permission_level) ? "valid" : denied);
    }
  });

  it("has a summary without its payload", () => {
    expect(summaryOf(sample("exec_command").envelope)).toEqual({
      msg_id: "msg-1",
      from: "ctr_a",
      to: "ctr_b",
      request_id: "req-1",
      permission_level: "FULL",
      payload_kind: "exec_command",
      type: "exec_command",
      trace_id: "trace-1",
      correlation_id: "cor-1",
      causation_id: "cau-1",
      sent_at: SENT_AT,
      ttl_ms: 60_000,
    });
  });
});

describe("a permission level", () => {
  it("is within those that are not below it", () => {
    for (const [index, level] of LEVELS.entries())
      expect(LEVELS.filter((grant) => isWithin(level, grant))).toEqual(LEVELS.slice(index));
  });
});
