/**
 * What the calls of a load say. The class of a call is its record's `cold_start`; that is a claim, and the boot nonce
 * of the instance that served holds it to account: an instance is cold once, at its first call, and serves one version
 * of one function. A contradiction counts as a failed call.
 *
 * A nonce whose first call was warm is none: such an instance was started for a minimum, for a version's take-over, or
 * for a queued call that a freed instance took. It is counted and told.
 */
import type { Call, CallRecord, LoadResult } from "./load.ts";
import { type Bar, Samples } from "./report.ts";
import { median } from "./stats.ts";

export interface AnsweredCall extends Call {
  readonly record: CallRecord;
}

export function isAnswered(call: Call): call is AnsweredCall {
  return call.failure === null && call.record !== null;
}

/** The calls that were due after the warm-up. */
export function measuredCalls(result: LoadResult): Call[] {
  return result.calls.filter((call) => call.due_ms >= result.measured_from_ms);
}

/** From the moment a call was due to the last byte of its answer, of the calls that did not fail. */
export function latencies(calls: readonly Call[]): number[] {
  return calls.filter((call) => call.failure === null).map((call) => call.done_ms - call.due_ms);
}

/** Good answers per second of the measured time. */
export function ratePerSecond(result: LoadResult): number {
  const answered = measuredCalls(result).filter((call) => call.failure === null);
  return (answered.length * 1_000) / (result.ended_ms - result.measured_from_ms);
}

export function coldCount(calls: readonly Call[]): number {
  return calls.filter((call) => call.record?.cold_start === true).length;
}

/** Reasons of failed calls with their counts; those of the warm-up are told apart, and not forgiven. */
export function failureCounts(result: LoadResult): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { failure, due_ms } of result.calls) {
    if (failure === null) continue;
    const reason = due_ms < result.measured_from_ms ? `${failure} (warm-up)` : failure;
    counts[reason] = (counts[reason] ?? 0) + 1;
  }
  return counts;
}

export interface ClassReport {
  /** Reasons with their counts; empty when classes and nonces agree. */
  readonly contradictions: Readonly<Record<string, number>>;
  /** Instances whose first call here was a warm one. */
  readonly warm_first_count: number;
}

/**
 * Holds classes against nonces. `known` are those of instances that served in earlier loads of the same daemon; the
 * nonces of these calls are added to it.
 *
 * The answers may come in any order: two calls of one instance, one right behind the other, can reach their clients
 * the wrong way round. So a cold call is contradicted by a call of the same instance that was answered before the cold
 * one was even sent, and by a second cold one.
 */
export function checkClasses(calls: readonly Call[], known: Set<string>): ClassReport {
  const contradictions: Record<string, number> = {};
  const note = (reason: string, count: number): void => {
    if (count > 0) contradictions[reason] = (contradictions[reason] ?? 0) + count;
  };
  let warm_first_count = 0;
  for (const [nonce, served] of Map.groupBy(calls.filter(isAnswered), (call) => call.record.instance_nonce)) {
    if (nonce === "") note("no instance_nonce", served.length);
    const isKnown = known.has(nonce);
    const served_by_ms = isKnown ? Number.NEGATIVE_INFINITY : Math.min(...served.map((call) => call.done_ms));
    const cold = served.filter((call) => call.record.cold_start);
    if (cold.length === 0 && !isKnown) warm_first_count += 1;
    const late_count = cold.filter((call) => served_by_ms < call.sent_ms).length;
    note("cold_start of an instance that had served", Math.max(late_count, cold.length - 1));
    const owners = new Set(served.map((call) => `${call.target}@${call.record.version}`));
    note("an instance served two functions or versions", owners.size - 1);
    known.add(nonce);
  }
  return { contradictions, warm_first_count };
}

/** Latencies of loads in milliseconds, with the rate and the generator's share of a core in each round. */
export class LoadSamples extends Samples {
  readonly rates: number[] = [];
  readonly #generator_cpu_percents: number[] = [];

  /** Adds a round and returns the classes of its calls. `known`: nonces of the instances that served before. */
  add(result: LoadResult, known: Set<string>): ClassReport {
    this.rounds.push(latencies(measuredCalls(result)));
    this.rates.push(ratePerSecond(result));
    this.#generator_cpu_percents.push(result.generator_cpu_percent);
    this.failAll(failureCounts(result));
    const report = checkClasses(result.calls, known);
    this.failAll(report.contradictions);
    return report;
  }

  get note(): string {
    const generator = `generator ${median(this.#generator_cpu_percents).toFixed(0)} % of a core`;
    return `${median(this.rates).toFixed(0)} a second, ${generator}`;
  }
}

/** The bar on the ratio of two rates. */
export function rateBar(label: string, subject: LoadSamples, peer: LoadSamples, bar: number): Bar {
  const rounds = subject.rates.map((rate, i) => rate / (peer.rates[i] ?? Number.NaN));
  return { label, value: median(subject.rates) / median(peer.rates), bar, compare: "at least", unit: "×", rounds };
}
