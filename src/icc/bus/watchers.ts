/** Watchers of inboxes, and the timers that call them when a held or delayed entry is due. */
import type { CancelTimer, Clock } from "../../base/clock.ts";
import type { InboxKey } from "./port.ts";

interface Watched {
  readonly listeners: Set<() => void>;
  cancel: CancelTimer;
  due_ms: number;
}

/** The longest delay of a timer; a later time is looked at again then. */
const TIMER_MAX_MS = 3_600_000;

export class Watchers {
  readonly #clock: Clock;
  readonly #watched = new Map<string, Watched>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(key: InboxKey, onDue: () => void): () => void {
    const name = `${key.tenant_id}\n${key.inbox}`;
    let watched = this.#watched.get(name);
    if (watched === undefined) {
      watched = { listeners: new Set(), cancel: () => {}, due_ms: Number.POSITIVE_INFINITY };
      this.#watched.set(name, watched);
    }
    const { listeners } = watched;
    // The same function may watch twice, and each ends its own.
    const listener = () => onDue();
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      if (listeners.size > 0 || this.#watched.get(name)?.listeners !== listeners) return;
      this.#watched.get(name)?.cancel();
      this.#watched.delete(name);
    };
  }

  has(key: InboxKey): boolean {
    return this.#watched.has(`${key.tenant_id}\n${key.inbox}`);
  }

  /** Something may be due now. */
  wake(key: InboxKey): void {
    for (const listener of [...(this.#watched.get(`${key.tenant_id}\n${key.inbox}`)?.listeners ?? [])]) listener();
  }

  wakeAll(): void {
    for (const { listeners } of [...this.#watched.values()]) for (const listener of [...listeners]) listener();
  }

  /** Something will be due at a time, in epoch milliseconds. */
  wakeAt(key: InboxKey, due_ms: number): void {
    const watched = this.#watched.get(`${key.tenant_id}\n${key.inbox}`);
    if (watched === undefined || watched.due_ms <= due_ms) return;
    watched.cancel();
    watched.due_ms = due_ms;
    const delay_ms = Math.min(Math.max(due_ms - this.#clock.epochMs(), 0) + 1, TIMER_MAX_MS);
    watched.cancel = this.#clock.after(delay_ms, () => {
      watched.due_ms = Number.POSITIVE_INFINITY;
      this.wake(key);
    });
  }

  close(): void {
    for (const { cancel } of this.#watched.values()) cancel();
    this.#watched.clear();
  }
}
