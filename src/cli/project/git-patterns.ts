/**
 * The patterns of a .gitignore, as git reads and matches them (dir.c and wildmatch.c of git 2.39): by bytes, with upper and
 * lower case told apart. Texts and paths are strings with one character for each byte (latin1). A test holds it against git;
 * the package `ignore` matches characters instead of bytes and takes `a**` before a slash for one asterisk.
 */

/** One line of a .gitignore. */
export interface GitPattern {
  /** As it stands in the file. */
  readonly text: string;
  /** From 1. */
  readonly line: number;
  readonly isNegative: boolean;
  readonly isForFolders: boolean;
  /** Without a slash inside: for names at any depth. */
  readonly isForNames: boolean;
  readonly glob: string;
  /** Number of leading characters that stand for themselves. */
  readonly literal: number;
}

const SPECIAL = /[*?[\\]/;
const BOM = "\xef\xbb\xbf";

/** The patterns of a file, in its order. */
export function gitPatterns(content: string): readonly GitPattern[] {
  const text = content.startsWith(BOM) ? content.slice(BOM.length) : content;
  return text.split("\n").flatMap((entry, i) => {
    if (entry === "" || entry.startsWith("#")) return [];
    const [line = ""] = entry.replace(/\r$/, "").split("\0");
    return [parsed(trimmed(line), i + 1)];
  });
}

/** Without the spaces at the end, but one behind a backslash. */
function trimmed(line: string): string {
  let end = 0;
  for (let at = 0; at < line.length; at++) {
    if (line[at] === "\\") {
      at++;
      if (at === line.length) return line;
      end = at + 1;
    } else if (line[at] !== " ") {
      end = at + 1;
    }
  }
  return line.slice(0, end);
}

function parsed(text: string, line: number): GitPattern {
  const isNegative = text.startsWith("!");
  const rest = isNegative ? text.slice(1) : text;
  const isForFolders = rest.endsWith("/");
  const path = isForFolders ? rest.slice(0, -1) : rest;
  const isForNames = !path.includes("/");
  const glob = path.startsWith("/") ? path.slice(1) : path;
  const special = glob.search(SPECIAL);
  const literal = special < 0 ? glob.length : special;
  return { text, line, isNegative, isForFolders, isForNames, glob, literal };
}

/** The pattern that decides about a path, relative to the folder of the file: the last that matches; null: none does. */
export function decidingPattern(patterns: readonly GitPattern[], path: string, isFolder: boolean): GitPattern | null {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return patterns.findLast((pattern) => isMatch(pattern, pattern.isForNames ? name : path, isFolder)) ?? null;
}

function isMatch({ glob, literal, isForFolders, isForNames }: GitPattern, path: string, isFolder: boolean): boolean {
  if (glob === "" || (isForFolders && !isFolder)) return false;
  if (literal === glob.length) return path === glob;
  if (isForNames) return wildmatch({ glob, text: path, isPath: false }, 0, 0) === MATCH;
  // git matches behind the literal part alone, where `**` then stands at the start.
  if (!path.startsWith(glob.slice(0, literal))) return false;
  const whole = { glob: glob.slice(literal), text: path.slice(literal), isPath: true };
  return wildmatch(whole, 0, 0) === MATCH;
}

interface Matched {
  readonly glob: string;
  readonly text: string;
  /** No wildcard but `**` matches a slash. */
  readonly isPath: boolean;
}

const MATCH = 0;
const NONE = 1;
/** No longer part of the text for an asterisk before matches either. */
const ABORT = 2;
/** The same up to the nearest `**` before. */
const ABORT_TO_GLOBSTAR = 3;

/** dowild() of git: matches the glob from `p` with the text from `t`. */
function wildmatch(matched: Matched, from_p: number, from_t: number): number {
  const { glob, text, isPath } = matched;
  let t = from_t;
  for (let p = from_p; p < glob.length; p++, t++) {
    const char = glob[p];
    const own = text[t];
    if (own === undefined && char !== "*") return ABORT;
    if (char === "*") {
      const next = endOfRun(glob, p);
      const isGlobstar = isPath && next > p + 1 && isWholePart(glob, p, next);
      if (isGlobstar && glob[next] === "/" && wildmatch(matched, next + 1, t) === MATCH) return MATCH;
      const crosses = !isPath || isGlobstar;
      if (next === glob.length) return crosses || !text.includes("/", t) ? MATCH : NONE;
      if (crosses || glob[next] !== "/") return wildmatchAfter(matched, next, t, crosses);
      t = text.indexOf("/", t);
      if (t < 0) return NONE;
      p = next;
    } else if (char === "?") {
      if (isPath && own === "/") return NONE;
    } else if (char === "[") {
      const found = bracket(glob, p, own ?? "");
      if (found === null) return ABORT;
      if (!found.isMember || (isPath && own === "/")) return NONE;
      p = found.end;
    } else {
      if (char === "\\") p++;
      if (own !== glob[p]) return NONE;
    }
  }
  return t < text.length ? NONE : MATCH;
}

function endOfRun(glob: string, start: number): number {
  let end = start;
  while (glob[end] === "*") end++;
  return end;
}

/** Whether asterisks are all that is between two slashes, or an end of the pattern. */
function isWholePart(glob: string, start: number, end: number): boolean {
  const isStart = start === 0 || glob[start - 1] === "/";
  return isStart && (end === glob.length || glob[end] === "/" || glob.startsWith("\\/", end));
}

/** Matches what follows an asterisk at each place that the asterisk can reach. */
function wildmatchAfter(matched: Matched, p: number, from_t: number, crosses: boolean): number {
  const { glob, text } = matched;
  const next = glob[p] ?? "";
  for (let t = from_t; t < text.length; t++) {
    if (!SPECIAL.test(next)) {
      while (t < text.length && text[t] !== next && (crosses || text[t] !== "/")) t++;
      if (text[t] !== next) return NONE;
    }
    const found = wildmatch(matched, p, t);
    if (found !== NONE) {
      if (!crosses || found !== ABORT_TO_GLOBSTAR) return found;
    } else if (!crosses && text[t] === "/") {
      return ABORT_TO_GLOBSTAR;
    }
  }
  return ABORT;
}

/** Classes in brackets, as git's own table of ASCII has them. */
const CLASSES: Readonly<Record<string, RegExp>> = {
  alnum: /[0-9A-Za-z]/,
  alpha: /[A-Za-z]/,
  blank: /[ \t]/,
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is the class of them.
  cntrl: /[\x00-\x1f\x7f]/,
  digit: /[0-9]/,
  graph: /[!-~]/,
  lower: /[a-z]/,
  print: /[ -~]/,
  punct: /[!-/:-@[-`{-~]/,
  space: /[ \t\n\r]/,
  upper: /[A-Z]/,
  xdigit: /[0-9A-Fa-f]/,
};

/** Reads `[...]` at `start`: its last index, and whether it has `own`. Null: it does not end, or names an unknown class. */
function bracket(glob: string, start: number, own: string): { end: number; isMember: boolean } | null {
  const isNegated = glob[start + 1] === "!" || glob[start + 1] === "^";
  let p = isNegated ? start + 2 : start + 1;
  let isListed = false;
  /** Start of a range, if a hyphen follows. */
  let before = "";
  do {
    const escaped = glob[p] === "\\" ? 1 : 0;
    const isRange = glob[p] === "-" && before !== "" && p + 1 < glob.length && glob[p + 1] !== "]";
    if (isRange) {
      p += glob[p + 1] === "\\" ? 2 : 1;
      const last = glob[p];
      if (last === undefined) return null;
      isListed ||= before <= own && own <= last;
      before = "";
    } else if (glob.startsWith("[:", p)) {
      const end = glob.indexOf("]", p + 2);
      if (end < 0) return null;
      const isClass = end > p + 2 && glob[end - 1] === ":";
      const name = glob.slice(p + 2, end - 1);
      if (isClass && !Object.hasOwn(CLASSES, name)) return null;
      isListed ||= isClass ? CLASSES[name]?.test(own) === true : own === "[";
      before = isClass ? "" : "[";
      if (isClass) p = end;
    } else {
      p += escaped;
      const one = glob[p];
      if (one === undefined) return null;
      isListed ||= one === own;
      before = one;
    }
    p++;
  } while (glob[p] !== "]");
  return { end: p, isMember: isListed !== isNegated };
}
