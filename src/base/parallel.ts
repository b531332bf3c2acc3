/** Several things at once, within bounds and without leftovers: what both functions start has ended when they settle. */

/** Runs `work` for each item, at most `at_once` of them at a time. Rejects with the first failure, after all that began. */
export async function each<T>(items: Iterable<T>, at_once: number, work: (item: T) => Promise<void>): Promise<void> {
  // One iterator for all lanes: each takes the next item that no other has taken.
  const left = items[Symbol.iterator]();
  const lane = async () => {
    for (let next = left.next(); next.done !== true; next = left.next()) await work(next.value);
  };
  const lanes = Array.from({ length: at_once }, lane);
  await Promise.allSettled(lanes);
  await Promise.all(lanes);
}

/** Like `Promise.all`, but rejects only when all have settled: nothing goes on while a failure is cleaned up. */
export async function together<const T extends readonly Promise<unknown>[]>(
  ...all: T
): Promise<{ -readonly [I in keyof T]: Awaited<T[I]> }> {
  await Promise.allSettled(all);
  return Promise.all(all);
}
