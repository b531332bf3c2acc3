/**
 * Timers of the scheduler as data: a binary heap by due time. Cancelling marks the timer and leaves it in the heap
 * until it surfaces, because nearly every queue deadline is cancelled long before it is due; when more than half of
 * the heap is dead it is rebuilt, so it never holds more than twice the live timers (and 64).
 */
const REBUILD_MIN = 64;

export interface Timer<T> {
  readonly due_ms: number;
  readonly subject: T;
  is_live: boolean;
}

export class Timers<T> {
  #heap: Timer<T>[] = [];
  #liveCount = 0;

  get live_count(): number {
    return this.#liveCount;
  }

  /** Live and dead entries. */
  get held_count(): number {
    return this.#heap.length;
  }

  add(due_ms: number, subject: T): Timer<T> {
    const timer: Timer<T> = { due_ms, subject, is_live: true };
    this.#heap.push(timer);
    this.#rise(this.#heap.length - 1);
    this.#liveCount += 1;
    return timer;
  }

  cancel(timer: Timer<T> | null): void {
    if (timer === null || !timer.is_live) return;
    timer.is_live = false;
    this.#liveCount -= 1;
    if (this.#heap.length > REBUILD_MIN && this.#heap.length > 2 * this.#liveCount) this.#rebuild();
  }

  /** Returns when the next live timer is due; Infinity if there is none. */
  nextDue(): number {
    this.#dropDead();
    return this.#heap[0]?.due_ms ?? Number.POSITIVE_INFINITY;
  }

  /** Takes the next timer that is due at `now_ms`. */
  takeDue(now_ms: number): Timer<T> | null {
    this.#dropDead();
    const top = this.#heap[0];
    if (top === undefined || top.due_ms > now_ms) return null;
    this.#removeTop();
    top.is_live = false;
    this.#liveCount -= 1;
    return top;
  }

  #dropDead(): void {
    while (this.#heap[0]?.is_live === false) this.#removeTop();
  }

  #removeTop(): void {
    const last = this.#heap.pop();
    if (last === undefined || this.#heap.length === 0) return;
    this.#heap[0] = last;
    this.#sink(0);
  }

  #rebuild(): void {
    this.#heap = this.#heap.filter((timer) => timer.is_live);
    for (let i = (this.#heap.length >> 1) - 1; i >= 0; i--) this.#sink(i);
  }

  #rise(index: number): void {
    let i = index;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!this.#isBefore(i, parent)) return;
      this.#swap(i, parent);
      i = parent;
    }
  }

  #sink(index: number): void {
    let i = index;
    for (;;) {
      let least = i;
      if (this.#isBefore(2 * i + 1, least)) least = 2 * i + 1;
      if (this.#isBefore(2 * i + 2, least)) least = 2 * i + 2;
      if (least === i) return;
      this.#swap(i, least);
      i = least;
    }
  }

  #isBefore(a: number, b: number): boolean {
    const left = this.#heap[a];
    const right = this.#heap[b];
    return left !== undefined && right !== undefined && left.due_ms < right.due_ms;
  }

  #swap(a: number, b: number): void {
    const left = this.#heap[a];
    const right = this.#heap[b];
    if (left === undefined || right === undefined) return;
    this.#heap[a] = right;
    this.#heap[b] = left;
  }
}
