/**
 * Numbers of JSON texts that a double does not give back as they were written: integers above 2^53, `1.0`, more digits than a
 * double has. A text is looked through before it is parsed, its strings skipped.
 */
import { AppError } from "./errors.ts";
import { stringEnd } from "./json-shape.ts";
import { JsonText } from "./json-text.ts";

const QUOTE = 0x22;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const MINUS = 0x2d;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const CLOSE_ARRAY = 0x5d;
const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;
const DOT = 0x2e;
/** A double keeps each number of so many digits. Sign and dot count here too. */
const SAFE_LENGTH = 15;
/** Of the largest double. */
const LARGEST_DIGITS = 308;
const SHOWN_CHARACTERS = 64;

const isDigit = (byte: number): boolean => byte >= DIGIT_0 && byte <= DIGIT_9;

/** A byte that stands in a number behind its first: a digit, `.`, `e`, `E`, `+` or `-`. */
const isPart = (byte: number): boolean =>
  isDigit(byte) || byte === DOT || (byte | 0x20) === 0x65 || byte === 0x2b || byte === MINUS;

/**
 * Returns true if a number of valid JSON may be written otherwise than its double. Where it is hard to tell, it may: whoever keeps
 * a text needs no value.
 */
export function hasOddNumber(text: Buffer): boolean {
  return oddNumber(text, () => true) !== null;
}

/** Throws INVALID_ARGUMENT, which names `what`, for valid JSON with a number above the largest double, such as 1e400. */
export function checkNumbers(text: Buffer, what: string): void {
  const written = oddNumber(text, isTooLarge);
  if (written === null) return;
  const shown = written.length <= SHOWN_CHARACTERS ? written : `${written.slice(0, SHOWN_CHARACTERS)}…`;
  throw new AppError(
    "INVALID_ARGUMENT",
    `${what} has a number that is too large: ${shown} (limit ${Number.MAX_VALUE})`,
    {
      details: { expected: [`<= ${Number.MAX_VALUE}`] },
      hint: "send the number as a string",
    },
  );
}

function isTooLarge(written: string): boolean {
  return (written.length > LARGEST_DIGITS || /e/iu.test(written)) && !Number.isFinite(Number(written));
}

/** Returns the first odd number that is `wanted`, as it is written; null: there is none. */
function oddNumber(text: Buffer, wanted: (written: string) => boolean): string | null {
  for (let at = 0; at < text.length; at++) {
    const byte = text[at] as number;
    if (byte === QUOTE) at = stringEnd(text, at + 1);
    else if (isDigit(byte) || byte === MINUS) {
      const start = at;
      let dot = -1;
      let hasExponent = false;
      for (at++; at < text.length && isPart(text[at] as number); at++) {
        if (text[at] === DOT) dot = at;
        else if (!isDigit(text[at] as number)) hasExponent = true;
      }
      const isEven = !hasExponent && at - start <= SAFE_LENGTH && isShortest(text, start, dot, at);
      const written = isEven ? null : text.toString("latin1", start, at);
      if (written !== null && wanted(written)) return written;
      at--;
    }
  }
  return null;
}

/** True unless a number of few digits without exponent is -0, ends with a zero behind its dot, or is below a millionth. */
function isShortest(text: Buffer, start: number, dot: number, end: number): boolean {
  if (dot < 0) return !(text[start] === MINUS && text[start + 1] === DIGIT_0);
  if (text[end - 1] === DIGIT_0) return false;
  return !(text[dot - 1] === DIGIT_0 && text.toString("latin1", dot + 1, dot + 7) === "000000");
}

/** Returns the value of valid JSON, as a `JsonText` if a number in it may change. */
export function exactValue(text: Buffer): unknown {
  const json = text.toString();
  return hasOddNumber(text) ? new JsonText(json) : JSON.parse(json);
}

/**
 * Replaces members of a parsed text by a `JsonText` where a number in them may change. `paths`: their names from the outside in,
 * `*` for each item of a list. `text` is valid JSON with an odd number, `value` what `JSON.parse` made of it.
 */
export function keepNumbers(text: Buffer, value: unknown, paths: readonly (readonly string[])[]): void {
  new Reader(text).keep(value, paths);
}

class Reader {
  readonly #text: Buffer;
  #at = 0;

  constructor(text: Buffer) {
    this.#text = text;
  }

  keep(value: unknown, paths: readonly (readonly string[])[]): void {
    this.#skipSpace();
    const open = this.#text[this.#at];
    const isList = open === OPEN_ARRAY;
    const isShut = typeof value !== "object" || value === null || (!isList && open !== OPEN_OBJECT);
    if (paths.length === 0 || isShut) {
      this.#skipValue();
      return;
    }
    this.#at++;
    for (let index = 0; !this.#ends(); index++) {
      const name = isList ? "*" : this.#name();
      const inner = paths.filter(([first]) => first === name).map((path) => path.slice(1));
      const parts = value as Record<string, unknown>;
      if (!inner.some((path) => path.length === 0)) this.keep(parts[isList ? index : name], inner);
      else this.#replace(parts, name);
    }
  }

  #replace(parts: Record<string, unknown>, name: string): void {
    this.#skipSpace();
    const start = this.#at;
    this.#skipValue();
    const own = this.#text.subarray(start, this.#at);
    // A name that comes twice means its last value, and the object around it may have come twice.
    if (Object.hasOwn(parts, name))
      parts[name] = hasOddNumber(own) ? new JsonText(compact(own)) : JSON.parse(own.toString());
  }

  #skipSpace(): void {
    while (isSpaceOrComma(this.#text[this.#at])) this.#at++;
  }

  /** Moves behind the end of an object or list if it comes next. */
  #ends(): boolean {
    this.#skipSpace();
    const byte = this.#text[this.#at];
    if (byte !== CLOSE_ARRAY && byte !== CLOSE_OBJECT && byte !== undefined) return false;
    this.#at++;
    return true;
  }

  #name(): string {
    const end = stringEnd(this.#text, this.#at + 1);
    const name = String(JSON.parse(this.#text.toString("utf8", this.#at, end + 1)));
    this.#at = this.#text.indexOf(COLON, end) + 1;
    return name;
  }

  #skipValue(): void {
    this.#skipSpace();
    for (let depth = 0; this.#at < this.#text.length; this.#at++) {
      const byte = this.#text[this.#at] as number;
      if (byte === QUOTE) this.#at = stringEnd(this.#text, this.#at + 1);
      else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) depth++;
      else if (depth > 0 && (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT)) depth--;
      else if (depth > 0 || !endsScalar(byte)) continue;
      else return;
      if (depth === 0) {
        this.#at++;
        return;
      }
    }
  }
}

const isSpaceOrComma = (byte: number | undefined): boolean => byte !== undefined && (byte <= SPACE || byte === 0x2c);

const endsScalar = (byte: number): boolean => isSpaceOrComma(byte) || byte === CLOSE_ARRAY || byte === CLOSE_OBJECT;

/** The text without the space around its tokens, as `JSON.stringify` writes it. */
function compact(text: Buffer): string {
  const out = Buffer.allocUnsafe(text.length);
  let length = 0;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at] as number;
    if (byte <= SPACE) continue;
    const end = byte === QUOTE ? stringEnd(text, at + 1) : at;
    length += text.copy(out, length, at, end + 1);
    at = end;
  }
  return out.toString("utf8", 0, length);
}
