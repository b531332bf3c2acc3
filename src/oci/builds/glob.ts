/**
 * Patterns of paths without regular expressions, which a tenant could make backtrack for ever: a match takes at most the product of
 * the lengths, and all matches of a build share one budget of steps.
 *
 * B1. Every comparison of a character or a component takes a step of the budget; without one left the build fails.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

/** Steps that the matches of one build may still take. */
export interface MatchBudget {
  steps: number;
}

type Token = { readonly type: "any" } | { readonly type: "one" } | { readonly type: "in"; has(char: string): boolean };
/** One component of a pattern; null: `**`, any number of components. */
type Component = readonly Token[];

const shown = (bytes: string): string => Buffer.from(bytes, "latin1").toString("utf8").slice(0, 256);
const malformed = (part: string): AppError =>
  new AppError("INVALID_ARGUMENT", `malformed pattern: '${shown(part)}'`, { hint: "close the bracket, or escape it" });

export const newMatchBudget = (): MatchBudget => ({ steps: LIMITS.build_match_steps_max });

/** B1. */
function take(budget: MatchBudget): void {
  budget.steps -= 1;
  if (budget.steps >= 0) return;
  throw new AppError(
    "INVALID_ARGUMENT",
    `patterns of the build take too many steps (limit ${LIMITS.build_match_steps_max})`,
    { hint: "use fewer patterns, with fewer stars" },
  );
}

/** Parses one component as path.Match of Go: `*`, `?`, `[…]`, and `\` before any character. Throws INVALID_ARGUMENT. */
function parseComponent(part: string): Component {
  const tokens: Token[] = [];
  const literal = (char: string): Token => ({ type: "in", has: (one) => one === char });
  for (let at = 0; at < part.length; at++) {
    const char = part[at] ?? "";
    if (char === "*") {
      if (tokens.at(-1)?.type !== "any") tokens.push({ type: "any" });
    } else if (char === "?") tokens.push({ type: "one" });
    else if (char === "\\") tokens.push(literal(part[++at] ?? "\\"));
    else if (char === "[") {
      const set = parseSet(part, at);
      tokens.push(set.token);
      at = set.end;
    } else tokens.push(literal(char));
  }
  return tokens;
}

function parseSet(part: string, begin: number): { readonly token: Token; readonly end: number } {
  const isNot = part[begin + 1] === "^" || part[begin + 1] === "!";
  const ranges: (readonly [string, string])[] = [];
  let at = begin + (isNot ? 2 : 1);
  const next = (): string => {
    const char = part[at++];
    const one = char === "\\" ? part[at++] : char;
    if (one === undefined) throw malformed(part);
    return one;
  };
  while (part[at] !== "]" || ranges.length === 0) {
    const from = next();
    const isRange = part[at] === "-" && part[at + 1] !== "]" && part[at + 1] !== undefined;
    if (isRange) at++;
    ranges.push([from, isRange ? next() : from]);
  }
  // Characters are bytes: a set of any length costs one look.
  const isIn = new Uint8Array(256).fill(isNot ? 1 : 0);
  for (const [from, to] of ranges) isIn.fill(isNot ? 0 : 1, from.charCodeAt(0), to.charCodeAt(0) + 1);
  return { token: { type: "in", has: (char) => isIn[char.charCodeAt(0)] === 1 }, end: at };
}

/** True if a component matches a whole name: after a mismatch only the last star takes one more character. */
function matchesName(tokens: Component, name: string, budget: MatchBudget): boolean {
  let [at, token, star, mark] = [0, 0, -1, 0];
  while (at < name.length) {
    take(budget);
    const one = tokens[token];
    if (one?.type === "any") {
      star = token++;
      mark = at;
    } else if (one !== undefined && (one.type === "one" || one.has(name[at] ?? ""))) {
      at++;
      token++;
    } else if (star >= 0) {
      token = star + 1;
      at = ++mark;
    } else {
      return false;
    }
  }
  while (tokens[token]?.type === "any") token++;
  return token === tokens.length;
}

/** Returns what tells if a name matches one component. Throws INVALID_ARGUMENT for a malformed one. */
export function componentMatcher(part: string, budget: MatchBudget): (name: string) => boolean {
  const tokens = parseComponent(part);
  return (name) => matchesName(tokens, name, budget);
}

/** True if the pattern matches the path or a directory above it. The empty pattern matches nothing. */
function matchesAbove(pattern: readonly (Component | null)[], path: readonly string[], budget: MatchBudget): boolean {
  let [at, part, star, mark] = [0, 0, -1, 0];
  while (part < pattern.length) {
    if (at >= path.length) return false;
    take(budget);
    const one = pattern[part];
    if (one === null) {
      star = part++;
      mark = at;
      // At the end it needs a component of its own: `a/**` leaves `a` itself out.
      if (part === pattern.length) return true;
    } else if (one !== undefined && matchesName(one, path[at] ?? "", budget)) {
      at++;
      part++;
    } else if (star >= 0) {
      part = star + 1;
      at = ++mark;
    } else {
      return false;
    }
  }
  return pattern.length > 0;
}

/**
 * Returns what tells if the lines of a .dockerignore leave a path out (moby/patternmatcher): the last line that matches the path or a
 * directory above it decides, `!` keeps. Paths and lines are bytes. Throws INVALID_ARGUMENT for a malformed line.
 */
export function ignoreMatcher(lines: readonly string[], budget: MatchBudget): (path: string) => boolean {
  const rules = lines.flatMap((line) => {
    const text = line.startsWith("#") ? "" : line.trim();
    const isKept = text.startsWith("!");
    const rest = isKept ? text.slice(1).trim() : text;
    if (isKept && rest === "") throw new AppError("INVALID_ARGUMENT", "malformed pattern: '!' keeps nothing");
    const parts = cleaned(rest);
    const pattern = parts.map((part) => (/^\*\*+$/.test(part) ? null : parseComponent(part)));
    return parts.length === 0 ? [] : [{ pattern, isKept }];
  });
  return (path) => {
    const parts = path.split("/");
    let isIgnored = false;
    for (const { pattern, isKept } of rules) {
      if (isKept === isIgnored && matchesAbove(pattern, parts, budget)) isIgnored = !isKept;
    }
    return isIgnored;
  };
}

/**
 * Components without `.`, empty ones, and those that `..` takes back, as filepath.Clean of Go. A `..` that leads out of the context
 * stays and matches nothing. `**x` is any depth before `*x`.
 */
function cleaned(text: string): readonly string[] {
  const parts: string[] = [];
  for (const part of text.split("/")) {
    if (part === "..") {
      if (parts.length > 0 && parts.at(-1) !== "..") parts.pop();
      else if (!text.startsWith("/")) parts.push(part);
    } else if (/^\*\*+[^*]/.test(part)) parts.push("**", part.replace(/^\*+/, "*"));
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return parts;
}
