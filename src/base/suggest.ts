/** What was probably meant: the names nearest to one that is not there. */

/** Insertions, deletions, replacements and swaps of neighbours between two words (optimal string alignment). */
export function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? 0;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      row[j] = Math.min(at(i - 1, j) + 1, (row[j - 1] ?? 0) + 1, at(i - 1, j - 1) + (isSame ? 0 : 1));
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (isSwap) row[j] = Math.min(row[j] ?? 0, at(i - 2, j - 2) + 1);
    }
  }
  return at(a.length, b.length);
}

const SUGGESTIONS_MAX = 3;

/** At most three names, nearest first: a third of the letters may differ, or the word is how the name begins. */
export function nearest(word: string, names: readonly string[]): string[] {
  const wanted = word.toLowerCase();
  return [...new Set(names)]
    .map((name) => {
      const lower = name.toLowerCase();
      const far_max = Math.max(1, Math.floor(Math.max(wanted.length, lower.length) / 3));
      if (wanted.length >= 2 && lower.startsWith(wanted)) return { name, far: 1, far_max };
      const isHopeless = Math.abs(wanted.length - lower.length) > far_max;
      return { name, far: isHopeless ? Number.POSITIVE_INFINITY : distance(wanted, lower), far_max };
    })
    .filter(({ far, far_max }) => far <= far_max)
    .sort((one, other) => one.far - other.far || one.name.localeCompare(other.name))
    .slice(0, SUGGESTIONS_MAX)
    .map(({ name }) => name);
}

/** `did you mean 'hello'?`, or null. */
export function didYouMean(word: string, names: readonly string[]): string | null {
  const near = nearest(word, names).map((name) => `'${name}'`);
  const last = near.pop();
  if (last === undefined) return null;
  return `did you mean ${near.length === 0 ? last : `${near.join(", ")} or ${last}`}?`;
}
