/** Messages in plain JSON: what envelope each makes, and what a receiver gets of an envelope. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { decodeEnvelope, type Envelope, encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { type JsonMessage, messageSchema } from "../../src/icc/envelope/message-schema.ts";
import { messageType } from "../../src/icc/envelope/message-type.ts";
import { envelopeOf, messageOf } from "../../src/icc/envelope/messages.ts";
import { validateEnvelope } from "../../src/icc/envelope/validation.ts";
import { SAMPLES, SENT_AT, sample } from "./sample-envelopes.ts";

const DEFAULTS = { from: "ctr_a", msg_id: "msg-0", now_ms: SENT_AT + 0.7 };
const make = (message: JsonMessage): Envelope => envelopeOf(message, DEFAULTS);

function refusal(message: JsonMessage): string {
  try {
    make(message);
  } catch (error) {
    if (error instanceof AppError) return `${error.code} ${error.message}`;
    throw error;
  }
  return "accepted";
}

/** Through the bytes, as a message takes it. */
const received = (envelope: Envelope) => messageOf(decodeEnvelope(encodeEnvelope(envelope)));

describe("a message of an application type", () => {
  it("becomes a state_snapshot of JSON that the least permission level permits, and comes back", () => {
    const envelope = make({ to: "worker", type: "order.created", payload: { id: 7, tags: ["ä"] } });
    expect(envelope).toEqual({
      version: 1,
      msg_id: "msg-0",
      request_id: "",
      trace_id: "",
      correlation_id: "",
      causation_id: "",
      from: "ctr_a",
      to: "worker",
      stream_key: "",
      seq: 0,
      sent_at: SENT_AT,
      ttl_ms: 7 * 24 * 3_600_000,
      permission_level: "READ_ONLY",
      idempotency_key: "",
      payload: {
        kind: "state_snapshot",
        value: { content_type: "application/json; type=order.created", data: Buffer.from('{"id":7,"tags":["ä"]}') },
      },
    });
    validateEnvelope(envelope, SENT_AT);
    expect(messageType(envelope)).toBe("order.created");
    expect(received(envelope)).toEqual({
      msg_id: "msg-0",
      from: "ctr_a",
      to: "worker",
      type: "order.created",
      payload: { id: 7, tags: ["ä"] },
      permission_level: "READ_ONLY",
      sent_at: SENT_AT,
      ttl_ms: 7 * 24 * 3_600_000,
    });
  });

  it("comes back with any JSON as its payload, null if it has none", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (payload) => {
        const plain = JSON.parse(JSON.stringify(payload));
        expect(received(make({ to: "a", type: "t", payload })).payload).toEqual(plain);
      }),
      { numRuns: 300 },
    );
    expect(received(make({ to: "a", type: "t" })).payload).toBeNull();
  });

  it("keeps every identifier that the sender chose", () => {
    const chosen = {
      to: "b",
      from: "c",
      msg_id: "m",
      request_id: "r",
      trace_id: "t",
      correlation_id: "o",
      causation_id: "a",
      stream_key: "s",
      seq: 3,
      ttl_ms: 5,
      idempotency_key: "i",
      permission_level: "ADMIN",
    } as const;
    expect(received(make({ ...chosen, type: "x", payload: 1 }))).toEqual({
      ...chosen,
      type: "x",
      payload: 1,
      sent_at: SENT_AT,
    });
  });
});

describe("a message whose type is a payload kind", () => {
  it.each(SAMPLES)("$kind makes the payload from an object, and a receiver gets the same object", (one) => {
    const message = received(one.envelope);
    expect(message.type).toBe(one.kind);
    const { payload } = make({ to: "b", type: message.type, payload: JSON.parse(JSON.stringify(message.payload)) });
    expect(payload).toEqual(one.envelope.payload);
  });

  it("takes bytes as text, or as base64 in a field that ends in _b64", () => {
    const data = (payload: unknown) => {
      const made = make({ to: "b", type: "state_snapshot", payload }).payload;
      return made.kind === "state_snapshot" ? made.value.data.toString("hex") : null;
    };
    expect([data({ data: "ä" }), data({ data_b64: "//4=" }), data({}), data({ data: null })]).toEqual([
      "c3a4",
      "fffe",
      "",
      "",
    ]);
    expect(received(sample("state_patch").envelope).payload).toMatchObject({ patch_b64: "Af8=" });
  });

  it("has the least permission level that its kind permits", () => {
    const level = (type: string) => make({ to: "b", type, payload: {} }).permission_level;
    expect(SAMPLES.map(({ kind }) => level(kind))).toEqual([
      "READ_ONLY",
      "WRITE_STATE",
      "EXECUTE",
      "EXECUTE",
      "EXECUTE",
      "WRITE_STATE",
      "ADMIN",
      "ADMIN",
    ]);
  });

  it.each<readonly [string, unknown, string]>([
    ["exec_command", undefined, "UNPROCESSABLE_ENTITY payload must be an object with the fields of exec_command"],
    ["exec_command", [], "UNPROCESSABLE_ENTITY payload must be an object with the fields of exec_command"],
    ["exec_command", { command: [] }, "UNPROCESSABLE_ENTITY payload.command is no field of exec_command"],
    ["exec_command", { argv: "ls" }, "UNPROCESSABLE_ENTITY payload.argv must be an array of strings"],
    ["exec_command", { argv: ["ls", 1] }, "UNPROCESSABLE_ENTITY payload.argv.1 must be a string"],
    ["exec_command", { argv: ["\ud800"] }, "INVALID_ARGUMENT payload.argv.0 must not contain half a surrogate pair"],
    ["exec_command", { env: [] }, "UNPROCESSABLE_ENTITY payload.env must be an object of strings"],
    ["exec_command", { env: { A: 1 } }, "UNPROCESSABLE_ENTITY payload.env.A must be a string"],
    ["exec_command", { timeout_ms: "1" }, "UNPROCESSABLE_ENTITY payload.timeout_ms must be a number"],
    [
      "exec_command",
      { timeout_ms: -1 },
      "INVALID_ARGUMENT payload.timeout_ms must be a whole number from 0 to 2^53 - 1: -1",
    ],
    [
      "exec_command",
      { timeout_ms: 2 ** 53 },
      "INVALID_ARGUMENT payload.timeout_ms must be a whole number from 0 to 2^53 - 1: 9007199254740992",
    ],
    ["exec_command", { apply_mode: "FORCE" }, "INVALID_ARGUMENT payload.apply_mode is unknown: FORCE"],
    [
      "exec_command",
      { apply_mode: "x".repeat(99) },
      `INVALID_ARGUMENT payload.apply_mode is unknown: ${"x".repeat(64)}…`,
    ],
    [
      "exec_command",
      { ["x".repeat(99)]: 1 },
      `UNPROCESSABLE_ENTITY payload.${"x".repeat(64)}… is no field of exec_command`,
    ],
    ["exec_command", { apply_mode: 1 }, "UNPROCESSABLE_ENTITY payload.apply_mode must be a string"],
    [
      "state_patch",
      { patch: "a", patch_b64: "" },
      "INVALID_ARGUMENT payload.patch must not stand beside payload.patch_b64",
    ],
    ["state_patch", { patch: {} }, "UNPROCESSABLE_ENTITY payload.patch must be a string"],
    [
      "state_patch",
      { patch_b64: "a" },
      "INVALID_ARGUMENT payload.patch_b64 must be base64 of the standard alphabet with padding, without spaces or line breaks",
    ],
  ])("%s refuses the payload %j", (type, payload, expected) => {
    expect(refusal({ to: "b", type, payload })).toBe(expected);
  });
});

