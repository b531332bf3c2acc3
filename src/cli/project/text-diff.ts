/** The difference of two small texts in the unified format of diff(1). */
import { LIMITS } from "../../base/limits.ts";

/** Unchanged lines around changed ones. */
const CONTEXT = 3;

interface Line {
  readonly mark: " " | "-" | "+";
  readonly text: string;
}

/** The lines of a text; null for bytes that are no text, or for too many lines. */
export function textLines(bytes: Buffer | null): string[] | null {
  if (bytes === null || bytes.includes(0)) return null;
  try {
    const lines = new TextDecoder("utf-8", { fatal: true }).decode(bytes).split("\n");
    if (lines.at(-1) === "") lines.pop();
    return lines.length > LIMITS.cli_diff_lines_max ? null : lines;
  } catch {
    return null;
  }
}

/** The lines of both in order, by a longest common subsequence. Memory: the product of the changed parts' lengths, twice. */
function merged(from: readonly string[], to: readonly string[]): Line[] {
  let start = 0;
  while (start < from.length && start < to.length && from[start] === to[start]) start++;
  let end = 0;
  while (end < from.length - start && end < to.length - start && from.at(-1 - end) === to.at(-1 - end)) end++;
  const [old, own] = [from.slice(start, from.length - end), to.slice(start, to.length - end)];
  const width = own.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = own.length - 1; j >= 0; j--) {
      lengths[i * width + j] = old[i] === own[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = from.slice(0, start).map((text) => ({ mark: " ", text }));
  let [i, j] = [0, 0];
  while (i < old.length || j < own.length) {
    if (i < old.length && j < own.length && old[i] === own[j]) {
      lines.push({ mark: " ", text: old[i] ?? "" });
      [i, j] = [i + 1, j + 1];
    } else if (i < old.length && (j === own.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ mark: "-", text: old[i++] ?? "" });
    } else lines.push({ mark: "+", text: own[j++] ?? "" });
  }
  return [...lines, ...from.slice(from.length - end).map((text): Line => ({ mark: " ", text }))];
}

const range = (start: number, count: number) =>
  count === 1 ? `${start}` : `${count === 0 ? start - 1 : start},${count}`;

/** The changed parts with their surroundings, each behind its `@@` line; empty for equal texts. */
export function unified(from: readonly string[], to: readonly string[]): string[] {
  const lines = merged(from, to);
  const isNear = lines.map((_, i) =>
    lines.slice(Math.max(0, i - CONTEXT), i + CONTEXT + 1).some(({ mark }) => mark !== " "),
  );
  const out: string[] = [];
  const position = { from: 1, to: 1 };
  for (let i = 0; i < lines.length; ) {
    let length = 0;
    while (isNear[i + length] === true) length++;
    const hunk = lines.slice(i, i + Math.max(1, length));
    const counts = {
      from: hunk.filter(({ mark }) => mark !== "+").length,
      to: hunk.filter(({ mark }) => mark !== "-").length,
    };
    if (length > 0) {
      out.push(`@@ -${range(position.from, counts.from)} +${range(position.to, counts.to)} @@`);
      out.push(...hunk.map(({ mark, text }) => mark + text));
    }
    position.from += counts.from;
    position.to += counts.to;
    i += hunk.length;
  }
  return out;
}
