/** Envelopes between bytes and objects: as protoc and the reflection of protobufjs read them, and never another outcome. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { decodeBase64 } from "../../src/icc/envelope/base64.ts";
import {
  decodeEnvelope,
  decodeStored,
  type Envelope,
  encodeEnvelope,
  rewriteEnvelope,
} from "../../src/icc/envelope/envelope.ts";
import { summaryOf } from "../../src/icc/envelope/summary.ts";
import { validateEnvelope } from "../../src/icc/envelope/validation.ts";
import { jetsRoot } from "./envelope-generator.ts";
import { SAMPLES, SENT_AT, sample } from "./sample-envelopes.ts";

const REFLECTED = jetsRoot().lookupType("jets.Envelope");
const EXEC = sample("exec_command");
const RUNS = 1_000;

/** The refusal of a decode: code and message. */
function refusal(bytes: Uint8Array, decode = decodeEnvelope): string {
  try {
    decode(bytes);
  } catch (error) {
    if (error instanceof AppError) return `${error.code} ${error.message}`;
    throw error;
  }
  return "accepted";
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  for (; left > 127; left = Math.floor(left / 128)) bytes.push((left % 128) + 128);
  return Buffer.from([...bytes, left]);
}

/** A length-delimited field. */
const field = (number: number, bytes: Uint8Array): Buffer =>
  Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
const number = (field: number, value: number): Buffer => Buffer.concat([varint(field * 8), varint(value)]);
const repeated = (bytes: Buffer, count: number): Buffer => Buffer.concat(Array.from({ length: count }, () => bytes));

/** The result of the reflection, in the form of an Envelope. */
function reflected(bytes: Uint8Array): unknown {
  const object = REFLECTED.toObject(REFLECTED.decode(bytes), {
    enums: String,
    longs: Number,
    bytes: Buffer,
    defaults: true,
    oneofs: true,
  });
  const { kind } = object.payload ?? {};
  return { ...object, payload: { kind, value: object.payload?.[kind] } };
}

const text = fc.string({ unit: "grapheme", maxLength: 40 });
const count = fc.oneof(fc.constant(0), fc.maxSafeNat());
const map = fc.dictionary(fc.oneof(text, fc.constantFrom("__proto__", "constructor", "toString")), text, {
  maxKeys: 4,
  noNullPrototype: true,
});
const bytes = fc.uint8Array({ maxLength: 60 }).map((one) => Buffer.from(one));
const mode = fc.constantFrom("APPLY_MODE_UNSPECIFIED", "DRY_RUN", "ENFORCE");
const version = { desired_state_version: count, apply_mode: mode };
const code = fc.constantFrom("ERROR_CODE_UNSPECIFIED", "INVALID_SCHEMA", "IDMP_REPLAY");
const kinds = {
  state_snapshot: fc.record({ content_type: text, data: bytes }),
  state_patch: fc.record({ content_type: text, patch: bytes, ...version }),
  exec_command: fc.record({
    argv: fc.array(text, { maxLength: 4 }),
    timeout_ms: count,
    workdir: text,
    env: map,
    ...version,
  }),
  file_patch: fc.record({ path: text, content_type: text, patch: bytes, ...version }),
  env_patch: fc.record({ set: map, unset: fc.array(text, { maxLength: 4 }), ...version }),
  lifecycle_action: fc.record({ action: text, ...version }),
  ack: fc.record({
    status: fc.constantFrom("ACK_STATUS_UNSPECIFIED", "APPLIED", "CONFLICT"),
    applied_at: count,
    previous_version: count,
    result_version: count,
    error_code: code,
    error_message: text,
  }),
  error: fc.record({ code, message: text, details: map }),
};
const payload = fc.oneof(
  ...Object.entries(kinds).map(([kind, value]) => (value as fc.Arbitrary<unknown>).map((value) => ({ kind, value }))),
);
const envelope = fc.record({
  version: fc.nat(),
  msg_id: text,
  request_id: text,
  trace_id: text,
  correlation_id: text,
  causation_id: text,
  from: text,
  to: text,
  stream_key: text,
  seq: count,
  sent_at: count,
  ttl_ms: count,
  permission_level: fc.constantFrom("PERMISSION_LEVEL_UNSPECIFIED", "READ_ONLY", "FULL"),
  idempotency_key: text,
  payload,
}) as unknown as fc.Arbitrary<Envelope>;

