/**
 * Hot path. What a client sends, made into checked values: the raw body within its bound, JSON, query, path
 * parameters, and the one translation of the schema library's complaints into 422 and 400.
 *
 * 422 UNPROCESSABLE_ENTITY: a field is missing or of the wrong JSON type. 400 INVALID_ARGUMENT: the type is right and
 * the value is not. Where both occur 422 wins. Unknown fields of bodies are body-fields.ts's; those of queries are ignored.
 */
import { isUtf8 } from "node:buffer";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { AppError, type ErrorCode, errorText } from "../base/errors.ts";
import { checkNumbers, hasOddNumber, keepNumbers } from "../base/json-numbers.ts";
import { checkShape } from "../base/json-shape.ts";
import { LIMITS } from "../base/limits.ts";
import { ChunkList } from "./chunk-list.ts";
import { shapeHint, valueHint } from "./input-hints.ts";
import type { Share } from "./memory-budget.ts";

export interface BodyLimits {
  readonly body_bytes_max: number;
  readonly refused_body_bytes_max: number;
  readonly refused_body_ms: number;
}

const EMPTY = Buffer.alloc(0);

/**
 * Reads the whole body, which is counted in `share` as it comes. Throws BODY_TOO_LARGE as soon as it is known to be,
 * and CAPACITY_FULL where the share gets no more: such a body is read on and thrown away for a while, since most
 * clients look at no answer before they have sent everything, but never without end. A body that stalls ends with the
 * server's request timeout, which closes the connection.
 */
export async function readBody(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  clock: Clock,
  share: Share,
  limits: BodyLimits = LIMITS,
): Promise<Buffer> {
  const { headers } = incoming;
  const length = headers["content-length"];
  if (length === undefined ? headers["transfer-encoding"] === undefined : length === "0") return EMPTY;
  const is_waiting = isWaiting(incoming);
  if (length !== undefined && Number(length) > limits.body_bytes_max) {
    if (!is_waiting) await discard(incoming, Number(length), clock, limits);
    throw tooLarge(limits.body_bytes_max, length);
  }
  if (is_waiting) outgoing.writeContinue();
  const body = await collect(incoming, share, limits.body_bytes_max);
  if (Buffer.isBuffer(body)) return body;
  await discard(incoming, 0, clock, limits);
  throw body ?? tooLarge(limits.body_bytes_max, length);
}

/** Whether the client sends its body only when it is told to. */
export function isWaiting({ headers }: Pick<IncomingMessage, "headers">): boolean {
  return headers.expect?.toLowerCase() === "100-continue";
}

/** The refusal of a body above its bound; `length` as it was announced. */
export function tooLarge(bytes_max: number, length: string | undefined): AppError {
  return new AppError("BODY_TOO_LARGE", `body too large: limit ${bytes_max} bytes`, {
    details: { expected: [`<= ${bytes_max} bytes`], received: length ? `${length} bytes` : null },
  });
}

/**
 * The body; null once it has passed `bytes_max`, the refusal once it has no room in `share`, and then the stream is
 * left paused where it was.
 */
function collect(incoming: IncomingMessage, share: Share, bytes_max: number): Promise<Buffer | AppError | null> {
  return new Promise((resolve, reject) => {
    const pieces = new ChunkList();
    let bytes = 0;
    const settle = (body: Buffer | AppError | null): void => {
      incoming.off("data", onData).off("end", onEnd).off("error", onError).off("close", onClose);
      resolve(body);
    };
    const onData = (chunk: Buffer): void => {
      bytes += chunk.length;
      const refusal = bytes > bytes_max ? null : share.add(chunk.length);
      if (refusal === undefined) {
        pieces.add(chunk);
      } else {
        pieces.clear();
        incoming.pause();
        settle(refusal);
      }
    };
    const onEnd = (): void => settle(pieces.bytes());
    const onError = (cause: Error): void => {
      reject(
        new AppError("INVALID_ARGUMENT", "the client closed the connection before the end of the body", { cause }),
      );
    };
    const onClose = (): void => onError(new Error("closed"));
    incoming.on("data", onData).on("end", onEnd).on("error", onError).on("close", onClose);
  });
}

/** Reads and forgets until the end, `refused_body_bytes_max` or `refused_body_ms`. Never throws. */
export function discard(incoming: IncomingMessage, announced: number, clock: Clock, limits: BodyLimits): Promise<void> {
  if (announced > limits.refused_body_bytes_max || incoming.readableEnded) return Promise.resolve();
  return new Promise((resolve) => {
    let bytes = 0;
    const settle = (): void => {
      cancel();
      incoming.off("data", onData).off("end", settle).off("error", settle).off("close", settle).pause();
      resolve();
    };
    const onData = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes > limits.refused_body_bytes_max) settle();
    };
    const cancel = clock.after(limits.refused_body_ms, settle);
    incoming.on("data", onData).on("end", settle).on("error", settle).on("close", settle).resume();
  });
}

