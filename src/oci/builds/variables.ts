/** Variables, quotes and escapes in an instruction, as the reference of Dockerfiles has them. */
import { LIMITS } from "../../base/limits.ts";
import { invalidLine } from "./build-file.ts";
import { replaced, shellPattern, withoutPrefix, withoutSuffix } from "./shell-patterns.ts";

/** Characters that the expansions of one build may still have: variables of a short file may stand for gigabytes. */
export interface TextBudget {
  characters: number;
}

export const newTextBudget = (): TextBudget => ({ characters: LIMITS.build_expanded_characters_max });

export interface Words {
  readonly escape_char: string;
  /** Undefined: not set. */
  readonly value: (name: string) => string | undefined;
  readonly line: number;
  readonly budget: TextBudget;
}

/** The value of a field of its own: a name may be `constructor`. */
export function ownValue(values: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}

/** As BuildKit reads it: also the numbers and signs of a shell, which are never set. */
const NAME = /[\p{L}_][\p{L}\p{Nd}_]*|\p{Nd}+|[@*#?$!-]/uy;
const OPERATION = /:?[-+?]|##?|%%?|\/\/?/y;
/** Comparisons of a pattern that count as one character of the budget. */
const STEPS_PER_CHARACTER = 2;
/** Levels of `${a:-${b:-…}}`. */
const DEPTH_MAX = 16;

/** Returns a text with its variables replaced, and without its quotes and escapes. Throws INVALID_ARGUMENT. */
export function expand(text: string, words: Words): string {
  return new Expansion(text, words).all();
}

/** The same for a text whose quotes and escapes stay, as the content of a here-document. */
export function expandVariables(text: string, words: Words): string {
  return new Expansion(text, words, true).all();
}

class Expansion {
  readonly #text: string;
  readonly #words: Words;
  readonly #isPlain: boolean;
  #at = 0;

  constructor(text: string, words: Words, isPlain = false) {
    this.#text = text;
    this.#words = words;
    this.#isPlain = isPlain;
  }

  all(): string {
    return this.#until("", 0);
  }

  /** Up to `end`, which is left out; the whole rest for none. `isPattern`: escapes stay, for the pattern. */
  #until(end: string, depth: number, isPattern = false): string {
    const parts: string[] = [];
    while (this.#at < this.#text.length) {
      const char = this.#text[this.#at] ?? "";
      if (char === end) {
        this.#at++;
        return parts.join("");
      }
      this.#at++;
      if (char === this.#words.escape_char) parts.push(isPattern ? this.#kept() : this.#escaped());
      else if (char === "$") parts.push(this.#counted(this.#variable(depth)));
      else if (char === "'" && !this.#isPlain) parts.push(this.#single());
      else if (char === '"' && !this.#isPlain) parts.push(this.#double(depth));
      else parts.push(char);
    }
    if (end !== "") throw this.#refused(`a variable lacks its ${end}`);
    return parts.join("");
  }

  #escaped(): string {
    const next = this.#text[this.#at];
    if (next === undefined) return this.#words.escape_char;
    this.#at++;
    return this.#isPlain && next !== "$" && next !== this.#words.escape_char
      ? `${this.#words.escape_char}${next}`
      : next;
  }

  #kept(): string {
    return this.#words.escape_char + (this.#text[this.#at++] ?? "");
  }

  #single(): string {
    const end = this.#text.indexOf("'", this.#at);
    if (end < 0) throw this.#refused("a quote ' has no end");
    const text = this.#text.slice(this.#at, end);
    this.#at = end + 1;
    return text;
  }

  #double(depth: number): string {
    const parts: string[] = [];
    for (;;) {
      const char = this.#text[this.#at++];
      if (char === undefined) throw this.#refused('a quote " has no end');
      if (char === '"') return parts.join("");
      if (char === "$") {
        parts.push(this.#counted(this.#variable(depth)));
      } else if (char === this.#words.escape_char) {
        const next = this.#text[this.#at] ?? "";
        if (next === '"' || next === "$" || next === char) this.#at++;
        parts.push(next === '"' || next === "$" ? next : char);
      } else {
        parts.push(char);
      }
    }
  }

  /** Behind the `$`. */
  #variable(depth: number): string {
    if (depth >= DEPTH_MAX) throw this.#refused("variables are nested too deep");
    if (this.#text[this.#at] !== "{") {
      const name = this.#match(NAME);
      return name === null ? "$" : (this.#words.value(name) ?? "");
    }
    this.#at++;
    const name = this.#match(NAME);
    if (name === null) throw this.#refused("a variable has no name");
    if (this.#text[this.#at] === "}") {
      this.#at++;
      return this.#words.value(name) ?? "";
    }
    const operation = this.#match(OPERATION);
    if (operation === null) throw this.#refused(`unsupported form of variable ${name} (expected \${${name}:-word})`);
    const value = this.#words.value(name);
    if (/^[#%/]/.test(operation)) return this.#cut(value ?? "", operation, depth + 1);
    const word = this.#until("}", depth + 1);
    const isSet = operation.startsWith(":") ? value !== undefined && value !== "" : value !== undefined;
    if (operation.endsWith("-")) return isSet ? (value ?? "") : word;
    if (operation.endsWith("+")) return isSet ? word : "";
    if (!isSet) throw this.#refused(`${name}: ${word === "" ? "not set" : word}`);
    return value ?? "";
  }

  /** The operations with a pattern. */
  #cut(value: string, operation: string, depth: number): string {
    const isReplaced = operation.startsWith("/");
    const text = this.#until(isReplaced ? "/" : "}", depth, true);
    const { budget } = this.#words;
    const pattern = shellPattern(text, {
      take: (steps) => {
        budget.characters -= steps / STEPS_PER_CHARACTER;
        this.#counted("");
      },
      refuse: (why) => this.#refused(why),
    });
    const isLongest = operation.length > 1;
    if (isReplaced) return replaced(value, pattern, this.#until("}", depth, true), isLongest);
    return operation.startsWith("#")
      ? withoutPrefix(value, pattern, isLongest)
      : withoutSuffix(value, pattern, isLongest);
  }

  #counted(value: string): string {
    const { budget } = this.#words;
    budget.characters -= value.length;
    if (budget.characters >= 0) return value;
    throw this.#refused(`variables too large (limit ${LIMITS.build_expanded_characters_max} characters in a build)`);
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const [found = null] = pattern.exec(this.#text) ?? [];
    if (found !== null) this.#at += found.length;
    return found;
  }

  #refused(why: string) {
    return invalidLine(this.#words.line, why);
  }
}