describe("an envelope", () => {
  it.each(SAMPLES)("of $kind has the bytes that protoc makes, both ways", ({ envelope, bytes }) => {
    expect(encodeEnvelope(envelope)).toEqual(bytes);
    expect(decodeEnvelope(bytes)).toEqual(envelope);
    expect(decodeEnvelope(new Uint8Array(bytes))).toEqual(envelope);
  });

  it("comes back as it was encoded, and the reflection of jets.proto reads and writes the same", () => {
    fc.assert(
      fc.property(envelope, (one) => {
        const encoded = encodeEnvelope(one);
        expect(decodeEnvelope(encoded)).toEqual(one);
        expect(reflected(encoded)).toEqual(one);
        expect(Buffer.from(REFLECTED.encode(REFLECTED.decode(encoded)).finish())).toEqual(encoded);
      }),
      { numRuns: 500 },
    );
  });

  it("with map entries named like members of objects keeps them as own entries", () => {
    const env = JSON.parse('{"__proto__":"1","constructor":"2"}');
    const { value } = EXEC.envelope.payload;
    const one = { ...EXEC.envelope, payload: { kind: "exec_command", value: { ...value, env } } } as Envelope;
    const decoded = decodeEnvelope(encodeEnvelope(one)).payload;
    expect(decoded.kind === "exec_command" && Object.entries(decoded.value.env)).toEqual(Object.entries(env));
    expect(({} as Record<string, unknown>)["1"]).toBeUndefined();
  });

  it("from a newer client keeps its meaning with unknown fields, and loses none of their bytes when rewritten", () => {
    const unknown = Buffer.concat([
      number(99, 5),
      field(1_000, Buffer.from("new")),
      Buffer.from([0x9b, 0x06, 0x9c, 0x06]),
    ]);
    const bytes = Buffer.concat([unknown, EXEC.bytes]);
    expect(decodeEnvelope(bytes)).toEqual(EXEC.envelope);
    const copy = rewriteEnvelope(bytes, { to: "ctr_c" });
    expect(copy.subarray(0, unknown.length)).toEqual(unknown);
    expect(decodeEnvelope(copy)).toEqual({ ...EXEC.envelope, to: "ctr_c" });
  });

  it("with a field twice has the last value, and with two kinds the last kind", () => {
    const bytes = Buffer.concat([
      EXEC.bytes,
      field(8, Buffer.from("ctr_c")),
      field(15, field(6, field(1, Buffer.from("start")))),
    ]);
    const decoded = decodeEnvelope(bytes);
    expect([decoded.to, decoded.payload]).toEqual([
      "ctr_c",
      {
        kind: "lifecycle_action",
        value: { action: "start", desired_state_version: 0, apply_mode: "APPLY_MODE_UNSPECIFIED" },
      },
    ]);
    expect(reflected(bytes)).toEqual(decoded);
  });
});

