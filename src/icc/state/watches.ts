/**
 * Watches of a tenant's keys. A watch holds keys, no values: it reads the value when its client takes the next entry. A slow
 * client therefore gets the last of many changes of a key, and the memory of a watch is bounded by its keys.
 */
import { LIMITS } from "../../base/limits.ts";
import type { StateNews, StateReader } from "./entries.ts";

/** Receives a changed key with the version of the change; null: unknown. */
type Listener = (key: string, version: number | null) => void;

export class StateWatches {
  /** By tenant. */
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #ending = new AbortController();

  /** Aborted when the daemon stops. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  add(tenant_id: string, listener: Listener): () => void {
    const known = this.#listeners.get(tenant_id) ?? new Set();
    this.#listeners.set(tenant_id, known.add(listener));
    return () => {
      known.delete(listener);
      if (known.size === 0 && this.#listeners.get(tenant_id) === known) this.#listeners.delete(tenant_id);
    };
  }

  tell(tenant_id: string, key: string, version: number): void {
    for (const listener of this.#listeners.get(tenant_id) ?? []) listener(key, version);
  }

  /** Tells the watchers of all tenants of a key that is unique among them. */
  tellAll(key: string): void {
    for (const listeners of this.#listeners.values()) for (const listener of listeners) listener(key, null);
  }

  close(): void {
    this.#ending.abort();
  }
}

interface StateWatchOptions {
  readonly states: StateReader;
  readonly watches: StateWatches;
  readonly signal: AbortSignal;
}

export class StateWatch implements AsyncIterableIterator<StateNews> {
  readonly #tenant_id: string;
  readonly #options: StateWatchOptions;
  readonly #news: AsyncGenerator<StateNews, void>;
  readonly #unwatch: () => void;
  /** Keys that changed since they were sent, with the version of the last change. */
  readonly #changed = new Map<string, number | null>();
  /** Versions that were sent. */
  readonly #sent = new Map<string, number>();
  readonly #overflow = new AbortController();
  readonly #ended: AbortSignal;
  #wake: () => void = () => {};

  constructor(tenant_id: string, prefix: string, options: StateWatchOptions) {
    this.#tenant_id = tenant_id;
    this.#options = options;
    this.#ended = AbortSignal.any([options.signal, options.watches.ending, this.#overflow.signal]);
    this.#unwatch = options.watches.add(tenant_id, (key, version) => {
      if (!key.startsWith(prefix)) return;
      this.#changed.set(key, version);
      if (this.#changed.size > LIMITS.state_watch_changes_max) this.#overflow.abort();
      this.#wake();
    });
    this.#ended.addEventListener("abort", this.#onEnd, { once: true });
    this.#news = this.#all(prefix);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<StateNews, void>> {
    return this.#news.next();
  }

  return(): Promise<IteratorResult<StateNews, void>> {
    this.#onEnd();
    return this.#news.return();
  }

  readonly #onEnd = (): void => {
    this.#unwatch();
    this.#wake();
  };

  async *#all(prefix: string): AsyncGenerator<StateNews, void> {
    try {
      let after: string | null = "";
      while (after !== null && !this.#ended.aborted) {
        const entries_max = LIMITS.entries_read_default;
        const page: Awaited<ReturnType<StateReader["list"]>> = await this.#options.states.list(this.#tenant_id, {
          ...{ prefix, after, entries_max },
        });
        for (const entry of page.entries) {
          this.#sent.set(entry.key, entry.version);
          yield entry;
        }
        after = page.next_after;
      }
      yield* this.#changes();
    } finally {
      this.#onEnd();
    }
  }

  async *#changes(): AsyncGenerator<StateNews, void> {
    while (!this.#ended.aborted) {
      const [next] = this.#changed;
      if (next === undefined) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
          if (this.#ended.aborted || this.#changed.size > 0) resolve();
        });
        continue;
      }
      const [key, version] = next;
      this.#changed.delete(key);
      const found = await this.#options.states.find(this.#tenant_id, key);
      const sent = this.#sent.get(key);
      if (found === null) {
        // Nobody was told of it.
        if (sent === undefined) continue;
        this.#sent.delete(key);
        yield { key, version: version ?? sent, is_deleted: true };
      } else if (sent === undefined || found.version > sent) {
        this.#sent.set(key, found.version);
        yield found;
      }
    }
  }
}
