/**
 * What a list of samples says. Percentiles are nearest-rank: each one is a sample that was measured, never a value
 * between two. Nothing is trimmed: the worst sample is `max`, and a failed call is counted beside the samples.
 */

export interface Summary {
  readonly count: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  /** Of fewer than 1,000 samples it is the maximum. */
  readonly p99_9: number;
  readonly max: number;
}

/** Nearest-rank percentile of ascending samples; NaN when there is none. */
export function percentile(ascending: readonly number[], percent: number): number {
  // Multiplied before it is divided: 99.9 % of 1,000 is the 999th, not one more by a rounding error.
  const rank = Math.max(1, Math.ceil((percent * ascending.length) / 100));
  return ascending[rank - 1] ?? Number.NaN;
}

export function summarize(samples: readonly number[]): Summary {
  const ascending = [...samples].sort((a, b) => a - b);
  return {
    count: ascending.length,
    p50: percentile(ascending, 50),
    p90: percentile(ascending, 90),
    p99: percentile(ascending, 99),
    p99_9: percentile(ascending, 99.9),
    max: percentile(ascending, 100),
  };
}

/** Median by nearest rank, for figures of which there is one a round. */
export function median(values: readonly number[]): number {
  return percentile(
    [...values].sort((a, b) => a - b),
    50,
  );
}

/** Uniform numbers in [0, 1) that repeat with the seed (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Arrival times of a Poisson process in milliseconds from its start, ascending, all below `length_ms`. */
export function poissonArrivals(rate_per_second: number, length_ms: number, seed: number): Float64Array {
  const random = seededRandom(seed);
  const arrivals: number[] = [];
  for (let at_ms = 0; ; ) {
    at_ms += (-Math.log(1 - random()) * 1000) / rate_per_second;
    if (at_ms >= length_ms) return Float64Array.from(arrivals);
    arrivals.push(at_ms);
  }
}