describe("decodeEnvelope refuses", () => {
  const exec = (inner: Buffer) => field(15, field(3, inner));
  it.each<readonly [string, Buffer, string]>([
    ["an empty buffer, which protobuf accepts", Buffer.alloc(0), "INVALID_ARGUMENT envelope is empty"],
    ["an envelope without a payload", number(1, 1), "INVALID_ARGUMENT payload is missing"],
    ["a payload without a kind", field(15, Buffer.alloc(0)), "INVALID_ARGUMENT payload.kind is missing"],
    ["a payload of an unknown kind", field(15, field(9, Buffer.from("x"))), "INVALID_ARGUMENT payload.kind is missing"],
    ["text that is not UTF-8", field(2, Buffer.from([0xff])), "INVALID_ARGUMENT msg_id is not valid UTF-8"],
    [
      "half of a surrogate pair in UTF-8",
      field(7, Buffer.from([0xed, 0xa0, 0x80])),
      "INVALID_ARGUMENT from is not valid UTF-8",
    ],
    [
      "text that is not UTF-8 in a map",
      exec(field(4, field(1, Buffer.from([0x80])))),
      "INVALID_ARGUMENT payload.exec_command.env is not valid UTF-8",
    ],
    [
      "a number above 2^53 - 1",
      Buffer.concat([number(10, 2 ** 53), EXEC.bytes]),
      "INVALID_ARGUMENT seq is above 2^53 - 1",
    ],
    [
      "the largest 64-bit number",
      Buffer.from([0x58, ...Array(9).fill(0xff), 0x01]),
      "INVALID_ARGUMENT sent_at is above 2^53 - 1",
    ],
    [
      "a number of more than 10 bytes",
      Buffer.from([0x60, ...Array(10).fill(0x80), 0x01]),
      "INVALID_ARGUMENT ttl_ms is not a valid number",
    ],
    ["a truncated number", Buffer.from([0x58, 0x80]), "INVALID_ARGUMENT sent_at is truncated"],
    ["truncated text", Buffer.from([0x12, 0x05, 0x61]), "INVALID_ARGUMENT msg_id is truncated"],
    [
      "a payload longer than the envelope",
      Buffer.from([0x7a, 0x20, 0x1a, 0x00]),
      "INVALID_ARGUMENT payload is malformed or truncated",
    ],
    [
      "a payload longer than its message",
      field(15, Buffer.from([0x1a, 0x20, 0x0a, 0x00])),
      "INVALID_ARGUMENT payload.exec_command is malformed or truncated",
    ],
    [
      "an unknown permission level",
      Buffer.concat([EXEC.bytes, number(13, 6)]),
      "INVALID_ARGUMENT permission_level has an unknown value: 6",
    ],
    [
      "an unknown apply mode",
      exec(number(6, 3)),
      "INVALID_ARGUMENT payload.exec_command.apply_mode has an unknown value: 3",
    ],
    [
      "an unknown status",
      field(15, field(7, number(1, 9))),
      "INVALID_ARGUMENT payload.ack.status has an unknown value: 9",
    ],
    ["field number 0", Buffer.from([0x00, 0x00]), "INVALID_ARGUMENT envelope is malformed or truncated"],
    [
      "bytes behind the envelope that are no field",
      Buffer.concat([EXEC.bytes, Buffer.from([0x07])]),
      "INVALID_ARGUMENT envelope is malformed or truncated",
    ],
    [
      "groups above the limit of levels",
      Buffer.alloc(1_000, 0x83),
      "INVALID_ARGUMENT envelope is malformed or truncated",
    ],
    [
      "unknown groups in groups",
      repeated(Buffer.from([0xa3, 0x06]), 100),
      "INVALID_ARGUMENT envelope is nested too deeply (limit 16 levels)",
    ],
    [
      "more fields than the limit",
      repeated(number(99, 1), LIMITS.icc_envelope_fields_max + 1),
      "INVALID_ARGUMENT envelope has too many fields (limit 10000)",
    ],
    [
      "more arguments than the limit",
      exec(repeated(field(1, Buffer.alloc(0)), LIMITS.icc_envelope_fields_max)),
      "INVALID_ARGUMENT payload.exec_command has too many fields (limit 10000)",
    ],
  ])("%s", (_, bytes, expected) => {
    expect(refusal(bytes)).toBe(expected);
  });

  it("an envelope above 1 MiB with BODY_TOO_LARGE, and accepts one of exactly 1 MiB", () => {
    const { envelope } = sample("state_snapshot");
    const sized = (size: number) =>
      encodeEnvelope({
        ...envelope,
        payload: { kind: "state_snapshot", value: { content_type: "a", data: Buffer.alloc(size) } },
      });
    const overhead = sized(1024 * 1023).length - 1024 * 1023;
    const largest = sized(LIMITS.icc_message_bytes_max - overhead);
    expect(largest.length).toBe(LIMITS.icc_message_bytes_max);
    expect(refusal(largest)).toBe("accepted");
    expect(() => sized(LIMITS.icc_message_bytes_max - overhead + 1)).toThrow(/too large: 1048577 bytes/);
    expect(refusal(Buffer.concat([largest, number(99, 1)]))).toBe(
      "BODY_TOO_LARGE envelope is too large: 1048579 bytes (limit 1048576)",
    );
    // A copy for another receiver may be larger, within a limit of its own.
    const copy = rewriteEnvelope(largest, { to: "t".repeat(250), msg_id: "m".repeat(256) });
    expect([refusal(copy) === "accepted", refusal(copy, decodeStored)]).toEqual([false, "accepted"]);
    expect(() => rewriteEnvelope(largest, { to: "t".repeat(2 * LIMITS.icc_rewrite_bytes_max) })).toThrow(/too large/);
  });

  it("every truncation of a valid envelope", () => {
    for (const { bytes, envelope } of SAMPLES) {
      const outcomes = bytes.subarray(0, -1).map((_, end) => (refusal(bytes.subarray(0, end)) === "accepted" ? 1 : 0));
      // The payload is the last field, so each truncation lacks it.
      expect([envelope.payload.kind, outcomes.reduce((sum, one) => sum + one, 0)]).toEqual([envelope.payload.kind, 0]);
    }
  });
});

