/** Numbers, times, sizes and texts of others as people read them, and the quantiles that are shown. Pure: the same text for the same input. */

const WHOLE = new Intl.NumberFormat("en");
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const DAY_SECONDS = 86_400;

/** @param {number} value */
export const count = (value) => WHOLE.format(value);

/** @param {number} value @param {string} one @param {string} [many] */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/**
 * Three digits that count, whatever the size.
 * @param {number} value_ms
 */
export function milliseconds(value_ms) {
  if (value_ms === 0) return "0 ms";
  if (value_ms >= 10_000) return `${(value_ms / 1000).toFixed(1)} s`;
  if (value_ms >= 100) return `${WHOLE.format(Math.round(value_ms))} ms`;
  return `${value_ms.toFixed(value_ms >= 10 ? 1 : 2)} ms`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number} value */
export function bytes(value) {
  const power = Math.min(UNITS.length - 1, value < 1 ? 0 : Math.floor(Math.log2(value) / 10));
  const shown = value / 1024 ** power;
  return `${power === 0 || shown >= 100 ? WHOLE.format(Math.round(shown)) : shown.toFixed(1)} ${UNITS[power]}`;
}

/** Enough of a digest to compare it. @param {string} digest */
export const shortDigest = (digest) => digest.slice(0, 12);

/** @param {string} iso of the API */
export const epochSeconds = (iso) => Math.floor(Date.parse(iso) / 1000);

/** How long something lasts, in one unit. @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${Math.max(0, seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < DAY_SECONDS) return `${Math.floor(seconds / 3600)} h`;
  return counted(Math.floor(seconds / DAY_SECONDS), "day");
}

/** @param {number} epoch_seconds */
export const dateTime = (epoch_seconds) => DATE.format(new Date(epoch_seconds * 1000));

/** @param {number} epoch_seconds */
export const timeOfDay = (epoch_seconds) => TIME.format(new Date(epoch_seconds * 1000));

/**
 * @param {number | null} epoch_seconds
 * @param {number} now_ms
 */
export function age(epoch_seconds, now_ms) {
  if (epoch_seconds === null) return "never";
  const seconds = Math.max(0, Math.floor(now_ms / 1000) - epoch_seconds);
  return seconds < 2 ? "now" : `${duration(seconds)} ago`;
}

/**
 * The nearest-rank quantile: a value that was measured, never one in between.
 * @param {readonly number[]} sorted ascending
 * @param {number} share in 0…1
 * @returns {number | null}
 */
export function quantile(sorted, share) {
  const rank = Math.max(1, Math.ceil(share * sorted.length));
  return sorted[rank - 1] ?? null;
}

/** Controls, format characters (marks of direction, of zero width, tags), separators of lines, halves of characters. */
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029\p{Cs}]/gu;

/** @param {string} character */
function escaped(character) {
  const code = (character.codePointAt(0) ?? 0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
}

/**
 * Text that others chose freely, in one line: characters that nobody sees, or that turn the direction of the text around them,
 * become escapes.
 * @param {string} text
 */
export const seenText = (text) => text.replace(UNSEEN, escaped);

/** JSON in lines, with the same escapes. @param {unknown} value */
export const seenJson = (value) =>
  (JSON.stringify(value, null, 2) ?? "null").replace(UNSEEN, (one) => (one === "\n" ? one : escaped(one)));
