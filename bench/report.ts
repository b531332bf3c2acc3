/**
 * The shapes of what a bench finds. `text.ts` prints them, `html.ts` draws them, JSON keeps them whole. A bar comes
 * with its value as it came out, met or not, and the rounds' own values beside it, so that a lucky round shows; a
 * comparison without a bar is told the same way, and what is lost is listed on its own.
 */
import { median, type Summary, summarize } from "./stats.ts";

/** One line of a table. */
export interface Row {
  readonly label: string;
  /** Of milliseconds, or of what `unit` says. */
  readonly summary: Summary;
  readonly unit?: string;
  readonly failed_count: number;
  readonly note: string;
}

export interface Bar {
  readonly label: string;
  /** NaN: nothing was measured, which meets no bar. */
  readonly value: number;
  readonly bar: number;
  readonly compare: "at most" | "at least";
  /** Printed right behind a figure: "×", " ms", " calls". */
  readonly unit: string;
  /** The same figure of each round alone. */
  readonly rounds: readonly number[];
}

/** A ratio to a peer that has no bar. 1 is a draw. */
export interface Comparison {
  readonly label: string;
  readonly value: number;
  readonly better: "lower" | "higher";
  readonly rounds: readonly number[];
}

export interface Axis {
  /** With its unit. */
  readonly label: string;
  readonly scale: "linear" | "log";
}

export interface Series {
  readonly label: string;
  readonly points: readonly (readonly [number, number])[];
  /** `steps`: a count for each interval that begins at x. */
  readonly shape: "line" | "points" | "steps";
}

export interface Mark {
  /** On the x axis. */
  readonly at: number;
  readonly label: string;
}

/** `distribution`: latencies by the share of calls that were at most so slow, of raw samples by their labels. */
export type Plot =
  | { readonly kind: "distribution"; readonly title: string; readonly axis: string; readonly of: readonly string[] }
  | {
      readonly kind: "lines";
      readonly title: string;
      readonly x: Axis;
      readonly y: Axis;
      readonly series: readonly Series[];
      readonly marks: readonly Mark[];
    };

export interface Section {
  readonly title: string;
  /** How it was measured. */
  readonly method: string;
  readonly rows: readonly Row[];
  readonly bars: readonly Bar[];
  readonly comparisons?: readonly Comparison[];
  readonly plots?: readonly Plot[];
  /** What of it was not measured, or not as meant. */
  readonly not_measured?: readonly string[];
  /** Every sample, by row label and round. */
  readonly raw: Readonly<Record<string, readonly (readonly number[])[]>>;
  /** Reasons of failed calls with their counts. */
  readonly failures: Readonly<Record<string, number>>;
}

/** Samples of one subject, a list a round, and its failures. */
export class Samples {
  readonly label: string;
  readonly unit: string;
  readonly rounds: number[][] = [];
  readonly failures: Record<string, number> = {};

  constructor(label: string, unit = "ms") {
    this.label = label;
    this.unit = unit;
  }

  get failed_count(): number {
    return Object.values(this.failures).reduce((sum, count) => sum + count, 0);
  }

  fail(reason: string, count = 1): void {
    this.failures[reason] = (this.failures[reason] ?? 0) + count;
  }

  failAll(counts: Readonly<Record<string, number>>): void {
    for (const [reason, count] of Object.entries(counts)) this.fail(reason, count);
  }

  summary(): Summary {
    return summarize(this.rounds.flat());
  }

  row(note = ""): Row {
    const { label, unit, failed_count } = this;
    return { label, summary: this.summary(), unit, failed_count, note };
  }
}

type Percentile = "p50" | "p99" | "max";

function ratios(subject: Samples, peer: Samples, pick: Percentile): { value: number; rounds: number[] } {
  return {
    value: subject.summary()[pick] / peer.summary()[pick],
    rounds: subject.rounds.map((samples, i) => summarize(samples)[pick] / summarize(peer.rounds[i] ?? [])[pick]),
  };
}

/** The bar on the ratio of two subjects, over all samples together. */
export function ratioBar(label: string, subject: Samples, peer: Samples, pick: Percentile, bar: number): Bar {
  return { label, ...ratios(subject, peer, pick), bar, compare: "at most", unit: "×" };
}

/**
 * The bar on the median of the rounds' ratios: for a percentile that one stall of the machine moves further than what is
 * looked for. The rows still show both subjects over all samples together.
 */
export function pairedBar(label: string, subject: Samples, peer: Samples, pick: Percentile, bar: number): Bar {
  const { rounds } = ratios(subject, peer, pick);
  return { label, value: median(rounds), rounds, bar, compare: "at most", unit: "×" };
}

/** The bar on a subject's own time, over all samples together. `bar` in milliseconds. */
export function timeBar(label: string, subject: Samples, pick: Percentile, bar: number): Bar {
  const rounds = subject.rounds.map((samples) => summarize(samples)[pick]);
  return { label, value: subject.summary()[pick], bar, compare: "at most", unit: " ms", rounds };
}

/** The ratio of two subjects' times, without a bar. */
export function timeComparison(label: string, subject: Samples, peer: Samples, pick: Percentile): Comparison {
  return { label, ...ratios(subject, peer, pick), better: "lower" };
}

/** "At most so many", which for what must not happen is none. */
export function countBar(label: string, value: number, unit: string, bar = 0): Bar {
  return { label, value, bar, compare: "at most", unit, rounds: [] };
}

export function isMet(bar: Bar): boolean {
  return bar.compare === "at most" ? bar.value <= bar.bar : bar.value >= bar.bar;
}

export function isLost({ value, better }: Comparison): boolean {
  return better === "lower" ? value > 1 : value < 1;
}

/** A section's raw samples and failures from its subjects. */
export function evidence(subjects: readonly Samples[]): Pick<Section, "raw" | "failures"> {
  const failures: Record<string, number> = {};
  for (const { label, failures: own } of subjects) {
    for (const [reason, count] of Object.entries(own)) failures[`${label}: ${reason}`] = count;
  }
  // To the microsecond: what is behind it is noise, and the file is a third of its size without it.
  const rounded = (rounds: readonly (readonly number[])[]) =>
    rounds.map((samples) => samples.map((sample) => Math.round(sample * 1_000) / 1_000));
  return { raw: Object.fromEntries(subjects.map(({ label, rounds }) => [label, rounded(rounds)])), failures };
}

/** The usual plot of a table in milliseconds. */
export function distribution(title: string, subjects: readonly Samples[]): Plot {
  return { kind: "distribution", title, axis: "latency, ms", of: subjects.map(({ label }) => label) };
}
