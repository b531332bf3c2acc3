/** Concurrency within bounds: several pieces of work at a time, one at a time for each key, at most so many in all. */
import type { AppError } from "./errors.ts";

/** Runs `work` for each item, at most `at_once` at a time. Rejects with the first failure, after all pieces that began. */
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

/** Like `Promise.all`, but rejects only when all have settled: no work continues while a failure is cleaned up. */
export async function together<const T extends readonly Promise<unknown>[]>(
  ...all: T
): Promise<{ -readonly [I in keyof T]: Awaited<T[I]> }> {
  await Promise.allSettled(all);
  return Promise.all(all);
}

/** Keeps work that is under way, to wait for it at an end. */
export class Underway {
  readonly #settling = new Set<Promise<unknown>>();

  /** Returns `work`: its failure is the caller's. */
  add<Result>(work: Promise<Result>): Promise<Result> {
    const settling: Promise<unknown> = work.catch(() => {}).then(() => this.#settling.delete(settling));
    this.#settling.add(settling);
    return work;
  }

  /** Resolves when all work that was added so far has settled. */
  async settled(): Promise<void> {
    await Promise.all(this.#settling);
  }
}

/**
 * Runs work of one key one piece after the other: each begins when all earlier pieces of its key have settled. As many
 * wait as requests are under way. A key without work takes no memory.
 */
export class KeyedMutex {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Returns true while work of this key runs or waits. */
  has(key: string): boolean {
    return this.#last.has(key);
  }

  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const turn = before.then(work, work);
    this.#last.set(key, turn);
    try {
      return await turn;
    } finally {
      if (this.#last.get(key) === turn) this.#last.delete(key);
    }
  }
}

/** Runs at most `at_once` pieces of work at a time, in the order of their arrival. The queue has a bound. */
export class Semaphore {
  readonly #at_once: number;
  readonly #waiting_max: number;
  readonly #full: () => AppError;
  readonly #waiting: (() => void)[] = [];
  #running_count = 0;

  /** `full` makes the refusal for work that comes while `waiting_max` wait. */
  constructor(at_once: number, waiting_max: number, full: () => AppError) {
    this.#at_once = at_once;
    this.#waiting_max = waiting_max;
    this.#full = full;
  }

  /** True while nothing runs. */
  get isIdle(): boolean {
    return this.#running_count === 0;
  }

  /** Throws the refusal if work that came now would be refused. */
  check(): void {
    if (this.#running_count >= this.#at_once && this.#waiting.length >= this.#waiting_max) throw this.#full();
  }

  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running_count >= this.#at_once) {
      if (this.#waiting.length >= this.#waiting_max) throw this.#full();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else {
      this.#running_count++;
    }
    try {
      return await work();
    } finally {
      // The place goes to the work that waits longest.
      const next = this.#waiting.shift();
      if (next === undefined) this.#running_count--;
      else next();
    }
  }
}