/** Decodes, and checks that the outcome is a valid envelope or an AppError. True if it was valid. */
function attempt(bytes: Buffer): boolean {
  try {
    const decoded = decodeEnvelope(bytes);
    summaryOf(decoded);
    // The daemon accepts exactly what other readers of protobuf read.
    expect(reflected(bytes)).toEqual(decoded);
    expect(decodeEnvelope(encodeEnvelope(decoded))).toEqual(decoded);
    expect(decodeEnvelope(rewriteEnvelope(bytes, { to: "x", seq: 0 }))).toEqual({ ...decoded, to: "x", seq: 0 });
    validateEnvelope(decoded, SENT_AT);
    return true;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    expect(["INVALID_ARGUMENT", "BODY_TOO_LARGE"]).toContain(error.code);
    expect(error.message.length).toBeLessThan(300);
    return false;
  }
}

describe("any bytes are a valid envelope or an AppError", () => {
  const any = fc.constantFrom(...SAMPLES.map(({ bytes }) => bytes));

  it("if they are random", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => void attempt(Buffer.from(bytes))),
      { numRuns: RUNS },
    );
  });

  it("if they are a valid envelope with changed bytes", () => {
    const changes = fc.array(fc.tuple(fc.nat(400), fc.nat(255)), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(any, changes, (valid, list) => {
        const bytes = Buffer.from(valid);
        for (const [at, value] of list) bytes[at % bytes.length] = value;
        attempt(bytes);
      }),
      { numRuns: RUNS },
    );
  });

  it("if they are a valid envelope with a flipped bit", () => {
    const flips = SAMPLES.flatMap(({ bytes }) =>
      Array.from({ length: bytes.length * 8 }, (_, bit) => {
        const flipped = Buffer.from(bytes);
        flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        return attempt(flipped);
      }),
    );
    expect(new Set(flips)).toEqual(new Set([true, false]));
  });

  it("if they are pieces of valid envelopes in any order", () => {
    const piece = fc.tuple(any, fc.nat(200), fc.nat(200)).map(([bytes, from, to]) => bytes.subarray(from, to));
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 5 }), (pieces) => void attempt(Buffer.concat(pieces))),
      { numRuns: RUNS },
    );
  });

  it("within a bounded time, at the largest size", () => {
    const full = (bytes: Buffer) => repeated(bytes, Math.floor(LIMITS.icc_message_bytes_max / bytes.length));
    const hostile = [
      full(field(2, Buffer.alloc(0))),
      full(number(99, 1)),
      full(Buffer.from([0xa3, 0x06])),
      full(Buffer.from([0xa3, 0x06, 0xa4, 0x06])),
      full(Buffer.from([0xff])),
      full(field(15, field(4, Buffer.alloc(0)))),
      field(2, Buffer.alloc(1024 * 1000, 0xff)),
      field(2, Buffer.alloc(1024 * 1000, "\ufffd")),
      field(15, field(3, repeated(field(4, Buffer.alloc(0)), 500_000))),
    ];
    const begin = performance.now();
    for (const bytes of hostile) expect(refusal(bytes.subarray(0, LIMITS.icc_message_bytes_max))).not.toBe("accepted");
    expect(performance.now() - begin).toBeLessThan(1_000);
  });
});

