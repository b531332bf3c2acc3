/**
 * Patterns of `${name#pattern}` and its like, as BuildKit has them: `*`, `?`, and `\` before either. Without regular expressions, which
 * a tenant could make backtrack for ever: a match takes at most the product of the lengths, which `take` counts.
 */
type Token = "any" | "one" | { readonly char: string };

export interface ShellPattern {
  readonly tokens: readonly Token[];
  /** Called with the number of comparisons; may throw. */
  readonly take: (steps: number) => void;
}

/** Throws what `refuse` returns. */
export function shellPattern(
  text: string,
  { take, refuse }: Pick<ShellPattern, "take"> & { readonly refuse: (why: string) => Error },
): ShellPattern {
  const tokens: Token[] = [];
  const chars = Array.from(text);
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at] ?? "";
    if (char === "*") tokens.push("any");
    else if (char === "?") tokens.push("one");
    else if (char !== "\\") tokens.push({ char });
    else {
      const next = chars[++at] ?? "";
      // The last two end parts of a substitution and need an escape for that.
      if (!["*", "?", "\\", "}", "/"].includes(next)) throw refuse(`invalid escape in a pattern: '\\${next}'`);
      tokens.push({ char: next });
    }
  }
  return { tokens, take };
}

/** The value without what the pattern matches at its beginning, the longest or the shortest of it. */
export function withoutPrefix(value: string, pattern: ShellPattern, isLongest: boolean): string {
  const chars = Array.from(value);
  const end = endOf(chars, 0, pattern, isLongest);
  return end === null ? value : chars.slice(end).join("");
}

/** The same at its end. */
export function withoutSuffix(value: string, pattern: ShellPattern, isLongest: boolean): string {
  const chars = Array.from(value).reverse();
  const end = endOf(chars, 0, { ...pattern, tokens: pattern.tokens.toReversed() }, isLongest);
  return end === null ? value : chars.slice(end).reverse().join("");
}

/** The value with the first match, or all of them, replaced. */
export function replaced(value: string, pattern: ShellPattern, by: string, isAll: boolean): string {
  const chars = Array.from(value);
  const parts: string[] = [];
  let last = -1;
  for (let at = 0; at <= chars.length; ) {
    const end = endOf(chars, at, pattern, true);
    if (end !== null && (end > at || last !== at)) {
      parts.push(by);
      if (!isAll) return [...parts, ...chars.slice(end)].join("");
    }
    last = end ?? last;
    if (end === null || end === at) parts.push(chars[at++] ?? "");
    else at = end;
  }
  return parts.join("");
}

/** The end of the longest or shortest match that begins at `begin`; null: none does. */
function endOf(
  chars: readonly string[],
  begin: number,
  { tokens, take }: ShellPattern,
  isLongest: boolean,
): number | null {
  let found: number | null = null;
  // Places in the pattern that may come next.
  let places = reached(tokens, [0]);
  for (let at = begin; ; at++) {
    if (places.has(tokens.length)) {
      found = at;
      if (!isLongest) return found;
    }
    const char = chars[at];
    if (char === undefined || places.size === 0) return found;
    take(places.size);
    const next: number[] = [];
    for (const place of places) {
      const token = tokens[place];
      if (token === "any") next.push(place);
      else if (token === "one" || token?.char === char) next.push(place + 1);
    }
    places = reached(tokens, next);
  }
}

/** The places with those behind their stars. */
function reached(tokens: readonly Token[], from: readonly number[]): Set<number> {
  const places = new Set(from);
  for (const place of places) if (tokens[place] === "any") places.add(place + 1);
  return places;
}
