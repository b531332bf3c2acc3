/**
 * Payloads between their messages and JSON objects, with the field names of jets.proto. Enumerations are names. A bytes
 * field is `<name>` as text or `<name>_b64` as base64: JSON has no bytes. Absent fields have their defaults.
 */
import { isUtf8 } from "node:buffer";
import { LIMITS } from "../../base/limits.ts";
import { decodeBase64 } from "./base64.ts";
import { type DescribedField, type DescribedMessage, ENUMS, MESSAGES, type Payload } from "./jets.generated.js";
import { invalid, misshapen, shown } from "./refusal.ts";

type JsonObject = Readonly<Record<string, unknown>>;

const BASE64_SUFFIX = "_b64";
const ENUM_VALUES: Readonly<Record<string, Readonly<Record<string, number>>>> = ENUMS;

/** Returns the payload of a kind. Throws UNPROCESSABLE_ENTITY for a wrong shape, INVALID_ARGUMENT for a bad value. */
export function payloadFromJson(kind: Payload["kind"], payload: unknown): Payload {
  const message = messageOf(kind);
  if (!isObject(payload)) throw misshapen("payload", `must be an object with the fields of ${kind}`, ["object"]);
  const names = message.fields.flatMap(({ name, type }) => (type === "bytes" ? [name, name + BASE64_SUFFIX] : [name]));
  const unknown = Object.keys(payload).find((name) => !names.includes(name));
  if (unknown !== undefined) throw misshapen(`payload.${shown(unknown)}`, `is no field of ${kind}`, names);
  const value = Object.fromEntries(message.fields.map((field) => [field.name, fieldFromJson(field, payload)]));
  return { kind, value } as unknown as Payload;
}

/** Returns the JSON object of a payload, with all its fields. */
export function payloadToJson({ kind, value }: Payload): JsonObject {
  const values = value as unknown as JsonObject;
  return Object.fromEntries(
    messageOf(kind).fields.map(({ name }): [string, unknown] => {
      const one = values[name];
      if (!Buffer.isBuffer(one)) return [name, one];
      return isUtf8(one) ? [name, one.toString()] : [name + BASE64_SUFFIX, one.toString("base64")];
    }),
  );
}

function messageOf(kind: Payload["kind"]): DescribedMessage {
  const type = MESSAGES.Payload.fields.find(({ name }) => name === kind)?.type;
  return MESSAGES[type as keyof typeof MESSAGES];
}

function fieldFromJson(field: DescribedField, payload: JsonObject): unknown {
  const { name, type } = field;
  const path = `payload.${name}`;
  const value = payload[name] ?? undefined;
  if (field.map_key_type !== undefined) return textsByName(path, value);
  if (field.repeated === true) return texts(path, value);
  if (type === "bytes") return bytes(path, value, payload[name + BASE64_SUFFIX] ?? undefined);
  if (type === "string") return value === undefined ? "" : text(path, value);
  const values = ENUM_VALUES[type];
  return values === undefined ? count(path, value) : enumName(path, value, values);
}

function text(path: string, value: unknown): string {
  if (typeof value !== "string") throw misshapen(path, "must be a string", ["string"]);
  if (!value.isWellFormed()) throw invalid(path, "must not contain half a surrogate pair");
  return value;
}

function texts(path: string, value: unknown = []): readonly string[] {
  if (!Array.isArray(value)) throw misshapen(path, "must be an array of strings", ["array"]);
  checkCount(path, value.length);
  return value.map((one, index) => text(`${path}.${index}`, one));
}

function textsByName(path: string, value: unknown = {}): Readonly<Record<string, string>> {
  if (!isObject(value)) throw misshapen(path, "must be an object of strings", ["object"]);
  const entries = Object.entries(value);
  checkCount(path, entries.length);
  return Object.fromEntries(
    entries.map(([name, one]) => [text(`${path} (name)`, name), text(`${path}.${shown(name)}`, one)]),
  );
}

function checkCount(path: string, count: number): void {
  const max = LIMITS.icc_list_entries_max;
  if (count <= max) return;
  throw invalid(path, `has too many entries: ${count} (limit ${max})`, {
    details: { expected: [`<= ${max} entries`] },
  });
}

function bytes(path: string, value: unknown, encoded: unknown): Buffer {
  if (encoded === undefined) return Buffer.from(value === undefined ? "" : text(path, value));
  if (value !== undefined) throw invalid(path, `must not stand beside ${path}${BASE64_SUFFIX}`);
  return decodeBase64(text(path + BASE64_SUFFIX, encoded), path + BASE64_SUFFIX);
}

function count(path: string, value: unknown = 0): number {
  if (typeof value !== "number") throw misshapen(path, "must be a number", ["integer"]);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw invalid(path, `must be a whole number from 0 to 2^53 - 1: ${value}`, { details: { expected: ["integer"] } });
}

function enumName(path: string, value: unknown, values: Readonly<Record<string, number>>): string {
  const names = Object.keys(values);
  if (value === undefined) return names[0] ?? "";
  if (typeof value !== "string") throw misshapen(path, "must be a string", ["string"]);
  if (names.includes(value)) return value;
  throw invalid(path, `is unknown: ${shown(value)}`, { details: { expected: names, received: shown(value) } });
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
