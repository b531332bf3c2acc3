/**
 * Values for the fields of a request, made from its schema: what it takes, what lies around its bounds, and what it has
 * never heard of. All are JSON texts, since some of what a client may send (`1e999`, half a surrogate pair, a field
 * twice) is no value of JavaScript.
 */
import fc from "fast-check";
import { z } from "zod";
import { LIMITS } from "../../src/base/limits.ts";
import { encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { envelopeOf } from "../../src/icc/envelope/messages.ts";
import { archive } from "../support/file-helper.ts";

type Schema = {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly $ref?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema | boolean;
  readonly $defs?: Readonly<Record<string, Schema>>;
};

/** As the description of the API has it; nothing that the schema's own code says is in it. */
export function schemaOf(type: z.ZodType): Schema {
  return z.toJSONSchema(type, { io: "input", unrepresentable: "any" }) as Schema;
}

/** An image that every image store has. Of other references the daemon would ask registries. */
export const LOCAL_IMAGE = "localhost/hearth/prod:latest";

/** What a function may be made of without starting more than a machine with others on it should bear. */
const TAME: Readonly<Record<string, readonly unknown[]>> = {
  handler: ["cat", "true", 'echo "$HEARTH_FUNCTION_NAME"', "exit 3", "cat; echo over >&2"],
  min_instances: [0, 0, 1],
  max_instances: [1, 2, 5],
  timeout_seconds: [5, 30, 3_600],
  memory_limit_mb: [256, 300],
  cpu_limit_percent: [50, 200, null],
  working_directory: ["/tmp", "/", null],
  expires_at: [4_102_444_800, null],
  version: [1, 2, 3],
  container_id: ["n1", "n2"],
  shell: ["/bin/sh", "sh"],
  volumes: [[], ["n1:/data"], ["n1"]],
  count: [1, 2],
  every_seconds: [3_600, 86_400],
  snapshot_id: ["{snapshot_id}"],
  ports: [[]],
  egress: ["on", "off", ["203.0.113.0/24:443/tcp"]],
  restart: ["no", "on-failure"],
  ttl_seconds: [60, 3_600, null],
  idle_seconds: [60, null],
  disk_limit_mb: [64, null],
  gpu_count: [0],
  content: ["eA==", "", archive({ name: "f", content: "1\n" }).toString("base64")],
  reference: [LOCAL_IMAGE, LOCAL_IMAGE, `containers-storage:${LOCAL_IMAGE}`],
  image_reference: ["n2:1"],
  target: ["n1:1", LOCAL_IMAGE],
  platform: [null],
  registry_username: [null],
  registry_password: [null],
  path: ["f", "d/e"],
  wait_ms: [0, 1, 50],
  timeout_ms: [1, 50, 5_000],
  envelope_b64: [envelopeTo("queue:n1"), envelopeTo("n1")],
  msg_id: ["fuzz-1", "fuzz-2", null],
  function: ["n1"],
  subject: ["queue:n2", "n1", null],
  destination: ["203.0.113.0/24:443/tcp", "203.0.113.9"],
  new_name: ["n5", "n6"],
};

function envelopeTo(to: string): string {
  const defaults = { from: "api", msg_id: "fuzz-3", now_ms: Date.now() };
  return encodeEnvelope(envelopeOf({ to, type: "fuzz", payload: 1 }, defaults)).toString("base64");
}

/** Text that programs have stumbled over. */
export const HOSTILE_TEXT: readonly string[] = [
  "",
  " ",
  "\0",
  "a\0b",
  "\u001b[2J",
  "../../../etc/passwd",
  "..",
  "%00",
  "%2e%2e%2f",
  "%zz",
  "'; DROP TABLE functions; --",
  '"><script>alert(1)</script>',
  "$HEARTH_KEY",
  "$(reboot)",
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "null",
  "undefined",
  "NaN",
  "-1",
  "0x10",
  "1e3",
  "９",
  "é",
  "日本語",
  "👩‍👩‍👧",
  "\u202e",
  "\ufeff",
  "a\nb",
  "x".repeat(129),
  "x".repeat(4_097),
  "é".repeat(70_000),
];

const DEEP = 50_000;
/** Values of every type, and texts that are hardly JSON or none at all. */
const HOSTILE_JSON: readonly string[] = [
  ...["null", "true", "false", "0", "-0", "-1", "0.5", "1e3", "1e999", "-1e999", "9007199254740993", "1e-400"],
  ...["[]", "{}", "[[]]", '{"__proto__":{"admin":true}}', '{"constructor":{"prototype":1}}', '{"toString":null}'],
  ...['"\\ud800"', '"\\u0000"', '{"a":1,"a":2}', '{"":""}', "[null]"],
  "[".repeat(DEEP) + "]".repeat(DEEP),
  `${'{"a":'.repeat(DEEP)}1${"}".repeat(DEEP)}`,
  `[${"0,".repeat(DEEP)}0]`,
  ...["nul", "{", '"', "[1,]", "\u00a0", "NaN", "'a'", "01", "\\", "{a:1}"],
  ...HOSTILE_TEXT.map((text) => JSON.stringify(text)),
];

const texts = (values: readonly unknown[]) => fc.constantFrom(...values.map((value) => JSON.stringify(value)));

function resolved(schema: Schema, root: Schema): Schema {
  return schema.$ref === undefined ? schema : (root.$defs?.[schema.$ref.split("/").at(-1) ?? ""] ?? {});
}

type Objects = (schema: Schema, root: Schema) => fc.Arbitrary<string>;

function valid(given: Schema, root: Schema, field: string, objects: Objects = objectOf): fc.Arbitrary<string> {
  const schema = resolved(given, root);
  if (TAME[field] !== undefined) return texts(TAME[field]);
  if (schema.enum !== undefined) return texts(schema.enum);
  if (schema.const !== undefined) return texts([schema.const]);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map((one) => valid(one, root, field, objects)));
  if (Array.isArray(schema.type))
    return fc.oneof(...schema.type.map((type) => valid({ ...schema, type }, root, field, objects)));
  const { minimum = 0, maximum = 1_000_000, minLength = 0, maxLength = 20, minItems = 0 } = schema;
  switch (schema.type) {
    case "string":
      // Few names, so that they meet each other again.
      return field === "name"
        ? fc.nat(40).map((n) => `"n${n}"`)
        : fc.string({ minLength, maxLength: Math.min(maxLength, 20) }).map((text) => JSON.stringify(text));
    case "integer":
      return fc.integer({ min: Math.max(minimum, -1_000), max: Math.min(maximum, 1_000_000) }).map(String);
    case "number":
      return fc.double({ min: minimum, max: maximum, noNaN: true }).map((value) => JSON.stringify(value));
    case "boolean":
      return fc.boolean().map(String);
    case "null":
      return fc.constant("null");
    case "array":
      return fc
        .uniqueArray(valid(schema.items ?? {}, root, "", objects), { minLength: minItems, maxLength: 4 })
        .map((items) => `[${items.join(",")}]`);
    case "object":
      return schema.properties === undefined
        ? fc
            .dictionary(fc.stringMatching(/^[A-Z_]{1,8}$/), fc.string(), { maxKeys: 4 })
            .map((map) => JSON.stringify(map))
        : objects(schema, root);
    default:
      return fc.constantFrom(...HOSTILE_JSON);
  }
}

