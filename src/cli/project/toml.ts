/**
 * A TOML file with the lines of its keys, for messages that name a place. The package parses; the lines come from a scan that
 * knows headers, keys and strings of several lines, and nothing of values.
 */
import { parse, TomlError } from "smol-toml";
import { usage } from "../session/failure.ts";

/** Names of tables and keys, and positions in arrays. */
export type TomlPath = readonly (string | number)[];
export type TomlTable = Readonly<Record<string, unknown>>;

export interface TomlDocument {
  readonly table: TomlTable;
  /** Returns `file:line` of a key or of the nearest one above it, else `file`. */
  placeOf(path: TomlPath): string;
}

/** Tables and arrays in one another: this file needs three. */
const DEPTH_MAX = 32;

/** Throws a usage failure that names the line. `file`: as messages show it. */
export function parseToml(text: string, file: string): TomlDocument {
  try {
    const table = parse(text, { maxDepth: DEPTH_MAX, unsafeKeyBehaviour: "throw" }) as TomlTable;
    const lines = linesOf(text);
    return {
      table,
      placeOf: (path) => {
        for (let length = path.length; length > 0; length--) {
          const line = lines.get(keyOf(path.slice(0, length)));
          if (line !== undefined) return `${file}:${line}`;
        }
        return file;
      },
    };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // "Invalid TOML document: unexpected character", then the text around it.
    const [reason = ""] = error.message.replace(/^Invalid TOML document: /, "").split("\n");
    throw usage(`${file}:${error.line}: invalid TOML: ${reason}`);
  }
}

const keyOf = (path: TomlPath): string => path.join("\0");

const NAME = /"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+/g;
const DOTTED = `(?:"(?:[^"\\\\]|\\\\.)*"|'[^']*'|[\\w-]+)`;
const DOTTED_KEY = `${DOTTED}(?:\\s*\\.\\s*${DOTTED})*`;
const HEADER = new RegExp(`^\\s*(\\[\\[?)\\s*(${DOTTED_KEY})\\s*\\]`);
const PAIR = new RegExp(`^\\s*(${DOTTED_KEY})\\s*=`);

function namesOf(dotted: string): string[] {
  return (dotted.match(NAME) ?? []).map((name) => name.replace(/^(["'])(.*)\1$/s, "$2"));
}

/** The line of each key and header, by its path. */
function linesOf(text: string): ReadonlyMap<string, number> {
  const lines = new Map<string, number>();
  const counts = new Map<string, number>();
  let prefix: TomlPath = [];
  let open: string | null = null;
  for (const [i, line] of text.split("\n").entries()) {
    if (open === null) {
      const [, bracket, header] = HEADER.exec(line) ?? [];
      const [, pair] = PAIR.exec(line) ?? [];
      if (header !== undefined) {
        prefix = placed(namesOf(header), bracket === "[[", counts);
        lines.set(keyOf(prefix), i + 1);
      } else if (pair !== undefined) lines.set(keyOf([...prefix, ...namesOf(pair)]), i + 1);
    }
    for (const [quotes] of line.matchAll(/"""|'''/g)) {
      if (open === null) open = quotes;
      else if (open === quotes) open = null;
    }
  }
  return lines;
}

/** The path of a header, with the positions in the arrays that it passes. */
function placed(names: readonly string[], isArray: boolean, counts: Map<string, number>): TomlPath {
  const path: (string | number)[] = [];
  for (const [i, name] of names.entries()) {
    path.push(name);
    const key = keyOf(path);
    if (isArray && i === names.length - 1) counts.set(key, (counts.get(key) ?? 0) + 1);
    const count = counts.get(key);
    if (count !== undefined) path.push(count - 1);
  }
  return path;
}