/** Paths of fields whose numbers stay as they were sent: `["smoke", "payload"]`, `*` for each item of a list. */
export type ExactFields = readonly (readonly string[])[];

/**
 * JSON whatever the Content-Type says (`curl -d` announces a form). An empty body is `{}`, and a byte order mark is ignored. Throws INVALID_JSON, and
 * INVALID_ARGUMENT above the bounds of json-shape.ts, and for a number above the largest double. Fields of `exact` are a `JsonText`
 * if a number in them may change.
 */
export function parseJson(body: Buffer, exact: ExactFields = []): unknown {
  // RFC 8259 §8.1 permits a reader to ignore the mark, which some editors and shells write.
  const isMarked = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  return parseText(isMarked ? body.subarray(3) : body, exact);
}

function parseText(body: Buffer, exact: ExactFields): unknown {
  if (body.length === 0) return {};
  // Names no part of the body: it may hold secrets.
  if (!isUtf8(body)) throw new AppError("INVALID_JSON", "the body is not UTF-8 text");
  checkShape(body);
  let value: unknown;
  try {
    value = JSON.parse(body.toString());
  } catch (cause) {
    throw new AppError("INVALID_JSON", `invalid JSON in the body: ${faultOf(body.toString(), errorText(cause))}`);
  }
  if (hasOddNumber(body)) {
    checkNumbers(body, "the body");
    keepNumbers(body, value, exact);
  }
  return value;
}

/** Says where V8 stopped. It gives no position for a wrong first character of a value, and otherwise one in characters. */
function faultOf(text: string, told: string): string {
  const position = /at position (\d+)/.exec(told)?.[1];
  if (told.startsWith("Unexpected end") || Number(position) >= text.length) return "unexpected end";
  if (position === undefined) return "unexpected text in the place of a value";
  return `unexpected text at byte ${Buffer.byteLength(text.slice(0, Number(position)))}`;
}

/** Fields whose values never appear in an error text. */
const SECRET_FIELDS = new Set<PropertyKey>([
  ...[
    "current_password",
    "environment",
    "headers",
    "new_password",
    "password",
    "payload",
    "refresh_token",
    "registry_password",
  ],
  ...["secret", "token", "value", "value_base64"],
]);
const SHOWN_LENGTH_MAX = 64;

