/**
 * Runs a piece of work for many callers: one run at a time, and the calls that come during a run share the next one.
 * A run that failed rejects for its own callers alone.
 */
export class Batching<Item> {
  readonly #run: (items: readonly Item[]) => Promise<void>;
  #items: Item[] = [];
  #running: Promise<void> = Promise.resolve();
  #waiting: Promise<void> | null = null;

  constructor(run: (items: readonly Item[]) => Promise<void>) {
    this.#run = run;
  }

  /** Resolves when a run that began after this call is over. */
  add(item: Item): Promise<void> {
    this.#items.push(item);
    this.#waiting ??= this.#running
      .catch(() => {})
      .then(() => {
        const items = this.#items;
        this.#items = [];
        this.#waiting = null;
        this.#running = this.#run(items);
        return this.#running;
      });
    return this.#waiting;
  }

  /** Resolves when no run is under way or wanted, whatever became of them. */
  async idle(): Promise<void> {
    await (this.#waiting ?? this.#running).catch(() => {});
  }
}
