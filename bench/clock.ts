/**
 * The bench's clock and its two ways to wait. All times of a measurement are on one clock, so that what the load
 * generator saw and what the bench did to the daemon meanwhile can be laid beside each other.
 */

/**
 * Milliseconds of the machine's monotonic clock (CLOCK_MONOTONIC). All processes and threads of a machine share it;
 * `performance.now()` begins anew in each process.
 */
export function machineMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1_000 + nanoseconds / 1e6;
}

export function pause(delay_ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delay_ms));
}

/** Resolves at that moment of the machine's clock, at once when it has passed. */
export function pauseUntil(at_ms: number): Promise<void> {
  return pause(Math.max(0, at_ms - machineMs()));
}

/** Asks every `poll_ms` until the answer is not null. Throws after `deadline_ms`, with what `what` says then. */
export async function until<T>(
  ask: () => Promise<T | null>,
  { poll_ms, deadline_ms, what }: { poll_ms: number; deadline_ms: number; what: () => string },
): Promise<T> {
  const end_ms = machineMs() + deadline_ms;
  for (;;) {
    const answer = await ask();
    if (answer !== null) return answer;
    if (machineMs() > end_ms) throw new Error(`not within ${deadline_ms} ms: ${what()}`);
    await pause(poll_ms);
  }
}