function typeName(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function shown(value: unknown, path: readonly PropertyKey[]): string {
  const is_secret = path.some((key) => SECRET_FIELDS.has(key));
  if (typeof value === "string" && !is_secret) {
    return value.length <= SHOWN_LENGTH_MAX ? JSON.stringify(value) : `a string of ${value.length} characters`;
  }
  const is_plain = typeof value === "number" || typeof value === "boolean";
  return is_plain && !is_secret ? String(value) : typeName(value);
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input;
  for (const key of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

/** A path inside a body as refusals show it: printable and short. */
export function pathText(path: readonly PropertyKey[]): string {
  if (path.length === 0) return "the body";
  return path
    .map((key) =>
      String(key)
        .replace(/[^\x21-\x7e]/g, "?")
        .slice(0, SHOWN_LENGTH_MAX),
    )
    .join(".");
}

interface Expectation {
  /** For the message. */
  readonly words: string;
  /** For programs: types, values, bounds. */
  readonly values: readonly string[];
}

const bound = (how: string, sign: string, limit: number | bigint, origin: string): Expectation => ({
  words: `${how} ${limit}${origin === "string" ? " characters" : ""}`,
  values: [`${sign} ${limit}${UNITS[origin] ?? ""}`],
});

const UNITS: Readonly<Record<string, string>> = { string: " characters", array: " items" };

const oneOf = (values: readonly string[]): Expectation => ({ words: values.join(" or "), values });

/** Returns the value that the schema expects. Null if only its message tells. */
function expectation(issue: z.core.$ZodIssue): Expectation | null {
  switch (issue.code) {
    case "invalid_type":
      return oneOf([issue.expected === "int" ? "integer" : issue.expected === "record" ? "object" : issue.expected]);
    case "invalid_value":
      return oneOf(issue.values.map(String));
    case "too_small":
      return issue.inclusive === false
        ? bound("more than", ">", issue.minimum, issue.origin)
        : bound("at least", ">=", issue.minimum, issue.origin);
    case "too_big":
      return issue.inclusive === false
        ? bound("less than", "<", issue.maximum, issue.origin)
        : bound("at most", "<=", issue.maximum, issue.origin);
    case "invalid_union":
      return oneOf([...new Set(issue.errors.flat().flatMap((inner) => expectation(inner)?.values ?? []))]);
    default:
      return null;
  }
}

/** Returns the values that a refinement or pattern accepts, for programs; null if it names none. */
function ownValues(issue: z.core.$ZodIssue): readonly string[] | null {
  if (issue.code === "custom") return (issue.params?.expected as readonly string[] | undefined) ?? null;
  return issue.code === "invalid_format" && issue.pattern !== undefined ? [issue.pattern] : null;
}

/** Whether the complaint is about the JSON type (422) and not the value (400). */
function isShapeIssue(issue: z.core.$ZodIssue, value: unknown): boolean {
  switch (issue.code) {
    case "invalid_type":
      // A fraction where an integer is wanted, and 1e999, are numbers all the same.
      return !(["int", "number"].includes(issue.expected) && typeof value === "number");
    case "invalid_value":
      return !issue.values.some((wanted) => typeName(wanted) === typeName(value));
    case "invalid_union":
      return issue.errors.every((inner) => inner.some((one) => one.path.length === 0 && isShapeIssue(one, value)));
    default:
      return false;
  }
}

/**
 * Of a union the complaints of the branch that was meant: the one whose own type is right, and something inside of it is
 * not.
 */
function unfolded(issue: z.core.$ZodIssue): readonly z.core.$ZodIssue[] {
  if (issue.code !== "invalid_union") return [issue];
  const meant = issue.errors.find((inner) => inner.length > 0 && inner.every(({ path }) => path.length > 0));
  return meant?.map((one) => ({ ...one, path: [...issue.path, ...one.path] })).flatMap(unfolded) ?? [issue];
}

/** The refusal for a failed validation. `always` fixes the code: a query or a path has no JSON types to get wrong. */
function invalidInput(
  { issues }: z.ZodError,
  schema: z.ZodType,
  input: unknown,
  always: ErrorCode | null = null,
): AppError {
  const rows = issues.flatMap(unfolded).map((issue) => {
    const value = valueAt(input, issue.path);
    return { issue, value, is_shape: isShapeIssue(issue, value) };
  });
  const row = rows.find(({ is_shape }) => is_shape) ?? rows[0];
  if (row === undefined) return new AppError(always ?? "INVALID_ARGUMENT", "invalid request");
  const { issue, value, is_shape } = row;
  const expected = expectation(issue);
  const received = is_shape ? typeName(value) : shown(value, issue.path);
  const wanted = expected === null ? wording(issue) : `expected ${expected.words}`;
  const others = rows.length === 1 ? "" : ` (and ${rows.length - 1} more)`;
  const values = expected?.values ?? ownValues(issue);
  return new AppError(
    always ?? (is_shape ? "UNPROCESSABLE_ENTITY" : "INVALID_ARGUMENT"),
    `${pathText(issue.path)}: ${wanted}, received ${received}${others}`,
    {
      details: { expected: values, received },
      hint: ownHint(issue) ?? (is_shape ? shapeHint(schema, issue.path) : valueHint(value, values ?? [])) ?? undefined,
    },
  );
}

/** Returns the hint that a refinement brings along. */
function ownHint(issue: z.core.$ZodIssue): string | null {
  return issue.code === "custom" ? ((issue.params?.hint as string | undefined) ?? null) : null;
}

/** The schema's own words: a message given to a refinement or pattern, a pattern without one, a bad record key. */
function wording(issue: z.core.$ZodIssue): string {
  if (issue.code === "invalid_key") return `invalid name: ${issue.issues.map(wording).join(", ")}`;
  return issue.message.replace(/^./, (first) => first.toLowerCase());
}

export function validate<T extends z.ZodType>(schema: T, input: unknown, always: ErrorCode | null = null): z.output<T> {
  const result = schema.safeParse(input);
  if (!result.success) throw invalidInput(result.error, schema, input, always);
  return result.data;
}

/** The query of a request as its schema reads it. Throws INVALID_ARGUMENT, also for a repeated name where one value is expected. */
export function validateQuery<T extends z.ZodType>(schema: T, url: string): z.output<T> {
  const query = parseQuery(url);
  const result = schema.safeParse(query);
  if (result.success) return result.data;
  const repeated = result.error.issues
    .map(({ path }) => (path.length === 1 ? String(path[0]) : ""))
    .find((name) => Array.isArray(query[name]));
  if (repeated === undefined) throw invalidInput(result.error, schema, query, "INVALID_ARGUMENT");
  const received = `${query[repeated]?.length} values`;
  throw new AppError("INVALID_ARGUMENT", `query parameter ${repeated} is repeated: ${received} (expected one)`, {
    details: { expected: ["1 value"], received },
    hint: "send the parameter once",
  });
}

/** `name=value` pairs; a repeated name gives an array. */
export function parseQuery(url: string): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = Object.create(null);
  const start = url.indexOf("?");
  if (start === -1) return query;
  for (const [name, value] of new URLSearchParams(url.slice(start + 1))) {
    const before = query[name];
    if (before === undefined) query[name] = value;
    else if (typeof before === "string") query[name] = [before, value];
    else before.push(value);
  }
  return query;
}

/** A path whose percent-encoding does not decode (`%zz`, cut UTF-8) names nothing. */
export function checkPath(url: string): void {
  if (!url.includes("%")) return;
  try {
    decodeURIComponent(url.split("?", 1)[0] ?? "");
  } catch (cause) {
    throw new AppError("INVALID_ARGUMENT", "malformed percent-encoding in the path", { cause });
  }
}
