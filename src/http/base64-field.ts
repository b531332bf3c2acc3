/**
 * One large base64 string of a JSON body, read as it comes: the field's bytes go to a sink, everything else is gathered
 * and parsed as JSON with an empty string in the field's place. Fields may come in any order.
 *
 * J1. Nothing of the field is gathered: memory holds one piece of the body. The rest has the bound of every JSON body.
 * J2. A malformed field ends with INVALID_ARGUMENT, malformed JSON with INVALID_JSON.
 */

import { giveBack } from "../base/buffer-memory.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { ChunkList } from "./chunk-list.ts";
import { parseJson, tooLarge } from "./input.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);
/** The beginning of a backslash, `u` and four digits. */
const ESCAPE_BEGUN = /\\(?:u[0-9a-fA-F]{0,3})?$/;
const ESCAPE_LENGTH_MAX = 6;

/** Has taken the bytes, or copied them, when it resolves. */
export type Sink = (bytes: Uint8Array) => Promise<void>;

export class Base64Field {
  readonly #name: string;
  readonly #sink: Sink;
  readonly #hold: (bytes: number) => void;
  readonly #rest = new ChunkList();
  #rest_bytes = 0;
  #depth = 0;
  #isObject = false;
  #isString = false;
  #isEscaped = false;
  /** The next string is a key of the outermost object. */
  #isKey = false;
  /** Bytes of the key that is being read, or was read last; no longer than what tells it from the field's name. */
  #key = "";
  /** Behind the field's name and colon: the value begins with the next byte that is no space. */
  #isAwaited = false;
  #isContent = false;
  #wasContent = false;
  readonly #decoder: Base64Decoder;
  #escape = "";

  /** `hold` is told of what is gathered, and may refuse. */
  constructor(name: string, sink: Sink, hold: (bytes: number) => void) {
    this.#name = name;
    this.#decoder = new Base64Decoder(name);
    this.#sink = sink;
    this.#hold = hold;
  }

  /** Takes a piece of the body, and resolves when the sink has what the piece holds of the field. */
  async add(piece: Buffer): Promise<void> {
    const texts: string[] = [];
    for (let at = 0; at < piece.length; )
      at = this.#isContent ? this.#content(piece, at, texts) : this.#other(piece, at);
    if (texts.length === 0) return;
    const bytes = this.#decoder.add(texts.join(""));
    if (bytes.length > 0) await this.#sink(bytes);
    giveBack(bytes);
  }

  /** The body, with an empty string for the field where it was a string. */
  end(): unknown {
    if (this.#isContent) throw new AppError("INVALID_JSON", `invalid JSON in the body: it ends inside ${this.#name}`);
    this.#decoder.end();
    const body = parseJson(this.#rest.bytes());
    const value = typeof body === "object" && body !== null ? (body as Record<string, unknown>)[this.#name] : "";
    // Written with escapes in its name, or twice: what was read is not what JSON says.
    if (typeof value === "string" && value !== "") {
      throw new AppError(
        "INVALID_JSON",
        `invalid JSON in the body: write ${this.#name} once, without escapes in its name`,
      );
    }
    return body;
  }

  /** Up to the string's end or the piece's. Gives where it is then. */
  #content(piece: Buffer, begin: number, texts: string[]): number {
    const quote = piece.indexOf(QUOTE, begin);
    const end = quote < 0 ? piece.length : quote;
    const text = this.#escape + piece.toString("latin1", begin, end);
    // An escape may go on in the next piece.
    const cut = quote < 0 ? (ESCAPE_BEGUN.exec(text.slice(-ESCAPE_LENGTH_MAX))?.[0].length ?? 0) : 0;
    this.#escape = text.slice(text.length - cut);
    texts.push(unescaped(text.slice(0, text.length - cut), this.#name));
    if (quote < 0) return end;
    this.#isContent = false;
    this.#keep(piece, quote, quote + 1);
    return quote + 1;
  }

  /** Up to the field's value or the piece's end. Gives where it is then. */
  #other(piece: Buffer, begin: number): number {
    for (let at = begin; at < piece.length; at++) {
      const byte = piece[at] ?? 0;
      if (this.#isString) this.#inString(byte);
      else if (this.#isAwaited && byte === QUOTE) {
        if (this.#wasContent)
          throw new AppError("INVALID_JSON", `invalid JSON in the body: duplicate field ${this.#name}`);
        this.#isAwaited = false;
        this.#isContent = true;
        this.#wasContent = true;
        this.#keep(piece, begin, at + 1);
        return at + 1;
      } else this.#between(byte);
    }
    this.#keep(piece, begin, piece.length);
    return piece.length;
  }

  #inString(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (byte === BACKSLASH) this.#isEscaped = true;
    else if (byte === QUOTE) {
      this.#isString = false;
      this.#isKey = false;
      return;
    }
    if (this.#isKey && this.#key.length <= this.#name.length) this.#key += String.fromCharCode(byte);
  }

  #between(byte: number): void {
    if (SPACES.has(byte)) return;
    this.#isAwaited = false;
    if (byte === QUOTE) {
      this.#isString = true;
      if (this.#isKey) this.#key = "";
    } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      this.#depth++;
      if (this.#depth === 1) {
        this.#isObject = byte === OPEN_OBJECT;
        this.#isKey = this.#isObject;
      }
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) this.#depth--;
    else if (this.#depth === 1 && this.#isObject) {
      if (byte === COMMA) this.#isKey = true;
      else if (byte === COLON) this.#isAwaited = this.#key === this.#name;
    }
  }

  /** A copy: the piece is much larger than what is kept of it. */
  #keep(piece: Buffer, begin: number, end: number): void {
    this.#rest_bytes += end - begin;
    if (this.#rest_bytes > LIMITS.body_bytes_max) throw tooLarge(LIMITS.body_bytes_max, undefined);
    this.#hold(end - begin);
    this.#rest.add(Buffer.from(piece.subarray(begin, end)));
  }
}

/** The characters of a JSON string: some encoders write `/` as `\/` and `+` as `\u002B`. */
function unescaped(text: string, name: string): string {
  if (!text.includes("\\")) return text;
  try {
    return String(JSON.parse(`"${text}"`));
  } catch {
    throw malformed(name);
  }
}

/** Base64 as it comes, in pieces of any length. */
class Base64Decoder {
  readonly #name: string;
  #left = "";
  #isOver = false;

  constructor(name: string) {
    this.#name = name;
  }

  add(text: string): Buffer {
    const all = this.#left + text;
    if ((this.#isOver && all !== "") || !/^[A-Za-z0-9+/]*={0,2}$/.test(all)) throw malformed(this.#name);
    const whole = all.length - (all.length % 4);
    this.#left = all.slice(whole);
    this.#isOver = this.#left === "" && all.endsWith("=");
    return Buffer.from(all.slice(0, whole), "base64");
  }

  end(): void {
    if (this.#left !== "") throw malformed(this.#name);
  }
}

function malformed(name: string): AppError {
  return new AppError("INVALID_ARGUMENT", `${name}: must be base64`, {
    details: { expected: ["base64"] },
  });
}
