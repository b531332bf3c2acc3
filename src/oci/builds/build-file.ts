/**
 * A build file as instructions: logical lines, their keywords, flags and here-documents, as the reference of Dockerfiles has them.
 * instructions.ts interprets the instructions.
 *
 * B1. A line that ends with one escape character goes on in the next one; two of them are that character. Comments and empty lines
 *     in between count for nothing.
 * B2. Directives stand above everything else; of those, `escape` has an effect.
 * B3. The work grows with the length of the file and not with its square: the file is a tenant's, and this runs on the main thread.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

export interface HereDocument {
  readonly name: string;
  readonly content: string;
  /** False if its name was quoted: then variables in it stay as they are. */
  readonly is_expanded: boolean;
  /** The lines as written, with the one that ends it. */
  readonly lines: readonly string[];
}

export interface Flag {
  readonly name: string;
  /** Null: a flag without `=`. */
  readonly value: string | null;
}

export interface RawInstruction {
  /** In upper case. */
  readonly keyword: string;
  readonly flags: readonly Flag[];
  /** The text behind keyword and flags, on one line. */
  readonly text: string;
  readonly documents: readonly HereDocument[];
  /** Number of its first line, from 1 on. */
  readonly line: number;
}

export interface BuildFile {
  readonly instructions: readonly RawInstruction[];
  /** `\` or a backtick. */
  readonly escape_char: string;
}

const DIRECTIVE = /^#\s*([a-z][a-z0-9]*)\s*=\s*(\S+)\s*$/i;
const WITH_FLAGS = new Set(["ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"]);
const WITH_DOCUMENTS = new Set(["ADD", "COPY", "RUN"]);
/** A here-document: any word behind `<<`, quoted or not, that has no `<` itself. */
const DOCUMENT = /^\d*<<(-?)([^<]+)$/;
const FLAG = /^--([a-z][a-z0-9-]*)(?:=([\s\S]*))?$/;

/** Returns the refusal of a build file. */
export function invalidLine(line: number, why: string): AppError {
  return new AppError("INVALID_ARGUMENT", `build file, line ${line}: ${why}`);
}

/** Splits a text at its white space. Quotes and escapes hold a word together and stay in it. */
export function splitWords(text: string, escape_char: string): string[] {
  const words: string[] = [];
  let [begin, quote] = [-1, ""];
  for (let at = 0; at < text.length; at++) {
    const char = text[at] ?? "";
    if (quote === "" && (char === " " || char === "\t")) {
      if (begin >= 0) words.push(text.slice(begin, at));
      begin = -1;
      continue;
    }
    if (begin < 0) begin = at;
    if (char === escape_char && quote !== "'") at++;
    else if (quote === char) quote = "";
    else if (quote === "" && (char === '"' || char === "'")) quote = char;
  }
  if (begin >= 0) words.push(text.slice(begin));
  return words;
}

/** The words of the JSON form; null: it is another form. */
export function jsonOf(text: string): string[] | null {
  if (!text.startsWith("[")) return null;
  try {
    const words: unknown = JSON.parse(text);
    return Array.isArray(words) && words.every((word) => typeof word === "string") ? words : null;
  } catch {
    return null;
  }
}

/** What a word says about the here-document that it begins; null: it begins none. */
export function documentOf(
  word: string,
): { readonly name: string; readonly is_stripped: boolean; readonly is_expanded: boolean } | null {
  const [, dash, rest = ""] = DOCUMENT.exec(word) ?? [];
  const name = unquoted(rest);
  return name === "" ? null : { name, is_stripped: dash === "-", is_expanded: name === rest };
}

/** A word without its quotes and backslashes, as the shell reads the name of a here-document, and as BuildKit reads a flag. */
function unquoted(word: string): string {
  let [text, quote] = ["", ""];
  for (let at = 0; at < word.length; at++) {
    const char = word[at] ?? "";
    if (char === "\\" && quote !== "'") text += word[++at] ?? "";
    else if (char === quote) quote = "";
    else if (quote === "" && (char === '"' || char === "'")) quote = char;
    else text += char;
  }
  return text;
}

/** Reads a build file. Throws INVALID_ARGUMENT with the number of the line. */
export function readBuildFile(source: string): BuildFile {
  const bytes = Buffer.byteLength(source);
  if (bytes > LIMITS.build_file_bytes_max) {
    throw new AppError(
      "INVALID_ARGUMENT",
      `build file too large: ${bytes} bytes (limit ${LIMITS.build_file_bytes_max} bytes)`,
    );
  }
  if (source.includes("\0")) throw new AppError("INVALID_ARGUMENT", "build file contains a NUL character");
  const lines = source.replace(/^\uFEFF/, "").split(/\r?\n/);
  const escape_char = escapeOf(lines);
  const reader = new Reader(lines, escape_char);
  const instructions: RawInstruction[] = [];
  for (let next = reader.next(); next !== null; next = reader.next()) {
    instructions.push(next);
    if (instructions.length > LIMITS.build_instructions_max) {
      throw invalidLine(next.line, `too many instructions (limit ${LIMITS.build_instructions_max})`);
    }
  }
  return { instructions, escape_char };
}