/** On the bounds, and one beside them. */
function around(given: Schema, root: Schema): fc.Arbitrary<string> {
  const schema = resolved(given, root);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map((one) => around(one, root)));
  const { minimum, maximum, minLength, maxLength } = schema;
  const numbers = [minimum, maximum]
    .filter((bound) => bound !== undefined)
    .flatMap((bound) => [bound - 1, bound - 0.5, bound, bound + 0.5, bound + 1]);
  const lengths = [minLength, maxLength]
    .filter((bound) => bound !== undefined)
    .flatMap((bound) => [bound - 1, bound, bound + 1])
    .filter((length) => length >= 0);
  const all = [...numbers.map(String), ...lengths.map((length) => JSON.stringify("x".repeat(length)))];
  return fc.constantFrom(...(all.length === 0 ? HOSTILE_JSON : all));
}

/** Of so many instances or copies up to a thousand are more than this machine should start. */
const MANY: Readonly<Record<string, number>> = { min_instances: 2, count: 3 };
const isMany = (field: string, text: string): boolean =>
  Number(text) >= (MANY[field] ?? Number.POSITIVE_INFINITY) && Number(text) <= 1_000;

function fieldText(schema: Schema, root: Schema, field: string): fc.Arbitrary<string> {
  return fc
    .oneof(
      { weight: 30, arbitrary: valid(schema, root, field) },
      { weight: 4, arbitrary: around(schema, root) },
      { weight: 1, arbitrary: fc.constantFrom(...HOSTILE_JSON) },
      { weight: 1, arbitrary: fc.json({ maxDepth: 3 }) },
    )
    .filter((text) => !isMany(field, text));
}

/** Names of no field: of JavaScript, of records, and those that people send by mistake. */
const UNKNOWN_FIELDS = [
  "__proto__",
  "constructor",
  "tenant_id",
  "state",
  "extra",
  "",
  "memory_mb",
  "enviroment",
  "comand",
  "mounts",
];