describe("a message at the limits", () => {
  const texts = (count: number) => Array.from({ length: count }, () => "");
  const map = (count: number) => Object.fromEntries(texts(count).map((one, index) => [`k${index}`, one]));

  it("is decoded with the most entries, and refused with more", () => {
    const argv = texts(LIMITS.icc_list_entries_max);
    const env = map(LIMITS.icc_list_entries_max);
    expect(received(make({ to: "b", type: "exec_command", payload: { argv, env } })).payload).toMatchObject({ env });
    expect(refusal({ to: "b", type: "exec_command", payload: { argv: texts(2_001) } })).toBe(
      "INVALID_ARGUMENT payload.argv has too many entries: 2001 (limit 2000)",
    );
    expect(refusal({ to: "b", type: "env_patch", payload: { set: map(2_001) } })).toBe(
      "INVALID_ARGUMENT payload.set has too many entries: 2001 (limit 2000)",
    );
  });

  it("is refused above 1 MiB when it is encoded", () => {
    const envelope = make({ to: "b", type: "big", payload: "x".repeat(LIMITS.icc_message_bytes_max) });
    expect(() => encodeEnvelope(envelope)).toThrow(/^envelope is too large: 10486\d\d bytes \(limit 1048576\)$/);
  });
});

describe("an envelope that names an application type", () => {
  const forged = (content_type: string, data: Buffer) =>
    received({
      ...sample("state_snapshot").envelope,
      payload: { kind: "state_snapshot", value: { content_type, data } },
    });

  it("is a state_snapshot for receivers if its data is no JSON, not UTF-8 or too deep", () => {
    const type = "application/json; type=x";
    const deep = Buffer.from("[".repeat(LIMITS.json_depth_max + 1) + "]".repeat(LIMITS.json_depth_max + 1));
    for (const data of [Buffer.from("{"), Buffer.from([0xff]), Buffer.alloc(0), deep])
      expect(forged(type, data).type).toBe("state_snapshot");
    expect(forged(type, Buffer.from("[[1]]"))).toMatchObject({ type: "x", payload: [[1]] });
  });

  it("is a state_snapshot if the type is a payload kind, malformed or too long", () => {
    for (const type of ["exec_command", "", "-a", "a b", "a\n", "a".repeat(129)])
      expect(forged(`application/json; type=${type}`, Buffer.from("{}")).type).toBe("state_snapshot");
    expect(forged(`application/json; type=${"a".repeat(128)}`, Buffer.from("{}")).type).toBe("a".repeat(128));
  });
});

describe("the shape of a JSON message", () => {
  it("takes the least, and refuses a type or an address that cannot be", () => {
    const isValid = (body: unknown) => messageSchema.safeParse(body).success;
    expect(isValid({ to: "a", type: "order.created", payload: { any: [1] } })).toBe(true);
    expect(isValid({ to: "a", type: "exec_command" })).toBe(true);
    for (const body of [
      { type: "a" },
      { to: "a" },
      { to: "", type: "a" },
      { to: "a", type: "" },
      { to: "a", type: "a b" },
      { to: "a", type: "a".repeat(129) },
      { to: "a".repeat(257), type: "a" },
      { to: "a", type: "a", ttl_ms: 0 },
      { to: "a", type: "a", ttl_ms: 1.5 },
      { to: "a", type: "a", permission_level: "PERMISSION_LEVEL_UNSPECIFIED" },
    ])
      expect([body, isValid(body)]).toEqual([body, false]);
  });
});