/** B2. */
function escapeOf(lines: readonly string[]): string {
  for (const [i, line] of lines.entries()) {
    const [, name = "", value = ""] = DIRECTIVE.exec(line.trim()) ?? [];
    if (name === "") return "\\";
    if (name.toLowerCase() !== "escape") continue;
    if (value !== "\\" && value !== "`") throw invalidLine(i + 1, `invalid escape: '${value}' (expected \\ or \`)`);
    return value;
  }
  return "\\";
}

class Reader {
  readonly #lines: readonly string[];
  readonly #escape_char: string;
  #at = 0;

  constructor(lines: readonly string[], escape_char: string) {
    this.#lines = lines;
    this.#escape_char = escape_char;
  }

  next(): RawInstruction | null {
    this.#skip();
    if (this.#at >= this.#lines.length) return null;
    const line = this.#at + 1;
    const logical = this.#logical();
    const [, word = "", rest = ""] = /^(\S+)\s*([\s\S]*)$/.exec(logical) ?? [];
    const keyword = word.toUpperCase();
    const { flags, text } = WITH_FLAGS.has(keyword) ? this.#flags(rest, line) : { flags: [], text: rest };
    const documents = WITH_DOCUMENTS.has(keyword) && text.includes("<<") ? this.#documents(text, line) : [];
    return { keyword, flags, text: text.trimEnd(), documents, line };
  }

  #skip(): void {
    while (this.#at < this.#lines.length && isIgnored(this.#lines[this.#at] ?? "")) this.#at++;
  }

  /** B1. */
  #logical(): string {
    const parts: string[] = [];
    const begin = (this.#lines[this.#at] ?? "").trimStart();
    for (let line = begin; ; line = this.#lines[this.#at] ?? "") {
      this.#at++;
      const trimmed = withoutBlanks(line);
      const isEscaped = trimmed.endsWith(this.#escape_char.repeat(2));
      if (!trimmed.endsWith(this.#escape_char) || isEscaped) {
        parts.push(line);
        return parts.join("");
      }
      parts.push(trimmed.slice(0, -1));
      this.#skip();
      if (this.#at >= this.#lines.length) return parts.join("");
    }
  }

  #flags(rest: string, line: number): { readonly flags: readonly Flag[]; readonly text: string } {
    const flags: Flag[] = [];
    let text = rest;
    while (text.startsWith("--")) {
      const [word = ""] = splitWords(text.slice(0, LIMITS.build_flag_length_max + 1), this.#escape_char);
      if (word.length > LIMITS.build_flag_length_max)
        throw invalidLine(line, `flag too long (limit ${LIMITS.build_flag_length_max} characters)`);
      const [, name, value = null] = FLAG.exec(unquoted(word)) ?? [];
      if (name === undefined) throw invalidLine(line, `malformed flag: '${word}'`);
      if (flags.length >= LIMITS.build_flags_max)
        throw invalidLine(line, `too many flags (limit ${LIMITS.build_flags_max})`);
      flags.push({ name, value });
      text = text.slice(word.length).trimStart();
    }
    return { flags, text };
  }

  #documents(text: string, line: number): HereDocument[] {
    if (jsonOf(text) !== null) return [];
    return splitWords(text, this.#escape_char).flatMap((word) => {
      const found = documentOf(word);
      return found === null ? [] : [this.#document(found, line)];
    });
  }

  #document(of: NonNullable<ReturnType<typeof documentOf>>, line: number): HereDocument {
    const { name, is_stripped, is_expanded } = of;
    const [content, lines]: [string[], string[]] = [[], []];
    for (; this.#at < this.#lines.length; ) {
      const written = this.#lines[this.#at++] ?? "";
      const shown = is_stripped ? written.replace(/^\t+/, "") : written;
      lines.push(written);
      if (shown === name) return { name, content: content.map((one) => `${one}\n`).join(""), is_expanded, lines };
      content.push(shown);
    }
    throw invalidLine(line, `here-document has no end: ${name}`);
  }
}

function isIgnored(line: string): boolean {
  const text = line.trim();
  return text === "" || text.startsWith("#");
}

/** The line without blanks at its end. A regular expression takes quadratic time where blanks are followed by a word (B3). */
function withoutBlanks(line: string): string {
  let end = line.length;
  while (line[end - 1] === " " || line[end - 1] === "\t") end--;
  return line.slice(0, end);
}