describe("rewriteEnvelope", () => {
  it("changes the given fields, removes those that become empty, and keeps the payload", () => {
    for (const { bytes, envelope } of SAMPLES) {
      const changes = {
        to: "ctr_c",
        stream_key: "",
        seq: 0,
        sent_at: SENT_AT + 5,
        msg_id: "msg-1-r1",
        idempotency_key: "",
      };
      expect(decodeEnvelope(rewriteEnvelope(bytes, changes))).toEqual({ ...envelope, ...changes });
      expect(rewriteEnvelope(bytes, {})).toEqual(bytes);
    }
  });

  it("makes a copy that decodeStored accepts of an envelope with the most fields", () => {
    const { envelope } = sample("lifecycle_action");
    const bytes = encodeEnvelope({ ...envelope, request_id: "", trace_id: "", stream_key: "", causation_id: "" });
    const filled = (missing: number) =>
      Buffer.concat([bytes, repeated(number(99, 1), LIMITS.icc_envelope_fields_max - missing)]);
    const most = filled([...Array(20).keys()].find((missing) => refusal(filled(missing)) === "accepted") ?? 0);
    expect(refusal(Buffer.concat([most, number(99, 1)]))).toContain("too many fields");
    const changes = { request_id: "r", trace_id: "t", stream_key: "s", causation_id: "c" };
    expect(decodeStored(rewriteEnvelope(most, changes))).toEqual({ ...envelope, ...changes });
    expect(refusal(rewriteEnvelope(most, changes))).toContain("too many fields");
  });

  it("removes every occurrence of a changed field", () => {
    const bytes = Buffer.concat([EXEC.bytes, field(14, Buffer.from("key-2"))]);
    expect(decodeEnvelope(rewriteEnvelope(bytes, { idempotency_key: "" })).idempotency_key).toBe("");
  });
});

describe("an envelope in base64", () => {
  it("is decoded from the standard alphabet with padding", () => {
    for (const size of [0, 1, 2, 3, 64]) {
      const bytes = Buffer.alloc(size, 0xfb);
      expect(decodeBase64(bytes.toString("base64"))).toEqual(bytes);
    }
  });

  it.each(["-_8=", "+/8", "+/8=\n", " +/8=", "+/8==", "+/9=", "====", "a", "+/8=+/8=", "+/\ud8008"])(
    "%j is refused with INVALID_ARGUMENT",
    (text) => {
      expect(() => decodeBase64(text)).toThrow(
        "envelope_b64 must be base64 of the standard alphabet with padding, without spaces or line breaks",
      );
    },
  );

  it("above 1 MiB is refused before it is decoded", () => {
    expect(() => decodeBase64("A".repeat(4 * 1024 * 1024))).toThrow(/^envelope_b64 is too large: 3145726 bytes/);
  });
});