/** Fields of the schema, most of the required ones, now and then one twice, null, or one that is nobody's. */
function objectOf(schema: Schema, root: Schema): fc.Arbitrary<string> {
  const { properties = {}, required = [] } = schema;
  const pairs = Object.entries(properties).map(([field, one]) => {
    const isRequired = required.includes(field);
    const pair = fieldText(one, root, field).map((text) => [`${JSON.stringify(field)}:${text}`]);
    return fc.oneof(
      { weight: isRequired ? 30 : 4, arbitrary: pair },
      { weight: isRequired ? 1 : 8, arbitrary: fc.constant([]) },
      { weight: isRequired ? 0 : 1, arbitrary: fc.constant([`${JSON.stringify(field)}:null`]) },
      { weight: isRequired ? 1 : 0, arbitrary: fc.tuple(pair, pair).map((both) => both.flat()) },
    );
  });
  const extra = fc.oneof(
    { weight: 12, arbitrary: fc.constant([]) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(fc.constantFrom(...UNKNOWN_FIELDS), fc.constantFrom(...HOSTILE_JSON))
        .map(([name, text]) => [`"${name}":${text}`]),
    },
  );
  return fc.tuple(...pairs, extra).map((all) => `{${all.flat().join(",")}}`);
}

/** What a client sends that knows the API: the required fields and at most two more, all as their schema says. */
function plainObject(schema: Schema, root: Schema): fc.Arbitrary<string> {
  const { properties = {}, required = [] } = schema;
  const optional = Object.keys(properties).filter((field) => !required.includes(field));
  return fc.subarray(optional, { maxLength: Math.min(2, optional.length) }).chain((more) => {
    const pairs = [...required, ...more].map((field) =>
      valid(properties[field] ?? {}, root, field, plainObject).map((text) => `${JSON.stringify(field)}:${text}`),
    );
    return fc.tuple(...pairs).map((all) => `{${all.join(",")}}`);
  });
}

const TOO_LARGE = `{"payload":"${"x".repeat(LIMITS.body_bytes_max)}"}`;

/** The body of a request, or what somebody takes for one. */
export function bodyText(type: z.ZodType): fc.Arbitrary<string> {
  const schema = schemaOf(type);
  return fc.oneof(
    { weight: 300, arbitrary: objectOf(resolved(schema, schema), schema) },
    // Of the rest hardly any of the longest bodies is served.
    { weight: 120, arbitrary: valid(schema, schema, "", plainObject) },
    { weight: 20, arbitrary: fc.constantFrom("", ...HOSTILE_JSON) },
    { weight: 20, arbitrary: fc.string({ unit: "binary", maxLength: 50 }) },
    { weight: 1, arbitrary: fc.constant(TOO_LARGE) },
  );
}

/** A query string for the fields of a schema, raw. */
export function queryText(type: z.ZodType): fc.Arbitrary<string> {
  const { properties = {}, required = [] } = schemaOf(type);
  const bounds = [
    "0",
    "1",
    "5",
    "1000",
    "1001",
    "999999999999999",
    "9007199254740993",
    "true",
    "false",
    "TRUE",
    "+1",
    "1.0",
    "{snapshot_id}",
  ];
  const value = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...bounds) },
    { weight: 1, arbitrary: fc.constantFrom(...HOSTILE_TEXT).map(rawOf) },
    { weight: 1, arbitrary: fc.constantFrom("%", "%zz", "%c3%28", "%00", "a=b", "%ud800") },
  );
  const name = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...Object.keys(properties), "limit") },
    { weight: 1, arbitrary: fc.constantFrom("__proto__", "constructor", "limit[]", "LIMIT", "") },
  );
  const pair = fc.tuple(name, value).map(([field, text]) => `${field}=${text}`);
  const needed = required.map((field) => {
    const values = (TAME[field] ?? bounds).map((one) => `${field}=${rawOf(String(one))}`);
    return fc.oneof(
      { weight: 8, arbitrary: fc.constantFrom(...values).map((text) => [text]) },
      { weight: 1, arbitrary: fc.constant([]) },
    );
  });
  const others = fc.oneof(
    { weight: required.length === 0 ? 0 : 2, arbitrary: fc.constant([]) },
    { weight: 1, arbitrary: fc.array(pair, { maxLength: 3 }) },
  );
  return fc.tuple(...needed, others).map((all) => (all.flat().length === 0 ? "" : `?${all.flat().join("&")}`));
}

/** Any text as part of a request line: encoded where it could not stand there, short enough for the bound of headers. */
export function rawOf(text: string): string {
  return text
    .slice(0, 1_500)
    .replace(/[^\x21-\x7e]|[?#]/gu, (found) => (/^[\ud800-\udfff]$/u.test(found) ? "%ff" : encodeURIComponent(found)));
}
