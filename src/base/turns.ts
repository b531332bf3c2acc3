/**
 * Work that must not overlap, by key: each piece begins when all earlier ones of its key have ended, however they
 * ended. As many wait as requests are under way; a key without work takes no memory.
 */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Whether work of this key runs or waits. */
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
