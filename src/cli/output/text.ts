/**
 * Text as a terminal shows it: how many columns it takes, how it is cut to so many, and what of it is not text. Names,
 * descriptions and messages come from others: what in them would move the cursor, change colours or turn the writing
 * direction is made visible, so that nobody's function name rewrites the screen of who lists it.
 */

/** Controls of C0 and C1, separators of lines, marks of writing direction, and halves of characters. */
const UNSEEN = /[\p{Cc}\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\p{Cs}]/gu;
const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** The text with what cannot be seen as escapes: `\n`, `\x1b`, `\u202e`. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (character) => {
    const code = character.charCodeAt(0);
    const hex = code.toString(16);
    return SHORT[character] ?? (code < 0x100 ? `\\x${hex.padStart(2, "0")}` : `\\u${hex.padStart(4, "0")}`);
  });
}

/** One word of a command that a person may copy into a shell. */
export function shellWord(text: string): string {
  const seen = visible(text);
  return /^[\w.@%+=:,/-]+$/.test(seen) ? seen : `'${seen.replaceAll("'", "'\\''")}'`;
}

/** JSON for a person or a program; what JSON leaves unescaped and a terminal would obey is escaped too. */
export function json(value: unknown, indent = 2): string {
  return JSON.stringify(value, null, indent).replace(UNSEEN, (character) =>
    character === "\n" ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const PLAIN = /^[\x20-\x7e]*$/;
/** Unicode's East Asian Wide and Fullwidth, in whole blocks, and what is drawn as a picture. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{18dff}\u{1aff0}-\u{1b2ff}\u{20000}-\u{3fffd}\p{Emoji_Presentation}]|\p{Emoji}\ufe0f/u;
/** Marks upon the letter before, and joiners. */
const NARROWEST = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

/** What is seen as one character. */
function characters(text: string): string[] {
  return [...new Intl.Segmenter().segment(text)].map(({ segment }) => segment);
}

function characterWidth(character: string): number {
  if (WIDE.test(character)) return 2;
  return NARROWEST.test(character) ? 0 : 1;
}

/** Columns of a terminal that the text takes; it holds no controls. */
export function displayWidth(text: string): number {
  if (PLAIN.test(text)) return text.length;
  return characters(text).reduce((sum, character) => sum + characterWidth(character), 0);
}

/** The text in at most `width` columns, its last one an ellipsis where something is missing. */
export function cutTo(text: string, width: number): string {
  if (displayWidth(text) <= width) return text;
  let cut = "";
  let used = 0;
  for (const character of characters(text)) {
    used += characterWidth(character);
    if (used > width - 1) break;
    cut += character;
  }
  return width < 1 ? "" : `${cut}…`;
}

/** The text and as many spaces as it takes to fill `width` columns. */
export function pad(text: string, width: number, side: "left" | "right" = "left"): string {
  const spaces = " ".repeat(Math.max(0, width - displayWidth(text)));
  return side === "left" ? text + spaces : spaces + text;
}
