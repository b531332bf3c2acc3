/** Axes: from values to positions in a drawing, and where the ticks go. */
import { figure } from "./text.ts";

export interface Tick {
  readonly at: number;
  readonly label: string;
}

export interface Scale {
  position(value: number): number;
  readonly ticks: readonly Tick[];
}

/** Where an axis lies in the drawing. `from` may be greater than `to`: y grows downwards. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** More labels than this would touch each other. */
const TICKS_MAX = 9;

function mapped(low: number, high: number, span: Span, value: number): number {
  const share = high === low ? 0.5 : (value - low) / (high - low);
  return span.from + share * (span.to - span.from);
}

/** The smallest of 1, 2 or 5 times a power of ten that is not below `value`. */
function roundStep(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= value * 0.999) ?? 10 * power;
}

/** Covers the values and, where they are close to it, zero; ends at round numbers. */
export function linearScale(values: readonly number[], span: Span): Scale {
  const finite = values.filter(Number.isFinite);
  const least = finite.reduce((a, b) => Math.min(a, b), 0);
  const most = finite.reduce((a, b) => Math.max(a, b), least);
  const step = roundStep((most - least || 1) / (TICKS_MAX - 2));
  const first = Math.floor(least / step);
  const last = Math.max(first + 1, Math.ceil(most / step));
  const position = (value: number): number => mapped(first * step, last * step, span, value);
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => {
    const value = Number(((first + i) * step).toPrecision(12));
    return { at: position(value), label: String(value) };
  });
  return { position, ticks };
}

/** Covers the values from a 1, 2 or 5 to a 1, 2 or 5. What is not above zero lies at the low end. */
export function logScale(values: readonly number[], span: Span): Scale {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  const least = positive.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const most = positive.reduce((a, b) => Math.max(a, b), 0);
  const [low, high] = most === 0 ? [1, 10] : [least, Math.max(most, least * 2)];
  const steps: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const digit of [1, 2, 5]) steps.push(Number(`${digit}e${power}`));
  }
  const first = steps.findLastIndex((step) => step <= low * 1.001);
  const last = steps.findIndex((step) => step >= high * 0.999);
  const shown = steps.slice(Math.max(0, first), last < 0 ? steps.length : last + 1);
  const ends = [Math.log10(shown[0] ?? low), Math.log10(shown.at(-1) ?? high)] as const;
  const position = (value: number): number =>
    mapped(ends[0], ends[1], span, value > 0 ? Math.max(ends[0], Math.log10(value)) : ends[0]);
  const isDecade = (value: number): boolean => Math.abs(Math.log10(value) % 1) < 1e-9;
  const labelled = shown.length <= TICKS_MAX ? shown : shown.filter(isDecade);
  return { position, ticks: labelled.map((value) => ({ at: position(value), label: figure(value) })) };
}

const SHARES = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/**
 * Shares of calls, stretched so that each further nine takes the same room: the tail is what is looked for. Ends where
 * `count` samples end; the slowest one stands at the middle of its own share.
 */
export function shareScale(count: number, span: Span): Scale {
  const nines = (share: number): number => -Math.log10(1 - share);
  const end = Math.max(1.1, nines(1 - 0.5 / Math.max(1, count)));
  const position = (share: number): number => mapped(0, end, span, nines(share));
  const ticks = SHARES.filter((share) => nines(share) <= end).map((share) => ({
    at: position(share),
    label: `${Number((share * 100).toFixed(4))} %`,
  }));
  return { position, ticks };
}
