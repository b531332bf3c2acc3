/** Times and amounts as people read and write them. */
import type { EpochSeconds } from "../../base/clock.ts";

const UNITS: readonly (readonly [string, number])[] = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** `3 h 12 min`, the two largest units. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  let rest = whole;
  return UNITS.slice(first, first + 2)
    .flatMap(([name, size]) => {
      const amount = Math.floor(rest / size);
      rest %= size;
      return amount === 0 ? [] : [`${amount} ${name}`];
    })
    .join(" ");
}

/** Between the moment from which a span counts and the moment of printing its end. */
const PRINT_DELAY_S = 5;

/** `3 h ago`, `in 5 min`, `now`: one unit is enough in a table. */
export function relative(at: EpochSeconds | null, now: EpochSeconds): string {
  if (at === null) return "never";
  const away = Math.abs(now - at);
  if (away < 1) return "now";
  // The answer to `--expires 90d` is printed seconds later, and `in 89 d` would look like an error.
  const seconds = at > now && away >= 60 - PRINT_DELAY_S ? away + PRINT_DELAY_S : away;
  const [name, size] = UNITS.find(([, size]) => seconds >= size) ?? ["s", 1];
  const text = `${Math.floor(seconds / size)} ${name}`;
  return at > now ? `in ${text}` : `${text} ago`;
}

/** `2026-11-21 08:26:40`, in this machine's time zone. */
export function stamp(at: EpochSeconds): string {
  const date = new Date(at * 1000);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
}

/** `1.29 ms`, `42 ms`, `3.1 s`. */
export function milliseconds(ms: number): string {
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return `${ms < 10 ? Number(ms.toFixed(2)) : Math.round(ms)} ms`;
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  return `${Number((count / 1024 ** power).toFixed(1))} ${units[power]}`;
}

const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, min: 60, h: 3_600, d: 86_400, w: 604_800 };

/** Seconds of `90`, `15m`, `12h`, `30d`, `2w`; null for anything else. */
export function parseSpan(text: string): number | null {
  const match = /^(\d{1,12})\s*(s|m|min|h|d|w)?$/.exec(text.trim());
  return match === null ? null : Number(match[1]) * (SECONDS[match[2] ?? "s"] ?? 1);
}

/** A moment: so far from now (`30d`) or a date (`2027-01-31`, `2027-01-31T12:00Z`); null for anything else. */
export function parseMoment(text: string, now: EpochSeconds): EpochSeconds | null {
  const seconds = parseSpan(text);
  // A bare number would be seconds from now to one reader and a year or an epoch to another.
  if (seconds !== null && /\D$/.test(text.trim())) return now + seconds;
  const ms = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms) ? null : Math.floor(ms / 1000);
}
